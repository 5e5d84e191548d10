"""Every option is observed where it acts: in a request, in a result, or in what happens."""

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from haptera import (
    AbortController,
    Agent,
    AgentError,
    AgentSession,
    ApprovalRequest,
    Approve,
    ConfigError,
    ErrorCode,
    Limits,
    MediaPart,
    ModelStep,
    QueryStarted,
    RequestError,
    Retry,
    RetrySettings,
    SessionState,
    TextPart,
    Timeouts,
    ToolContext,
    create_agent_session,
    run_agent,
    run_agent_stream,
    tool,
)
from haptera.agent.agent_options import AGENT, CONFIGURE
from haptera.agent.query_options import QUERY, SESSION
from haptera.building_blocks import OwnBlocks, build_request
from haptera.hooks import BeforeTool, Block, Hooks, Proceed
from haptera.model.budgets import Budgets, Watchdogs
from haptera.model.compaction_settings import CompactionSettings
from haptera.model.errors import ProviderError
from haptera.model.log.sessions import SessionChanged
from haptera.model.messages import Sender, UserMessage
from haptera.model.parts import ReminderPart
from haptera.model.requests import ModelRequest
from haptera.model.settings import RuntimeSettings
from haptera.providers.transport.protocol import HttpRequest, Reply
from haptera.stores.memory import MemoryStore
from haptera.telemetry import OpenTelemetry
from haptera.testing import FakeClock, Gate, ReplayClient, ScriptedProvider, calls, says
from haptera.testing.clocks import AutoClock
from tests.case_names import stable_name
from tests.messages_by_hand import assistant, user
from tests.plugins.wheels import build, install
from tests.providers.claude_agent.children import USER, Child, agent_of, init, result, text
from tests.scripted_agents import (
    MODEL,
    failure_of,
    make_agent,
    outcomes_in,
    playing,
    run_script,
    texts_in,
)

Check = Callable[[Path], Awaitable[None]]
CHECKS: dict[str, Check] = {}
ANSWERED = [USER, init(), *text("fine"), result("fine")]
OVERLOADED = ProviderError(ErrorCode.OVERLOADED, "come back later", basis="status")


def observes(name: str) -> Callable[[Check], Check]:
    """Put a check into the table under the option that it observes."""

    def register(check: Check) -> Check:
        CHECKS[name] = check
        return check

    return register


@tool
async def look(path: str = ".") -> str:
    """Look at a path."""
    return f"{path} is there"


@tool(approval="ask")
async def erase() -> str:
    """Erase everything."""
    return "gone"


async def request_with(**options: Any) -> ModelRequest:
    """Return the request that an agent with these options sends."""
    _, provider = await run_script([says("fine")], **options)
    return provider.requests[0]


async def request_of(**query: Any) -> ModelRequest:
    """Return the request that a query with these options sends."""
    _, provider = await run_script([says("fine")], query)
    return provider.requests[0]


# What outlives a query.


@observes("model")
async def _(folder: Path) -> None:
    assert (await request_with(model="scripted/two")).model == "two"


@observes("thinking")
async def _(folder: Path) -> None:
    assert (await request_with(thinking="xhigh")).thinking == "xhigh"


@observes("system_prompt")
async def _(folder: Path) -> None:
    assert (await request_with(system_prompt="Be brief.")).system == ("Be brief.",)
    assert (await request_with(system_prompt=["a", "b"])).system == ("a", "b")


@observes("max_tokens")
async def _(folder: Path) -> None:
    assert (await request_with(max_tokens=77)).max_tokens == 77
    assert (await request_with(max_tokens=0)).max_tokens is None


@observes("temperature")
async def _(folder: Path) -> None:
    assert (await request_with(temperature=1.9)).temperature == 1.9


@observes("stop")
async def _(folder: Path) -> None:
    assert (await request_with(stop=["END"])).stop == ("END",)


@observes("seed")
async def _(folder: Path) -> None:
    assert (await request_with(seed=7)).seed == 7


@observes("betas")
async def _(folder: Path) -> None:
    assert (await request_with(betas={"x": True})).betas == {"x": True}


@observes("cache_ttl")
async def _(folder: Path) -> None:
    assert (await request_with(cache_ttl="5m")).cache_ttl == "5m"
    assert (await request_with(cache_ttl=None)).cache_ttl is None


@observes("cached_reminders")
async def _(folder: Path) -> None:
    request = await request_with(cached_reminders=["rules"])
    assert request.messages[0].parts[0] == ReminderPart(text="rules", persisted=True)


@observes("compaction")
async def _(folder: Path) -> None:
    wanted = CompactionSettings(enabled=True, input_tokens=9)
    assert (await request_with(compaction=wanted)).compaction == wanted


@observes("timeouts")
async def _(folder: Path) -> None:
    assert (await request_with(timeouts=Timeouts(connect=3.0))).timeouts.connect == 3.0


@observes("parallel_tools")
async def _(folder: Path) -> None:
    met = asyncio.Barrier(2)

    @tool
    async def meet(name: str) -> str:
        """Wait for the other."""
        await met.wait()
        return name

    script = [calls(("meet", {"name": "a"}), ("meet", {"name": "b"})), says("met")]
    result, _ = await run_script(script, tools=[meet], parallel_tools=True)
    assert result.text == "met"


@observes("parallel_tool_calls")
async def _(folder: Path) -> None:
    assert (await request_with()).parallel_tool_calls
    assert not (await request_with(parallel_tool_calls=False)).parallel_tool_calls


@observes("allowed_tools")
async def _(folder: Path) -> None:
    assert [spec.name for spec in (await request_with(tools=[look, erase])).tools] == [
        "look",
        "erase",
    ]
    request = await request_with(tools=[look, erase], allowed_tools=["erase"])
    assert [spec.name for spec in request.tools] == ["erase"]
    assert (await request_with(tools=[look], allowed_tools=[])).tools == ()


@observes("denied_tools")
async def _(folder: Path) -> None:
    request = await request_with(tools=[look, erase], denied_tools=["erase"])
    assert [spec.name for spec in request.tools] == ["look"]


@observes("approval")
async def _(folder: Path) -> None:
    result, _ = await run_script([calls(("look", {}))], tools=[look], approval="ask")
    assert [request.tool for request in result.pending] == ["look"]


@observes("loop_threshold")
async def _(folder: Path) -> None:
    result, _ = await run_script([calls(("look", {}))] * 3, tools=[look], loop_threshold=2)
    assert (result.stop_reason, result.stop_detail) == ("loop", "look({})")


@observes("watchdogs")
async def _(folder: Path) -> None:
    @tool
    def fail(number: int) -> str:
        """Fail."""
        raise ValueError("no")

    script = [calls(("fail", {"number": number})) for number in range(3)]
    watchdogs = Watchdogs(repeated_errors=2)
    result, _ = await run_script(script, tools=[fail], watchdogs=watchdogs)
    assert (result.stop_reason, result.turns) == ("loop", 3)


@observes("budgets")
async def _(folder: Path) -> None:
    result, provider = await run_script([], budgets=Budgets(session_tokens=0))
    assert (result.stop_reason, result.stop_detail) == ("limit", "session_tokens=0: 0 used")
    assert provider.requests == []


@observes("context_files")
async def _(folder: Path) -> None:
    (folder / "RULES.md").write_text("Be quick.")
    options: dict[str, Any] = {"workspace": folder, "context_files": ["RULES.md"]}
    _, provider = await run_script([says("a")], **options)
    assert "Be quick." in provider.requests[0].system[0]


@observes("skill_folders")
async def _(folder: Path) -> None:
    (folder / "know-how" / "sail").mkdir(parents=True)
    (folder / "know-how" / "sail" / "SKILL.md").write_text("Reef early.")
    options: dict[str, Any] = {"workspace": folder, "skill_folders": ["know-how"]}
    _, provider = await run_script([says("a")], **options)
    assert "load_skill" in [spec.name for spec in provider.requests[0].tools]


@observes("on_loop")
async def _(folder: Path) -> None:
    script = [*[calls(("look", {}))] * 3, says("well")]
    asked: list[ApprovalRequest] = []

    def approve(request: ApprovalRequest) -> Approve:
        asked.append(request)
        return Approve()

    await run_script(script, tools=[look], approver=approve, on_loop="ask")
    assert len(asked) == 1
    await run_script(script, tools=[look], approver=approve, on_loop="deny")
    assert len(asked) == 1


@observes("permission_mode")
async def _(folder: Path) -> None:
    script = [calls(("erase", {})), says("well")]
    _, provider = await run_script(script, tools=[erase], permission_mode="dont_ask")
    assert outcomes_in(provider.requests[1])[0][:2] == ("erase", "denied")


@observes("on_deny")
async def _(folder: Path) -> None:
    options: dict[str, Any] = {"tools": [erase], "permissions": {"deny": ["erase"]}}
    result, _ = await run_script([calls(("erase", {}))], on_deny="stop", **options)
    assert (result.stop_reason, result.stop_detail) == ("refusal", "erase({})")
    result, _ = await run_script([calls(("erase", {})), says("well")], **options)
    assert result.stop_reason == "complete"


@observes("permissions")
async def _(folder: Path) -> None:
    script = [calls(("erase", {})), says("well")]
    rules = {"allow": ["erase"]}
    _, provider = await run_script(script, tools=[erase], permissions=rules)
    assert outcomes_in(provider.requests[1]) == [("erase", "ok", "gone")]


@observes("workspace")
async def _(folder: Path) -> None:
    (folder / "a.txt").write_text("here\n")
    script = [calls(("read", {"path": "a.txt"})), says("well")]
    _, provider = await run_script(script, workspace=folder)
    assert outcomes_in(provider.requests[1]) == [("read", "ok", "1\there")]


@observes("limits")
async def _(folder: Path) -> None:
    script = [calls(("look", {})), says("that is all")]
    result, provider = await run_script(script, tools=[look], limits=Limits(turns=2))
    assert (result.stop_reason, provider.requests[1].tools) == ("limit", ())
    assert result.stop_detail == "turns=2"


@observes("retry")
async def _(folder: Path) -> None:
    clock = AutoClock()
    retry = RetrySettings(first_delay=9.0, jitter=0.0)
    await run_script([OVERLOADED, says("fine")], retry=retry, clock=clock)
    assert 9.0 in clock.sleeps


@observes("fallbacks")
async def _(folder: Path) -> None:
    other = ScriptedProvider([says("from the other")], provider="other")
    refused = ProviderError(ErrorCode.AUTH, "no", basis="status")
    steps: list[ModelStep | str] = [ModelStep(model="other/m", thinking="low")]
    result, _ = await run_script([refused], providers=[other], fallbacks=steps)
    assert (result.text, result.provider, result.model) == ("from the other", "other", "m")
    assert other.requests[0].thinking == "low"


# What an agent is made of.


@observes("deps")
async def _(folder: Path) -> None:
    seen: list[object] = []

    @tool
    async def note(context: ToolContext[str]) -> str:
        """Note what is there."""
        seen.append(context.deps)
        return "noted"

    await run_script([calls(("note", {})), says("ok")], tools=[note], deps="a database")
    assert seen == ["a database"]


@observes("tools")
async def _(folder: Path) -> None:
    def plain(x: int) -> int:
        """Give it back."""
        return x

    request = await request_with(tools=[look, plain])
    assert [spec.name for spec in request.tools] == ["look", "plain"]


@observes("store")
async def _(folder: Path) -> None:
    store = MemoryStore()
    first, _ = make_agent([says("one")], store=store)
    async with first, first.session("kept") as session:
        await session.chat("go")
    second, provider = make_agent([says("two")], store=store)
    async with second, second.session("kept") as session:
        await session.chat("go")
    assert texts_in(provider.requests[0]) == ["go", "one", "go"]


@observes("owner")
async def _(folder: Path) -> None:
    assert await _messages_seen_by(owner="ana") == 0


@observes("project")
async def _(folder: Path) -> None:
    assert await _messages_seen_by(project="/elsewhere") == 0


@observes("title_model")
async def _(folder: Path) -> None:
    small = ScriptedProvider([says("Made")], provider="small")
    agent, _ = make_agent([says("a")], providers=[small], title_model="small/one")
    async with agent, agent.session() as session:
        await session.chat("go")
        async with aclosing(session.events()) as events:
            changed = await anext(each async for each in events if isinstance(each, SessionChanged))
    assert changed.changes["title"] == "Made"


@observes("recall")
async def _(folder: Path) -> None:
    _, provider = await run_script([says("a")], recall=True)
    assert [spec.name for spec in provider.requests[0].tools] == ["recall"]


@observes("snapshots")
async def _(folder: Path) -> None:
    for given, code in ((True, ErrorCode.NOT_FOUND), (False, ErrorCode.CONFIG_MISSING)):
        agent, _ = make_agent([says("a")], workspace=folder, snapshots=given)
        async with agent, agent.session() as session:
            await session.chat("go")
            assert (await failure_of(session.diff("turn_none"))).code is code


@observes("plugins")
async def _(folder: Path) -> None:
    install(build(folder / "wheels"), folder / "site")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder / "site")
        with pytest.raises(ConfigError, match="no installed package offers a tool 'tide'"):
            make_agent([], tool_plugins=["tide"])
        agent, _ = make_agent([], tool_plugins=["tide"], plugins=False)
        assert agent.tools == ()


@observes("tool_plugins")
async def _(folder: Path) -> None:
    points = {"haptera.tools": {"tide": "sprat:tide"}}
    modules = {"sprat.py": "def tide(harbour: str) -> str:\n    return harbour\n"}
    install(build(folder / "wheels", points=points, modules=modules), folder / "site")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder / "site")
        _, provider = await run_script([says("a")], tool_plugins=["tide"])
    assert [offered.name for offered in provider.requests[0].tools] == ["tide"]
    del sys.modules["sprat"]


@observes("mcp_servers")
async def _(folder: Path) -> None:
    text = '[mcpServers.gone]\ncommand = "no-such-program"\n'
    (folder / "config.toml").write_text(text)
    (folder / "config.toml").chmod(0o600)
    with pytest.raises(ConfigError, match="'other' is unknown"):
        make_agent([], config_dir=folder, mcp_servers=["other"])
    _, provider = await run_script([says("a")], config_dir=folder, mcp_servers=[])
    assert provider.requests[0].tools == ()


async def _messages_seen_by(**options: Any) -> int:
    """Return how many messages of a named session another agent sees."""
    store = MemoryStore()
    agent, _ = make_agent([says("secret")], store=store)
    async with agent, agent.session("kept") as session:
        await session.chat("go")
    other, _ = make_agent([], store=store, **options)
    async with other, other.session("kept") as session:
        return len(session.messages)


@observes("providers")
async def _(folder: Path) -> None:
    mine = ScriptedProvider([says("mine")], provider="mine")
    result, _ = await run_script([], model="mine/m", providers=[mine])
    assert result.text == "mine"


@observes("approver")
async def _(folder: Path) -> None:
    asked: list[str] = []

    def approve(request: Any) -> Approve:
        asked.append(request.tool)
        return Approve()

    script = [calls(("erase", {})), says("done")]
    _, provider = await run_script(script, tools=[erase], approver=approve)
    assert (asked, outcomes_in(provider.requests[1])) == (["erase"], [("erase", "ok", "gone")])


@observes("unanswered")
async def _(folder: Path) -> None:
    result, _ = await run_script([calls(("erase", {}))], tools=[erase])
    assert result.stop_reason == "approval"
    script = [calls(("erase", {})), says("well")]
    _, provider = await run_script(script, tools=[erase], unanswered="deny")
    assert outcomes_in(provider.requests[1])[0][:2] == ("erase", "denied")


@observes("hooks")
async def _(folder: Path) -> None:
    async def hook(given: BeforeTool) -> Proceed | Block:
        arguments: Any = given.call.arguments
        return Proceed({"path": "b"}) if arguments["path"] == "a" else Block("not there")

    script = [calls(("look", {"path": "a"}), ("look", {"path": "c"})), says("done")]
    _, provider = await run_script(script, tools=[look], hooks=Hooks(before_tool=hook))
    assert outcomes_in(provider.requests[1]) == [
        ("look", "ok", "b is there"),
        ("look", "denied", "not there"),
    ]


@observes("instrumentation")
async def _(folder: Path) -> None:
    seen: list[Any] = []
    await run_script([says("fine")], instrumentation=seen.append)
    assert [item.alias for item in seen] == [
        "query_summary",
        "step-finish",
        "instrumentation.query",
    ]


@observes("telemetry")
async def _(folder: Path) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    await run_script([says("fine")], telemetry=OpenTelemetry(tracer_provider=provider))
    assert [span.name for span in exporter.get_finished_spans()] == ["chat one", "invoke_agent"]


@observes("blocks")
async def _(folder: Path) -> None:
    built: list[str] = []

    def build(settings: Any, messages: Any, extras: Any) -> Any:
        built.append(extras.model)
        return build_request(settings, messages, extras)

    await run_script([says("fine")], blocks=OwnBlocks(request_builder=build))
    assert built == ["one"]


@observes("runtime")
async def _(folder: Path) -> None:
    agent, _ = make_agent([says("abcdef")], runtime=RuntimeSettings(checkpoint_bytes=1))
    async with agent, agent.session() as session:
        kinds = [event.kind async for event in session.stream("go")]
    assert "part.checkpoint" in kinds or "part.ended" in kinds


@observes("claude_agent")
async def _(folder: Path) -> None:
    child = Child(folder / "claude", ANSWERED)
    async with agent_of(child, claude_agent={"permission_mode": "plan"}) as agent:
        assert (await agent.run("go")).text == "fine"
    assert "plan" in child.argv


@observes("claude_options")
async def _(folder: Path) -> None:
    child = Child(folder / "claude", ANSWERED)
    servers = {"mine": {"type": "stdio", "command": "true"}}
    async with agent_of(child, claude_options={"mcp_servers": servers}) as agent:
        await agent.run("go")
    assert any('"mine"' in argument for argument in child.argv)


@observes("clock")
async def _(folder: Path) -> None:
    clock = FakeClock(start_ms=42_000)
    async with playing([says("fine")], clock=clock) as (session, _):
        await session.chat("go")
        assert (await session.export()).exported_at == 42_000


@observes("random")
async def _(folder: Path) -> None:
    class Loaded(random.Random):
        def random(self) -> float:
            return 0.0

    clock = AutoClock()
    await run_script([OVERLOADED, says("fine")], clock=clock, random=Loaded())
    assert 1.8 in clock.sleeps


@observes("api_key")
async def _(folder: Path) -> None:
    assert (await _sent_over_http(api_key="sk-mine"))["headers"]["x-api-key"] == "sk-mine"


@observes("base_url")
async def _(folder: Path) -> None:
    assert (await _sent_over_http())["path"].endswith("/v1/messages")


@observes("headers")
async def _(folder: Path) -> None:
    assert (await _sent_over_http(headers={"x-gate": "7"}))["headers"]["x-gate"] == "7"


async def _sent_over_http(**options: Any) -> dict[str, Any]:
    """Return what arrives at a server that refuses everything."""
    seen: dict[str, Any] = {}

    async def refuse(request: web.Request) -> web.Response:
        seen.update(path=request.path, headers={k.lower(): v for k, v in request.headers.items()})
        return web.json_response({"type": "error", "error": {"type": "x"}}, status=401)

    server = web.Application()
    server.router.add_route("*", "/{tail:.*}", refuse)
    runner = web.AppRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        options = {"api_key": "sk-any", "environment": {}, "base_url": address, **options}
        error = await failure_of(run_agent("go", model="anthropic/claude-x", **options))
        assert error.code is ErrorCode.AUTH
    finally:
        await runner.cleanup()
    return seen


@observes("environment")
async def _(folder: Path) -> None:
    async with Agent(environment={"HAPTERA_MODEL": "scripted/from-there"}) as agent:
        assert agent.settings.model == "scripted/from-there"


@observes("config_dir")
async def _(folder: Path) -> None:
    (folder / "config.toml").write_text('[defaults]\nmodel = "scripted/from-dir"\n')
    async with Agent(environment={}, config_dir=folder) as agent:
        assert agent.settings.model == "scripted/from-dir"


@observes("config_path")
async def _(folder: Path) -> None:
    (folder / "mine.toml").write_text('[defaults]\nmodel = "scripted/from-file"\n')
    async with Agent(environment={}, config_path=folder / "mine.toml") as agent:
        assert agent.settings.model == "scripted/from-file"


@observes("cwd")
async def _(folder: Path) -> None:
    store = MemoryStore()
    agent, _ = make_agent([], store=store, cwd=folder)
    async with agent, agent.session("here"):
        assert [item.name for item in await store.index.browse("local", str(folder))] == ["here"]


# What one query may be told.


@observes("signal")
async def _(folder: Path) -> None:
    controller = AbortController()
    gate = Gate()
    async with playing([[gate]]) as (session, _):
        asking = asyncio.ensure_future(session.chat("go", signal=controller.signal))
        await gate.reached.wait()
        controller.abort("enough")
        error = await failure_of(asking)
    assert (error.code, "enough" in error.message) == (ErrorCode.ABORTED, True)
    assert controller.signal.listener_count == 0


@observes("on_abort")
async def _(folder: Path) -> None:
    gate = Gate()
    async with playing([[gate]]) as (session, _):
        asking = asyncio.ensure_future(session.chat("go", on_abort="return"))
        await gate.reached.wait()
        session.abort()
        assert (await asking).stop_reason == "aborted"


@observes("timeout")
async def _(folder: Path) -> None:
    settings = RetrySettings(max_retries=0)
    async with playing([[Gate()]], retry=settings) as (session, _):
        error = await failure_of(session.chat("go", timeout=0.001))
    assert (error.code, error.retryable) == (ErrorCode.TIMEOUT, True)


@observes("total_timeout")
async def _(folder: Path) -> None:
    gate = Gate()
    clock = FakeClock()
    async with playing([[gate]], clock=clock) as (session, _):
        asking = asyncio.ensure_future(session.chat("go", total_timeout=30))
        await gate.reached.wait()
        clock.advance(30)
        error = await failure_of(asking)
    assert error.code is ErrorCode.TIMEOUT


@observes("delivery")
async def _(folder: Path) -> None:
    gate = Gate()
    async with playing([[gate, *says("first")]]) as (session, _):
        first = asyncio.ensure_future(session.chat("one"))
        await gate.reached.wait()
        error = await failure_of(session.chat("two", delivery="reject"))
        assert error.code is ErrorCode.BUSY
        gate.open()
        await first


@observes("output_type")
async def _(folder: Path) -> None:
    class City(msgspec.Struct):
        name: str

    result, provider = await run_script([says('{"name":"Paris"}')], {"output_type": City})
    assert result.output == City("Paris")
    schema = provider.requests[0].output_schema
    assert schema is not None
    assert (schema.name, schema.schema["required"]) == ("City", ["name"])


@observes("output_validator")
async def _(folder: Path) -> None:
    def check(text: str) -> str:
        if text != "yes":
            raise Retry("say yes")
        return text.upper()

    result, provider = await run_script(
        [says("no"), says("yes")], {"output_type": str, "output_validator": check}
    )
    assert result.output == "YES"
    assert texts_in(provider.requests[1])[-1] == "say yes"


@observes("output_attempts")
async def _(folder: Path) -> None:
    async with playing([says("no"), says("neither")]) as (session, _):
        error = await failure_of(session.chat("go", output_type=int, output_attempts=2))
    assert error.code is ErrorCode.OUTPUT_INVALID


@observes("output_schema")
async def _(folder: Path) -> None:
    schema = {"type": "object", "title": "City", "required": ["name"]}
    result, provider = await run_script(
        [says("{}"), says('{"name":"Paris"}')], {"output_schema": schema}
    )
    assert result.output == {"name": "Paris"}
    sent = provider.requests[0].output_schema
    assert sent is not None
    assert (sent.name, sent.schema) == ("City", schema)
    assert "'name' is a required property" in texts_in(provider.requests[1])[-1]


@observes("reminders")
async def _(folder: Path) -> None:
    request = await request_of(reminders=["be quick"])
    assert request.messages[-1].parts[-1] == ReminderPart(text="be quick")


@observes("require_tool")
async def _(folder: Path) -> None:
    script = [calls(("look", {})), says("done")]
    result, provider = await run_script(script, {"require_tool": "look"}, tools=[look])
    required = [request.require_tool for request in provider.requests]
    assert (required, result.text) == (["look", None], "done")
    async with playing([], tools=[look]) as (session, _):
        error = await failure_of(session.chat("go", require_tool="poke"))
    assert (error.code, "'poke'" in error.message) == (ErrorCode.CONFIG_INVALID, True)


@observes("transform")
async def _(folder: Path) -> None:
    script = [calls(("look", {})), says("done")]
    query = {"transform": lambda name, value: f"{name}: {str(value).upper()}"}
    _, provider = await run_script(script, query, tools=[look])
    assert outcomes_in(provider.requests[1]) == [("look", "ok", "look: . IS THERE")]


@observes("sender")
async def _(folder: Path) -> None:
    sender = Sender(kind="agent", user_id="bot")
    (message,) = (await request_of(sender=sender)).messages
    assert isinstance(message, UserMessage)
    assert message.sender == sender


@observes("attachments")
async def _(folder: Path) -> None:
    photo = MediaPart(mime="image/png", url="https://example.org/a.png")
    request = await request_of(attachments=[photo, b"\x89PNG\r\n\x1a\n"])
    assert request.messages[0].parts == (
        TextPart(text="go"),
        photo,
        MediaPart(mime="image/png", data="iVBORw0KGgo="),
    )


@observes("transport")
async def _(folder: Path) -> None:
    sent: list[HttpRequest] = []

    class Nowhere:
        async def send(self, request: HttpRequest) -> Reply:
            sent.append(request)
            raise RequestError(ErrorCode.NETWORK, "no server is there")

        async def close(self) -> None:
            pass

    retry = RetrySettings(max_retries=0)
    agent = Agent("anthropic/m", api_key="k", transport=Nowhere, retry=retry, environment={})
    async with agent:
        assert (await failure_of(agent.run("go"))).code is ErrorCode.NETWORK
    assert [request.url for request in sent] == ["https://api.anthropic.com/v1/messages"]


@observes("record_to")
async def _(folder: Path) -> None:
    other = ScriptedProvider([says("two")], provider="other")
    agent, _ = make_agent([says("one")], record_to="talk.jsonl", cwd=folder, providers=[other])
    async with agent, agent.session() as session:
        first = await session.chat("go")
        await session.configure(model="other/m")
        second = await session.chat("go on")
    assert (first.text, second.text) == ("one", "two")
    played = [ReplayClient(folder / name) for name in ("talk.jsonl", "talk.other.jsonl")]
    async with Agent(MODEL, providers=played, environment={}) as again, again.session() as session:
        assert (await session.chat("go")).text == "one"
        await session.configure(model="other/m")
        assert (await session.chat("go on")).text == "two"
    for client in played:
        client.check()


# What opening a session may be told.


@observes("restore")
async def _(folder: Path) -> None:
    state = SessionState(messages=(user("hi"), assistant("hello")))
    agent, provider = make_agent([says("yes")])
    async with agent, agent.session(restore=state) as session:
        await session.chat("go")
    assert texts_in(provider.requests[0]) == ["hi", "hello", "go"]


@observes("busy")
async def _(folder: Path) -> None:
    agent, _ = make_agent([])
    async with agent, agent.session("one") as held:
        error = await failure_of(agent.session("one", busy="reject").open())
        assert error.code is ErrorCode.BUSY
        waiting = asyncio.ensure_future(agent.session("one", busy="wait").open())
        await asyncio.wait([waiting], timeout=0)
        assert not waiting.done()
        await held.close()
        await waiting


@observes("native_session_id")
async def _(folder: Path) -> None:
    agent, _ = make_agent([])
    async with agent:
        error = await failure_of(agent.session("new", native_session_id="none").open())
    assert error.code is ErrorCode.CONFIG_INVALID
    assert "keeps no session" in str(error)


@observes("must_exist")
async def _(folder: Path) -> None:
    agent, _ = make_agent([])
    async with agent:
        error = await failure_of(agent.session("missing", must_exist=True).open())
    assert error.code is ErrorCode.NOT_FOUND


def named_by(*kinds: Any) -> set[str]:
    return {name for kind in kinds for name in kind.options}


def test_the_table_names_every_option() -> None:
    declared = named_by(CONFIGURE, AGENT, QUERY, SESSION)
    assert CHECKS.keys() - declared == set(), "there is no such option"
    assert declared - CHECKS.keys() == set(), "add a check that sees it act: @observes(NAME)"


@pytest.mark.parametrize("name", sorted(named_by(AGENT, QUERY, SESSION)))
async def test_an_option_is_observed_where_it_acts(name: str, tmp_path: Path) -> None:
    assert name in CHECKS, f"add a check that sees it act: @observes({name!r})"
    await CHECKS[name](tmp_path)


# What can be changed while a session lives.


CHANGES: dict[str, tuple[Any, Callable[[ModelRequest], object]]] = {
    "model": ("scripted/two", lambda request: request.model == "two"),
    "thinking": ("low", lambda request: request.thinking == "low"),
    "system_prompt": ("Be kind.", lambda request: request.system == ("Be kind.",)),
    "max_tokens": (5, lambda request: request.max_tokens == 5),
    "temperature": (0.1, lambda request: request.temperature == 0.1),
    "stop": (["X"], lambda request: request.stop == ("X",)),
    "seed": (3, lambda request: request.seed == 3),
    "betas": ({"b": False}, lambda request: request.betas == {"b": False}),
    "cache_ttl": (None, lambda request: request.cache_ttl is None),
    "compaction": (CompactionSettings(enabled=True), lambda request: request.compaction.enabled),
    "allowed_tools": ([], lambda request: request.tools == ()),
    "denied_tools": (["look"], lambda request: request.tools == ()),
    "timeouts": (Timeouts(connect=2.0), lambda request: request.timeouts.connect == 2.0),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_setting_can_be_changed_and_cleared_between_queries(name: str) -> None:
    value, holds = CHANGES[name]
    steps = [says("one"), says("two")]
    async with playing(steps, tools=[look]) as (session, provider):
        await session.chat("go")
        await session.configure(**{name: value})
        await session.chat("go on")
    before, after = provider.requests
    assert not holds(before)
    assert holds(after)


@pytest.mark.parametrize("name", CHANGES)
async def test_a_setting_of_one_query_holds_for_all_its_turns_and_no_other(name: str) -> None:
    value, holds = CHANGES[name]
    steps = [says("one"), calls(("look", {})), says("two"), says("three")]
    async with playing(steps, tools=[look]) as (session, provider):
        stored = session.settings
        await session.chat("go")
        await session.chat("go on", **{name: value})
        await session.chat("and now?")
        assert session.settings == stored
    assert [bool(holds(request)) for request in provider.requests] == [False, True, True, False]


@pytest.mark.parametrize("name", CHANGES)
async def test_a_setting_of_one_session_is_not_that_of_the_agent_s_others(name: str) -> None:
    value, holds = CHANGES[name]
    agent, provider = make_agent([says("one"), says("two")], tools=[look])
    async with agent, agent.session(**{name: value}) as session, agent.session() as other:
        await session.chat("go")
        await other.chat("go")
    first, second = provider.requests
    assert holds(first)
    assert not holds(second)


@pytest.mark.parametrize("name", CHANGES)
async def test_a_single_call_has_settings_of_its_own(name: str) -> None:
    value, holds = CHANGES[name]
    agent, provider = make_agent([says("one"), says("two")], tools=[look])
    async with agent:
        await agent.run("go", **{name: value})
        await agent.run("go")
    first, second = provider.requests
    assert holds(first)
    assert not holds(second)


async def test_tools_may_differ_by_session_and_by_query() -> None:
    @tool
    async def count(to: int) -> str:
        """Count."""
        return "1 2 3"

    steps = [says("a"), says("b"), calls(("count", {"to": 3})), says("c"), says("d")]
    agent, provider = make_agent(steps, tools=[look])
    async with agent, agent.session(tools=[erase]) as session:
        await agent.run("go")
        await session.chat("go")
        await session.chat("go", tools=[count])
        await session.chat("go")
    offered = [[spec.name for spec in request.tools] for request in provider.requests]
    assert offered == [["look"], ["erase"], ["count"], ["count"], ["erase"]]
    assert outcomes_in(provider.requests[3]) == [("count", "ok", "1 2 3")]


async def test_a_table_given_to_a_query_as_a_dictionary_names_its_fields_only() -> None:
    steps = [says("a"), says("b")]
    async with playing(steps, tools=[look], limits=Limits(turns=9, cost=1)) as (session, _):
        started: list[QueryStarted] = []
        session.on(QueryStarted, started.append)
        fields: Any = {"turns": 3}
        await session.chat("go", limits=fields)
        await session.chat("go", limits=Limits(turns=3))
        assert session.settings.limits == Limits(turns=9, cost=1)
    told = [entry.options.settings["limits"] for entry in started]
    assert [(limits["turns"], limits["cost"]) for limits in told] == [(3, 1.0), (3, None)]


async def test_a_changed_setting_leaves_the_others_alone_and_null_clears() -> None:
    async with playing([says("ok")], thinking="high", system_prompt="x") as (session, provider):
        await session.configure(thinking=None, max_tokens=9)
        assert (session.settings.thinking, session.settings.system_prompts) == (None, ("x",))
        await session.configure(system_prompt=None)
        await session.chat("go")
    assert (provider.requests[0].system, provider.requests[0].max_tokens) == ((), 9)


async def test_a_setting_changed_while_a_query_runs_holds_from_its_next_turn_on() -> None:
    seen: list[AgentSession] = []

    @tool
    async def slower() -> str:
        """Change the settings from inside."""
        await seen[0].configure(temperature=0.7)
        return "changed"

    async with playing([calls(("slower", {})), says("ok")], tools=[slower]) as (session, provider):
        seen.append(session)
        await session.chat("go")
    assert [request.temperature for request in provider.requests] == [None, 0.7]


# What is refused before a query begins.


NONSENSE: Any = {"nonsense": 1}


@pytest.mark.parametrize("options", [{"sender": None}, {"attachments": ["a.png"]}], ids=str)
async def test_what_belongs_to_a_prompt_is_refused_where_there_is_none(
    options: dict[str, Any],
) -> None:
    agent, _ = make_agent([])
    async with agent, agent.session() as session:
        (name,) = options
        with pytest.raises(TypeError, match=rf"{name} is an option of session.chat\(\)"):
            session.resume(**options)


async def test_an_option_that_does_not_exist_is_refused_everywhere() -> None:
    agent, _ = make_agent([])
    async with agent, agent.session() as session:
        functions: list[Callable[[], Any]] = [
            lambda: Agent(**NONSENSE),
            lambda: agent.stream("go", **NONSENSE),
            lambda: agent.session(**NONSENSE),
            lambda: session.stream("go", **NONSENSE),
            lambda: session.resume(**NONSENSE),
            lambda: run_agent_stream("go", **NONSENSE),
        ]
        for function in functions:
            with pytest.raises(TypeError, match="nonsense"):
                function()
        for work in (
            agent.run("go", **NONSENSE),
            session.chat("go", **NONSENSE),
            session.configure(**NONSENSE),
            run_agent("go", **NONSENSE),
            create_agent_session(**NONSENSE),
        ):
            with pytest.raises(TypeError, match="nonsense"):
                await work


async def test_an_agent_s_option_is_not_quietly_ignored_by_a_query() -> None:
    agent, _ = make_agent([])
    options: Any = {"store": "memory"}
    async with agent:
        with pytest.raises(TypeError, match=r"store is an option of Agent\(\)"):
            await agent.run("go", **options)


WRONG: list[tuple[str, Any]] = [
    ("thinking", "hard"),
    ("max_tokens", "many"),
    ("temperature", "hot"),
    ("stop", "END"),
    ("cache_ttl", "1d"),
    ("betas", ["x"]),
    ("limits", {"turnz": 3}),
    ("limits", {"turns": "three"}),
    ("retry", {"max_retries": 1.5}),
    ("fallbacks", [{"modell": "a/b"}]),
    ("timeouts", 7),
    ("unanswered", "denny"),
    ("runtime", {"buffer_size": "big"}),
    ("owner", 7),
    ("title_model", 7),
    ("recall", "yes"),
    ("plugins", "yes"),
    ("tool_plugins", 7),
    ("snapshots", "yes"),
    ("context_files", "AGENTS.md"),
    ("skill_folders", [7]),
    ("budgets", {"day_costs": 3}),
    ("budgets", {"day_cost": -1}),
    ("watchdogs", {"repeated_errors": 1}),
    ("mcp_servers", "time"),
    ("mcp_servers", [7]),
    ("loop_threshold", "three"),
    ("model", 7),
    ("system_prompt", 7),
    ("fallbacks", "scripted/other"),
    ("fallbacks", None),
    ("tools", 7),
    ("tools", "read_file"),
    ("providers", None),
    ("store", 7),
    ("approver", 7),
    ("hooks", 7),
    ("blocks", {"turn_runner": None}),
    ("instrumentation", 7),
    ("claude_options", {"cwd": "."}),
    ("telemetry", 7),
    ("environment", 7),
    ("headers", {"x-team": 7}),
    ("cwd", 7),
    ("clock", None),
    ("random", 7),
]


@pytest.mark.parametrize(("name", "value"), WRONG, ids=stable_name)
def test_a_value_that_cannot_be_meant_is_refused_by_name(name: str, value: Any) -> None:
    options: Any = {"model": "scripted/m", "environment": {}, name: value}
    with pytest.raises(ConfigError, match=rf"\b{name}\b") as caught:
        Agent(**options)
    assert caught.value.code is ErrorCode.CONFIG_INVALID


WRONG_OF_A_QUERY: list[tuple[str, Any]] = [
    ("delivery", "qeue"),
    ("on_abort", "retrun"),
    ("output_schema", "city.json"),
    ("output_validator", "check"),
    ("output_attempts", 0),
    ("output_attempts", "two"),
    ("timeout", "soon"),
    ("timeout", -1),
    ("total_timeout", "soon"),
    ("total_timeout", float("nan")),
    ("signal", AbortController()),
    ("reminders", "be kind"),
    ("reminders", [7]),
    ("sender", "ana"),
    ("transform", 7),
    ("attachments", "notes.txt"),
]


@pytest.mark.parametrize(("name", "value"), WRONG_OF_A_QUERY, ids=stable_name)
async def test_a_query_s_value_that_cannot_be_meant_is_refused_by_name(
    name: str, value: Any
) -> None:
    agent, _ = make_agent([])
    options: Any = {name: value}
    async with agent:
        with pytest.raises(ConfigError, match=rf"^CONFIG_INVALID: agent\.run\(\): .*\b{name}\b"):
            await agent.run("go", **options)
        with pytest.raises(ConfigError, match=rf"^CONFIG_INVALID: session\.chat\(\): .*{name}"):
            await agent.session().chat("go", **options)


@pytest.mark.parametrize("model", ["claude", "/m", "p/", "no slash at all"])
def test_a_model_without_its_provider_is_refused(model: str) -> None:
    with pytest.raises(AgentError) as caught:
        Agent(model, environment={})
    assert caught.value.code is ErrorCode.CONFIG_INVALID
