"""Pages and examples import only from modules whose names are public."""

import re
from importlib import import_module
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
PUBLIC = (
    "haptera",
    "haptera.administration",
    "haptera.building_blocks",
    "haptera.events",
    "haptera.exchange",
    "haptera.hooks",
    "haptera.server",
    "haptera.settings",
    "haptera.stores",
    "haptera.sync",
    "haptera.telemetry",
    "haptera.testing",
    "haptera.testing.contracts",
    "haptera.testing.store_conformance",
    "haptera.tools",
    "haptera.tools.mcp",
)
_PAGES = [
    path
    for pattern in ("README.md", "docs/**/*.md", "examples/*.py")
    for path in sorted(_ROOT.glob(pattern))
    if "decisions" not in path.parts
]
_IMPORT = re.compile(r"^\s*from (haptera[\w.]*) import (\([^)]*\)|[^\n]+)", re.MULTILINE)


@pytest.mark.parametrize("path", _PAGES, ids=lambda path: path.relative_to(_ROOT).as_posix())
def test_a_page_imports_only_public_names(path: Path) -> None:
    for module, names in _IMPORT.findall(path.read_text(encoding="utf-8")):
        assert module in PUBLIC
        public = set(import_module(module).__all__)
        imported = {name.split(" as ")[0].strip() for name in names.strip("()").split(",")}
        assert imported - {""} <= public


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_can_be_imported(module: str) -> None:
    imported = import_module(module)
    assert [name for name in imported.__all__ if not hasattr(imported, name)] == []
