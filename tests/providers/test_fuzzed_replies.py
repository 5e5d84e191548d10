"""Replies with something wrong in them: an answer or a typed error comes of each, and a log of it.

Every reply goes through the client, its decoder and the stream processor, as a real one does. What
comes out is an answer or an `AgentError` whose code fits; no decoder stumbles; every entry is read
back from the bytes it is written as; and what was kept can be sent back to the same provider.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from haptera import Agent
from haptera.kernel.blocks.stream_processor.processor import AnswerAssembler
from haptera.model.entry_bytes import decode_entry, encode_entry
from haptera.model.errors import AgentError, ErrorCode
from haptera.model.events import Event
from haptera.model.ids import MessageId
from haptera.model.log.entry import Entry, UnknownEntry
from haptera.model.log.queries import QueryEnded
from haptera.model.log.turns import TurnEnded
from haptera.model.messages import AssistantMessage, UserMessage
from haptera.model.parts import Part, TextPart, ToolCallPart, ToolResultPart
from haptera.model.requests import ModelRequest
from haptera.model.results import StopReason
from haptera.model.settings import RetrySettings
from haptera.providers.client import ProviderEndpoint, WireModelClient
from haptera.providers.transport.protocol import HttpRequest
from haptera.stores.jsonl.store import JsonlStore
from haptera.system.clock import Stamp
from haptera.testing import FakeClock
from haptera.testing.decode_reply import PROTOCOLS
from tests.fixtures_report import Report
from tests.providers.reply_corpus import FAMILIES, corpus
from tests.providers.reply_mutator import Broken, break_reply

pytestmark = pytest.mark.slow

SAMPLE = 1_200
SESSION = 60
SOAK = 12_000
_STUMBLES = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError)
"""What a decoder raises that took something for granted."""
_NOT_THE_REPLYS = frozenset(
    {ErrorCode.NETWORK, ErrorCode.CONFIG_INVALID, ErrorCode.CONFIG_MISSING, ErrorCode.UNAVAILABLE}
)
_ASKED = UserMessage(id=MessageId("msg_0"), parts=(TextPart(text="go"),))
_REQUEST = ModelRequest(model="m", messages=(_ASKED,))


class Arriving:
    """A reply of which everything arrives."""

    def __init__(self, broken: Broken) -> None:
        self.status = broken.status
        self.headers: Mapping[str, str] = MappingProxyType(broken.headers)
        self._pieces = list(broken.pieces)

    async def read(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        pass


class OneReply:
    """A transport that answers everything with the same reply."""

    def __init__(self, broken: Broken) -> None:
        self._broken = broken

    async def send(self, request: HttpRequest) -> Arriving:
        assert request.body
        return Arriving(self._broken)

    async def close(self) -> None:
        pass


class Taken(NamedTuple):
    """What became of a reply."""

    error: AgentError | None
    entries: list[Entry]
    parts: tuple[Part, ...]


def client_of(broken: Broken) -> WireModelClient:
    return WireModelClient(
        provider="p",
        protocol=PROTOCOLS[broken.api],
        endpoint=ProviderEndpoint(base_url="https://p.example/v1"),
        tokens=None,
        transport=OneReply(broken),
    )


async def take(broken: Broken) -> Taken:
    """Take a reply in as a turn does, up to the entries of its log."""
    stamp = Stamp(FakeClock())
    answer = AnswerAssembler(stamp=stamp, provider="p", model="m")
    events: list[Event] = []
    error: AgentError | None = None
    try:
        async for batch in client_of(broken).stream(_REQUEST):
            answer.feed(batch, events)
            answer.checkpoint(events)
            if answer.failure is not None:
                raise answer.failure
    except AgentError as raised:
        error = raised
    answer.close(events)
    entries = [event for event in events if isinstance(event, Entry)]
    finished = answer.finished
    assert (finished is None) == (error is not None), "an answer ends, or fails"
    if finished is not None:
        entries.append(
            TurnEnded(
                **stamp(),
                message_id=MessageId("msg_1"),
                finish=finished.kind,
                finish_reason=finished.reason,
                usage=finished.usage,
                cost=finished.cost,
            )
        )
    report = None if error is None else error.report
    stop: StopReason = "complete" if error is None else "error"
    entries.append(QueryEnded(**stamp(), stop_reason=stop, error=report))
    numbered = [replace(entry, seq=number) for number, entry in enumerate(entries, 1)]
    return Taken(error, numbered, answer.parts)


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it came of."""
    here: BaseException | None = error
    while here is not None:
        yield here
        here = here.__cause__ or here.__context__


def check(taken: Taken) -> None:
    """Fail on what must never come of a reply, whatever it holds."""
    if (error := taken.error) is not None:
        assert error.code not in _NOT_THE_REPLYS
        assert error.message.strip() not in {"", "{}", "[]", "null"}
        for cause in causes(error):
            assert not isinstance(cause, _STUMBLES), f"a decoder stumbled: {cause!r}"
    for entry in taken.entries:
        assert decode_entry(encode_entry(entry)) == entry, f"{entry.kind} is not read back"


async def send_back(broken: Broken, taken: Taken) -> None:
    """Ask the same provider to go on from what it said."""
    if not taken.parts:
        return
    said = AssistantMessage(id=MessageId("msg_1"), parts=taken.parts, provider="p", model="m")
    results = tuple(
        ToolResultPart(call_id=part.call_id, name=part.name, content=(TextPart(text="ok"),))
        for part in taken.parts
        if isinstance(part, ToolCallPart)
    )
    going_on = UserMessage(id=MessageId("msg_2"), parts=results or (TextPart(text="go on"),))
    request = ModelRequest(model="m", messages=(_ASKED, said, going_on))
    try:
        async for _ in client_of(broken).stream(request):
            break
    except AgentError:
        pass  # of the reply, which is as broken as the first one


async def fuzz(family: str, count: int, seed: int) -> AsyncIterator[tuple[str, Broken]]:
    """Yield how each of many broken replies of a protocol ended."""
    replies = corpus(family)
    for number in range(count):
        broken = break_reply(replies[number % len(replies)], Random(f"{family}/{seed}/{number}"))
        try:
            taken = await take(broken)
            check(taken)
            await send_back(broken, taken)
        except BaseException as error:
            error.add_note(f"reply {number} of {family}, seed {seed}: {broken!r:.3000}")
            raise
        yield ("answer" if taken.error is None else str(taken.error.code)), broken


class ManyReplies:
    """A transport that gives one broken reply after the other, then refuses."""

    def __init__(self, replies: Iterable[Broken]) -> None:
        self._replies = iter(replies)
        self.is_empty = False

    async def send(self, request: HttpRequest) -> Arriving:
        assert request.body
        found = next(self._replies, None)
        self.is_empty = found is None
        return Arriving(found or Broken("", 400, {}, (b"no more",)))

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_session_goes_on_after_any_reply_and_opens_again(
    family: str, tmp_path: Path
) -> None:
    """Every reply goes into one log, so each request holds what all the replies before it left."""
    api = corpus(family)[0].api
    replies = [reply for reply in corpus(family) if reply.api == api]
    transport = ManyReplies(
        break_reply(replies[number % len(replies)], Random(f"{family}/{number}"))
        for number in range(SESSION)
    )
    client = WireModelClient(
        provider="p",
        protocol=PROTOCOLS[api],
        endpoint=ProviderEndpoint(base_url="https://p.example/v1"),
        tokens=None,
        transport=transport,
    )
    options: dict[str, Any] = {
        "providers": [client],
        "clock": FakeClock(),
        "retry": RetrySettings(max_retries=0, interruption_retries=0),
    }
    store = JsonlStore(tmp_path)
    async with Agent("p/m", store=store, **options) as agent, agent.session("a") as session:
        while not transport.is_empty:
            with suppress(AgentError):
                await session.chat("go")
        left, session_id = (await session.export()).messages, session.session_id
    assert session_id is not None
    entries = await store.log.read(session_id)
    await store.close()
    assert not [entry for entry in entries if isinstance(entry, UnknownEntry)]
    again = f"jsonl:{tmp_path}"
    async with Agent("p/m", store=again, **options) as agent, agent.session("a") as session:
        assert (await session.export()).messages == left


async def _run(family: str, count: int, report: Report) -> None:
    outcomes = Counter([outcome async for outcome, _ in fuzz(family, count, seed=1)])
    assert outcomes["answer"]
    assert len(outcomes) > 3
    told = ", ".join(f"{outcome} {times}" for outcome, times in outcomes.most_common())
    report(f"{count} broken replies of {family}: {told}")


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_broken_reply_is_an_answer_or_a_typed_error(family: str, report: Report) -> None:
    await _run(family, SAMPLE, report)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("family", FAMILIES)
async def test_any_broken_reply_is_an_answer_or_a_typed_error(family: str, report: Report) -> None:
    await _run(family, SOAK, report)
