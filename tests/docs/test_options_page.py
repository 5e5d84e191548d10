"""The tables of options in the documentation are those that the declarations give."""

import re
from pathlib import Path

import pytest

from scripts.write_option_tables import PAGES, TABLES, rewritten


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_of_a_page_are_those_of_the_declarations(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert rewritten(text) == text, "run `make docs`"


def test_every_table_has_its_place() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert sorted(re.findall(r"<!-- table: (.+?) -->", text)) == sorted(TABLES)


def test_a_table_that_was_changed_by_hand_is_noticed() -> None:
    text = PAGES[0].read_text(encoding="utf-8")
    assert rewritten(text.replace("| `seed` |", "| `sede` |")) == text
