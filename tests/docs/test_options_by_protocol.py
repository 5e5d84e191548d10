"""The page of options says which fields an option is sent as, by protocol: all, and no other."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from haptera.model.compaction_settings import CompactionSettings
from haptera.model.json_types import Json, JsonObject
from haptera.model.requests import ModelRequest
from haptera.providers.schema_targets import SchemaAdapter
from haptera.providers.wire.protocol import WireProtocol
from haptera.testing.decode_reply import PROTOCOLS
from tests.providers.chat.example_requests import MODELS
from tests.providers.conversations import ANSWER, CLOCK, WEATHER, user

PAGE = Path(__file__).resolve().parents[2] / "docs" / "provider-options.md"

NOT_OPTIONS = {"model", "messages", "timeouts", "reply_bytes", "fresh_media", "caches_tail"}
OPTIONS: dict[str, JsonObject] = {
    "system": {"system": ("Be kind.", "Be exact.")},
    "tools": {"tools": (WEATHER, CLOCK)},
    "require_tool": {"tools": (WEATHER, CLOCK), "require_tool": "clock"},
    "parallel_tool_calls": {"tools": (WEATHER, CLOCK), "parallel_tool_calls": False},
    "thinking": {"thinking": "high"},
    "max_tokens": {"max_tokens": 5000},
    "temperature": {"temperature": 0.5},
    "stop": {"stop": ("END",)},
    "seed": {"seed": 7},
    "output_schema": {"output_schema": ANSWER},
    "cache_ttl": {"cache_ttl": "1h"},
    "compaction": {"compaction": CompactionSettings(enabled=True, input_tokens=50_000)},
    "betas": {},
}
BETAS = {
    "Messages": ["context-1m-2025-08-07", "context-management-2025-06-27"],
    "Responses": ["store", "background", "previous_response_id", "web_search", "a_beta"],
    "Chat Completions": ["store", "safe_prompt"],
    "generateContent": ["google_search", "url_context", "code_execution"],
    "Ollama": ["truncate"],
}
COLUMNS: dict[str, list[tuple[str, str]]] = {
    "Messages": [
        ("anthropic-messages", "claude-3-7-sonnet-latest"),
        ("anthropic-messages", "claude-haiku-4-5"),
        ("anthropic-messages", "claude-sonnet-4-6"),
        ("anthropic-messages", "claude-sonnet-5"),
    ],
    "Responses": [
        ("openai-responses", "gpt-5.5"),
        ("openai-responses", "gpt-4.1"),
        ("azure-responses", "gpt-5.5"),
        ("xai-responses", "grok-4.3"),
        ("openrouter-responses", "openai/gpt-5"),
        ("deepseek-responses", "deepseek-flash"),
        ("perplexity-responses", "perplexity/sonar"),
        ("compat-responses", "smollm2"),
    ],
    "Chat Completions": [
        (f"{name}-chat", model) for name, model in MODELS.items() if name != "compatible"
    ],
    "generateContent": [
        ("gemini-generatecontent", "gemini-3-pro-preview"),
        ("gemini-generatecontent", "gemini-2.5-flash"),
        ("gemini-generatecontent", "gemini-2.0-flash"),
        ("vertex-generatecontent", "gemini-2.5-pro"),
    ],
    "Ollama": [("ollama-native", "qwen3:4b"), ("ollama-native", "gpt-oss:20b")],
}


class Change(NamedTuple):
    """A value somewhere in a request: the names on the way to it, and what it is."""

    path: tuple[str, ...]
    value: str

    def names(self) -> set[str]:
        return {*self.path, self.value}


def table() -> dict[tuple[str, str], str]:
    """Return the cells of the page by option and protocol."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("| option |"))
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines[start : lines.index("", start)]
    ]
    return {
        (row[0], column): cell
        for row in rows
        for column, cell in zip(head[1:], row[1:], strict=True)
    }


CELLS = table()


def values_in(found: Json, path: tuple[str, ...] = ()) -> Iterator[Change]:
    if isinstance(found, dict):
        for name, value in found.items():
            yield from values_in(value, (*path, name))
        if not found and len(path) > 1:
            yield Change(path, "{}")
    elif isinstance(found, list):
        for value in found:
            yield from values_in(value, path)
    else:
        yield Change(path, str(found))


def sent(protocol: WireProtocol, request: ModelRequest) -> set[Change]:
    fitted = SchemaAdapter().adapt(request, protocol.schema_targets(request.model))
    wire = protocol.new_encoder()(fitted)
    return {*values_in(json.loads(wire.body)), *values_in(wire.headers)}


def changes(option: str, column: str) -> set[Change]:
    """Return everything that an option adds to a request or takes from it, with any model."""
    found: set[Change] = set()
    for api, model in COLUMNS[column]:
        plain = ModelRequest(model=model, messages=(user("Hi"),))
        chosen = OPTIONS[option] or {"betas": dict.fromkeys(BETAS[column], True)}
        for others in (
            {},
            {"tools": (WEATHER, CLOCK)},
            {"tools": (WEATHER, CLOCK), "thinking": "low"},
        ):
            known = {name: value for name, value in chosen.items() if name != option}
            base = replace(plain, **(others | known))
            found |= sent(PROTOCOLS[api], base) ^ sent(PROTOCOLS[api], replace(base, **chosen))
    return found


def said(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", cell))


def test_the_page_has_every_option_of_a_request_and_every_protocol() -> None:
    fields = {field.name for field in msgspec.structs.fields(ModelRequest)}
    assert OPTIONS.keys() == fields - NOT_OPTIONS
    assert list(CELLS) == [(option, column) for option in OPTIONS for column in COLUMNS]


@pytest.mark.parametrize(("option", "column"), CELLS)
def test_an_option_is_sent_as_the_page_says(option: str, column: str) -> None:
    cell, found = CELLS[option, column], changes(option, column)
    assert cell.startswith("no field") is not bool(found)
    missing = [change for change in found if not change.names() & said(cell)]
    assert missing == []


@pytest.mark.parametrize(("option", "column"), CELLS)
def test_the_page_names_no_field_that_is_not_sent(option: str, column: str) -> None:
    names = {name for change in changes(option, column) for name in change.names()}
    assert said(CELLS[option, column]) - names == set()
