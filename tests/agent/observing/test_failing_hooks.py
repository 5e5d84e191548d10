"""Hooks that fail: a gate that does blocks, an observer that does changes nothing but a report."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from haptera import (
    Agent,
    AgentError,
    AssistantMessage,
    ErrorCode,
    HookError,
    QueryEnded,
    TextPart,
    ToolStarted,
    TurnStarted,
    UserMessage,
    tool,
)
from haptera.hooks import Answer, Block, HookFailed, Hooks, Proceed
from haptera.model.events import Instrumented
from haptera.model.ids import new_entry_id, new_message_id
from haptera.model.log.compactions import Compaction
from haptera.stores.memory import MemoryStore
from haptera.testing import LoopClock, ScriptedProvider, calls, run_seeded, says
from tests.scripted_agents import failure_of, live_of, log_of, make_agent, playing

RAN: list[str] = []
GATES = ("before_query", "before_turn", "transform_messages", "transform_request", "before_tool")
OBSERVERS = ("session_start", "session_end", "after_turn", "after_tool", "after_query")
SHORT = {"hook_seconds": 0.02}


@tool
async def look() -> str:
    """Look."""
    RAN.append("look")
    return "seen"


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


_LET_GO = threading.Event()


@pytest.fixture(scope="module", autouse=True)
def _let_threads_go() -> Iterator[None]:
    _LET_GO.clear()  # one process may run tests of this module in several portions
    yield
    _LET_GO.set()


async def raises(_given: object) -> Any:
    """Fail like a program with a mistake."""
    raise KeyError("secret")


async def exits(_given: object) -> Any:
    """Fail like a program that gives up."""
    raise SystemExit(3)


async def hangs(_given: object) -> Any:
    """Never return."""
    await asyncio.Event().wait()


def hangs_in_a_thread(_given: object) -> Any:
    """Never return, where nothing can be cancelled."""
    _LET_GO.wait()


async def cancels_itself(_given: object) -> Any:
    """End as if it had been cancelled."""
    raise asyncio.CancelledError


FAULTS = [raises, exits, hangs, hangs_in_a_thread, cancels_itself]


def returns(value: object) -> Callable[[object], Any]:
    """Make a hook that returns something."""

    async def hook(_given: object) -> Any:
        return value

    return hook


def _user(text: Any) -> UserMessage:
    return UserMessage(id=new_message_id(), parts=(TextPart(text=text),))


_NO_VERDICTS: list[Any] = [None, True, "yes", Block(7), Proceed]  # type: ignore[arg-type]
NONSENSE: dict[str, list[Any]] = {
    **{
        point: [*_NO_VERDICTS, Answer((TextPart(text="hi"),)), Proceed(arguments={"a": 1})]
        for point in ("before_query", "before_turn", "before_compaction")
    },
    "before_tool": [*_NO_VERDICTS, Answer((TextPart(text=7),)), Answer("no parts")],  # type: ignore[arg-type]
    "transform_messages": [
        *(None, "text", [], ["text"], [_user(7)]),
        [AssistantMessage(id=new_message_id(), parts=(TextPart(text="said"),))],
    ],
    "transform_request": [None, {}, "request"],
}


async def _check_blocked(point: str, hook: Callable[[Any], Any]) -> None:
    hooks: Any = {point: hook}
    options: dict[str, Any] = {"fallbacks": ["scripted/two"], "runtime": SHORT, "tools": [look]}
    script = [calls(("look", {}))] if point == "before_tool" else []
    async with playing(script, hooks=Hooks(**hooks), **options) as (session, provider):
        error = await failure_of(session.chat("go"))
        log = await log_of(session)
    assert isinstance(error, HookError)
    assert (error.code, error.retryable) == (ErrorCode.HOOK_FAILED, False)
    assert point in error.message
    assert "secret" not in error.message
    assert (RAN, len(provider.requests)) == ([], len(script))
    assert not any(isinstance(entry, ToolStarted) for entry in log)
    assert sum(isinstance(entry, TurnStarted) for entry in log) == len(script)
    ended = log[-1]
    assert isinstance(ended, QueryEnded)
    assert ended.error is not None
    assert ended.error.code is ErrorCode.HOOK_FAILED


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("point", GATES)
async def test_a_gate_that_raises_or_hangs_blocks_and_nothing_runs(
    point: str, fault: Callable[[Any], Any]
) -> None:
    await _check_blocked(point, fault)


@pytest.mark.parametrize(
    ("point", "place"),
    [(point, place) for point in GATES for place in range(len(NONSENSE[point]))],
)
async def test_a_gate_that_returns_nonsense_blocks_and_nothing_runs(point: str, place: int) -> None:
    await _check_blocked(point, returns(NONSENSE[point][place]))


@pytest.mark.parametrize(
    "change", [{"model": "other"}, {"messages": ()}, {"temperature": "hot"}], ids=str
)
async def test_a_request_that_no_client_could_send_blocks(change: Any) -> None:
    async def spoil(given: Any) -> Any:
        return msgspec.structs.replace(given.request, **change)

    await _check_blocked("transform_request", spoil)


@pytest.mark.parametrize("point", GATES)
async def test_a_gate_that_fails_is_asked_once_and_no_fallback_is_tried(point: str) -> None:
    asked: list[object] = []

    async def fail(given: object) -> Any:
        asked.append(given)
        raise TimeoutError

    await _check_blocked(point, fail)
    assert len(asked) == 1


@pytest.mark.parametrize("fault", [*FAULTS, *map(returns, NONSENSE["before_compaction"])])
async def test_a_gate_before_a_compaction_that_fails_is_an_error(fault: Any) -> None:
    hooks = Hooks(before_compaction=fault)
    async with playing([], hooks=hooks, runtime=SHORT) as (session, _):
        live = await live_of(session)
        error = await failure_of(live.hooks.before_compaction(trigger="auto", tokens=1))
    assert error.code is ErrorCode.HOOK_FAILED


async def test_what_a_gate_said_before_it_failed_is_in_the_log() -> None:
    async def warn(given: Any) -> Any:
        given.say("this will not end well")
        raise KeyError

    async with playing([], hooks=Hooks(before_query=warn)) as (session, _):
        await failure_of(session.chat("go"))
        log = await log_of(session)
    assert [entry.kind for entry in log][-2:] == ["hook.message", "query.ended"]


# Observers.


async def _kinds_with(**options: Any) -> tuple[list[str], list[HookFailed]]:
    """Play two turns with a tool; return the entries of the log, and what was reported."""
    reported: list[HookFailed] = []

    def note(event: Instrumented) -> None:
        if isinstance(event, HookFailed):
            reported.append(event)

    store = MemoryStore()
    agent, provider = make_agent(
        [calls(("look", {})), says("well")],
        tools=[look],
        store=store,
        instrumentation=note,
        runtime=SHORT,
        **options,
    )
    async with agent, agent.session("ana") as session:
        result = await session.chat("go")
        assert (result.text, result.stop_reason) == ("well", "complete")
        session_id = (await live_of(session)).session_id
    provider.check()
    log = await store.log.read(session_id)
    return [entry.kind for entry in log], reported


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("point", OBSERVERS)
async def test_an_observer_that_fails_changes_nothing_but_a_report(
    point: str, fault: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    expected, _ = await _kinds_with()
    told: list[Any] = []

    async def note(given: Any) -> None:
        told.append(given)

    hooks: Any = {point: fault}
    both: Any = Hooks(**hooks)
    both.on(point)(note)
    kinds, reported = await _kinds_with(hooks=both)
    assert kinds == expected
    times = 2 if point == "after_turn" else 1
    assert [(each.point, each.error.code) for each in reported] == [
        (point, ErrorCode.HOOK_FAILED)
    ] * times
    assert len(told) == times  # the next observer is told all the same
    assert caplog.text.count(f"the {point} hook {fault.__name__!r}") == times
    assert "secret" not in caplog.text


async def test_an_observer_that_fails_is_reported_on_the_stream() -> None:
    async with playing([says("yes")], hooks=Hooks(after_turn=raises)) as (session, _):
        events = [event async for event in session.stream("go")]
    (failed,) = [event for event in events if isinstance(event, HookFailed)]
    assert (failed.kind, failed.point, failed.session_id) == (
        "instrumentation.hook",
        "after_turn",
        session.session_id,
    )


async def test_observers_that_fail_when_a_session_is_resumed_or_compacted_are_reported_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    hooks = Hooks(session_resume=raises, after_compaction=raises)
    for _ in range(2):
        agent, _provider = make_agent([], store=store, hooks=hooks)
        async with agent, agent.session("ana") as session:
            live = await live_of(session)
            made = Compaction(
                id=new_entry_id(), time=1, trigger="manual", strategy="summary", summary="s"
            )
            await live.hooks.after_compaction(made)
    assert caplog.text.count("the session_resume hook 'raises' failed: KeyError") == 1
    assert caplog.text.count("the after_compaction hook 'raises' failed: KeyError") == 2


# Hooks that hang while something is stopped.


def _agent(provider: ScriptedProvider, **options: Any) -> Agent:
    options = {"clock": LoopClock(), "environment": {}, **options}
    return Agent("scripted/m", providers=[provider], **options)


def _now() -> float:
    return asyncio.get_running_loop().time()


class Stubborn:
    """A hook that ignores its cancellation until it is let go."""

    def __init__(self) -> None:
        self.reached, self.enough, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def __call__(self, given: Any) -> Any:
        """Wait, whatever happens; then let everything go on."""
        self.reached.set()
        while not self.enough.is_set():
            try:
                await self.enough.wait()
            except asyncio.CancelledError:
                continue
        self.ended.set()
        given.say("said too late")
        return Proceed()


@pytest.mark.parametrize("point", GATES)
def test_an_abort_ends_a_query_whose_gate_hangs_and_nothing_is_run_later(point: str) -> None:
    async def play() -> None:
        store, hook = MemoryStore(), Stubborn()
        hooks: Any = {point: hook}
        provider = ScriptedProvider([calls(("look", {}))] if point == "before_tool" else [])
        async with _agent(provider, store=store, tools=[look], hooks=Hooks(**hooks)) as agent:
            session = agent.session()
            asking = asyncio.ensure_future(session.chat("go"))
            await hook.reached.wait()
            stopped_at = _now()
            session.abort()
            with pytest.raises(AgentError) as caught:
                await asking
            assert caught.value.code is ErrorCode.ABORTED
            assert _now() - stopped_at <= 1
            session_id, before = (await live_of(session)).session_id, await log_of(session)
            hook.enough.set()
            await hook.ended.wait()
            await session.close()
            assert await store.log.read(session_id) == before
        provider.check()
        assert RAN == []

    for seed in range(3):
        run_seeded(play, seed)


@pytest.mark.parametrize("point", ["after_query", "session_end", "after_turn"])
def test_a_forced_close_does_not_wait_for_an_observer_that_hangs(point: str) -> None:
    async def play() -> None:
        store, hook = MemoryStore(), Stubborn()
        hooks: Any = {point: hook}
        agent = _agent(ScriptedProvider([says("yes")]), store=store, hooks=Hooks(**hooks))
        session = agent.session("ana")
        asking = asyncio.ensure_future(session.chat("go", on_abort="return"))
        if point == "session_end":
            await asking
            ending: asyncio.Future[Any] = asyncio.ensure_future(session.close())
        else:
            ending = asking
        await hook.reached.wait()
        closed_at = _now()
        await session.close(force=True)
        assert _now() - closed_at <= 2
        await ending
        async with _agent(ScriptedProvider(), store=store) as other:
            await other.session("ana").open()  # the lease was released
        hook.enough.set()
        await hook.ended.wait()
        await agent.close()

    for seed in range(3):
        run_seeded(play, seed)


def test_an_observer_that_hangs_holds_up_an_aborted_query_for_two_seconds_at_most() -> None:
    async def play() -> None:
        hook, begun = Stubborn(), asyncio.Event()

        async def wait() -> None:
            begun.set()
            await asyncio.Event().wait()

        provider = ScriptedProvider([[*says("so far")[:3], wait]])
        agent = _agent(provider, hooks=Hooks(after_query=hook))
        session = agent.session()
        asking = asyncio.ensure_future(session.chat("go", on_abort="return"))
        await begun.wait()
        aborted_at = _now()
        session.abort()
        assert (await asking).text == "so far"
        assert _now() - aborted_at <= 3
        hook.enough.set()
        await agent.close()

    for seed in range(3):
        run_seeded(play, seed)


def test_a_session_that_is_closed_waits_for_its_observers() -> None:
    async def play() -> None:
        told: list[str] = []

        async def slowly(given: Any) -> None:
            await LoopClock().sleep(5)
            told.append(type(given).__name__)

        hooks = Hooks(after_query=slowly, session_end=slowly)
        async with _agent(ScriptedProvider([says("yes")]), hooks=hooks) as agent:
            await agent.run("go")
        assert told == ["AfterQuery", "SessionEnd"]

    run_seeded(play, 1)
