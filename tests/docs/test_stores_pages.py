"""Every store string is on the pages, in the sentence of its option and in the tests of stores."""

import re
from pathlib import Path

from holdfast.assembly.composition import STORES
from holdfast.vocabulary.agent_defaults import AgentDefaults
from holdfast.vocabulary.option_declarations import declared_fields
from tests.stores.store_factories import STORE_FACTORIES

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_of_stores_has_a_row_for_every_store() -> None:
    page = (DOCS / "stores.md").read_text(encoding="utf-8")
    table = page.partition("| string | for | survives |\n")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE) == list(STORES)


def test_the_page_of_durability_names_every_store() -> None:
    page = (DOCS / "durability.md").read_text(encoding="utf-8")
    sentence = re.search(r"^The store is .+?\. ", page, re.MULTILINE)
    assert sentence is not None
    assert re.findall(r"`\"(.+?)\"`", sentence.group()) == list(STORES)


def test_the_option_names_every_store() -> None:
    sentence = declared_fields(AgentDefaults)["store"].option.sentence
    assert re.findall(r"`(.+?)`", sentence) == list(STORES)


def test_every_store_is_run_through_the_conformance_checks() -> None:
    # PostgreSQL has a file of its own: tests/stores/postgresql/test_conformance.py.
    kinds = [*STORE_FACTORIES, "postgresql"]
    assert kinds == [string.partition(":")[0] for string in STORES]
