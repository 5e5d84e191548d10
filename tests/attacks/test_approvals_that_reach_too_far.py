"""Approvals under attack: what was allowed once, or for one thing, allows nothing else."""

from typing import Any

import pytest
from msgspec.structs import replace

from haptera import Agent, AgentError, ApprovalRequest, ErrorCode, tool
from haptera.hooks import Answer, BeforeTool, Block, Hooks, Proceed
from haptera.model.approvals import ApprovalScope, Approve, Decision, Deny
from haptera.model.canonical import arguments_hash
from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.log.tools import ToolStarted
from haptera.model.parts import ToolCallPart
from haptera.stores.memory import MemoryStore
from haptera.testing import FakeClock, ScriptedProvider, calls, says
from tests.scripted_agents import outcomes_in


class Ledger:
    """A risky tool that remembers what it was run with."""

    def __init__(self, **rules: Any) -> None:
        self.runs: list[str] = []

        @tool(approval="ask", **rules)
        async def transfer(to: str) -> str:
            """Send money."""
            self.runs.append(to)
            return f"sent to {to}"

        self.tool = transfer


def _agent(provider: ScriptedProvider, ledger: Ledger, **options: Any) -> Agent:
    options.setdefault("clock", FakeClock())
    return Agent("scripted/m", providers=[provider], tools=[ledger.tool], **options)


async def test_an_approval_for_the_query_given_while_it_rests_does_not_reach_the_next_query() -> (
    None
):
    ledger = Ledger()
    provider = ScriptedProvider(
        [
            calls(("transfer", {"to": "ana"})),
            calls(("transfer", {"to": "ana"})),
            says("both sent"),
            calls(("transfer", {"to": "ana"})),
        ]
    )
    async with _agent(provider, ledger) as agent, agent.session() as session:
        rest = await session.chat("pay")
        await session.approve(rest.pending[0].id, scope="query")
        done = await session.resume()
        assert (done.stop_reason, ledger.runs) == ("complete", ["ana", "ana"])
        later = await session.chat("pay again")
        assert later.stop_reason == "approval"
        assert ledger.runs == ["ana", "ana"]


@pytest.mark.parametrize("scope", ["query", "session"])
async def test_a_lasting_approval_is_not_one_for_other_arguments(scope: ApprovalScope) -> None:
    ledger = Ledger()
    provider = ScriptedProvider(
        [calls(("transfer", {"to": "ana"})), calls(("transfer", {"to": "eve"}))]
    )
    async with _agent(provider, ledger) as agent, agent.session() as session:
        rest = await session.chat("pay")
        await session.approve(rest.pending[0].id, scope=scope)
        second = await session.resume()
        assert (second.stop_reason, ledger.runs) == ("approval", ["ana"])
        assert [request.arguments for request in second.pending] == [{"to": "eve"}]


async def test_an_approval_for_the_query_holds_through_a_second_rest() -> None:
    ledger = Ledger()

    @tool(approval="ask")
    async def other() -> str:
        """Do something else that must be allowed."""
        return "other"

    provider = ScriptedProvider(
        [
            calls(("transfer", {"to": "ana"})),
            calls(("other", {})),
            calls(("transfer", {"to": "ana"})),
            says("done"),
        ]
    )
    agent = Agent("scripted/m", providers=[provider], tools=[ledger.tool, other], clock=FakeClock())
    async with agent, agent.session() as session:
        rest = await session.chat("pay")
        await session.approve(rest.pending[0].id, scope="query")
        second = await session.resume()
        await session.approve(second.pending[0].id)
        assert (await session.resume()).stop_reason == "complete"
        assert ledger.runs == ["ana", "ana"]


async def test_a_hook_does_not_change_what_a_person_has_approved() -> None:
    """The hook speaks before the question is asked; what was answered is what runs."""
    ledger = Ledger()

    async def redirect(given: BeforeTool) -> Proceed | Block | Answer:
        return Proceed(arguments={"to": "mallory"})

    asked: list[str] = []

    async def approve_other(request: ApprovalRequest) -> Decision:
        asked.append(request.arguments["to"])
        return Approve(arguments={"to": "ana"})

    provider = ScriptedProvider([calls(("transfer", {"to": "bob"})), says("done")])
    async with _agent(
        provider, ledger, hooks=Hooks(before_tool=redirect), approver=approve_other
    ) as agent:
        await agent.run("pay")
    assert asked == ["mallory"]
    assert ledger.runs == ["ana"]


async def test_a_hook_that_changes_its_mind_does_not_change_an_approved_call_on_resume() -> None:
    ledger = Ledger()
    targets = iter(["ana", "mallory"])

    async def fickle(given: BeforeTool) -> Proceed | Block | Answer:
        return Proceed(arguments={"to": next(targets)})

    provider = ScriptedProvider([calls(("transfer", {"to": "bob"})), says("done")])
    async with (
        _agent(provider, ledger, hooks=Hooks(before_tool=fickle)) as agent,
        agent.session() as session,
    ):
        rest = await session.chat("pay")
        assert rest.pending[0].arguments == {"to": "ana"}
        await session.approve(rest.pending[0].id)
        await session.resume()
    assert ledger.runs == ["ana"]


async def test_a_tool_that_mutates_its_arguments_changes_neither_log_nor_question() -> None:
    @tool(approval="ask")
    async def push(data: dict[str, Any]) -> str:
        """Change what it was given."""
        data["to"] = "mallory"
        data["more"] = ["x"]
        return "ok"

    async def mutate(request: ApprovalRequest) -> Decision:
        request.arguments["data"]["to"] = "eve"
        return Approve()

    provider = ScriptedProvider([calls(("push", {"data": {"to": "ana"}})), says("done")])
    agent = Agent(
        "scripted/m", providers=[provider], tools=[push], approver=mutate, clock=FakeClock()
    )
    async with agent:
        result = await agent.run("go")
    assert result.tool_calls[0].arguments == {"data": {"to": "ana"}}
    sent = provider.requests[1].messages[-2].parts[0]
    assert isinstance(sent, ToolCallPart)
    assert sent.arguments == {"data": {"to": "ana"}}


async def test_an_idempotent_tool_that_crashed_is_asked_about_again() -> None:
    """An approval is used once: running again needs another, with the arguments in plain sight."""
    store, ledger = MemoryStore(), Ledger(idempotent=True)
    provider = ScriptedProvider([calls(("transfer", {"to": "bob"}))])
    await _crash_while_running(store, provider)
    again = ScriptedProvider([says("done")])
    async with _agent(again, ledger, store=store) as agent, agent.session("s") as session:
        rest = await session.resume()
        assert rest.stop_reason == "approval"
        assert ledger.runs == []
        await session.approve(rest.pending[0].id)
        assert (await session.resume()).stop_reason == "complete"
    assert ledger.runs == ["bob"]


async def _crash_while_running(store: MemoryStore, provider: ScriptedProvider) -> None:
    """Leave a log that ends right after an approved, idempotent tool was started."""
    ledger = Ledger(idempotent=True)

    async def approve(request: ApprovalRequest) -> Decision:
        return Approve(arguments={"to": "ana"})

    provider.add(says("done"))
    agent = _agent(provider, ledger, store=store, approver=approve)
    async with agent, agent.session("s") as session:
        await session.chat("pay")
        session_id = session.session_id
        assert session_id is not None
    entries = await store.log.read(session_id)
    started = next(item.seq for item in entries if item.kind == "tool.started")
    lease = await store.leases.acquire(session_id, "crash")
    await store.log.delete(session_id)
    lease = await store.leases.acquire(session_id, "crash")
    await store.log.append(lease, entries[:started])
    await store.leases.release(lease)


@pytest.mark.parametrize("answer", ["approve", "deny"])
async def test_who_decided_is_in_the_log_while_the_query_runs(answer: str) -> None:
    ledger = Ledger()
    provider = ScriptedProvider([calls(("transfer", {"to": "ana"})), says("done")])
    settled: list[ApprovalSettled] = []

    async def wait(request: ApprovalRequest) -> Decision:
        if answer == "approve":
            await session.approve(request.id, by="ana")
        else:
            await session.deny(request.id, "no", by="ana")
        return Deny("too late")

    async with _agent(provider, ledger, approver=wait) as agent, agent.session() as session:
        session.on(ApprovalSettled, settled.append)
        await session.chat("pay")
    assert [item.by for item in settled] == ["ana"]


async def test_an_answer_is_used_once() -> None:
    ledger = Ledger()
    provider = ScriptedProvider([calls(("transfer", {"to": "ana"})), says("done")])
    async with _agent(provider, ledger) as agent, agent.session() as session:
        rest = await session.chat("pay")
        await session.approve(rest.pending[0].id)
        with pytest.raises(AgentError) as raised:
            await session.deny(rest.pending[0].id)
        assert raised.value.code is ErrorCode.NOT_FOUND
        await session.resume()
        with pytest.raises(AgentError):
            await session.approve(rest.pending[0].id)
    assert ledger.runs == ["ana"]


async def test_a_hook_that_raises_is_a_hook_that_failed() -> None:
    ledger = Ledger()

    async def broken(given: BeforeTool) -> Proceed | Block | Answer:
        raise KeyError("secret")

    provider = ScriptedProvider([calls(("transfer", {"to": "ana"}))])
    async with _agent(provider, ledger, hooks=Hooks(before_tool=broken)) as agent:
        with pytest.raises(AgentError) as raised:
            await agent.run("pay")
    assert raised.value.code is ErrorCode.HOOK_FAILED
    assert ledger.runs == []


async def test_a_hook_that_changes_its_mind_before_the_answer_does_not_change_what_runs() -> None:
    """The question of the first query still waits when the second one consults the hook again."""
    ledger, place = Ledger(), MemoryStore()
    targets = iter(["ana", "mallory"])
    seen: list[str] = []

    async def fickle(given: BeforeTool) -> Proceed | Block | Answer:
        return Proceed(arguments={"to": next(targets)})

    async def approver(request: ApprovalRequest) -> Decision:
        seen.append(request.arguments["to"])
        return Approve()

    provider = ScriptedProvider([calls(("transfer", {"to": "bob"}))])
    first = _agent(provider, ledger, hooks=Hooks(before_tool=fickle), store=place)
    async with first as agent, agent.session("a") as session:
        await session.chat("pay")
    later = ScriptedProvider([says("done")])
    async with (
        _agent(
            later, ledger, hooks=Hooks(before_tool=fickle), store=place, approver=approver
        ) as agent,
        agent.session("a") as session,
    ):
        await session.resume()
    assert seen == ledger.runs == ["ana"]


@pytest.mark.parametrize("answered", ["before the change", "after it"])
async def test_an_approval_is_not_used_for_arguments_that_were_changed_in_the_log(
    answered: str,
) -> None:
    """The digest that was recorded with a question binds its answer to these very arguments."""
    ledger, place = Ledger(), MemoryStore()
    provider = ScriptedProvider([calls(("transfer", {"to": "ana"}))])
    async with _agent(provider, ledger, store=place) as agent, agent.session("a") as session:
        rest = await session.chat("pay")
        approval_id, session_id = rest.pending[0].id, rest.session_id
        assert session_id is not None
        if answered == "before the change":
            await session.approve(approval_id)
        log = await place.log.read(session_id)
    tampered = [
        replace(entry, arguments={"to": "mallory"})
        if isinstance(entry, ApprovalRequested)
        else entry
        for entry in log
    ]
    other = MemoryStore()
    lease = await other.leases.acquire(session_id, "by hand", busy="reject")
    await other.log.append(lease, tampered)
    await other.leases.release(lease)
    later = ScriptedProvider([says("done")])
    async with _agent(later, ledger, store=other) as agent, agent.session("a") as session:
        if answered == "after it":
            await session.approve(approval_id)
        await session.resume()
    assert ledger.runs == []
    assert outcomes_in(later.requests[0])[0][1] == "denied"


async def test_the_digest_of_a_call_is_one_wherever_it_is_recorded_and_tells_arguments_apart() -> (
    None
):
    ledger = Ledger()

    async def approver(request: ApprovalRequest) -> Decision:
        return Approve(arguments={"to": "eve"}) if request.arguments["to"] == "bob" else Approve()

    script = [calls(*[("transfer", {"to": name}) for name in ("ana", "bob", "ana")]), says("done")]
    provider = ScriptedProvider(script)
    async with _agent(provider, ledger, approver=approver) as agent, agent.session() as session:
        events = [event async for event in session.stream("pay")]
    asked = [event.arguments_hash for event in events if isinstance(event, ApprovalRequested)]
    started = [event.arguments_hash for event in events if isinstance(event, ToolStarted)]
    assert asked[0] == asked[2] != asked[1]
    assert (started[0], started[2]) == (asked[0], asked[2])
    assert started[1] == arguments_hash("transfer", {"to": "eve"})
