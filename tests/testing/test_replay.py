"""Recordings: what is replayed is what was recorded, with the faults that were asked for."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from haptera import Agent, AgentSession
from haptera.model.errors import AgentError, ErrorCode, ProviderError, StoreError
from haptera.model.ids import MessageId
from haptera.model.messages import UserMessage
from haptera.model.parts import TextPart
from haptera.model.requests import ModelRequest, TokenCount
from haptera.model.settings import Timeouts
from haptera.model.stream_parts import (
    PartClosed,
    PartDelta,
    PartOpaque,
    PartOpened,
    StreamFinished,
    StreamOpened,
    StreamPart,
)
from haptera.model.tools import ToolSpec
from haptera.model.usage import Usage
from haptera.stores.recording import RecordingClient
from haptera.testing import ScriptedProvider, says
from haptera.testing.replay import CallAt, CutAt, FailAt, Fault, ReplayClient, StallAt

READS: list[list[StreamPart]] = [
    [StreamOpened(model="toy", response_id="r1"), PartOpened(key="0", kind="text")],
    [PartDelta(key="0", text="Grüß"), PartDelta(key="0", text=" Gott")],
    [PartClosed(key="0", native={"cited": [1]}), PartOpaque(payload={"x": None})],
    [
        StreamFinished(
            kind="stop", reason="end", usage=Usage(input=3, output=2), cost=Decimal("0.1")
        )
    ],
]
PARTS = [part for read in READS for part in read]
OVERLOADED = ProviderError(ErrorCode.OVERLOADED, "busy", status=529, retry_after=3.0)


class StepClock:
    """A clock that moves one second each time it is read, and remembers how long it was slept."""

    def __init__(self) -> None:
        self.reading = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        self.reading += 1.0
        return self.reading

    def time_ms(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


class ToyClient:
    """Gives the same answer to everything, or fails after it."""

    provider = "toys"

    def __init__(self, *, error: AgentError | None = None) -> None:
        self._error = error
        self.is_closed = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        for read in READS[: 2 if self._error else None]:
            yield read
        if self._error:
            raise self._error

    async def count_tokens(self, request: ModelRequest) -> TokenCount:
        return TokenCount(tokens=len(request.messages), exact=True)

    async def close(self) -> None:
        self.is_closed = True


def ask(text: str = "hello", *, name: str = "m1", **fields: Any) -> ModelRequest:
    message = UserMessage(id=MessageId(name), parts=(TextPart(text=text),))
    return ModelRequest(model="toy", messages=(message,), **fields)


async def drain(client: Any, request: ModelRequest) -> list[list[StreamPart]]:
    return [list(parts) async for parts in client.stream(request)]


async def record(path: Path, *requests: ModelRequest, error: AgentError | None = None) -> Path:
    client = RecordingClient(ToyClient(error=error), path, clock=StepClock())
    for request in requests:
        try:
            await drain(client, request)
        except AgentError:
            assert error is not None
    await client.close()
    return path


@pytest.fixture
async def recorded(tmp_path: Path) -> Path:
    return await record(tmp_path / "one.jsonl", ask())


async def test_a_replay_gives_what_was_recorded_read_by_read(recorded: Path) -> None:
    client = ReplayClient(recorded)
    assert client.provider == "toys"
    assert await drain(client, ask()) == READS
    client.check()


async def test_a_recording_is_readable_by_its_owner_alone(recorded: Path) -> None:
    assert (await asyncio.to_thread(recorded.stat)).st_mode & 0o777 == 0o600


async def test_ids_and_time_limits_do_not_matter_what_is_said_does(recorded: Path) -> None:
    again = ask(name="another", timeouts=Timeouts(connect=1.0))
    assert await drain(ReplayClient(recorded), again) == READS


async def test_another_request_is_refused_with_the_first_difference(recorded: Path) -> None:
    with pytest.raises(AgentError) as caught:
        await drain(ReplayClient(recorded), ask("goodbye"))
    assert caught.value.code == ErrorCode.CONFIG_INVALID
    assert (
        "request.messages[0].parts[0].text: recorded 'hello', sent 'goodbye'"
        in caught.value.message
    )


async def test_a_difference_in_a_tools_schema_is_seen(tmp_path: Path) -> None:
    def tool(kind: str) -> ToolSpec:
        return ToolSpec(name="t", input_schema={"properties": {"id": {"type": kind}}})

    path = await record(tmp_path / "tool.jsonl", ask(tools=(tool("string"),)))
    with pytest.raises(AgentError, match=r"tools\[0\]\.input_schema\.properties\.id\.type"):
        await drain(ReplayClient(path), ask(tools=(tool("integer"),)))


@pytest.mark.parametrize(
    ("fields", "place"),
    [({"max_tokens": 3}, "max_tokens is only in what was sent"), ({"stop": ("x",)}, "stop")],
)
async def test_a_field_that_was_added_is_named(
    recorded: Path, fields: dict[str, Any], place: str
) -> None:
    with pytest.raises(AgentError, match=place):
        await drain(ReplayClient(recorded), ask(**fields))


async def test_requests_need_not_be_checked(recorded: Path) -> None:
    client = ReplayClient(recorded, check_requests=False)
    assert await drain(client, ask("something else")) == READS


async def test_sessions_that_were_recorded_at_once_find_their_answers(tmp_path: Path) -> None:
    client = ReplayClient(await record(tmp_path / "two.jsonl", ask("a"), ask("b")))
    await drain(client, ask("b"))
    assert client.unplayed == 1
    with pytest.raises(AssertionError, match="1 recorded"):
        client.check()
    await drain(client, ask("a"))
    client.check()
    with pytest.raises(AgentError, match="have been given"):
        await drain(client, ask("a"))


async def test_a_recorded_failure_fails_again(tmp_path: Path) -> None:
    client = ReplayClient(await record(tmp_path / "bad.jsonl", ask(), error=OVERLOADED))
    received: list[StreamPart] = []

    async def listen() -> None:
        async for parts in client.stream(ask()):
            received.extend(parts)

    with pytest.raises(AgentError) as caught:
        await listen()
    assert caught.value.report == OVERLOADED.report
    assert received == PARTS[:4]


async def test_time_is_kept_where_it_is_asked_for(recorded: Path) -> None:
    clock = StepClock()
    await drain(ReplayClient(recorded, timing="recorded", clock=clock), ask())
    assert clock.slept == [1.0, 1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("part", range(len(PARTS) + 1))
async def test_a_stream_can_be_cut_after_any_part_and_asked_for_again(
    recorded: Path, part: int
) -> None:
    client = ReplayClient(recorded, faults=[CutAt(part=part)])
    received: list[StreamPart] = []

    async def listen() -> None:
        async for parts in client.stream(ask()):
            assert parts
            received.extend(parts)

    with pytest.raises(AgentError) as caught:
        await listen()
    assert caught.value.code == ErrorCode.STREAM_INTERRUPTED
    assert received == PARTS[:part]
    assert await drain(client, ask()) == READS
    client.check()


async def test_a_stream_can_fail_with_any_error(recorded: Path) -> None:
    client = ReplayClient(recorded, faults=[FailAt(part=3, error=OVERLOADED.report)])
    with pytest.raises(AgentError) as caught:
        await drain(client, ask())
    assert caught.value.report == OVERLOADED.report


async def test_a_fault_can_wait_for_a_later_request(recorded: Path) -> None:
    faults: list[Fault] = [CutAt(part=1), FailAt(part=0, request=1, error=OVERLOADED.report)]
    client = ReplayClient(recorded, faults=faults)
    codes = []
    for _ in faults:
        with pytest.raises(AgentError) as caught:
            await drain(client, ask())
        codes.append(caught.value.code)
    assert codes == [ErrorCode.STREAM_INTERRUPTED, ErrorCode.OVERLOADED]
    assert await drain(client, ask()) == READS


async def test_a_stream_can_stall_for_some_time(recorded: Path) -> None:
    clock = StepClock()
    client = ReplayClient(recorded, clock=clock, faults=[StallAt(part=3, seconds=60)])
    assert [part for read in await drain(client, ask()) for part in read] == PARTS
    assert clock.slept == [60]


async def test_a_stream_can_stall_until_it_is_closed(recorded: Path) -> None:
    client = ReplayClient(recorded, faults=[StallAt(part=3)])
    received: list[StreamPart] = []
    stalled = asyncio.Event()

    async def listen() -> None:
        async for parts in client.stream(ask()):
            received.extend(parts)
            if len(received) == 3:
                stalled.set()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(listen())
        await stalled.wait()
        task.cancel()
    assert received == PARTS[:3]


async def test_something_can_happen_at_a_part(recorded: Path) -> None:
    given: list[StreamPart] = []
    seen: list[int] = []
    client = ReplayClient(recorded, faults=[CallAt(part=3, action=lambda: seen.append(len(given)))])
    async for parts in client.stream(ask()):
        given.extend(parts)
    assert (seen, given) == ([3], PARTS)


@pytest.mark.parametrize("count", range(len(PARTS) + 1))
async def test_an_abort_at_a_part_keeps_what_came_before_it(recorded: Path, count: int) -> None:
    sessions: list[AgentSession] = []

    def stop() -> None:
        sessions[0].abort()

    fault = CallAt(part=count, action=stop)
    client = ReplayClient(recorded, faults=[fault], check_requests=False)
    async with Agent("toys/toy", providers=[client]) as agent, agent.session() as session:
        sessions.append(session)
        result = await session.chat("hello", on_abort="return")
    assert result.stop_reason == "aborted"
    assert result.text == "".join(
        part.text for part in PARTS[:count] if isinstance(part, PartDelta)
    )


async def test_no_request_is_sent_when_the_answer_cannot_be_recorded(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    inner = ScriptedProvider([says("never")])
    client = RecordingClient(inner, tmp_path / "file" / "x.jsonl", clock=StepClock())
    with pytest.raises(StoreError):
        async for _ in client.stream(ask()):
            pass
    assert inner.requests == []


async def test_a_fault_after_the_end_is_a_mistake_that_is_told(recorded: Path) -> None:
    client = ReplayClient(recorded, faults=[CutAt(part=99)])
    with pytest.raises(AgentError, match="comes after the answer's 7 parts"):
        await drain(client, ask())


async def test_an_answer_recorded_up_to_an_abort_is_silent_after_it(tmp_path: Path) -> None:
    recorder = RecordingClient(ToyClient(), tmp_path / "abort.jsonl", clock=StepClock())
    async with aclosing(recorder.stream(ask())) as stream:
        async for _ in stream:
            break
    client = ReplayClient(tmp_path / "abort.jsonl")
    stream = client.stream(ask())
    assert await anext(stream) == READS[0]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await anext(stream)


async def test_counts_are_recorded_too(tmp_path: Path) -> None:
    path = tmp_path / "count.jsonl"
    inner = ToyClient()
    recorder = RecordingClient(inner, path, clock=StepClock())
    counted = await recorder.count_tokens(ask())
    await recorder.close()
    assert inner.is_closed
    client = ReplayClient(path)
    assert await client.count_tokens(ask()) == counted
    client.check()
    with pytest.raises(AgentError, match="no count"):
        await client.count_tokens(ask("other"))


async def test_a_closed_replay_refuses_requests(recorded: Path) -> None:
    client = ReplayClient(recorded)
    await client.close()
    with pytest.raises(AgentError) as caught:
        await drain(client, ask())
    assert caught.value.code == ErrorCode.CLOSED


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, ErrorCode.CONFIG_MISSING),
        ("", ErrorCode.CORRUPT),
        ('{"format":"other","version":1,"provider":"x"}', ErrorCode.CORRUPT),
        (
            '{"format":"haptera.recording","version":2,"provider":"x"}',
            ErrorCode.VERSION_UNSUPPORTED,
        ),
        ('{"format":"haptera.recording","version":1,"provider":"x"}\n{"torn', ErrorCode.CORRUPT),
    ],
)
def test_a_file_that_is_no_recording_is_refused(
    tmp_path: Path, text: str | None, code: ErrorCode
) -> None:
    path = tmp_path / "file.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(AgentError) as caught:
        _ = ReplayClient(path).unplayed
    assert caught.value.code == code


async def test_every_line_of_a_recording_is_json(recorded: Path) -> None:
    lines = (await asyncio.to_thread(recorded.read_bytes)).splitlines()
    header, exchange = (msgspec.json.decode(line) for line in lines)
    assert (header["format"], header["version"]) == ("haptera.recording", 1)
    assert [read["delay"] for read in exchange["reads"]] == [1.0] * 4
