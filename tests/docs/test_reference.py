"""The API reference has every public name and is built without a warning."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import haptera.server
import haptera.sync
import haptera.testing
from haptera import building_blocks, hooks
from haptera.testing import contracts

_ROOT = Path(__file__).parents[2]
_MODULES = (
    haptera,
    haptera.sync,
    building_blocks,
    hooks,
    haptera.server,
    haptera.testing,
    contracts,
)
_PUBLIC = {f"{module.__name__}.{name}" for module in _MODULES for name in module.__all__}


def test_every_public_name_is_in_the_reference_once() -> None:
    pages = "\n".join(path.read_text() for path in (_ROOT / "docs/reference").glob("*.md"))
    named = re.findall(r"^::: (\S+)$", pages, re.MULTILINE)
    assert sorted(named) == sorted(_PUBLIC)


@pytest.mark.sweep
def test_the_reference_is_built_without_warnings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    pages = "".join(path.read_text() for path in (tmp_path / "reference").glob("*.html"))
    assert [name for name in _PUBLIC if f'id="{name}"' not in pages] == []
    for sentence in ("The model to use, as", "The type of the answer, which"):
        assert sentence in pages
