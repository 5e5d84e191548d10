"""Every example of the README, the guides and the folder of examples passes both type checkers."""

import re
import textwrap
from pathlib import Path

import pytest

from tests.types.checkers import CHECKERS, ROOT

pytestmark = pytest.mark.sweep


def _examples() -> dict[str, str]:
    """Return the blocks of code of all pages as modules of their own, and the examples."""
    found = {path.name: path.read_text() for path in (ROOT / "examples").glob("*.py")}
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
        for place, block in enumerate(blocks):
            name = re.sub(r"\W", "_", f"page_{page.stem}_{place}")
            source = textwrap.indent(block, "    ")
            found[f"{name}.py"] = f"async def run() -> None:\n{source}"
    return found


@pytest.mark.parametrize("checker", CHECKERS)
def test_the_examples_pass_the_type_checker(checker: str, tmp_path: Path) -> None:
    examples = _examples()
    said = CHECKERS[checker](tmp_path, examples)
    wrong = [f"{each.file}:{each.line}: {each.text}" for each in said if each.is_error]
    assert wrong == []
    assert len(examples) > 30
