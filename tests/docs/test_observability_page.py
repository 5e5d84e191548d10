"""The spans on the page about observability are those that its program prints."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import haptera
from haptera.model.stream_parts import StreamOpened
from haptera.model.usage import Usage
from haptera.testing import ScriptedProvider, calls, says
from haptera.testing.scripted_provider import Step

PAGE = Path(__file__).parents[2] / "docs" / "observability.md"
SHOWN = ("name", "context", "kind", "parent_id", "status", "attributes")
"""What the page shows of a span."""
ONE_OF_MANY = re.compile(r"^(0x[0-9a-f]+|[0-9a-f-]{36}|(qry|trn)_\w+)$")
"""Ids, which differ from run to run; which of them are the same does not."""

VARYING = {"gen_ai.response.time_to_first_chunk": "seconds", "haptera.cost_usd": "dollars"}
"""Numbers that depend on the machine, or on the prices of the day."""

SCRIPT: list[Step] = [
    [
        StreamOpened(model="claude-sonnet-5", response_id="msg_01A", request_id="req_01A"),
        *calls(("temperature", {"city": "Lisbon"}), ids=["toolu_01A"])[1:],
    ],
    [
        StreamOpened(model="claude-sonnet-5", response_id="msg_01B", request_id="req_01B"),
        *says("It is 21.5 degrees.", usage=Usage(input=420, output=12, cache_read=380))[1:],
    ],
]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def spans_in(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a text of JSON, with what the page shows of them."""
    decoder, place = json.JSONDecoder(), 0
    while (place := text.find("{", place)) >= 0:
        span, place = decoder.raw_decode(text, place)
        yield {name: span[name] for name in SHOWN}


def compared(spans: list[dict[str, Any]]) -> Any:
    """Return spans with every id replaced by the number of its first appearance."""
    seen: list[str] = []

    def plain(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: plain(each, key) for key, each in value.items()}
        if isinstance(value, str) and ONE_OF_MANY.match(value):
            seen.extend([] if value in seen else [value])
            return f"id {seen.index(value)}"
        return VARYING.get(name, value)

    return [plain(span) for span in spans]


async def test_the_spans_of_the_page_are_those_that_its_program_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    provider, made = ScriptedProvider(SCRIPT, provider="anthropic"), haptera.Agent

    def scripted(model: str, **options: Any) -> haptera.Agent:
        return made(model, providers=[provider], environment={}, **options)

    monkeypatch.setattr(haptera, "Agent", scripted)
    program = "async def run():\n" + re.sub(r"(?m)^(?=.)", "    ", blocks("python")[-1])
    names: dict[str, Any] = {}
    exec(compile(program, str(PAGE), "exec"), names)  # noqa: S102 - our own page
    await names["run"]()
    printed = list(spans_in(capsys.readouterr().out))
    assert [span["name"] for span in printed] == [
        "chat claude-sonnet-5",
        "execute_tool temperature",
        "chat claude-sonnet-5",
        "invoke_agent",
    ]
    (shown,) = blocks("json")
    assert compared(list(spans_in(shown))) == compared(printed)
