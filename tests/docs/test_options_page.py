"""The tables of options in the documentation are those that the declarations give."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from haptera.access.config.file import SECTIONS
from haptera.access.config.schema import (
    KeyReference,
    McpServerEntry,
    ModelEntry,
    PriceEntry,
    ProviderEntry,
    RatesEntry,
    TierEntry,
)
from haptera.agent.agent_options import AGENT
from haptera.model.agent_defaults import AgentDefaults
from haptera.model.settings import ModelStep, PoolSettings, RuntimeSettings, Settings
from haptera.options.declarations import declared_fields
from scripts.write_option_tables import PAGES, TABLES, rewritten

OF_THE_FILE: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "defaults": (Settings, AgentDefaults),
    "runtime": (RuntimeSettings, PoolSettings),
    "providers": (ProviderEntry,),
    "models": (ModelEntry,),
    "fallbacks": (ModelStep,),
    "prices": (PriceEntry,),
    "mcpServers": (McpServerEntry,),
}
"""What the tables of the configuration file are read as."""
TABLED_AS_OPTIONS = {Settings, AgentDefaults}
"""Those whose fields are options of an agent, which have tables of their own."""
TABLED_WITH = {TierEntry: PriceEntry, RatesEntry: PriceEntry}
"""Those whose fields are in the table of another."""
NOT_WRITTEN = {(ModelEntry, "settings")}
"""Fields that no user writes under their names."""


def structs_in(kind: object) -> Iterator[type[msgspec.Struct]]:
    """Yield the structs that values of a type may contain, at any depth."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for declared in declared_fields(kind).values():
            yield from structs_in(declared.kind)
    for argument in get_args(kind):
        yield from structs_in(argument)


def declared_structs() -> set[type[msgspec.Struct]]:
    """Return every struct that a user fills, in a program or in the file."""
    of_options = {
        struct
        for item in AGENT.options.values()
        if item.name in {*Settings.__struct_fields__, *AgentDefaults.__struct_fields__, "runtime"}
        for struct in structs_in(item.kind)
    }
    of_the_file = {
        struct for kinds in OF_THE_FILE.values() for kind in kinds for struct in structs_in(kind)
    }
    return of_options | of_the_file


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_of_a_page_are_those_of_the_declarations(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert rewritten(text) == text, "run `make docs`"


def test_every_table_has_its_place() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert set(re.findall(r"<!-- table: (.+?) -->", text)) == set(TABLES)


def test_a_table_that_was_changed_by_hand_is_noticed() -> None:
    text = PAGES[0].read_text(encoding="utf-8")
    assert rewritten(text.replace("| `seed` |", "| `sede` |")) == text


def test_every_table_of_the_file_is_known_here() -> None:
    assert set(OF_THE_FILE) == set(SECTIONS)


def test_everything_that_a_user_fills_has_a_table() -> None:
    found = declared_structs()
    assert KeyReference in found
    names = {TABLED_WITH.get(struct, struct).__name__ for struct in found - TABLED_AS_OPTIONS}
    assert names - set(TABLES) == set()


def test_every_field_that_a_user_fills_has_a_sentence() -> None:
    silent = {
        (struct, name)
        for struct in declared_structs()
        for name, declared in declared_fields(struct).items()
        if not declared.option.sentence
    }
    assert silent == NOT_WRITTEN
