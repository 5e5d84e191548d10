"""The real programs go on with our exports, and what they write themselves imports whole."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from haptera.formats.anthropic_messages.document import read_anthropic_messages
from haptera.formats.chat_completions.document import read_openai_messages
from haptera.formats.claude_code import read_claude_code
from haptera.formats.codex import read_codex
from haptera.formats.message_builder import MessageBuilder
from haptera.formats.openai_responses.decoding import ItemReader
from haptera.formats.opencode import read_opencode
from haptera.formats.pi import read_pi
from haptera.formats.values import ImportedSession, SessionExport
from haptera.model.parts import CompactionPart
from tests.formats.conversations import (
    A_CONVERSATION,
    Said,
    assistant,
    exported,
    heard_of,
    user,
)
from tests.formats.real_tools.loopback_provider import Reply, Request, serving
from tests.formats.real_tools.tools import MISSING, SECRET, TOOLS, RealTool, install

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

READERS = {
    "claude-code": read_claude_code,
    "codex": read_codex,
    "opencode": read_opencode,
    "pi": read_pi,
}


@pytest.fixture(params=list(TOOLS))
def tool(request: pytest.FixtureRequest, tmp_path: Path) -> RealTool:
    install(request.param)
    return TOOLS[request.param](tmp_path)


def sent(request: Request) -> list[Said]:
    """Return what a request tells the model of the conversation."""
    body = io.BytesIO(json.dumps(request.body).encode())
    session: ImportedSession
    if "/messages" in request.path:
        session = read_anthropic_messages(body)
    elif "/chat/completions" in request.path:
        session = read_openai_messages(body)
    else:
        builder = MessageBuilder("responses")
        reader = ItemReader(builder)
        assert all(reader.add(item, 0) for item in request.body["input"])
        session = builder.finish("a request")
    return heard_of(session, errors=False)


def ours(tool: RealTool, *messages: Any) -> SessionExport:
    return exported(*messages, cwd=str(tool.cwd), title="Mountains of Norway")


def imported(tool: RealTool) -> ImportedSession:
    return READERS[tool.name](io.BytesIO(tool.written()))


def is_within(part: list[Said], whole: list[Said]) -> bool:
    """Whether everything in `part` is in `whole`, in this order, with nothing left out.

    A text may have grown: tools join reasoning of other models with what was said after it.
    """
    rest = iter(whole)
    return all(any(_is_told(said, other) for other in rest) for said in part)


def _is_told(said: Said, other: Said) -> bool:
    if said.by == other.by == "assistant":
        return str(said.what) in str(other.what)
    return said == other


def no_line_of_the_conversation_is_opaque(session: ImportedSession) -> bool:
    kinds = {record.kind.partition("/")[0] for record in session.opaque}
    roles = {record.kind.rpartition("/")[2] for record in session.opaque}
    return (
        not kinds & {"user", "assistant", "response_item", ""}
        and not roles & {"user", "assistant", "toolResult"}
        and not session.report.opaque_parts
    )


def test_a_real_tool_goes_on_with_our_export(tool: RealTool) -> None:
    export = ours(tool, *A_CONVERSATION)
    with serving(Reply("And that is all.")) as provider:
        tool.take_in(export, provider)
        tool.go_on(provider, "What else?")
        (turn,) = provider.turns
    history = [*heard_of(export, errors=False), Said("user", "What else?")]
    assert is_within(history, sent(turn)), sent(turn)
    again = imported(tool)
    assert no_line_of_the_conversation_is_opaque(again), again.report
    assert is_within(
        [*history, Said("assistant", "And that is all.")], heard_of(again, errors=False)
    )


def test_a_real_tool_sends_our_summary_in_place_of_what_it_stands_for(tool: RealTool) -> None:
    summary = "SUMMARY: two mountains were looked up."
    export = ours(
        tool,
        *A_CONVERSATION,
        user(7, CompactionPart(text=summary)),
        user(8, "Which one is higher?"),
        assistant(9, "The first one."),
    )
    with serving(Reply("Nothing else.")) as provider:
        tool.take_in(export, provider)
        tool.go_on(provider, "What else?")
        (turn,) = provider.turns
    assert summary in turn.text
    assert "The first one." in turn.text
    assert "I look both up." not in turn.text
    again = imported(tool)
    assert is_within(heard_of(export, errors=False), heard_of(again, errors=False))


def test_what_a_real_tool_writes_imports_whole(tool: RealTool) -> None:
    script = (Reply("Let me look.", tool.calls, "I should look."), Reply("It is in there."))
    with serving(*script) as provider:
        tool.start(provider, "What is in the notes?")
    with serving(Reply("Once more.", tool.calls[:1]), Reply("Still there.")) as provider:
        tool.go_on_with_own(provider, "Are you sure?")
    session = imported(tool)
    said = [each for each in heard_of(session) if each.by != "result"]
    results = [each.what for each in heard_of(session) if each.by == "result"]
    assert said == [
        Said("user", "What is in the notes?"),
        Said("assistant", "Let me look."),
        *(Said("call", each) for each in tool.calls),
        Said("assistant", "It is in there."),
        Said("user", "Are you sure?"),
        Said("assistant", "Once more."),
        Said("call", tool.calls[0]),
        Said("assistant", "Still there."),
    ]
    assert sorted(number for number, _, _ in results) == [0, 1, 2]
    assert all(SECRET in text for number, _, text in results if number != 1)
    assert [MISSING in text for number, _, text in results if number == 1] == [True]
    assert no_line_of_the_conversation_is_opaque(session), session.report
    assert session.report.warnings == ()
    assert session.cwd == str(tool.cwd)
