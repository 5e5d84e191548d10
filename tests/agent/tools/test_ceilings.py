"""What an agent says of its tools bounds every session and query, however they are set."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest

from haptera import Agent, AgentSession, ApprovalRequest, Approve, QueryEnded, tool
from haptera.access.worker import SessionWorker
from haptera.hooks import BeforeTool, Hooks, Proceed
from haptera.model.agent_defaults import Permissions
from haptera.model.log.sessions import SessionChanged
from haptera.ports.session_store import UnownedQuery
from haptera.stores.memory import MemoryStore
from haptera.testing import FakeClock, ScriptedProvider, calls, says
from tests.providers.claude_agent.children import (
    USER,
    Child,
    agent_of,
    call,
    hook,
    init,
    permission,
    received,
    result,
    text,
    tool_result,
)
from tests.scripted_agents import make_agent, outcomes_in

SEEDS, SOAK_SEEDS = 60, 1000
NAMES = ("a", "b", "c", "d")
Said = dict[str, Any]


class World:
    """One store, an agent with a ceiling, and another process whose agent has none."""

    def __init__(self, own: Said, hostile: Said, *, folder: Path, from_file: bool) -> None:
        self.own, self.hostile = own, hostile
        self.store = MemoryStore()
        self.ran: list[str] = []
        self.asked: list[str] = []
        self.provider = ScriptedProvider([calls(*((name, {}) for name in NAMES)), says("done")])
        common: Said = {"store": self.store, "tools": [self._tool(name) for name in NAMES]}
        if from_file:
            file = folder / "config.toml"
            said = {name: value for name, value in own.items() if value is not None}
            lines = [
                f"{name} = {msgspec.json.encode(each).decode()}" for name, each in said.items()
            ]
            file.write_text("\n".join(["[defaults]", *lines]))
            common["config_path"] = file
            own = {}
        self.agent, _ = self._agent(own, common | {"approver": self._approve})
        self.other, _ = self._agent({}, {"store": self.store})

    def _agent(self, own: Said, common: Said) -> tuple[Agent, ScriptedProvider]:
        return make_agent([], model="mine/one", providers=[_Mine(self.provider)], **common, **own)

    def _tool(self, name: str) -> Any:
        async def work() -> str:
            """Work."""
            self.ran.append(name)
            return name

        return tool(name=name)(work)

    async def _approve(self, request: ApprovalRequest) -> Approve:
        self.asked.append(request.tool)
        return Approve(scope="session")

    def check(self, way: str) -> None:
        """Compare what was offered and run with what the agent says."""
        told = f"{way}: the agent {self.own}, then {self.hostile}"
        allowed = self.own.get("allowed_tools")
        permitted = set(NAMES if allowed is None else allowed) - set(self.own["denied_tools"])
        assert self.provider.requests, told
        for request in self.provider.requests:
            assert {spec.name for spec in request.tools} <= permitted, told
        assert set(self.ran) <= permitted, told
        if self.own["approval"] == "ask":
            assert sorted(self.ran) == sorted(self.asked), told


class _Mine:
    """The scripted provider under another name; agents of the helper bring one of their own."""

    provider = "mine"

    def __init__(self, inner: ScriptedProvider) -> None:
        self.stream, self.count_tokens = inner.stream, inner.count_tokens

    async def close(self) -> None:
        """Keep it open: two agents share it."""


Way = Callable[[World], Awaitable[None]]
WAYS: dict[str, Way] = {}


def way(function: Way) -> Way:
    WAYS[function.__name__] = function
    return function


async def _ask(session: AgentSession, **options: Any) -> None:
    await session.chat("go", **options)


@way
async def an_argument_of_the_session(world: World) -> None:
    async with world.agent.session("s", **world.hostile) as session:
        await _ask(session)


@way
async def a_change_of_settings(world: World) -> None:
    async with world.agent.session("s") as session:
        await session.configure(**world.hostile)
        await _ask(session)


@way
async def an_option_of_the_query(world: World) -> None:
    async with world.agent.session("s") as session:
        await _ask(session, **world.hostile)


@way
async def an_option_of_a_single_call(world: World) -> None:
    await world.agent.run("go", **world.hostile)


@way
async def a_stream(world: World) -> None:
    async with world.agent.session("s") as session:
        async for _ in session.stream("go", **world.hostile):
            pass


@way
async def a_log_of_another_process(world: World) -> None:
    async with world.other.session("s", **world.hostile):
        pass
    async with world.agent.session("s") as session:
        await _ask(session)


@way
async def an_entry_of_the_log(world: World) -> None:
    async with world.other.session("s") as session:
        await session.configure(**world.hostile)
    async with world.agent.session("s") as session:
        await _ask(session)


@way
async def an_entry_of_no_known_origin(world: World) -> None:
    async with world.agent.session("s") as session:
        live = session._live
        assert live is not None
        plain = {name: value for name, value in world.hostile.items() if value is not None}
        change = SessionChanged(**live.stamp(), changes={"settings": plain})
        await live.recorder.commit([change])
        await _ask(session)


@way
async def a_remote_command(world: World) -> None:
    async with world.agent.session("s") as session:
        remote = await world.other.remote("s")
        await remote.configure(**world.hostile)
        await _ask(session)


@way
async def a_prompt_that_waited(world: World) -> None:
    async with world.other.session("s") as session:
        await session.configure(**world.hostile)
    await (await world.other.remote("s")).send("go")
    async with world.agent.session("s") as session:
        await session.resume(**world.hostile)


@way
async def an_import(world: World) -> None:
    async with world.other.session("s") as session:
        await session.configure(**world.hostile)
    archive = b"".join([piece async for piece in world.other.sessions.export("s")])
    made = await world.agent.sessions.import_from(BytesIO(archive))
    async with world.agent.session(made.session.id) as session:
        await _ask(session)


@way
async def a_fork(world: World) -> None:
    async with world.other.session("s") as session:
        await session.configure(**world.hostile)
    async with await world.agent.sessions.fork("s") as session:
        await _ask(session)


@way
async def a_state_that_is_restored(world: World) -> None:
    async with world.other.session("s") as session:
        await session.configure(**world.hostile)
        state = await session.export()
    async with world.agent.session("t", restore=state, **world.hostile) as session:
        await _ask(session)


@way
async def a_worker(world: World) -> None:
    async with world.other.session("s") as session:
        await session.configure(**world.hostile)
    remote = await world.other.remote("s")
    await remote.send("go")

    def open_session(found: UnownedQuery) -> AgentSession:
        return world.agent.session(found.session_id)

    clock = world.agent.clock
    assert isinstance(clock, FakeClock)
    clock.advance(1)  # it carries on what was there before it began to look
    worker = SessionWorker(world.agent.sessions, open_session, clock=clock)
    async with worker, asyncio.timeout(20), aclosing(remote.events()) as events:
        async for event in events:
            if isinstance(event, QueryEnded):
                break


@way
async def a_sub_agent(world: World) -> None:
    helper = world.agent.as_tool(name="helper", description="Helps.")
    steps = [calls(("helper", {"prompt": "go"})), says("done")]
    more = {name: world.hostile[name] for name in ("denied_tools", "approval")}
    caller, _ = make_agent(steps, tools=[helper], approver=lambda _: Approve(), **more)
    async with caller:
        await caller.run("go")


def _some(chance: random.Random) -> tuple[str, ...]:
    return tuple(chance.sample(NAMES, chance.randint(0, len(NAMES))))


def _said(chance: random.Random) -> Said:
    """Return settings that no one has checked against others."""
    return {
        "allowed_tools": chance.choice([None, (), _some(chance), _some(chance)]),
        "denied_tools": chance.choice([(), (), _some(chance)]),
        "approval": chance.choice(["by_tool", "ask"]),
    }


async def _pass(way: str, seed: int, folder: Path) -> World:
    """Let the settings of a seed pass through a way, and check what comes of them."""
    chance = random.Random(f"{way} {seed}")
    hostile = _said(chance)
    hostile["permission_mode"] = chance.choice(["default", "accept_edits", "plan", "dont_ask"])
    from_file = chance.random() < 0.5
    world = World(_said(chance), hostile, folder=folder, from_file=from_file)
    async with world.agent, world.other:
        await WAYS[way](world)
    world.check(way)
    return world


@pytest.mark.parametrize("way", WAYS)
async def test_no_way_leads_beyond_what_the_agent_says(way: str, tmp_path: Path) -> None:
    worlds = [await _pass(way, seed, tmp_path) for seed in range(SEEDS)]
    assert any(world.ran for world in worlds)
    assert any(world.asked for world in worlds)


@pytest.mark.soak
@pytest.mark.parametrize("way", WAYS)
async def test_many_settings_at_no_way_lead_beyond_what_the_agent_says(
    way: str, tmp_path: Path
) -> None:
    worlds = [await _pass(way, seed, tmp_path) for seed in range(SEEDS, SOAK_SEEDS)]
    assert any(world.ran for world in worlds)


async def test_names_are_intersected_denials_joined_and_the_stricter_rule_holds() -> None:
    tools = [tool(name=name)(_nothing) for name in NAMES]
    own: Said = {"allowed_tools": ["a", "b", "c"], "denied_tools": ["c"], "approval": "ask"}
    agent, _ = make_agent([], tools=tools, **own)
    async with agent, agent.session() as session:
        await session.configure(
            allowed_tools=["d", "c", "b"], denied_tools=["a"], approval="by_tool"
        )
        settings = session.settings
        assert settings.allowed_tools == ("c", "b")
        assert settings.denied_tools == ("c", "a")
        assert settings.approval == "ask"
        assert [spec.name for spec in session.tools] == ["b"]
        await session.configure(allowed_tools=None, denied_tools=[], permission_mode="plan")
        assert [spec.name for spec in session.tools] == ["a", "b"]
        assert session.settings.permission_mode == "plan"  # it is no ceiling


async def _nothing() -> str:
    """Do nothing."""
    return ""


async def test_an_agent_without_tools_stays_without_tools() -> None:
    agent, provider = make_agent(
        [calls(("a", {})), says("done")], tools=[tool(name="a")(_nothing)], allowed_tools=[]
    )
    async with agent, agent.session() as session:
        await session.configure(allowed_tools=None)
        await session.chat("go", allowed_tools=["a"], permission_mode="accept_edits")
    assert provider.requests[0].tools == ()
    assert outcomes_in(provider.requests[1])[0][1] == "error"


@pytest.mark.parametrize(
    "own",
    [
        {"denied_tools": ["erase"]},
        {"permissions": Permissions(deny=("erase",))},
        {"approval": "ask", "unanswered": "deny"},
    ],
)
async def test_what_a_caller_refuses_its_sub_agents_are_refused(own: Said) -> None:
    ran: list[str] = []

    @tool
    async def erase() -> str:
        """Erase."""
        ran.append("erase")
        return "gone"

    helper, inner = make_agent([calls(("erase", {})), says("tried")], tools=[erase])
    as_tool = helper.as_tool(name="helper", description="Helps.")
    steps = [calls(("helper", {"prompt": "go"})), says("done")]
    rules = own.get("permissions", Permissions())
    allowing = msgspec.structs.replace(rules, allow=("helper",))
    caller, _ = make_agent(steps, tools=[as_tool], **own | {"permissions": allowing})
    async with caller:
        await caller.run("go")
    assert ran == []
    assert len(inner.requests) == 2  # it was asked, and told that nothing ran


async def test_an_approval_for_the_session_lifts_no_denial() -> None:
    ran: list[str] = []

    @tool(approval="ask")
    async def erase() -> str:
        """Erase."""
        ran.append("erase")
        return "gone"

    store = MemoryStore()
    turn = [calls(("erase", {})), says("done")]
    answers: Said = {"approver": lambda _: Approve(scope="session"), "tools": [erase]}
    agent, _ = make_agent([*turn, *turn], store=store, **answers)
    async with agent, agent.session("s") as session:
        await session.chat("go")
        await session.chat("go")
    assert ran == ["erase", "erase"]
    rules = {"permissions": Permissions(deny=("erase",))}
    denials: tuple[Said, ...] = ({"denied_tools": ["erase"]}, {"allowed_tools": []}, rules)
    for own in denials:
        bounded, provider = make_agent([*turn], store=store, **answers, **own)
        async with bounded, bounded.session("s") as session:
            await session.chat("go")
        assert outcomes_in(provider.requests[1])[-1][1] in {"error", "denied"}
    assert ran == ["erase", "erase"]


# Agents that bring tools of their own.

BASH = {"command": "touch x"}


def _bash_turn(*asked: Said) -> list[Said]:
    steps = [USER, init(), *call("Bash", BASH), *asked]
    return [*steps, tool_result("done"), *text("Done.", "msg_2"), result("Done.")]


def _answers(child: Child) -> list[Said]:
    """Return what the program was told about its calls."""
    told = [value for kind, value in received(child.folder) if kind == "answer"]
    return [each["response"] for each in told]


@pytest.mark.parametrize(
    ("own", "later"),
    [
        ({"allowed_tools": ["Read"]}, {"allowed_tools": ["Bash"]}),
        ({"denied_tools": ["Bash"]}, {"denied_tools": []}),
    ],
)
@pytest.mark.parametrize("agent_id", [None, "helper-1"])
async def test_a_native_agent_is_started_and_answered_within_the_ceiling(
    own: Said, later: Said, agent_id: str | None, tmp_path: Path
) -> None:
    more = {} if agent_id is None else {"agent_id": agent_id}
    asked = (hook("Bash", BASH, **more), permission("Bash", BASH, **more))
    child = Child(tmp_path, _bash_turn(*asked))
    agent = agent_of(child, approver=lambda _: Approve(), **own)
    async with agent, agent.session() as session:
        await session.configure(**later)
        await session.chat("go")
    flags = child.argv
    if "allowed_tools" in own:
        assert "--tools=" in flags
    else:
        assert "--disallowedTools=Bash" in flags
    hooked, permitted = _answers(child)
    assert hooked["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert permitted["behavior"] == "deny"


async def test_what_was_approved_before_a_denial_is_denied_to_a_native_agent(
    tmp_path: Path,
) -> None:
    stopped = result("Stopped.", is_error=True, terminal_reason="aborted_tools")
    rests = [USER, init(), *call("Bash", BASH), permission("Bash", BASH), stopped]
    again = [USER, init(), *call("Bash", BASH, "toolu_2", "msg_b")]
    asked = [permission("Bash", BASH, "toolu_2"), tool_result("no", "toolu_2", is_error=True)]
    store = MemoryStore()
    first, later = Child(tmp_path / "first", rests), tmp_path / "later"
    async with agent_of(first, store=store, cwd=tmp_path) as agent, agent.session("s") as session:
        (request,) = (await session.chat("go")).pending
        await session.approve(request.id)
    child = Child(later, [*again, *asked, *text("Done.", "msg_3"), result("Done.")])
    agent = agent_of(child, store=store, cwd=tmp_path, denied_tools=["Bash"])
    async with agent, agent.session("s") as session:
        await session.resume()
    (permitted,) = _answers(child)
    assert permitted["behavior"] == "deny"


async def test_a_call_that_a_hook_changes_is_denied_all_the_same(tmp_path: Path) -> None:
    async def change(_given: BeforeTool) -> Proceed:
        return Proceed(arguments={"file_path": "y"})

    read = {"file_path": "x"}
    steps = [USER, init(), *call("Read", read), hook("Read", read), tool_result("no")]
    child = Child(tmp_path, [*steps, *text("Done.", "msg_2"), result("Done.")])
    hooks = Hooks(before_tool=change)
    async with agent_of(child, hooks=hooks, denied_tools=["Read"]) as agent:
        await agent.run("go")
    (hooked,) = _answers(child)
    assert hooked["hookSpecificOutput"]["permissionDecision"] == "deny"
