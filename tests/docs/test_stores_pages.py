"""Every store string is on the pages, in the sentence of its option and in the tests of stores."""

import re
from pathlib import Path

import pytest

from haptera.access.assembly.store_strings import STORES
from haptera.model.agent_defaults import AgentDefaults
from haptera.options.declarations import declared_fields
from haptera.testing import says
from tests.scripted_agents import make_agent
from tests.stores.store_factories import DURABLE, STORE_FACTORIES, open_store, store_string
from tests.stores.worker_process import open_impatient

DOCS = Path(__file__).resolve().parents[2] / "docs"
POSTGRESQL = "postgresql"
"""Has tests of its own: tests/stores/postgresql."""


def _names_every_store(found: list[str], place: str) -> None:
    assert found == list(STORES), (
        f"{place} names {', '.join(found)}; it has to name {', '.join(STORES)}, as STORES in "
        "src/haptera/access/assembly/store_strings.py does, in that order"
    )


def test_the_page_of_stores_has_a_row_for_every_store() -> None:
    page = (DOCS / "stores.md").read_text(encoding="utf-8")
    table = page.partition("| string | for | survives |\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)
    _names_every_store(rows, "the first table of docs/stores.md")


async def test_the_page_has_every_file_of_a_jsonl_folder(tmp_path: Path) -> None:
    page = (DOCS / "stores.md").read_text(encoding="utf-8")
    block = page.partition("## `jsonl:DIR`\n```\n")[2].partition("```")[0]
    listed = {line.split()[0].partition("/")[0] for line in block.splitlines()}
    agent, _ = make_agent([says("hello")], store=f"jsonl:{tmp_path}")
    async with agent, agent.session("named") as session:
        await session.chat("go")
        await session.note("a note")
        remote = await agent.remote("named")
        await remote.send("later")
        made = {path.name for path in tmp_path.iterdir()}
    assert {"sessions", "index.lock", "leases", "inbox"} <= made <= listed


def test_the_page_of_durability_names_every_store() -> None:
    page = (DOCS / "durability.md").read_text(encoding="utf-8")
    sentence = re.search(r"^The store is .+?\. ", page, re.MULTILINE)
    assert sentence is not None, "docs/durability.md has no line that begins with 'The store is'"
    found = re.findall(r"`\"(.+?)\"`", sentence.group())
    _names_every_store(found, "the sentence 'The store is …' of docs/durability.md")


def test_the_table_of_crashes_is_about_every_durable_store() -> None:
    page = (DOCS / "durability.md").read_text(encoding="utf-8")
    head = f"| event | kept with memory | kept with {', '.join(DURABLE)} |"
    assert head in page.splitlines(), (
        f"the table of crashes in docs/durability.md has to begin with {head!r}: "
        "tests/kernel/session/test_what_survives.py runs its rows on the kinds of DURABLE_KINDS in "
        "tests/stores/durable_kinds.py"
    )


def test_the_option_names_every_store() -> None:
    sentence = declared_fields(AgentDefaults)["store"].option.sentence
    place = "the sentence of `store` in src/haptera/model/agent_defaults.py"
    _names_every_store(re.findall(r"`(.+?)`", sentence), place)


def test_every_store_is_run_through_the_conformance_checks() -> None:
    stores = {string.partition(":")[0] for string in STORES}
    kinds = {*STORE_FACTORIES, POSTGRESQL}
    untested = sorted(stores - kinds)
    assert untested == [], (
        f"no test opens a store of {untested}: write a DurableKind for each and add it to "
        "DURABLE_KINDS in tests/stores/durable_kinds.py"
    )
    nameless = sorted(kinds - stores)
    assert nameless == [], (
        f"tests open stores of {nameless}, which no store string names: add each to STORES in "
        "src/haptera/access/assembly/store_strings.py"
    )


def test_every_store_but_memory_is_run_through_the_tests_of_crashes_and_damage() -> None:
    forgotten = sorted(STORE_FACTORIES.keys() - {"memory", *DURABLE})
    assert forgotten == [], (
        f"{forgotten} are in STORE_FACTORIES and not in DURABLE: instead of a factory, write a "
        "DurableKind for each and add it to DURABLE_KINDS in tests/stores/durable_kinds.py"
    )


def test_a_store_that_the_tests_do_not_know_is_taken_for_no_other(tmp_path: Path) -> None:
    for use in (open_store, open_impatient, store_string):
        with pytest.raises(
            LookupError, match=r"'unheard-of' store: .+ tests/stores/durable_kinds\.py"
        ):
            use("unheard-of", tmp_path)
