"""One live session of the CLI, over a scripted child: sends, streams, its id, and its end."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from haptera.model.errors import AgentError, ConfigError, ErrorCode, SessionError
from haptera.model.native_messages import (
    NativeAnswer,
    NativeNotice,
    NativeResult,
    NativeStarted,
)
from haptera.model.stream_parts import PartDelta
from haptera.providers.claude_agent.agent_process import LONGEST_LINE
from haptera.providers.claude_agent.session import SessionLimits
from tests.providers.claude_agent.children import (
    FIRST,
    SECOND,
    USER,
    Child,
    claude_agent,
    drain,
    emit,
    init,
    one_step,
    open_session,
    opening,
    result,
    text,
    until,
    words,
)

pytestmark = pytest.mark.slow

NOTE = {"type": "system", "subtype": "note", "session_id": FIRST, "number": "{n}"}


async def test_a_session_sends_and_streams_until_and_including_the_next_result(
    tmp_path: Path,
) -> None:
    child = Child(tmp_path, [USER, init(), *text("Hello."), result()])
    session = await open_session(child)
    await session.send(words("Hi"))
    messages = await drain(session)
    await session.close()
    assert isinstance(messages[0], NativeStarted)
    assert isinstance(messages[-1], NativeResult)
    said = [
        p.text
        for m in messages
        if isinstance(m, NativeAnswer)
        for p in m.parts
        if isinstance(p, PartDelta)
    ]
    assert said == ["Hello."]
    assert child.of("user") == ["Hi"]


async def test_an_id_that_we_chose_is_known_at_once_and_confirmed_by_the_agent(
    tmp_path: Path,
) -> None:
    child = Child(tmp_path, [USER, init(SECOND), result(session_id=SECOND)])
    session = await open_session(child)
    chosen = await session.session_id()
    assert f"--session-id={chosen}" in child.argv
    await session.send(words("Hi"))
    await drain(session)
    assert await session.session_id() == SECOND  # the agent has the last word
    await session.close()


async def test_a_resumed_session_has_its_id_before_the_agent_says_anything(tmp_path: Path) -> None:
    child = Child(tmp_path, [])
    keep_transcript(child, FIRST)
    session = await claude_agent(child).resume_session(FIRST, opening())
    assert await session.session_id() == FIRST
    assert f"--resume={FIRST}" in child.argv
    await session.close()


async def test_the_id_of_a_copy_is_pending_until_the_agent_has_named_it(tmp_path: Path) -> None:
    child = Child(tmp_path, [USER, {"gate": "name"}, init(SECOND), result(session_id=SECOND)])
    keep_transcript(child, FIRST)
    session = await open_session(child, resume=FIRST, fork=True)
    named = asyncio.ensure_future(session.session_id())
    await session.send(words("Hi"))
    assert not named.done()
    child.open_gate("name")
    assert await named == SECOND  # seen without a consumer of the stream
    await session.close()


async def test_a_pending_id_fails_when_the_session_is_closed_and_a_known_one_stays(
    tmp_path: Path,
) -> None:
    child = Child(tmp_path / "pending", [])
    keep_transcript(child, FIRST)
    pending = await open_session(child, resume=FIRST, fork=True)
    waiting = asyncio.ensure_future(pending.session_id())
    await one_step()
    await pending.close()
    with pytest.raises(SessionError) as caught:
        await waiting
    assert caught.value.code is ErrorCode.CLOSED
    known = await open_session(Child(tmp_path / "known", []))
    before = await known.session_id()
    await known.close()
    assert await known.session_id() == before


async def test_the_pipe_is_drained_without_a_consumer_and_a_consumer_gets_only_what_it_pulls(
    tmp_path: Path,
) -> None:
    child = Child(
        tmp_path, [USER, init(), {"emit": NOTE, "times": 2000}, {"gate": "read"}, result()]
    )
    session = await open_session(child)
    await session.send(words("Hi"))
    await child.reached("read")  # all 2000 lines left the child: nothing blocked its pipe
    async with aclosing(session.stream()) as stream:
        first = await anext(stream)
        assert len(first) <= 256
        child.open_gate("read")
        rest = [message async for batch in stream for message in batch]
    notes = [m for m in (*first, *rest) if isinstance(m, NativeNotice)]
    assert [m.facts["number"] for m in notes] == [str(n) for n in range(2000)]
    await session.close()


async def test_a_second_consumer_is_refused_or_waits(tmp_path: Path) -> None:
    steps = [
        USER,
        init(),
        {"gate": "go"},
        *text("One"),
        result(),
        USER,
        *text("Two", "msg_2"),
        result(),
    ]
    child = Child(tmp_path, steps)
    session = await open_session(child)
    await session.send(words("1"))
    first = asyncio.ensure_future(drain(session))
    await one_step()
    with pytest.raises(SessionError) as caught:
        await anext(session.stream())
    assert caught.value.code is ErrorCode.STREAM_BUSY

    async def second() -> int:
        return len([m async for batch in session.stream(wait=True) for m in batch])

    waiting = asyncio.ensure_future(second())
    child.open_gate("go")
    await first
    await session.send(words("2"))
    assert await waiting > 0
    await session.close()


async def test_sends_are_serialised_in_the_order_of_the_calls_also_while_a_stream_runs(
    tmp_path: Path,
) -> None:
    child = Child(tmp_path, [USER, init(), USER, USER, USER, *text("All"), result()])
    session = await open_session(child)
    streaming = asyncio.ensure_future(drain(session))
    await asyncio.gather(*(session.send(words(f"prompt {n}")) for n in range(4)))
    await streaming
    assert child.of("user") == [f"prompt {n}" for n in range(4)]
    await session.close()


async def test_after_a_close_began_everything_is_closed(tmp_path: Path) -> None:
    session = await open_session(Child(tmp_path, []))
    closing = asyncio.ensure_future(session.close())
    await one_step()
    for refused in (session.send(words("Hi")), anext(session.stream()), session.interrupt()):
        with pytest.raises(SessionError) as caught:
            await refused
        assert caught.value.code is ErrorCode.CLOSED
    await closing


async def test_a_close_lets_the_stream_end_by_itself(tmp_path: Path) -> None:
    child = Child(tmp_path, [USER, init(), {"gate": "go"}, *text("Kept."), result()])
    session = await open_session(child)
    await session.send(words("Hi"))
    streaming = asyncio.ensure_future(drain(session))
    await child.reached("go")
    closing = asyncio.ensure_future(session.close())
    await one_step()
    child.open_gate("go")
    assert isinstance((await streaming)[-1], NativeResult)
    await closing


async def test_a_close_whose_time_is_over_ends_the_stream_by_force(tmp_path: Path) -> None:
    child = Child(tmp_path, [USER, init(), {"gate": "never"}])
    session = await open_session(child)
    await session.send(words("Hi"))
    streaming = asyncio.ensure_future(drain(session))
    await child.reached("never")
    await session.close(within=0.01)
    with pytest.raises(AgentError):
        await streaming
    assert not session.connection.process.running


async def test_concurrent_closers_share_one_outcome_and_a_second_close_is_nothing(
    tmp_path: Path,
) -> None:
    session = await open_session(Child(tmp_path, []))
    await asyncio.gather(session.close(), session.close(within=3), session.close())
    await session.close()
    assert not session.connection.process.running


async def test_concurrent_closers_share_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await open_session(Child(tmp_path, []))
    close = session.connection.close

    async def fail(*, grace: float | None = None) -> None:
        await close(grace=grace)
        raise OSError("the disk is on fire")

    monkeypatch.setattr(session.connection, "close", fail)
    outcomes = await asyncio.gather(session.close(), session.close(), return_exceptions=True)
    assert [type(each) for each in outcomes] == [OSError, OSError]


@pytest.mark.parametrize("within", [-1.0, float("nan"), float("inf")])
async def test_a_close_refuses_a_time_that_is_none(tmp_path: Path, within: float) -> None:
    session = await open_session(Child(tmp_path, []))
    with pytest.raises(ConfigError):
        await session.close(within=within)
    await session.close()


async def test_each_stream_starts_anew_and_ends_at_its_own_result(tmp_path: Path) -> None:
    steps = [USER, init(), *text("One"), result("one"), USER, *text("Two", "msg_2"), result("two")]
    session = await open_session(Child(tmp_path, steps))
    ends = []
    for prompt in ("1", "2"):
        await session.send(words(prompt))
        messages = await drain(session)
        ends.append([m.text for m in messages if isinstance(m, NativeResult)])
    assert ends == [["one"], ["two"]]
    await session.close()


async def test_nothing_of_a_turn_that_was_left_reaches_the_next_stream(tmp_path: Path) -> None:
    late = [emit(**NOTE), *text("late"), result("late", total_cost_usd=0.5)]
    steps = [USER, init(), *text("early", "msg_0"), {"gate": "late"}, *late, USER]
    child = Child(tmp_path, [*steps, *text("Two", "msg_2"), result("two")])
    session = await open_session(child)
    await session.send(words("1"))
    async with aclosing(session.stream()) as stream:
        await anext(stream)
    child.open_gate("late")
    await session.send(words("2"))
    messages = await drain(session)
    assert [m.text for m in messages if isinstance(m, NativeResult)] == ["two"]
    assert {m.message_id for m in messages if isinstance(m, NativeAnswer)} == {"msg_2"}
    left = [m for m in messages if isinstance(m, NativeNotice)]
    assert [m.facts.get("total_cost_usd") for m in left] == [0.5]  # what it cost is still known
    await session.close()


async def test_one_prompt_opens_drains_and_disposes(tmp_path: Path) -> None:
    child = Child(tmp_path, [USER, init(), *text("Hello."), result("Hello.")])
    messages = await claude_agent(child).prompt("Hi", opening())
    end = messages[-1]
    assert isinstance(end, NativeResult)
    assert end.text == "Hello."
    assert child.of("eof") == [None]


async def test_more_sends_than_the_queue_holds_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await open_session(Child(tmp_path, []), limits=SessionLimits(input_queue=2))
    pipe = asyncio.Event()

    async def wait_for_the_pipe(_message: object) -> None:
        await pipe.wait()

    monkeypatch.setattr(session.connection, "send", wait_for_the_pipe)
    sends = [asyncio.ensure_future(session.send(words(str(n)))) for n in range(4)]
    await asyncio.wait(sends[2:])
    pipe.set()
    outcomes = await asyncio.gather(*sends, return_exceptions=True)
    codes = [getattr(each, "code", None) for each in outcomes]
    assert codes == [None, None, ErrorCode.BUSY, ErrorCode.BUSY]
    await session.close(within=0)


async def test_an_interrupt_gets_through_with_more_than_a_thousand_unread_messages(
    tmp_path: Path,
) -> None:
    end = result(subtype="error_during_execution", is_error=True)["emit"]
    child = Child(
        tmp_path, [USER, init(), {"emit": NOTE, "times": 1500}, {"gate": "x"}], on_interrupt=[end]
    )
    session = await open_session(child)
    await session.send(words("Hi"))
    await child.reached("x")
    async with asyncio.timeout(10):
        await session.interrupt()
    messages = await drain(session)
    assert sum(isinstance(m, NativeNotice) for m in messages) == 1500
    assert isinstance(messages[-1], NativeResult)
    await session.close()


async def test_an_interrupt_before_the_agent_named_its_session_waits_for_that(
    tmp_path: Path,
) -> None:
    child = Child(tmp_path, [USER, {"gate": "name"}, init()], on_interrupt=[result()["emit"]])
    session = await open_session(child)
    await session.send(words("Hi"))
    interrupting = asyncio.ensure_future(session.interrupt())
    await child.reached("name")
    assert "interrupt" not in child.of("control")
    child.open_gate("name")
    await interrupting
    assert "interrupt" in child.of("control")
    await drain(session)
    await session.close()


async def test_unread_messages_are_bounded_in_memory_and_none_is_lost(tmp_path: Path) -> None:
    child = Child(tmp_path, [USER, init(), {"emit": NOTE, "times": 3000}, result(), {"gate": "x"}])
    session = await open_session(child, limits=SessionLimits(buffer_bytes=10_000))
    await session.send(words("Hi"))
    await child.reached("x")
    await until(lambda: session._results_released > 0)  # all lines are read by then
    assert session._buffer.memory_bytes <= 10_000
    assert len(session._buffer) > 2000
    messages = await drain(session)
    notes = [m.facts["number"] for m in messages if isinstance(m, NativeNotice)]
    assert notes == [str(n) for n in range(3000)]
    await session.close()


async def test_a_line_of_many_megabytes_is_one_message(tmp_path: Path) -> None:
    frame = {"type": "system", "subtype": "note", "session_id": FIRST, "text": "{long}"}
    child = Child(tmp_path, [USER, init(), {"long": 20_000_000, "frame": frame}, result()])
    session = await open_session(child)
    await session.send(words("Hi"))
    messages = await drain(session)
    assert [len(m.facts["text"]) for m in messages if isinstance(m, NativeNotice)] == [20_000_000]
    await session.close()


@pytest.mark.slow
async def test_a_line_that_is_too_long_ends_the_session_with_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LONGEST_LINE == 64 * 1024 * 1024
    monkeypatch.setattr("haptera.providers.claude_agent.agent_process.LONGEST_LINE", 100_000)
    frame = {"type": "system", "subtype": "note", "session_id": FIRST, "text": "{long}"}
    child = Child(tmp_path, [USER, init(), {"long": 300_000, "frame": frame}, result()])
    session = await open_session(child)
    await session.send(words("Hi"))
    with pytest.raises(AgentError) as caught:
        await drain(session)
    assert caught.value.code is ErrorCode.PROTOCOL
    await session.close()


async def test_a_process_that_dies_ends_the_stream_with_what_it_said_last(tmp_path: Path) -> None:
    child = Child(tmp_path, [USER, init(), {"say": "out of luck"}, {"die": 3}])
    session = await open_session(child)
    await session.send(words("Hi"))
    with pytest.raises(AgentError, match=r"status 3.*out of luck"):
        await drain(session)
    with pytest.raises(AgentError):
        await session.send(words("again"))
    await session.close()


def keep_transcript(child: Child, session_id: str) -> None:
    folder = child.folder / "home" / ".claude" / "projects" / "x"
    folder.mkdir(parents=True)
    (folder / f"{session_id}.jsonl").write_text('{"type": "user"}\n')
