"""Each row of the threat model in SECURITY.md names tests that exist."""

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_SECTION = (_ROOT / "SECURITY.md").read_text(encoding="utf-8").split("## Threat model\n")[1]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in _SECTION.split("\n## ")[0].split("|---", 1)[1].splitlines()[1:]
]


def test_the_table_has_rows() -> None:
    assert len(ROWS) >= 20


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_row_names_its_test(row: list[str]) -> None:
    assert len(row) == 5
    assert all(row)
    for cell in row[-1].split(", "):
        named = re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", cell)
        assert named is not None
        source = (_ROOT / named[1]).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {named[2]}\(", source, re.MULTILINE)
