"""The lines of the CLI as native messages: recorded transcripts, and cases written by hand."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera.model.errors import AgentError, ErrorCode
from haptera.model.native_messages import (
    NativeAnswer,
    NativeBoundary,
    NativeMessage,
    NativeNotice,
    NativeReset,
    NativeResult,
    NativeRetry,
    NativeStarted,
    NativeSubagent,
    NativeToolResult,
)
from haptera.model.stream_parts import PartDelta, PartOpened, StreamFinished
from haptera.providers.claude_agent.messages import MessageDecoder
from tests.fixtures_wire import require_wire
from tests.providers.claude_agent.children import FIRST, SECOND, call, init, result, text

TRANSCRIPTS = "open/claude-agent-sdk-stdio"
CASES = (
    "auth_401",
    "interrupt",
    "logfire_basic_conversation",
    "logfire_tool_use_conversation",
    "max_turns",
    "mid_stream_overloaded",
    "overloaded_529",
    "permission_deny",
    "refusal",
    "resume",
    "text_end_turn",
    "text_end_turn_partial",
    "thinking_partial",
    "tool_loop_bash",
)


def decode(*frames: dict[str, Any]) -> list[NativeMessage]:
    decoder = MessageDecoder()
    return [message for frame in frames for message in decoder.feed(json.dumps(frame).encode())]


def emitted(*steps: dict[str, Any]) -> list[NativeMessage]:
    return decode(*(step["emit"] for step in steps))


def only(messages: list[NativeMessage], kind: type) -> Any:
    (found,) = [message for message in messages if isinstance(message, kind)]
    return found


@pytest.mark.parametrize("case", CASES)
def test_recorded_transcripts_decode_to_what_was_said(case: str) -> None:
    folder = require_wire() / TRANSCRIPTS / case
    lines = [json.loads(line) for line in (folder / "transcript.jsonl").read_text().splitlines()]
    expected = json.loads((folder / "expect.json").read_text())["messages"]
    messages = decode(*(line["message"] for line in lines if line["dir"] == "recv"))
    end = only(messages, NativeResult)
    for wanted in expected[-1:]:  # two were recorded without what the package made of them
        assert (end.subtype, end.is_error) == (wanted["subtype"], wanted["is_error"])
        assert end.text == (wanted.get("result") or "")
        assert end.turns == wanted["num_turns"]
    said = [
        block
        for line in lines
        if line["dir"] == "recv" and line["message"].get("type") == "assistant"
        for block in line["message"]["message"]["content"]
    ]
    texts = [block["text"] for block in said if block["type"] == "text"]
    calls = [block["id"] for block in said if block["type"] == "tool_use"]
    answers = [m for m in messages if isinstance(m, NativeAnswer)]
    opened = [p for m in answers for p in m.parts if isinstance(p, PartOpened)]
    assert [p.call_id for p in opened if p.kind == "tool_call"] == calls
    heard = "".join(p.text for m in answers for p in m.parts if isinstance(p, PartDelta))
    failed = "".join(
        str(m.facts["text"])
        for m in messages
        if isinstance(m, NativeNotice) and m.name == "api_error"
    )
    assert all(each in heard + failed for each in texts)
    finished = sum(isinstance(p, StreamFinished) for m in answers for p in m.parts)
    assert finished == len({m.message_id for m in answers})
    results = [m.call_id for m in messages if isinstance(m, NativeToolResult)]
    assert set(results) <= set(calls)


def test_every_recorded_transcript_is_a_case() -> None:
    folders = (require_wire() / TRANSCRIPTS).iterdir()
    assert sorted(folder.name for folder in folders) == sorted(CASES)


def test_a_boundary_keeps_what_else_the_agent_says_of_it() -> None:
    facts = {"trigger": "manual", "pre_tokens": 900, "post_tokens": 90, "duration_ms": 5}
    frame = {"type": "system", "subtype": "compact_boundary", "compact_metadata": facts}
    boundary = only(decode(frame), NativeBoundary)
    assert (boundary.trigger, boundary.pre_tokens, boundary.post_tokens) == ("manual", 900, 90)
    assert boundary.details["duration_ms"] == 5


def test_a_boundary_without_facts_is_passed_over() -> None:
    assert decode({"type": "system", "subtype": "compact_boundary"}) == []


def test_a_result_says_what_was_used_and_what_it_cost() -> None:
    end = only(emitted(result()), NativeResult)
    assert end.total_cost_usd == Decimal("0.25")
    assert end.usage is not None
    assert (end.usage.input, end.usage.output) == (10, 5)
    assert end.model_usage["claude-sonnet-4-6"]["contextWindow"] == 200000
    assert end.cost_is_known


def test_a_price_that_the_agent_invented_is_not_known() -> None:
    used = {"my-model": {"costUSD": 0.1, "costBasis": "unknown"}}
    assert not only(emitted(result(modelUsage=used)), NativeResult).cost_is_known


@pytest.mark.parametrize("subtype", ["error_max_turns", "error_during_execution", "error_new"])
def test_an_error_is_one_whatever_its_subtype_and_flag(subtype: str) -> None:
    assert only(emitted(result(subtype=subtype)), NativeResult).is_error
    assert only(emitted(result(is_error=True)), NativeResult).is_error


def test_a_reset_is_followed_by_a_new_id() -> None:
    reset = {"type": "conversation_reset", "new_conversation_id": "x", "session_id": FIRST}
    messages = decode(
        init()["emit"], reset, {"type": "system", "subtype": "a", "session_id": SECOND}
    )
    assert any(isinstance(m, NativeReset) for m in messages)
    ids = [m.session_id for m in messages if isinstance(m, NativeStarted)]
    assert ids == [FIRST, SECOND]


def test_a_retry_says_when_and_why() -> None:
    frame = {
        "type": "system",
        "subtype": "api_retry",
        "attempt": 2,
        "max_retries": 3,
        "retry_delay_ms": 500,
        "error_status": 529,
        "error": "overloaded",
    }
    retry = only(decode(frame), NativeRetry)
    assert (retry.attempt, retry.max_retries, retry.delay, retry.status) == (2, 3, 0.5, 529)


def test_sub_agents_join_report_and_leave() -> None:
    def task(subtype: str, **more: Any) -> dict[str, Any]:
        return {"type": "system", "subtype": subtype, "task_id": "t1", "tool_use_id": "c1", **more}

    messages = decode(
        task("task_started", description="look around"),
        task("task_progress", description="looking"),
        task("task_updated", patch={"status": "killed"}),
        task("task_notification", status="completed", summary="seen"),
    )
    agents = [m for m in messages if isinstance(m, NativeSubagent)]
    assert [m.change for m in agents] == ["joined", "status", "left", "left"]
    assert {(m.agent, m.call_id) for m in agents} == {("t1", "c1")}


def test_what_a_sub_agent_says_names_the_call_that_started_it() -> None:
    block = {"type": "tool_use", "id": "toolu_9", "name": "Read", "input": {}}
    message = {"id": "msg_s", "model": "m", "content": [block]}
    frame = {"type": "assistant", "message": message, "parent_tool_use_id": "toolu_task"}
    assert only(decode(frame), NativeAnswer).parent == "toolu_task"


def test_an_answer_that_came_in_pieces_is_not_said_again_as_a_whole() -> None:
    whole = {"id": "msg_1", "model": "m", "content": [{"type": "text", "text": "Hello."}]}
    frame = {"emit": {"type": "assistant", "message": whole, "parent_tool_use_id": None}}
    *most, stop = text("Hello.")
    messages = emitted(*most, frame, stop, result())
    heard = [
        p.text
        for m in messages
        if isinstance(m, NativeAnswer)
        for p in m.parts
        if isinstance(p, PartDelta)
    ]
    assert heard == ["Hello."]


@pytest.mark.parametrize("name", ["mcp__haptera__add", "mcp__holdfast__add"])
def test_tools_of_our_own_have_their_own_names(name: str) -> None:
    opened = [
        part
        for message in emitted(*call(name, {"a": 1}))
        if isinstance(message, NativeAnswer)
        for part in message.parts
        if isinstance(part, PartOpened)
    ]
    assert [part.name for part in opened] == ["add"]


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "message",
                        "content",
                        "event",
                        "usage",
                        "modelUsage",
                        "subtype",
                        "session_id",
                        "id",
                    ]
                ),
                inner,
            )
        ),
    ),
    st.sampled_from(
        ["assistant", "user", "system", "result", "stream_event", "conversation_reset", "what"]
    ),
)
def test_any_line_is_messages_or_a_protocol_error(value: Any, kind: str) -> None:
    frame = {**value, "type": kind} if isinstance(value, dict) else {"type": kind, "message": value}
    try:
        decode(frame)
    except AgentError as error:
        assert error.code in {ErrorCode.PROTOCOL, ErrorCode.STREAM_INTERRUPTED}
