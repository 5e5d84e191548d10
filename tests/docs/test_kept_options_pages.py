"""The pages name the options that a log keeps, and those that are lost with their process."""

import re
from pathlib import Path

from haptera.agent.agent_options import CONFIGURE
from haptera.agent.query_options import QUERY, SendOptions
from haptera.model.messages import KeptOptions

_DOCS = Path(__file__).parents[2] / "docs"
_KEPT = set(KeptOptions.__struct_fields__)
_OF_QUERIES = set(QUERY.options) - set(CONFIGURE.options)


def named_between(page: str, start: str, end: str) -> list[str]:
    """Return the names in code type between two texts of a page."""
    text = (_DOCS / page).read_text(encoding="utf-8")
    assert text.count(start) == 1, f"docs/{page} says {start!r} once"
    return re.findall(r"`(\w+)`", text.split(start)[1].split(end)[0])


def test_the_page_of_entries_names_every_option_that_a_log_keeps() -> None:
    start = "have the options of the query that can be stored:"
    assert sorted(named_between("entries.md", start, "\n")) == sorted(_KEPT)


def test_the_page_of_sessions_names_every_option_that_a_waiting_prompt_keeps() -> None:
    kept = named_between("sessions.md", "options that can be stored across a restart:", ". ")
    # Settings stand there by the first of them, and a compaction never waits.
    wanted = (_KEPT - {"settings", "compact"}) | set(SendOptions.__struct_fields__) | {"model"}
    assert sorted(kept) == sorted(wanted)


def test_the_page_of_sessions_names_every_option_that_a_waiting_prompt_loses() -> None:
    lost = named_between("sessions.md", "when the process that sent the prompt ends:", ". ")
    assert sorted(lost) == sorted(_OF_QUERIES - _KEPT - set(SendOptions.__struct_fields__))
