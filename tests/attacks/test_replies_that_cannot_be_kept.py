"""What others send and what no log reads back: refused or mended where it comes in."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from haptera import Agent, AgentError, AgentSession, ErrorCode, tool
from haptera.model.errors import ConfigError, StoreError
from haptera.model.events import Event
from haptera.model.json_types import DEEPEST, Json, JsonObject
from haptera.model.log.entry import UnknownEntry
from haptera.model.log.notes import HookMessage
from haptera.model.log.queries import QueryEnded
from haptera.model.log.tools import ToolEnded
from haptera.model.messages import AssistantMessage
from haptera.model.parts import ProviderPart, ReasoningPart, ToolCallPart
from haptera.model.requests import ModelRequest
from haptera.model.stream_parts import (
    PartClosed,
    PartDelta,
    PartOpaque,
    PartOpened,
    StreamFinished,
    StreamOpened,
    StreamPart,
)
from haptera.model.usage import Usage
from haptera.providers.transport.protocol import HttpRequest
from haptera.system.clock import Stamp
from haptera.testing import FakeClock, ScriptedProvider, calls, decode_reply, says
from tests.attacks.test_providers_that_misbehave import RawProvider
from tests.case_names import stable_name
from tests.providers.reply_mutator import Broken
from tests.providers.test_fuzzed_replies import Arriving
from tests.scripted_agents import live_of
from tests.stores.store_factories import DURABLE, STORE_FACTORIES, store_string


class Replies:
    """A transport that answers with one body after another, and keeps what it was asked."""

    def __init__(self, *bodies: bytes, status: int = 200) -> None:
        self._bodies = list(bodies)
        self._status = status
        self.asked: list[JsonObject] = []

    async def send(self, request: HttpRequest) -> Arriving:
        self.asked.append(json.loads(request.body))
        kind = {"content-type": "text/event-stream"}
        return Arriving(Broken("", self._status, kind, (self._bodies.pop(0),)))

    async def close(self) -> None:
        pass


def _events(*events: JsonObject) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)


def _completed(*output: JsonObject) -> bytes:
    response: JsonObject = {"id": 7, "model": "m", "status": "completed", "output": list(output)}
    return _events({"type": "response.completed", "response": response})


NUMBERED = _completed(
    {"type": "reasoning", "id": 3, "summary": [], "encrypted_content": 99},
    {"type": "function_call", "id": 4, "call_id": 5, "name": "pay", "arguments": "{}"},
    {"type": "function_call", "id": 6, "call_id": 8, "name": 9, "arguments": "{}"},
)
DONE = _completed(
    {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "done"}]}
)


@pytest.mark.parametrize("store", DURABLE)
async def test_calls_that_a_server_numbers_are_read_back_and_sent_back(
    store: str, tmp_path: Path
) -> None:
    paid: list[str] = []

    @tool
    async def pay() -> str:
        """Pay."""
        paid.append("paid")
        return "ok"

    transport = Replies(NUMBERED, DONE, DONE)
    options: dict[str, Any] = {
        "api_key": "k",
        "tools": [pay],
        "store": store_string(store, tmp_path),
        "transport": lambda: transport,
    }
    async with Agent("openai/m", **options) as agent, agent.session("a") as session:
        assert (await session.chat("go")).text == "done"
    async with Agent("openai/m", **options) as agent, agent.session("a") as session:
        entries = await _log_of(session, queries=1)
        assert not [entry for entry in entries if isinstance(entry, UnknownEntry)]
        parts = [part for message in session.messages for part in message.parts]
        assert [(part.call_id, part.name) for part in parts if isinstance(part, ToolCallPart)] == [
            ("5", "pay"),
            ("8", "9"),
        ]
        assert [part.signature for part in parts if isinstance(part, ReasoningPart)] == ["99"]
        await session.chat("go on")
    sent = [item for item in transport.asked[-1]["input"] if item.get("type") == "function_call"]
    assert [(item["call_id"], item["name"]) for item in sent] == [("5", "pay"), ("8", "9")]
    assert paid == ["paid"]


async def _log_of(session: AgentSession, *, queries: int) -> list[Event]:
    """Return what a session's log holds of its first queries."""
    found: list[Event] = []
    async with aclosing(session.events()) as events:
        async for event in events:
            found.append(event)
            queries -= isinstance(event, QueryEnded)
            if not queries:
                break
    return found


def _deep(levels: int) -> Json:
    value: Json = 1
    for _ in range(levels):
        value = [value]
    return value


def _call(**fields: Any) -> list[StreamPart]:
    known: dict[str, Any] = {"key": "1", "kind": "tool_call", "call_id": "c", "name": "pay"}
    return [PartOpened(**known | fields)]


UNKEEPABLE: dict[str, list[Any]] = {
    "a number for a call's id": _call(call_id=5),
    "a number for a name": _call(name=5),
    "a kind that there is not": _call(kind="riddle"),
    "a number for a signature": [
        PartOpened(key="1", kind="reasoning"),
        PartClosed(key="1", signature=5),  # type: ignore[arg-type]
    ],
    "an object that is no JSON": [PartOpaque(payload={"a": object()})],
    "half a character in an id": _call(call_id="\ud800"),
    "half a character in a payload": [PartOpaque(payload={"a": "\ud800"})],
    "a payload of too many levels": [PartOpaque(payload={"a": _deep(DEEPEST)})],
    "facts of too many levels": [
        PartOpened(key="1", kind="text"),
        PartClosed(key="1", native={"a": _deep(DEEPEST)}),
    ],
    "bytes for text": [PartOpened(key="1", kind="text"), PartDelta(key="1", text=b"x")],  # type: ignore[arg-type]
    "words for a count": [StreamFinished(kind="stop", usage=Usage(input="many"))],  # type: ignore[arg-type]
    "a model without a name": [StreamOpened(model=None)],  # type: ignore[arg-type]
    "no stream part at all": [{"type": "text"}],
}


@pytest.mark.parametrize("store", list(STORE_FACTORIES))
@pytest.mark.parametrize("case", UNKEEPABLE)
async def test_a_client_that_hands_over_what_no_log_reads_back_is_refused(
    case: str, store: str, tmp_path: Path
) -> None:
    async def play(request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        yield [StreamOpened(model="m"), PartOpened(key="t", kind="text")]
        yield [PartDelta(key="t", text="before"), *UNKEEPABLE[case]]

    async def answer(request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        yield says("fine")

    place = store_string(store, tmp_path)
    agent = Agent("raw/m", providers=[RawProvider(play, answer)], store=place, clock=FakeClock())
    async with agent, agent.session("a") as session:
        with pytest.raises(AgentError) as caught:
            await session.chat("go")
        assert (caught.value.code, caught.value.retryable) == (ErrorCode.PROTOCOL, False)
        result = caught.value.result
        assert result is not None
        assert result.text == "before"
        assert (await session.chat("again")).text == "fine"
        entries = await _log_of(session, queries=2)
        assert not [entry for entry in entries if isinstance(entry, UnknownEntry)]


async def test_values_of_many_levels_are_kept_up_to_a_bound(tmp_path: Path) -> None:
    payload = {"type": "x", "a": _deep(DEEPEST - 2)}

    async def play(request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        yield [StreamOpened(model="m"), PartOpaque(payload=payload), *says("fine")[1:]]

    place = store_string("sqlite", tmp_path)
    async with (
        Agent("raw/m", providers=[RawProvider(play)], store=place, clock=FakeClock()) as agent,
        agent.session("a") as session,
    ):
        await session.chat("go")
        state = await session.export()
    async with (
        Agent("raw/m", providers=[RawProvider()], clock=FakeClock()) as agent,
        agent.session(restore=state) as session,
    ):
        parts = [part for message in session.messages for part in message.parts]
    assert [part.payload for part in parts if isinstance(part, ProviderPart)] == [payload]


async def test_arguments_of_too_many_levels_are_answered_and_never_run() -> None:
    @tool
    async def pay(a: Any) -> str:
        """Pay."""
        raise AssertionError

    provider = ScriptedProvider([calls(("pay", {"a": _deep(DEEPEST)})), says("done")])
    async with (
        Agent("scripted/m", providers=[provider], tools=[pay], clock=FakeClock()) as agent,
        agent.session() as session,
    ):
        result = await session.chat("go")
        message = session.messages[1]
        assert isinstance(message, AssistantMessage)
        assert isinstance(message.parts[0], ToolCallPart)
        assert message.parts[0].invalid
    assert result.text == "done"


@pytest.mark.parametrize("store", list(STORE_FACTORIES))
async def test_the_recorder_queues_nothing_of_a_batch_that_no_log_reads_back(
    store: str, tmp_path: Path
) -> None:
    place = store_string(store, tmp_path)
    provider = ScriptedProvider([says("fine")])
    async with (
        Agent("scripted/m", providers=[provider], store=place, clock=FakeClock()) as agent,
        agent.session("a") as session,
    ):
        live = await live_of(session)
        head = live.recorder.fold.head
        stamp = Stamp(FakeClock())
        kept = HookMessage(**stamp(), hook="h", text="kept")
        lost = HookMessage(**stamp(), hook="h", text=5)  # type: ignore[arg-type]
        with pytest.raises(StoreError) as caught:
            await live.recorder.commit([kept, lost])
        assert (caught.value.code, caught.value.retryable) == (ErrorCode.CORRUPT, False)
        await live.recorder.commit([])
        assert live.recorder.fold.head == head
        assert (await session.chat("go")).text == "fine"


# Errors that are called by their name


@pytest.mark.parametrize(
    "mistake",
    [
        TypeError("unsupported operand"),
        AttributeError("timeout"),
        KeyError("rate limit"),
        RecursionError("maximum recursion depth exceeded"),
        ZeroDivisionError("503"),
        RuntimeError("something else entirely"),
    ],
    ids=lambda mistake: type(mistake).__name__,
)
async def test_a_mistake_of_a_client_is_never_the_network_and_never_repeated(
    mistake: Exception,
) -> None:
    asked = []

    async def play(request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        asked.append(request)
        raise mistake
        yield []

    async with Agent("raw/m", providers=[RawProvider(play)], clock=FakeClock()) as agent:
        with pytest.raises(AgentError) as caught:
            await agent.run("go")
    assert (caught.value.code, caught.value.retryable) == (ErrorCode.PROTOCOL, False)
    assert len(asked) == 1


class Ending(BaseException):
    """No `Exception`."""


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_tool_that_raises_no_exception_has_failed_like_any_other(*, is_async: bool) -> None:
    @tool
    async def ends() -> str:
        """End."""
        raise Ending("of this tool")

    @tool(name="ends")
    def ends_in_a_thread() -> str:
        """End."""
        raise Ending("of this tool")

    provider = ScriptedProvider([calls(("ends", {})), says("done")])
    used = ends if is_async else ends_in_a_thread
    async with (
        Agent("scripted/m", providers=[provider], tools=[used], clock=FakeClock()) as agent,
        agent.session() as session,
    ):
        assert (await session.chat("go")).text == "done"
        entries = await _log_of(session, queries=1)
    ended = [entry for entry in entries if isinstance(entry, ToolEnded)]
    assert [entry.outcome for entry in ended] == ["error"]
    assert ended[0].error is not None
    assert ended[0].error.code is ErrorCode.TOOL_FAILED


@pytest.mark.parametrize("key", [5, b"sk", ["sk"], object()], ids=stable_name)
def test_a_key_that_is_none_is_refused_by_its_name(key: Any) -> None:
    with pytest.raises(ConfigError, match="api_key") as caught:
        Agent("openai/m", api_key=key)
    assert caught.value.code is ErrorCode.CONFIG_INVALID


async def test_a_function_that_gives_no_key_is_refused() -> None:
    async def gives() -> Any:
        return 5

    async with Agent("openai/m", api_key=gives, transport=lambda: Replies(DONE)) as agent:
        with pytest.raises(ConfigError) as caught:
            await agent.run("go")
    assert caught.value.code is ErrorCode.CONFIG_INVALID


APIS = [
    "anthropic-messages",
    "openai-responses",
    "compat-chat",
    "gemini-generatecontent",
    "ollama-native",
]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"null", b" {} \n"])
def test_an_error_without_words_says_so(api: str, body: bytes) -> None:
    error = decode_reply(api, body, status=429).error
    assert error is not None
    assert error.code is ErrorCode.RATE_LIMITED
    assert error.message == "the provider answered with status 429 and nothing else"


@pytest.mark.parametrize("api", APIS)
def test_a_frame_of_endless_levels_is_the_providers_mistake(api: str) -> None:
    deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    frame = deep + b"\n" if api == "ollama-native" else b"data: " + deep + b"\n\n"
    error = decode_reply(api, frame).error
    assert error is not None
    assert (error.code, error.retryable) == (ErrorCode.PROTOCOL, False)


@pytest.mark.parametrize("store", list(STORE_FACTORIES))
@pytest.mark.parametrize("field", ["text", "call", "key", "system_prompt"])
async def test_half_characters_in_a_restored_state_are_refused_by_their_place(
    field: str, store: str, tmp_path: Path
) -> None:
    part: JsonObject = {"type": "text", "text": "\ud800" if field == "text" else "hi"}
    call: JsonObject = {"type": "tool_call", "call_id": "c", "name": "x", "arguments": {}}
    call["arguments"] = {"\ud800": 1} if field == "key" else {}
    call["call_id"] = "\ud800" if field == "call" else "c"
    answer = {"role": "assistant", "id": "m2", "parts": [call], "provider": "p", "model": "m"}
    state: JsonObject = {
        "version": 1,
        "messages": [{"role": "user", "id": "m1", "parts": [part]}, answer],
        "system_prompt": "\ud800" if field == "system_prompt" else None,
    }
    place = store_string(store, tmp_path)
    async with Agent("raw/m", providers=[RawProvider()], store=place) as agent:
        with pytest.raises(ConfigError, match=r"\$\.(messages|system_prompt)") as caught:
            agent.session(restore=state)
    assert caught.value.code is ErrorCode.CONFIG_INVALID


async def test_a_restored_state_of_endless_levels_is_refused() -> None:
    call: JsonObject = {"type": "tool_call", "call_id": "c", "name": "x", "arguments": _deep(500)}
    answer = {"role": "assistant", "id": "m2", "parts": [call], "provider": "p", "model": "m"}
    async with Agent("raw/m", providers=[RawProvider()]) as agent:
        with pytest.raises(ConfigError) as caught:
            agent.session(restore={"version": 1, "messages": [answer]})
    assert caught.value.code is ErrorCode.CONFIG_INVALID


@pytest.mark.parametrize("store", list(STORE_FACTORIES))
@pytest.mark.parametrize("given", ["apr_\ud800", 5, None])
async def test_an_approval_that_no_store_can_name_is_refused(
    given: Any,
    store: str,
    tmp_path: Path,
) -> None:
    place = store_string(store, tmp_path)
    async with (
        Agent("raw/m", providers=[RawProvider()], store=place) as agent,
        agent.session("a") as session,
    ):
        await session.open()
        remote = await agent.remote("a")
        with pytest.raises(ConfigError):
            await remote.approve(given)
        with pytest.raises(ConfigError):
            await remote.deny(given)
