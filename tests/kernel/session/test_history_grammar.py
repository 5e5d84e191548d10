"""Every prefix of every log makes a history that a provider accepts; the judge is strict."""

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from haptera.model.log.entry import Entry
from haptera.model.log.fold import fold_entries
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import (
    Part,
    ReasoningPart,
    ReminderPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from haptera.stores.memory import MemoryStore
from haptera.testing.clocks import run_seeded
from tests.history_grammar import violations
from tests.kernel.session import race_scenario
from tests.kernel.session.scripted_query import rich_agent, rich_provider
from tests.samples import sampled

pytestmark = pytest.mark.slow


def _good() -> list[Message]:
    call_a = ToolCallPart(call_id="a", name="look", arguments={})  # type: ignore[arg-type]
    call_b = ToolCallPart(call_id="b", name="look", arguments={"x": 1})  # type: ignore[arg-type]
    answer_a = ToolResultPart(call_id="a", name="look", content=(TextPart(text="1"),))  # type: ignore[arg-type]
    answer_b = ToolResultPart(call_id="b", name="look", content=(TextPart(text="2"),))  # type: ignore[arg-type]
    return [
        _user(TextPart(text="hello")),
        _assistant(ReasoningPart(text="hm"), TextPart(text="I look"), call_a, call_b),
        _user(answer_a, answer_b, TextPart(text="and?")),
        _assistant(TextPart(text="done")),
        _user(TextPart(text="thanks"), ReminderPart(text="be brief")),
    ]


def _user(*parts: Part) -> UserMessage:
    return UserMessage(id="m", parts=parts)  # type: ignore[arg-type]


def _assistant(*parts: Part) -> AssistantMessage:
    return AssistantMessage(id="m", parts=parts)  # type: ignore[arg-type]


def _with(place: int, change: Callable[[tuple[Part, ...]], Sequence[Part]]) -> list[Message]:
    messages = _good()
    messages[place] = replace(messages[place], parts=tuple(change(messages[place].parts)))
    return messages


def _changed(place: int, index: int, **facts: object) -> list[Message]:
    return _with(
        place, lambda parts: [*parts[:index], replace(parts[index], **facts), *parts[index + 1 :]]
    )


_MUTATIONS: dict[str, Callable[[], list[Message]]] = {
    "nothing at all": list,
    "the model speaks first": lambda: _good()[1:],
    "the model speaks last": lambda: _good()[:4],
    "two user messages": lambda: [_user(TextPart(text="hi")), *_good()],
    "two answers": lambda: [*_good()[:4], _assistant(TextPart(text="x")), *_good()[4:]],
    "a call without any result": lambda: [*_good()[:2], *_good()[4:]],
    "one result is missing": lambda: _with(2, lambda parts: parts[1:]),
    "one result comes twice": lambda: _with(2, lambda parts: [parts[0], *parts]),
    "a result of no call": lambda: _changed(2, 0, call_id="z"),
    "results after text": lambda: _with(2, lambda parts: [parts[2], *parts[:2]]),
    "results a message too late": lambda: [
        *_good()[:2],
        _user(TextPart(text="wait")),
        _assistant(TextPart(text="ok")),
        _good()[2],
        *_good()[3:],
    ],
    "a result in the model's mouth": lambda: _with(3, lambda parts: [*parts, _good()[2].parts[0]]),
    "a call in the user's mouth": lambda: _with(4, lambda parts: [*parts, _good()[1].parts[2]]),
    "two calls of one id": lambda: _changed(1, 3, call_id="a"),
    "a call without a name": lambda: _changed(1, 2, name=""),
    "a call without an id": lambda: _changed(1, 2, call_id=""),
    "arguments that are a list": lambda: _changed(1, 2, arguments=[1]),
    "an empty text": lambda: _changed(0, 0, text=""),
    "an empty message": lambda: _with(4, lambda parts: []),
    "an empty answer": lambda: _with(3, lambda parts: []),
    "an empty reminder": lambda: _changed(4, 1, text=""),
    "a reminder in the model's mouth": lambda: _with(
        3, lambda parts: [*parts, ReminderPart(text="x")]
    ),
    "a user who thinks": lambda: _with(0, lambda parts: [*parts, ReasoningPart(text="x")]),
    "half a thought": lambda: [
        *_good()[:3],
        replace(_assistant(ReasoningPart(text="half")), interrupted=True),
        *_good()[4:],
    ],
}


def test_the_judge_accepts_a_good_history() -> None:
    assert violations(_good()) == []


@pytest.mark.parametrize("name", _MUTATIONS)
def test_the_judge_refuses(name: str) -> None:
    assert violations(_MUTATIONS[name]()) != []


def _check_every_prefix(log: Sequence[Entry]) -> int:
    """Check what would be sent after a crash behind each entry; returns how many could be."""
    sendable = 0
    for end in range(len(log) + 1):
        sent = fold_entries(log[:end]).sent_view()
        if sent:
            assert violations(sent) == [], [entry.kind for entry in log[:end]]
            sendable += 1
    return sendable


async def test_every_prefix_of_a_rich_query_can_be_sent(report: Callable[[str], None]) -> None:
    store = MemoryStore()
    provider = rich_provider()
    async with rich_agent(provider, store=store) as agent, agent.session() as session:
        await session.chat("go")
        log = await store.log.read(session.session_id or "")  # type: ignore[arg-type]
    report(f"prefixes: {_check_every_prefix(log)} of a rich query can be sent")


@sampled(75, 300)
def test_every_prefix_of_disturbed_sessions_can_be_sent(
    sample: int, report: Callable[[str], None]
) -> None:
    checked = 0
    for seed in range(sample):
        log = run_seeded(lambda seed=seed: race_scenario.play_log(seed), seed)  # type: ignore[misc]
        checked += _check_every_prefix(log)
    report(f"prefixes: {checked} of {sample} disturbed sessions can be sent")
    assert checked > 10 * sample
