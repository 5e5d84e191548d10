"""Tools whose answer comes later: the call rests, is answered once, and the query goes on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from haptera import Agent, AgentSession, ErrorCode, Later, ToolContext, ToolEnded, ToolWaiting, tool
from haptera.model.log.fold import fold_entries
from haptera.model.log.tools import ToolStarted
from haptera.testing import FakeClock, ScriptedProvider, calls, says
from haptera.testing.scripted_provider import Step
from tests.attacks.moments import until
from tests.scripted_agents import failure_of, log_of, outcomes_in, playing
from tests.stores.store_factories import STORE_FACTORIES, open_store

pytestmark = pytest.mark.timeout(60)
RAN: list[str] = []
NUMBER = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


@tool(deferred=True)
async def order(what: str, context: ToolContext) -> str:
    """Order something."""
    RAN.append(what)
    return f"order of {context.call_id}"


@tool
async def quote(what: str) -> str:
    """Ask for a price."""
    RAN.append(what)
    raise Later(ref=f"quote {len(RAN)}", schema=NUMBER)


@tool
async def look() -> str:
    """Look around."""
    RAN.append("look")
    return "seen"


@tool(approval="ask")
async def pay() -> str:
    """Pay."""
    RAN.append("pay")
    return "paid"


TOOLS = [order, quote, look, pay]
ORDER: Step = calls(("order", {"what": "tea"}), ids=["one"])
QUOTE: Step = calls(("quote", {"what": "tea"}), ids=["one"])


def _agent(steps: list[Step], store: Any, **options: Any) -> Agent:
    options = {"tools": TOOLS, "clock": FakeClock(), **options}
    provider = ScriptedProvider(steps)
    return Agent("scripted/m", providers=[provider], store=store, environment={}, **options)


def _ends(entries: list[Any]) -> list[tuple[str, str]]:
    return [(item.call_id, item.outcome) for item in entries if isinstance(item, ToolEnded)]


# On every store.


@asynccontextmanager
async def _reopened(
    kind: str, folder: Path, steps: list[Step], **options: Any
) -> AsyncIterator[AgentSession]:
    store = open_store(kind, folder) if kind != "memory" else options.pop("shared")
    options.pop("shared", None)
    agent = _agent(steps, store, **options)
    async with agent, agent.session("s") as session:
        yield session
    if kind != "memory":
        await store.close()


@pytest.mark.parametrize("kind", STORE_FACTORIES)
async def test_a_call_rests_survives_reopening_and_is_answered_once(
    kind: str, tmp_path: Path
) -> None:
    shared = open_store("memory", tmp_path)
    async with _reopened(kind, tmp_path, [ORDER], shared=shared) as session:
        result = await session.chat("go")
        assert (result.stop_reason, RAN) == ("waiting", ["tea"])
        (waiting,) = result.waiting
        assert (waiting.call_id, waiting.ref, waiting.tool) == ("one", "order of one", "order")
        assert waiting.arguments == {"what": "tea"}
        assert session.status.calls == 1  # type: ignore[union-attr]
    async with _reopened(kind, tmp_path, [], shared=shared) as session:
        assert [call.fate for call in session.unfinished.calls] == ["waiting"]
        assert session.unfinished.resting
        again = await session.resume()
        assert (again.stop_reason, len(again.waiting)) == ("waiting", 1)
    async with _reopened(kind, tmp_path, [says("fine")], shared=shared) as session:
        await session.deliver("order of one", {"sent": True})
        assert not session.unfinished.waiting
        result = await session.resume()
        assert (result.text, result.waiting, RAN) == ("fine", (), ["tea"])
        entries = await log_of(session)
        assert _ends(entries) == [("one", "ok")]
        kinds = [entry.kind for entry in entries]
        assert kinds.index("tool.started") < kinds.index("tool.waiting") < kinds.index("tool.ended")


@pytest.mark.parametrize("kind", STORE_FACTORIES)
async def test_a_second_answer_is_refused_and_the_same_one_accepted(
    kind: str, tmp_path: Path
) -> None:
    shared = open_store("memory", tmp_path)
    async with _reopened(kind, tmp_path, [QUOTE, says("fine")], shared=shared) as session:
        await session.chat("go")
        await session.deliver("one", {"amount": 3})
        await session.deliver("quote 1", {"amount": 3})
        error = await failure_of(session.deliver("one", {"amount": 4}))
        assert error.code is ErrorCode.CONFLICT
        await session.resume()
        await session.deliver("one", {"amount": 3})
        assert (await failure_of(session.deliver("one", error="no"))).code is ErrorCode.CONFLICT
        assert _ends(await log_of(session)) == [("one", "ok")]


async def test_two_answers_at_once_are_one(tmp_path: Path) -> None:
    async with playing([QUOTE, says("fine")], tools=TOOLS) as (session, provider):
        await session.chat("go")
        answers = await asyncio.gather(
            *(session.deliver("one", {"amount": n}) for n in (1, 2, 1)), return_exceptions=True
        )
        codes = [getattr(answer, "code", None) for answer in answers]
        assert codes == [None, ErrorCode.CONFLICT, None]
        await session.resume()
        assert outcomes_in(provider.requests[1]) == [("quote", "ok", '{"amount":1}')]


# What is delivered.


async def test_an_error_is_what_the_model_is_told() -> None:
    async with playing([ORDER, says("fine")], tools=TOOLS) as (session, provider):
        await session.chat("go")
        await session.deliver("one", error="sold out")
        await session.resume()
    assert outcomes_in(provider.requests[1]) == [("order", "error", "sold out")]


async def test_an_answer_that_does_not_fit_leaves_the_call_waiting() -> None:
    async with playing([QUOTE, says("fine")], tools=TOOLS) as (session, _):
        await session.chat("go")
        for wrong in ({"amount": "much"}, None, "x" * 2_000_000):
            error = await failure_of(session.deliver("one", wrong))
            assert error.code is ErrorCode.TOOL_INVALID_INPUT
        both = await failure_of(session.deliver("one", {"amount": 1}, error="no"))
        assert both.code is ErrorCode.CONFIG_INVALID
        assert len(session.unfinished.waiting) == 1
        await session.deliver("one", {"amount": 1})
        assert (await session.resume()).text == "fine"


async def test_what_no_call_waits_for_is_not_found() -> None:
    async with playing([says("hi"), ORDER], tools=TOOLS) as (session, _):
        await session.chat("go")
        assert (await failure_of(session.deliver("one", 1))).code is ErrorCode.NOT_FOUND
        await session.chat("go")
        assert (await failure_of(session.deliver("two", 1))).code is ErrorCode.NOT_FOUND


async def test_an_answer_approves_nothing() -> None:
    async with playing([calls(("pay", {}), ids=["one"])], tools=TOOLS) as (session, _):
        await session.chat("go")
        assert (await failure_of(session.deliver("one", "yes"))).code is ErrorCode.NOT_FOUND
        assert (RAN, len(session.unfinished.approvals)) == ([], 1)


# Calls beside each other.


async def test_calls_of_one_turn_rest_together_and_are_answered_in_any_order() -> None:
    both: Step = calls(
        ("order", {"what": "a"}), ("look", {}), ("quote", {"what": "b"}), ids=["a", "l", "b"]
    )
    async with playing([both, says("fine")], tools=TOOLS) as (session, provider):
        result = await session.chat("go")
        assert [item.call_id for item in result.waiting] == ["a", "b"]
        await session.deliver("b", {"amount": 1})
        assert [item.call_id for item in (await session.resume()).waiting] == ["a"]
        await session.deliver("a", "sent")
        assert (await session.resume()).text == "fine"
    told = outcomes_in(provider.requests[1])
    assert told == [
        ("order", "ok", "sent"),
        ("look", "ok", "seen"),
        ("quote", "ok", '{"amount":1}'),
    ]
    assert sorted(RAN) == ["a", "b", "look"]


async def test_a_call_rests_beside_one_that_needs_an_approval() -> None:
    both: Step = calls(("order", {"what": "a"}), ("pay", {}), ids=["a", "p"])
    async with playing([both, says("fine")], tools=TOOLS) as (session, _):
        result = await session.chat("go")
        assert (result.stop_reason, len(result.pending), len(result.waiting)) == ("approval", 1, 1)
        await session.approve(result.pending[0].id)
        result = await session.resume()
        assert (result.stop_reason, RAN) == ("waiting", ["a", "pay"])
        await session.deliver("a")
        assert (await session.resume()).text == "fine"


async def test_a_call_that_is_answered_while_others_run_needs_no_rest() -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> str:
        """Take some time."""
        started.set()
        await go_on.wait()
        return "done"

    both: Step = calls(("order", {"what": "a"}), ("slow", {}), ids=["a", "s"])
    async with playing([both, says("fine")], tools=[order, slow]) as (session, _):
        chat = asyncio.ensure_future(session.chat("go"))
        await started.wait()
        await session.deliver("a", "sent")
        go_on.set()
        assert (await chat).text == "fine"


# Refs.


async def test_a_ref_is_refused_that_another_call_has_or_that_the_model_chose() -> None:
    @tool
    async def named(ref: str) -> str:
        """Wait by a name."""
        raise Later(ref=ref)

    @tool
    async def same(number: int) -> str:
        """Wait by one name."""
        raise Later(ref="the same")

    both: Step = calls(("named", {"ref": "mine"}), ("same", {"number": 1}), ("same", {"number": 2}))
    async with playing([both], tools=[named, same], parallel_tools=False) as (session, _):
        result = await session.chat("go")
        assert [item.arguments for item in result.waiting] == [{"number": 1}]
        entries = await log_of(session)
    told = [item.content[0].text for item in entries if isinstance(item, ToolEnded)]  # type: ignore[union-attr]
    assert "which the model has chosen" in told[0]
    assert "has the ref 'the same'" in told[1]


async def test_a_deferred_tool_that_returns_something_else_has_failed() -> None:
    @tool(deferred=True)
    async def wrong() -> int:
        """Return a number."""
        return 7

    async with playing([calls(("wrong", {})), says("fine")], tools=[wrong]) as (session, provider):
        await session.chat("go")
    assert "returns the ref of its call" in outcomes_in(provider.requests[1])[0][2]


# Ends of waiting.


async def test_a_new_prompt_ends_the_wait_and_the_model_is_told() -> None:
    async with playing([ORDER, says("fine")], tools=TOOLS) as (session, provider):
        await session.chat("go")
        assert (await session.chat("never mind")).text == "fine"
        assert (await failure_of(session.deliver("one", 1))).code is ErrorCode.NOT_FOUND
        assert _ends(await log_of(session)) == [("one", "cancelled")]
    assert outcomes_in(provider.requests[1])[0][:2] == ("order", "cancelled")


async def test_a_prompt_that_was_queued_before_the_rest_waits() -> None:
    gate, started = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        started.set()
        await gate.wait()

    script: list[Step] = [
        [hold, *calls(("order", {"what": "a"}), ids=["one"])],
        says("b"),
        says("c"),
    ]
    async with playing(script, tools=TOOLS) as (session, provider):
        chat = asyncio.ensure_future(session.chat("go"))
        await started.wait()
        await session.send("then")
        gate.set()
        assert (await chat).stop_reason == "waiting"
        assert len(provider.requests) == 1
        await session.deliver("one")
        assert (await session.resume()).text == "b"
        await session.wait_idle()


async def test_an_abort_ends_the_wait_of_a_running_query() -> None:
    started = asyncio.Event()

    @tool
    async def slow() -> str:
        """Take some time."""
        started.set()
        await asyncio.Event().wait()
        return "done"

    both: Step = calls(("order", {"what": "a"}), ("slow", {}), ids=["a", "s"])
    async with playing([both], tools=[order, slow]) as (session, _):
        chat = asyncio.ensure_future(session.chat("go", on_abort="return"))
        await started.wait()
        session.abort()
        assert (await chat).stop_reason == "aborted"
        assert sorted(_ends(await log_of(session))) == [("a", "cancelled"), ("s", "cancelled")]
        assert (await failure_of(session.deliver("a"))).code is ErrorCode.NOT_FOUND


async def test_a_fork_does_not_take_the_wait_over() -> None:
    async with playing([ORDER, says("fine")], tools=TOOLS) as (session, _):
        await session.chat("go")
        async with await session.fork() as branch:
            assert not branch.unfinished.waiting
            assert (await failure_of(branch.deliver("one", 1))).code is ErrorCode.NOT_FOUND
            results = [part for part in branch.messages[-1].parts if hasattr(part, "outcome")]
            assert [part.outcome for part in results] == ["cancelled"]
        await session.deliver("one", 1)
        assert (await session.resume()).text == "fine"


async def test_an_import_does_not_take_the_wait_over() -> None:
    async with playing([ORDER], tools=TOOLS) as (session, _):
        await session.chat("go")
        state = await session.export()
    agent = _agent([says("fine")], "memory")
    async with agent, agent.session(restore=state) as session:
        assert not session.unfinished.waiting
        assert (await failure_of(session.deliver("one", 1))).code is ErrorCode.NOT_FOUND
        assert (await session.chat("and?")).text == "fine"


async def test_a_call_waits_on_after_a_rewind_to_its_answer() -> None:
    async with playing([ORDER, says("fine")], tools=TOOLS) as (session, _):
        result = await session.chat("go")
        await session.rewind(to=result.message_id or "")
        assert [call.fate for call in session.unfinished.calls] == ["waiting"]
        await session.deliver("one", "sent")
        assert (await session.resume()).text == "fine"
        assert RAN == ["tea"]


async def test_a_rewind_to_before_the_call_leaves_nothing_to_answer() -> None:
    async with playing([says("hi"), ORDER], tools=TOOLS) as (session, _):
        first = await session.chat("hello")
        await session.chat("go")
        await session.rewind(to=first.message_id or "")
        assert (await failure_of(session.deliver("one", 1))).code is ErrorCode.NOT_FOUND
        await session.undo_rewind()
        await session.deliver("one", 1)


async def test_a_call_without_its_wait_in_the_log_is_unknown_and_with_it_never() -> None:
    async with playing([ORDER], tools=TOOLS) as (session, _):
        await session.chat("go")
        entries = await log_of(session)
    places = {entry.kind: place for place, entry in enumerate(entries)}
    before = fold_entries(entries[: places["tool.waiting"]])
    after = fold_entries(entries[: places["tool.waiting"] + 1])
    assert isinstance(entries[places["tool.started"]], ToolStarted)
    assert isinstance(entries[places["tool.waiting"]], ToolWaiting)
    assert [call.outcome for call in before.calls.values()] == ["unknown"]
    assert [call.outcome for call in after.calls.values()] == ["cancelled"]


# Time.


@pytest.mark.parametrize(
    ("otherwise", "end"),
    [("it did not come", ("ok", "it did not come")), (None, ("timed_out", None))],
)
async def test_a_call_whose_time_is_up_gets_the_answer_of_the_program(
    otherwise: str | None, end: tuple[str, str | None]
) -> None:
    @tool
    async def wait() -> str:
        """Wait for a minute."""
        raise Later(until=60, otherwise=otherwise)

    clock = FakeClock()
    script: list[Step] = [calls(("wait", {}), ids=["one"]), says("fine")]
    async with playing(script, tools=[wait], clock=clock) as (session, provider):
        result = await session.chat("go")
        assert result.waiting[0].until == clock.time_ms() + 60_000
        clock.advance(61)
        await until(lambda: not session.unfinished.waiting)
        assert (await failure_of(session.deliver("one", 1))).code is ErrorCode.CONFLICT
        assert (await session.resume()).text == "fine"
    ((_, outcome, text),) = outcomes_in(provider.requests[1])
    assert outcome == end[0]
    assert end[1] is None or text == end[1]


@pytest.mark.parametrize("kind", STORE_FACTORIES)
async def test_the_next_opener_answers_a_call_whose_time_is_up(kind: str, tmp_path: Path) -> None:
    @tool
    async def wait() -> str:
        """Wait for a minute."""
        raise Later(until=60, otherwise="it did not come")

    shared, clock = open_store("memory", tmp_path), FakeClock()
    common: dict[str, Any] = {"shared": shared, "tools": [wait], "clock": clock}
    script: list[Step] = [calls(("wait", {}), ids=["one"])]
    async with _reopened(kind, tmp_path, script, **common) as session:
        await session.chat("go")
    clock.advance(61)
    async with _reopened(kind, tmp_path, [says("fine")], **common) as session:
        assert not session.unfinished.waiting
        assert (await session.resume()).text == "fine"
        assert _ends(await log_of(session)) == [("one", "ok")]
