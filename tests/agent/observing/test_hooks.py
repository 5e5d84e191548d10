"""Hooks through an agent: which points are reached, in which order, and what they can do there."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import haptera.sync
from haptera import (
    Agent,
    AgentError,
    ApprovalRequest,
    Approve,
    ConfigError,
    ErrorCode,
    Message,
    TextPart,
    ToolCallPart,
    UserMessage,
    tool,
)
from haptera.building_blocks import make_blocks
from haptera.hooks import (
    AfterQuery,
    AfterTool,
    AfterTurn,
    Answer,
    BeforeQuery,
    BeforeTool,
    BeforeTurn,
    Block,
    HookFunctions,
    HookInput,
    HookMessage,
    HookPoint,
    Hooks,
    ModelRequest,
    Proceed,
    SessionResume,
    SessionStart,
    TransformMessages,
    TransformRequest,
)
from haptera.model.ids import new_entry_id
from haptera.model.json_types import JsonObject
from haptera.model.log.compactions import Compaction
from haptera.model.log.sessions import SessionChanged
from haptera.model.parts import ToolResultPart
from haptera.model.tools import ToolRules, ToolSpec
from haptera.options.declarations import options_of
from haptera.ports.tools import PreparedCall, ToolContext
from haptera.stores.memory import MemoryStore
from haptera.testing import FakeClock, Gate, ScriptedProvider, calls, says
from haptera.testing.scripted_provider import Step
from tests.architecture.source_tree import ROOT
from tests.scripted_agents import (
    HeldWork,
    events_of,
    failure_of,
    live_of,
    log_of,
    make_agent,
    outcomes_in,
    playing,
    run_script,
    texts_in,
)

POINTS: tuple[HookPoint, ...] = get_args(HookPoint)


@tool
async def look(path: str = "") -> str:
    """Look."""
    return f"saw {path}"


class Noting:
    """Hooks at every point that note what they are given, and let everything go on."""

    def __init__(self) -> None:
        self.given: list[tuple[str, Any]] = []
        self.hooks = Hooks(**{point: self._noting(point) for point in POINTS})

    def _noting(self, point: str) -> Any:
        async def note(given: Any) -> Any:
            self.given.append((point, given))
            if point.startswith("before"):
                return Proceed()
            if point == "transform_messages":
                return given.messages
            return given.request if point == "transform_request" else None

        return note

    @property
    def points(self) -> list[str]:
        """The points that were reached, in order."""
        return [point for point, _ in self.given]

    def of(self, kind: type[HookInput]) -> list[Any]:
        """Return what the hooks of one point were given."""
        return [given for _, given in self.given if isinstance(given, kind)]


TURN = ["before_turn", "transform_messages", "transform_request", "after_turn"]


async def test_every_point_is_reached_once_and_in_order_although_the_query_is_aborted() -> None:
    noting, gate = Noting(), Gate()
    script: list[Step] = [calls(("look", {"path": "a"})), [*says("so far")[:3], gate]]
    async with playing(script, tools=[look], hooks=noting.hooks) as (session, _):
        asking = asyncio.ensure_future(session.chat("go"))
        await gate.reached.wait()
        session.abort("enough")
        error = await failure_of(asking)
        assert error.code is ErrorCode.ABORTED
    query = ["before_query", *TURN, "before_tool", "after_tool", *TURN, "after_query"]
    assert noting.points == ["session_start", *query, "session_end"]
    (tool_end,) = noting.of(AfterTool)
    assert (tool_end.call.name, tool_end.ended.outcome) == ("look", "ok")
    first, second = noting.of(AfterTurn)
    assert (first.number, first.message.tool_calls[0].name, first.error) == (1, "look", None)
    assert (second.number, second.message.text, second.message.interrupted) == (2, "so far", True)
    assert second.error.code is ErrorCode.ABORTED
    (ended,) = noting.of(AfterQuery)
    assert (ended.ended.stop_reason, ended.ended.turns) == ("aborted", 1)
    (begun,) = noting.of(BeforeQuery)
    assert (begun.prompt.text, begun.model, begun.resumes) == ("go", "scripted/one", None)


async def test_a_tool_that_runs_when_the_query_is_aborted_is_told_to_have_ended() -> None:
    noting, work = Noting(), HeldWork()
    script = [calls(("work", {}))]
    async with playing(script, tools=[work.tool], hooks=noting.hooks) as (session, _):
        asking = asyncio.ensure_future(session.chat("go", on_abort="return"))
        await work.started.wait()
        session.abort()
        await asking
        assert noting.points[-3:] == ["before_tool", "after_tool", "after_query"]
        assert noting.of(AfterTool)[0].ended.outcome == "cancelled"


async def test_a_request_that_is_repeated_is_one_turn_and_changed_each_time() -> None:
    noting = Noting()
    script: list[Step] = [
        haptera.ProviderError(ErrorCode.OVERLOADED, "busy", basis="status"),
        says("done"),
    ]
    options: dict[str, Any] = {"fallbacks": ["scripted/two"], "retry": {"max_retries": 0}}
    async with playing(script, hooks=noting.hooks, **options) as (session, _):
        assert (await session.chat("go")).text == "done"
    requests = ["transform_messages", "transform_request"] * 2
    query = ["before_query", "before_turn", *requests, "after_turn", "after_query"]
    assert noting.points == ["session_start", *query, "session_end"]


async def test_a_turn_that_fails_is_told_with_its_error() -> None:
    noting = Noting()
    script = [haptera.ProviderError(ErrorCode.BAD_REQUEST, "no", basis="status")]
    async with playing(script, hooks=noting.hooks) as (session, _):
        await failure_of(session.chat("go"))
        assert noting.points[-2:] == ["after_turn", "after_query"]
        (ended,) = noting.of(AfterTurn)
        assert (ended.message, ended.error.code) == (None, ErrorCode.BAD_REQUEST)


async def test_a_session_that_is_opened_again_is_resumed_and_not_started() -> None:
    store = MemoryStore()
    for points in (["session_start", "session_end"], ["session_resume", "session_end"]):
        noting = Noting()
        agent, _ = make_agent([], store=store, hooks=noting.hooks)
        async with agent:
            session = agent.session("ana")
            assert noting.points == []
            await session.open()
            assert noting.points == points[:1]
            await session.close()
            await session.close()
        assert noting.points == points


_KILLED = """
import asyncio, os, sys
from haptera import Agent, tool
from haptera.hooks import Hooks
from haptera.testing import ScriptedProvider, calls

@tool
async def die() -> str:
    "Die."
    os._exit(9)

async def main() -> None:
    def note(given):
        print(type(given).__name__, flush=True)
    hooks = Hooks(session_start=note, session_resume=note, session_end=note)
    provider = ScriptedProvider([calls(("die", {}))])
    agent = Agent("scripted/m", providers=[provider], tools=[die], store=sys.argv[1], hooks=hooks)
    await agent.session("ana").chat("go")

asyncio.run(main())
"""


async def test_a_session_whose_process_was_killed_is_resumed_and_not_started(
    tmp_path: Path,
) -> None:
    store = f"jsonl:{tmp_path}"
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", _KILLED, store],
        env={"PYTHONPATH": str(ROOT / "src"), "HAPTERA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout.split()) == (9, ["SessionStart"]), ran.stderr
    noting = Noting()
    agent, _ = make_agent([says("it is unknown")], store=store, hooks=noting.hooks, tools=[look])
    async with agent:
        session = await agent.session("ana").open()
        assert noting.points == ["session_resume"]
        (resumed,) = noting.of(SessionResume)
        assert resumed.name == "ana"
        assert resumed.unfinished is not None
        await session.resume()
        (begun,) = noting.of(BeforeQuery)
        assert (begun.prompt, begun.resumes) == (None, resumed.unfinished)


async def test_a_fork_is_a_new_session_that_knows_its_parent() -> None:
    noting = Noting()
    async with playing([says("one")], hooks=noting.hooks) as (session, _):
        result = await session.chat("go")
        branch = await session.fork(after=result.message_id)
        first, second = noting.of(SessionStart)
        assert (first.parent, second.parent) == (None, session.session_id)
        await branch.close()


async def test_without_hooks_a_query_asks_and_tells_nothing() -> None:
    agent, _ = make_agent([says("done")])
    async with agent, agent.session() as session:
        await session.chat("go")
        kinds = [entry.kind for entry in await log_of(session)]
    assert agent.hooks.is_empty
    assert "hook.message" not in kinds


# Gates.


async def test_a_changed_input_is_parsed_once_and_is_what_is_asked_about() -> None:
    parsed: list[JsonObject] = []
    asked: list[ApprovalRequest] = []

    class Pay:
        spec = ToolSpec(name="pay")
        rules = ToolRules(approval="ask")

        def prepare(self, arguments: JsonObject) -> PreparedCall:
            parsed.append(arguments)

            async def run(_context: ToolContext) -> object:
                return f"paid {arguments['to']}"

            return run

    class Source:
        def tools(self) -> list[Pay]:
            return [pay]

    pay = Pay()

    def approve(request: ApprovalRequest) -> Approve:
        asked.append(request)
        return Approve()

    async def redirect(given: BeforeTool) -> Proceed:
        return Proceed(arguments={"to": "ana"})

    script = [calls(("pay", {"to": "mallory"})), says("done")]
    options: dict[str, Any] = {"approver": approve, "hooks": Hooks(before_tool=redirect)}
    _, provider = await run_script(script, tools=[Source()], **options)
    assert parsed == [{"to": "ana"}]
    assert [request.arguments for request in asked] == [{"to": "ana"}]
    assert outcomes_in(provider.requests[1]) == [("pay", "ok", "paid ana")]


async def test_hooks_of_one_point_are_asked_in_their_order_until_one_refuses() -> None:
    seen: list[tuple[str, Any]] = []
    hooks = Hooks()

    @hooks.on("before_tool")
    async def first(given: BeforeTool) -> Proceed:
        seen.append(("first", given.call.arguments))
        return Proceed(arguments={"path": "b"})

    @hooks.on("before_tool")
    def second(given: BeforeTool) -> Proceed | Block:
        seen.append(("second", given.call.arguments))
        return Block("not b")

    @hooks.on("before_tool")
    def third(given: BeforeTool) -> Proceed:
        seen.append(("third", given.call.arguments))
        return Proceed()

    script = [calls(("look", {"path": "a"})), says("well")]
    _, provider = await run_script(script, tools=[look], hooks=hooks)
    assert seen == [("first", {"path": "a"}), ("second", {"path": "b"})]
    assert outcomes_in(provider.requests[1]) == [("look", "denied", "not b")]


async def test_calls_that_a_hook_blocks_or_answers_are_told_to_have_ended() -> None:
    ended: list[tuple[str, str]] = []

    def decide(given: BeforeTool) -> Block | Answer:
        if given.call.arguments == {"path": "a"}:
            return Block("no")
        return Answer((TextPart(text="from the hook"),))

    def note(given: AfterTool) -> None:
        ended.append((given.ended.outcome, given.ended.content[0].text))  # type: ignore[union-attr]

    script = [calls(("look", {"path": "a"}), ("look", {"path": "b"})), says("well")]
    await run_script(script, tools=[look], hooks=Hooks(before_tool=decide, after_tool=note))
    assert ended == [("denied", "no"), ("ok", "from the hook")]


async def test_a_call_that_was_approved_at_rest_is_asked_about_and_told_once() -> None:
    @tool(approval="ask")
    async def pay() -> str:
        """Pay."""
        return "paid"

    noting = Noting()
    script = [calls(("pay", {})), says("done")]
    async with playing(script, tools=[pay], hooks=noting.hooks) as (session, _):
        rest = await session.chat("go")
        assert noting.points[-2:] == ["before_tool", "after_query"]
        await session.approve(rest.pending[0].id)
        await session.resume()
    assert noting.points.count("before_tool") == noting.points.count("after_tool") == 1
    assert [given.ended.stop_reason for given in noting.of(AfterQuery)] == ["approval", "complete"]


@pytest.mark.parametrize(("point", "requests"), [("before_query", 0), ("before_turn", 1)])
async def test_a_refused_query_or_turn_ends_the_query_with_the_reason(
    point: str, requests: int
) -> None:
    async def refuse(given: BeforeQuery | BeforeTurn) -> Proceed | Block:
        if isinstance(given, BeforeTurn) and given.number == 1:
            return Proceed()
        return Block("over budget")

    script = [calls(("look", {}))][:requests]
    hooks: Any = {point: refuse}
    result, provider = await run_script(script, tools=[look], hooks=Hooks(**hooks))
    assert (result.stop_reason, result.stop_detail) == ("refusal", "over budget")
    assert len(provider.requests) == requests


async def test_a_compaction_is_left_out_when_a_hook_refuses_it_and_told_when_it_was_made() -> None:
    told: list[Any] = []
    hooks = Hooks(before_compaction=lambda _given: Block("not now"), after_compaction=told.append)
    async with playing([], hooks=hooks) as (session, _):
        live = await live_of(session)
        reason = await live.hooks.before_compaction(trigger="manual", tokens=900)
        assert reason == "not now"
        made = Compaction(
            id=new_entry_id(),
            time=1,
            trigger="auto",
            strategy="summary",
            summary="short",
            tokens_before=900,
            tokens_after=90,
        )
        await live.hooks.after_compaction(made)
        assert [(each.trigger, each.tokens_before, each.tokens_after) for each in told] == [
            ("auto", 900, 90)
        ]


# Transforms.


def _masked(messages: tuple[Message, ...]) -> list[Message]:
    def mask(part: Any) -> Any:
        if isinstance(part, TextPart):
            return msgspec.structs.replace(part, text=part.text.replace("ana", "***"))
        return part

    return [
        msgspec.structs.replace(message, parts=tuple(map(mask, message.parts)))
        for message in messages
    ]


async def test_a_changed_message_reaches_the_provider_and_not_the_log() -> None:
    def mask(given: TransformMessages) -> list[Message]:
        return _masked(given.messages)

    script = [says("hello ana"), says("yes")]
    hooks = Hooks(transform_messages=mask)
    async with playing(script, hooks=hooks) as (session, provider):
        await session.chat("I am ana")
        await session.chat("again")
        assert [item.text for item in session.messages][:2] == ["I am ana", "hello ana"]
        log = await log_of(session)
    assert texts_in(provider.requests[1]) == ["I am ***", "hello ***", "again"]
    assert "***" not in msgspec.json.encode([msgspec.to_builtins(entry) for entry in log]).decode()


async def test_a_result_that_a_transform_leaves_out_is_put_in_its_place() -> None:
    def without_results(given: TransformMessages) -> list[Message]:
        return [
            message
            for message in given.messages
            if not any(isinstance(part, ToolResultPart) for part in message.parts)
        ]

    script = [calls(("look", {})), says("well")]
    hooks = Hooks(transform_messages=without_results)
    _, provider = await run_script(script, tools=[look], hooks=hooks)
    (result,) = outcomes_in(provider.requests[1])
    assert result[:2] == ("look", "unknown")


async def test_a_changed_request_is_what_is_sent() -> None:
    async def change(given: TransformRequest) -> ModelRequest:
        return msgspec.structs.replace(given.request, system=("Be kind.",), temperature=0.5)

    result, provider = await run_script([says("yes")], hooks=Hooks(transform_request=change))
    (request,) = provider.requests
    assert (request.system, request.temperature) == (("Be kind.",), 0.5)
    assert result.text == "yes"


def _spoil_calls(messages: tuple[Message, ...]) -> None:
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                part.arguments["path"] = "elsewhere"


def _spoilt_request(given: TransformRequest) -> ModelRequest:
    _spoil_calls(given.request.messages)
    return given.request


def _spoilt_messages(given: TransformMessages) -> tuple[Message, ...]:
    _spoil_calls(given.messages)
    return given.messages


@pytest.mark.parametrize(
    "hooks",
    [Hooks(transform_messages=_spoilt_messages), Hooks(transform_request=_spoilt_request)],
    ids=["messages", "request"],
)
async def test_what_a_transform_changes_in_place_is_sent_and_does_not_change_the_session(
    hooks: Hooks,
) -> None:
    script = [calls(("look", {"path": "a"})), says("well")]
    result, provider = await run_script(script, tools=[look], hooks=hooks)
    (sent,) = (
        part.arguments
        for message in provider.requests[1].messages
        for part in message.parts
        if isinstance(part, ToolCallPart)
    )
    assert sent == {"path": "elsewhere"}
    assert result.tool_calls[0].arguments == {"path": "a"}


NO_CHANGES: dict[str, Hooks] = {
    "the same tuple": Hooks(transform_messages=lambda given: given.messages),
    "the same messages": Hooks(transform_messages=lambda given: list(given.messages)),
    "equal messages": Hooks(transform_messages=lambda given: _masked(given.messages)),
    "the same request": Hooks(transform_request=lambda given: given.request),
    "both": Hooks(
        transform_messages=lambda given: list(given.messages),
        transform_request=lambda given: given.request,
    ),
}


@pytest.mark.parametrize("kind", NO_CHANGES)
async def test_messages_that_no_transform_changes_are_sent_as_the_session_has_them(
    kind: str,
) -> None:
    script = [calls(("look", {"path": "a"})), says("well"), says("yes")]
    async with playing(script, tools=[look], hooks=NO_CHANGES[kind]) as (session, provider):
        await session.chat("go")
        before = session.messages
        await session.chat("on")
    sent = provider.requests[-1].messages
    assert len(sent) == len(before) + 1
    assert all(one is own for one, own in zip(sent, before, strict=False))


async def test_what_a_transform_changes_in_a_request_is_not_in_the_next_one() -> None:
    seen: list[bool] = []

    def spoil(given: TransformRequest) -> ModelRequest:
        (offered,) = given.request.tools
        seen.append("spoilt" in offered.input_schema or "spoilt" in given.request.betas)
        offered.input_schema["spoilt"] = True
        given.request.betas["spoilt"] = True
        return given.request

    script = [calls(("look", {"path": "a"})), says("well")]
    await run_script(script, tools=[look], hooks=Hooks(transform_request=spoil))
    assert seen == [False, False]
    assert "spoilt" not in look.spec.input_schema


async def test_titles_are_made_of_what_transforms_let_through_and_no_other_hook_hears_of_it() -> (
    None
):
    noting = Noting()
    noting.hooks.on("transform_messages")(lambda given: _masked(given.messages))
    provider = ScriptedProvider([says("hello"), says("A greeting")])
    agent = Agent(
        "scripted/m",
        providers=[provider],
        title_model="scripted/small",
        hooks=noting.hooks,
        clock=FakeClock(),
        environment={},
    )
    async with agent, agent.session() as session:
        titled = asyncio.Event()
        session.on(SessionChanged, lambda _entry: titled.set())
        await session.chat("I am ana")
        await titled.wait()
    assert "ana" not in str(provider.requests[1].messages)
    assert noting.points.count("session_start") == noting.points.count("before_query") == 1


# What hooks say.


async def test_what_a_hook_says_is_in_the_log_and_on_the_stream_if_it_is_to_be_displayed() -> None:
    async def speak(given: BeforeTool) -> Proceed:
        given.say("looking")
        given.say("for the record", display=False)
        return Proceed()

    script = [calls(("look", {})), says("well")]
    hooks = Hooks(before_tool=speak, after_turn=lambda given: given.say(f"turn {given.number}"))
    async with playing(script, tools=[look], hooks=hooks) as (session, provider):
        events = await events_of(session)
        log = await log_of(session)
        observed: list[str] = []
        async for event in session.events(after=0):
            if isinstance(event, HookMessage):
                observed.append(event.text)
            if event.kind == "query.ended":
                break
    shown = [event.text for event in events if isinstance(event, HookMessage)]
    kept = [(each.hook, each.text) for each in log if isinstance(each, HookMessage)]
    assert shown == observed == ["turn 1", "looking", "turn 2"]
    assert kept == [
        ("after_turn", "turn 1"),
        ("before_tool", "looking"),
        ("before_tool", "for the record"),
        ("after_turn", "turn 2"),
    ]
    assert "looking" not in str(provider.requests[1].messages)


async def test_what_is_said_after_a_query_belongs_to_the_session() -> None:
    hooks = Hooks(after_query=lambda given: given.say("done"))
    async with playing([says("yes")], hooks=hooks) as (session, _):
        said: list[HookMessage] = []
        session.on(HookMessage, said.append)
        await session.chat("go")
        log = await log_of(session)
    assert [entry.kind for entry in log][-2:] == ["query.ended", "hook.message"]
    assert [(entry.text, entry.query_id) for entry in said] == [("done", None)]


# Registration.


async def test_hooks_are_registered_with_a_decorator_when_the_agent_is_there_already() -> None:
    agent, _ = make_agent([says("one"), says("two")])
    texts: list[str] = []
    async with agent, agent.session() as session:
        await session.chat("go")

        @agent.hooks.on("after_turn")
        def note(given: AfterTurn) -> None:
            assert given.message is not None
            texts.append(given.message.text)

        await session.chat("again")
    assert texts == ["two"]


async def test_a_hook_that_is_not_async_does_not_block_the_loop() -> None:
    threads: list[int] = []

    def check(given: BeforeQuery) -> Proceed:
        threads.append(threading.get_ident())
        return Proceed()

    await run_script([says("yes")], hooks=Hooks(before_query=check))
    assert threading.get_ident() not in threads


async def test_hooks_have_the_deps_of_their_query() -> None:
    seen: list[Any] = []
    hooks = Hooks(after_turn=lambda given: seen.append(given.deps))
    async with playing([says("a"), says("b")], hooks=hooks, deps="agent's") as (session, _):
        await session.chat("go")
        await session.chat("go", deps="query's")
    assert seen == ["agent's", "query's"]


@pytest.mark.parametrize(
    "register",
    [
        lambda: Hooks(before_lunch=print),  # type: ignore[call-arg]
        lambda: Hooks(before_tool="no function"),  # type: ignore[arg-type]
        lambda: Hooks().on("before_lunch"),  # type: ignore[call-overload]
        lambda: Hooks().on(print),  # type: ignore[call-overload]
        lambda: Hooks().on("before_tool")(None),  # type: ignore[type-var]
        lambda: Agent("scripted/m", hooks={"before_tool": print}),  # type: ignore[arg-type]
    ],
    ids=[
        "no such point",
        "no function",
        "no such point to decorate",
        "no point",
        "nothing to decorate",
        "no hooks",
    ],
)
def test_what_is_no_hook_is_refused(register: Callable[[], object]) -> None:
    with pytest.raises(ConfigError) as caught:
        register()
    assert caught.value.code is ErrorCode.CONFIG_INVALID


def test_every_point_is_an_option_of_hooks() -> None:
    assert tuple(options_of(HookFunctions)) == POINTS


def test_no_function_is_no_hook() -> None:
    assert Hooks(before_tool=None).is_empty


def test_hooks_work_in_blocking_code_too() -> None:
    noting = Noting()
    provider = ScriptedProvider([calls(("look", {})), says("well")])
    options: dict[str, Any] = {"providers": [provider], "tools": [look], "environment": {}}
    with haptera.sync.Agent("scripted/m", hooks=noting.hooks, **options) as agent:
        ran: list[str] = []

        @agent.hooks.on("before_tool")
        def check(given: BeforeTool) -> Proceed:
            ran.append(given.call.name)
            return Proceed()

        assert agent.run("go").text == "well"
    query = ["before_query", *TURN, "before_tool", "after_tool", *TURN, "after_query"]
    assert noting.points == ["session_start", *query, "session_end"]
    assert ran == ["look"]


async def test_a_conversation_without_a_session_has_the_hooks_of_its_queries() -> None:
    noting = Noting()
    provider = ScriptedProvider([calls(("look", {})), says("well")])
    async with make_blocks(provider, tools=[look], hooks=noting.hooks) as blocks:
        outcome = await blocks.hold().run("go")
    assert outcome.stop_reason == "complete"
    assert noting.points == [
        *("before_query", *TURN, "before_tool", "after_tool", *TURN, "after_query")
    ]


async def test_a_hook_cannot_wait_for_the_session_that_waits_for_it() -> None:
    held: list[Any] = []
    errors: list[AgentError] = []

    async def ask(given: AfterQuery) -> None:
        try:
            await held[0].chat("again")
        except AgentError as error:
            errors.append(error)

    async with playing([says("yes")], hooks=Hooks(after_query=ask)) as (session, _):
        held.append(session)
        await session.chat("go")
    assert [error.code for error in errors] == [ErrorCode.BUSY]


async def test_a_prompt_that_waited_is_shown_to_hooks_as_the_prompt() -> None:
    noting, gate = Noting(), Gate()
    script: list[Step] = [[*says("one")[:3], gate, *says("one")[3:]], says("two")]
    async with playing(script, hooks=noting.hooks) as (session, _):
        first = asyncio.ensure_future(session.chat("first"))
        await gate.reached.wait()
        await session.send("second")
        gate.open()
        await first
        await (await live_of(session)).queue.wait_idle()
    prompts: list[UserMessage] = [given.prompt for given in noting.of(BeforeQuery)]
    assert [prompt.text for prompt in prompts] == ["first", "second"]
