"""Strategies for whole conversations, as a fold would give them out."""

from typing import Any

from hypothesis import strategies as st

from haptera.formats.values import SessionExport
from haptera.model.ids import CallId
from haptera.model.messages import Message
from haptera.model.parts import (
    CompactionPart,
    Part,
    ReasoningPart,
    ReminderPart,
    TextPart,
    ToolCallPart,
    ToolOutcome,
    ToolResultPart,
)
from tests.formats.conversations import assistant, exported, user
from tests.strategies_values import JSON_OBJECT

_TRICKY = (
    "</script><script>alert(1)</script>",
    "```\n# heading\n```",
    "<system-reminder>\nx\n</system-reminder>",
    '{"type":"tool_use"}',
    "\u2028\u2029\x00\x1b[31m",
    "  leading and trailing  ",
    "\r\n\r\n",
)
TEXT = st.one_of(
    st.sampled_from(_TRICKY), st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
)
NAME = st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True)
CALL_IDS = st.sampled_from(["call_1", "call_2", "toolu_x", "a.b:c/d", "é", "", "call_" + "9" * 80])
OUTCOMES: tuple[ToolOutcome, ...] = (
    "ok",
    "ok",
    "error",
    "denied",
    "cancelled",
    "timed_out",
    "interrupted",
    "unknown",
)
TEXT_PARTS = st.builds(lambda text: TextPart(text=text), TEXT)
REASONING = st.builds(
    lambda text, signature: ReasoningPart(text=text, signature=signature),
    TEXT,
    st.none() | st.just("c2VhbA=="),
)


@st.composite
def _calls(draw: st.DrawFn) -> list[ToolCallPart]:
    """Draw the calls of one answer: ids are used once in it, and again in others."""
    ids = draw(st.lists(CALL_IDS, max_size=3, unique=True))
    calls = []
    for call_id in ids:
        invalid = draw(st.none() | st.none() | st.just("{not json"))
        arguments: dict[str, Any] = draw(JSON_OBJECT) if invalid is None else {}
        calls.append(
            ToolCallPart(
                call_id=CallId(call_id), name=draw(NAME), arguments=arguments, invalid=invalid
            )
        )
    return calls


@st.composite
def _results(draw: st.DrawFn, calls: list[ToolCallPart]) -> list[Part]:
    """Draw a result for each call, in any order; a failure says something."""
    results: list[Part] = []
    for each in draw(st.permutations(calls)):
        outcome = draw(st.sampled_from(OUTCOMES))
        text = draw(TEXT) if outcome == "ok" else f"failed: {draw(TEXT)}"
        content = (TextPart(text=text),) if draw(st.booleans()) or outcome != "ok" else ()
        results.append(
            ToolResultPart(call_id=each.call_id, name=each.name, outcome=outcome, content=content)
        )
    return results


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Draw messages: roles alternate, every call is answered, summaries stand between answers."""
    messages: list[Message] = []
    waiting: list[ToolCallPart] = []
    for _ in range(draw(st.integers(1, 5))):
        if not waiting and draw(st.integers(0, 5)) == 0:
            summary = CompactionPart(text=f"summary: {draw(TEXT)}")
            messages.append(user(len(messages) + 1, summary))
        said: list[Part] = list(draw(_results(waiting)))
        said += draw(st.lists(TEXT_PARTS, min_size=0 if waiting else 1, max_size=2))
        if draw(st.integers(0, 5)) == 0:
            said.append(ReminderPart(text="a note", persisted=True))
        messages.append(user(len(messages) + 1, *said))
        waiting = draw(_calls())
        answer: list[Part] = [
            *draw(st.lists(REASONING, max_size=1)),
            *draw(st.lists(TEXT_PARTS, max_size=2)),
        ]
        if not waiting:
            answer.append(TextPart(text="."))
        mixed = (
            draw(st.permutations([*answer, *waiting]))
            if draw(st.booleans())
            else [*answer, *waiting]
        )
        waiting = [part for part in mixed if isinstance(part, ToolCallPart)]
        provider = draw(st.sampled_from(["anthropic", "openai", "mock"]))
        messages.append(assistant(len(messages) + 1, *mixed, provider=provider))
    if waiting:
        messages.append(user(len(messages) + 1, *draw(_results(waiting))))
    return messages


EXPORTS: st.SearchStrategy[SessionExport] = st.builds(
    lambda messages, title, cwd: exported(*messages, title=title, cwd=cwd),
    conversations(),
    st.none() | st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20),
    st.sampled_from(["", "/home/ana/work", "C:\\work", "/tmp/é è"]),
)
