"""The tables of dialects in the documentation say what the dialects and the recordings say."""

import re
from pathlib import Path

import pytest

from haptera.providers.vendors import VENDORS, Vendor
from haptera.providers.wire.chat_completions.dialects import DIALECTS as CHAT
from haptera.providers.wire.chat_completions.dialects import Dialect
from haptera.providers.wire.openai_responses.dialects import DIALECTS as RESPONSES
from haptera.providers.wire.openai_responses.dialects import ResponsesDialect
from tests.docs.test_providers_page import DOCS, rows_of

FOLDERS = {"compatible": "compat", "plain": "compat"}
"""Dialects whose recordings have another name."""

# Chat Completions.

HEADER = (
    "| dialect | field for the token limit | field that requests thinking "
    "| reasoning is sent back as | structured output | recorded |"
)
THINKING_FIELDS: dict[str, set[str]] = {
    "none": set(),
    "reasoning_effort": {"reasoning_effort"},
    "reasoning": {"reasoning.effort"},
    "reasoning_switch": {"reasoning.enabled"},
    "thinking_type": {"thinking.type", "reasoning_effort"},
    "template": {"chat_template_kwargs"},
}
REPLAY = {
    "never": "never",
    "as_received": "as it came",
    "reasoning_content": "`reasoning_content`",
    "reasoning": "`reasoning`",
    "reasoning_details": "`reasoning_details`",
    "thinking_parts": "`thinking` items",
}
CHAT_ROWS = rows_of("chat-completions.md", HEADER)


def output_of(dialect: Dialect) -> str:
    if dialect.output == "json_object":
        return "an object, and words"
    return "schema, strict where it qualifies" if dialect.strict_output else "schema"


def is_recorded(folder: str, wire: Path) -> bool:
    return any((wire / "open" / folder).glob("*/meta.json"))


def test_the_page_of_chat_completions_has_every_dialect() -> None:
    assert list(CHAT_ROWS) == list(CHAT)


@pytest.mark.parametrize("dialect", CHAT.values(), ids=lambda each: each.name)
def test_the_page_of_chat_completions_says_how_a_dialect_differs(dialect: Dialect) -> None:
    limit, thinking, replay, output, _ = CHAT_ROWS[dialect.name]
    assert limit == f"`{dialect.max_tokens_field}`"
    fields = set().union(*THINKING_FIELDS.values()) & set(re.findall(r"`([^`]+)`", thinking))
    assert fields == set().union(*(THINKING_FIELDS[rule.style] for rule in dialect.thinking))
    everywhere = ", on every message" if dialect.messages.reasoning_on_every_message else ""
    assert replay == REPLAY[dialect.messages.reasoning_replay] + everywhere
    assert output == output_of(dialect)


def test_the_page_of_chat_completions_says_what_is_recorded(wire: Path) -> None:
    for name, cells in CHAT_ROWS.items():
        recorded = is_recorded(f"{FOLDERS.get(name, name)}-chat", wire)
        assert cells[-1] == ("yes" if recorded else "no"), name


# Responses.


def columns() -> dict[str, dict[str, str]]:
    """Return the cells of the table of Responses, by vendor and row."""
    lines = (DOCS / "provider-options.md").read_text(encoding="utf-8").splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("| | `openai` |"))
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines[start : lines.index("", start)]
    ]
    return {
        vendor.strip("`"): {row[0]: row[place] for row in rows}
        for place, vendor in enumerate(head)
        if place
    }


COLUMNS = columns()
VENDORS_OF_RESPONSES = [row for row in VENDORS.values() if row.protocol == "responses"]


def thinking_of(dialect: ResponsesDialect) -> set[str]:
    """Return what may be said of how models are asked to think."""
    if not dialect.reasoning:
        return {"not asked for"}
    if len(dialect.reasoning) > 1:
        return {"by model", "by the deployment's name"}
    return {", ".join(dict.fromkeys(dialect.reasoning[0].levels.values()))}


def sealed_of(dialect: ResponsesDialect) -> set[str]:
    """Return what may be said of encrypted reasoning."""
    if any(levels.encrypted for levels in dialect.reasoning):
        return {"asked for and sent back", "the same"}
    is_plain = bool(dialect.reasoning) and not dialect.items.plain_items
    return {"none; plain reasoning is sent back" if is_plain else "none"}


def test_the_page_of_options_has_every_vendor_of_responses() -> None:
    assert sorted(COLUMNS) == sorted(row.name for row in VENDORS_OF_RESPONSES)


@pytest.mark.parametrize("vendor", VENDORS_OF_RESPONSES, ids=lambda row: row.name)
def test_the_page_of_options_says_how_a_vendor_of_responses_differs(vendor: Vendor) -> None:
    cells, dialect = dict(COLUMNS[vendor.name]), RESPONSES[vendor.dialect]
    cells.pop("recorded")
    assert cells.pop("thinking") in thinking_of(dialect)
    assert cells.pop("sealed reasoning") in sealed_of(dialect)
    kept = next(row for row in cells if row.startswith("answers kept: "))
    assert cells == {
        "tools that the provider ran": "left out" if dialect.items.plain_items else "sent back",
        kept: "yes" if dialect.keeps_answers else "no",
        "compaction": "yes" if dialect.compacts else "no",
        "tokens are counted": "by the provider" if dialect.can_count else "estimated",
    }


@pytest.mark.parametrize("vendor", VENDORS_OF_RESPONSES, ids=lambda row: row.name)
def test_the_page_of_options_says_whether_a_vendor_is_recorded(vendor: Vendor, wire: Path) -> None:
    folder = f"{FOLDERS.get(vendor.dialect, vendor.dialect)}-responses"
    said = COLUMNS[vendor.name]["recorded"].partition(";")[0]
    assert said == ("yes" if is_recorded(folder, wire) else "no")
