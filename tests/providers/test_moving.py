"""A session moves: what any provider said is accepted by every other, in every dialect."""

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from haptera.model.ids import new_session_id
from haptera.model.log.fold import fold_entries
from haptera.model.log.queries import QueryStarted
from haptera.model.log.sessions import SessionOpened
from haptera.model.messages import Message, UserMessage
from haptera.model.parts import (
    MediaPart,
    Part,
    ProviderPart,
    ReasoningPart,
    ReminderPart,
    TextPart,
)
from haptera.system.clock import Stamp
from haptera.testing import FakeClock
from haptera.testing.decode_reply import PROTOCOLS, decode_reply
from tests.fixtures_report import Report
from tests.history_grammar import violations
from tests.providers.chat.test_any_history import turns
from tests.providers.conversations import assistant, call, image, result, user
from tests.providers.moving_targets import Target, targets
from tests.providers.replies import body_of, read_json
from tests.providers.vendors_by_recording import provider_of
from tests.strategies_logs import write_log

pytestmark = pytest.mark.slow

LOGS = 120
"""How many logs are made; each is cut at a few places."""


@cache
def decoded(case: Path) -> tuple[Part, ...]:
    return decode_reply(case.parent.name, body_of(case)).parts


def answered(case: Path, model: str) -> tuple[Message, ...]:
    """Return what a recorded answer adds to a conversation in which its calls were answered."""
    provider = provider_of(case.parent.name)
    parts = [
        replace(part, provider=provider, model=model) if isinstance(part, ProviderPart) else part
        for part in decoded(case)
    ]
    message = assistant(*parts, provider=provider, model=model)
    results = [result(call.name, call.call_id, "done") for call in message.tool_calls]
    return (message, user(*results) if results else user("Go on."))


def recorded_streams(wire: Path) -> Iterator[tuple[str, Path]]:
    for api in sorted(PROTOCOLS):
        folder = wire / "open" / api
        for case in sorted(folder.iterdir()) if folder.is_dir() else ():
            if read_json(case / "meta.json")["status"] == 200:
                yield api, case


def recorded_histories(wire: Path, target: Target) -> Iterator[tuple[str, tuple[Message, ...]]]:
    """Yield every recorded answer as a history: said by the target itself, and by others."""
    for api, case in recorded_streams(wire):
        for model in (target.model, "another-model"):
            yield api, (user("Hi"), *answered(case, model))


def recorded_loops(wire: Path, target: Target) -> Iterator[tuple[str, tuple[Message, ...]]]:
    """Yield every recorded loop as it stood before each of its steps, and at its end."""
    for sequence in json.loads((wire / "open" / "sequences.json").read_text("utf-8")):
        for model in (target.model, "another-model"):
            messages: tuple[Message, ...] = (user("Hi"),)
            for step in sequence["cases"]:
                messages = (*messages, *answered(wire / "open" / step, model))
                yield step.split("/")[0], messages


def made_histories() -> list[tuple[Message, ...]]:
    """Return what is sent of logs that were cut off anywhere."""
    chance = random.Random(5)
    made = []
    for _ in range(LOGS):
        entries = write_log(chance.randbytes(150))
        for end in {len(entries), *(chance.randint(1, len(entries)) for _ in range(3))}:
            view = fold_entries(entries[:end]).sent_view()
            if any(isinstance(message, UserMessage) for message in view):
                made.append(view)
    return made


@pytest.mark.timeout(240)
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.sweep)])
async def test_every_history_is_accepted_by_every_target(
    every: int, wire: Path, report: Report
) -> None:
    """Every history by some targets in a small run, and each by other ones; by all in a sweep."""
    sent: Counter[str] = Counter()
    refused: list[tuple[str, str, list[str]]] = []
    logs = made_histories()
    for place, target in enumerate(targets()):
        recorded = (*recorded_histories(wire, target), *recorded_loops(wire, target))
        histories = (*recorded, *(("a log", view) for view in logs))
        for source, messages in histories[place % every :: every]:
            faults = await target.faults(messages)
            sent[source] += 2
            if faults:
                refused.append((source, target.name, faults))
    for source, count in sorted(sent.items()):
        report(f"moved from {source}: {count} requests to {len(targets())} targets")
    report(f"moved in all: {sent.total()} requests, {len(refused)} refused")
    assert refused == []


@settings(max_examples=60)
@given(history=st.lists(turns(), max_size=3), place=st.integers(0, len(targets()) - 1))
async def test_any_history_is_accepted_by_every_target(
    history: list[Sequence[Message]], place: int
) -> None:
    said = (message for turn in history for message in turn)
    messages = (user("Begin."), *said, user("End."))
    assert await targets()[place].faults(messages) == []


bad_media = st.sampled_from(["", "not base64!", "eA", "eA==\n"]).flatmap(
    lambda data: st.sampled_from(["image/png", "application/pdf", "audio/wav", "text/plain"]).map(
        lambda mime: MediaPart(mime=mime, data=data, filename="a")
    )
)
few_ids = st.sampled_from(["call_1", "call_2", "call_1_2"])
PARTS_OF_EITHER_ROLE: list[Part] = [
    result("clock", "call_1", "now"),
    call("clock", "call_1"),
    image(),
    ReasoningPart(text="hm"),
    ReminderPart(text="be brief"),
    ProviderPart(provider="anthropic", model="m", payload={"type": "server_tool_use"}),
]
out_of_character = st.sampled_from(PARTS_OF_EITHER_ROLE)
content = bad_media | st.just(image()) | st.just(TextPart(text="seen"))
handed_in = st.lists(
    st.lists(
        content | out_of_character | few_ids.map(lambda each: result("clock", each, "now")),
        max_size=4,
    ).map(lambda parts: user(*parts))
    | st.tuples(few_ids, content).map(
        lambda each: user(replace(result("clock", each[0]), content=(each[1],)))
    )
    | st.lists(
        st.just("I look.") | out_of_character | few_ids.map(lambda each: call("clock", each)),
        max_size=4,
    ).map(lambda parts: assistant(*parts, provider="elsewhere", model="m")),
    max_size=6,
)


@settings(max_examples=100)
@given(history=handed_in, place=st.integers(0, len(targets()) - 1))
async def test_any_history_that_is_handed_in_is_made_acceptable_to_every_target(
    history: list[Message], place: int
) -> None:
    stamp, session_id = Stamp(FakeClock()), new_session_id()
    entries = [
        SessionOpened(**stamp(), seq=1, session_id=session_id, history=tuple(history)),
        QueryStarted(**stamp(), seq=2, message=user("Go on.")),
    ]
    sent = fold_entries(entries).sent_view()
    assert violations(sent) == []
    assert await targets()[place].faults(sent) == []


async def test_an_answer_that_was_to_go_on_is_carried_on_by_another_provider() -> None:
    begun = assistant("Once upon", provider="elsewhere", model="m")
    for target in targets():
        assert await target.faults((user("Tell a tale."), begun)) == []
