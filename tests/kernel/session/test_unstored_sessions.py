"""A conversation that the program holds: queries run on it with the blocks alone, in memory."""

import asyncio
import re
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from haptera import (
    AbortController,
    Agent,
    ApprovalRequest,
    ApprovalRequested,
    Approve,
    AssistantMessage,
    Message,
    QueryEnded,
    SessionError,
    Settings,
    StatusChanged,
    TextDelta,
    TextPart,
    UserMessage,
    building_blocks,
    tool,
)
from haptera.building_blocks import (
    AbortQuery,
    AnswerAggregators,
    ApprovalCoordinator,
    ApproveCall,
    Blocks,
    ControlChannel,
    Conversation,
    DenyCall,
    ModelPlan,
    ModelRequest,
    Query,
    QueryOutcome,
    RequestExtras,
    SendPrompt,
    StreamProcessor,
    SystemClock,
    ToolRegistry,
    TurnOutcome,
    build_request,
    heal_history,
    make_blocks,
    new_command_id,
)
from haptera.hooks import AfterQuery, BeforeTurn, Hooks, Proceed
from haptera.model.budgets import Watchdogs
from haptera.model.errors import ConfigError, ErrorCode, ProviderError
from haptera.model.events import Event, Idle
from haptera.model.ids import new_input_id, new_message_id, new_query_id
from haptera.model.log.conversation import SentCounts
from haptera.model.log.entry import Entry
from haptera.model.log.queries import QueryStarted
from haptera.model.operations.session import (
    ChangeSession,
    Command,
    CompactSession,
    ConfigureSession,
    RewindSession,
    UndoRewind,
)
from haptera.testing import AutoClock, EventRecorder, Gate, ScriptedProvider, calls, says
from tests.messages_by_hand import assistant, call, user


def _blocks(*steps: Any, **options: Any) -> tuple[Blocks, ScriptedProvider]:
    provider = ScriptedProvider(steps)
    return make_blocks(provider, clock=AutoClock(), **options), provider


@tool(approval="ask")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def test_the_program_holds_the_conversation_that_the_blocks_change() -> None:
    blocks, provider = _blocks(says("Hello Ana."), says("Ana."))
    conversation = Conversation()
    talk = blocks.hold(conversation)
    assert (await talk.run("I am Ana.")).stop_reason == "complete"
    assert (await talk.run("Who am I?")).stop_reason == "complete"
    texts = [part.text for item in conversation.messages for part in item.parts]  # type: ignore[union-attr]
    assert texts == ["I am Ana.", "Hello Ana.", "Who am I?", "Ana."]
    assert [len(request.messages) for request in provider.requests] == [1, 3]


class Listed:
    """A conversation of a program's own, which keeps the contract and is no `Conversation`."""

    def __init__(self) -> None:
        self._kept: list[Message] = []
        self.counts = SentCounts(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(self._kept)

    @property
    def tip(self) -> Message | None:
        return self._kept[-1] if self._kept else None

    def push(self, message: Message, *, tag: str | None = None, kept_from: Any = None) -> None:
        if isinstance(message, UserMessage) and isinstance(self.tip, UserMessage):
            message = msgspec.structs.replace(message, parts=self.tip.parts + message.parts)
            self._kept.pop()
        self._kept.append(message)

    def remove_last(self) -> Message | None:
        return self._kept.pop() if self._kept else None

    def set_history(self, messages: Iterable[Message]) -> None:
        self._kept[:] = messages

    def wire_view(self) -> tuple[Message, ...]:
        return self.messages


async def test_a_query_takes_any_conversation_that_keeps_the_contract() -> None:
    steps = (calls(("pay", {"amount": 3})), says("done"), says("again"))
    blocks, provider = _blocks(*steps, tools=[pay])
    conversation = Listed()
    talk = blocks.hold(conversation, approver=lambda request: Approve())
    assert (await talk.run("pay")).stop_reason == "complete"
    assert (await talk.run("and now?")).stop_reason == "complete"
    kinds = [type(message).__name__ for message in conversation.messages]
    assert kinds == ["UserMessage", "AssistantMessage"] * 3
    assert [len(request.messages) for request in provider.requests] == [1, 3, 5]


async def test_handlers_are_subscribed_once_and_see_every_query() -> None:
    blocks, _ = _blocks(says("a"), says("b"))
    seen = EventRecorder()
    channel = ControlChannel()
    channel.subscribe(seen)
    talk = blocks.hold(channel=channel)
    await talk.run("one")
    await talk.run("two")
    assert len(channel) == 1
    assert seen.counts["query.ended"] == 2
    assert [event.seq for event in seen.events if isinstance(event, Entry)] == list(range(1, 13))
    assert not channel.closed


async def test_a_conversation_can_be_changed_between_queries() -> None:
    blocks, provider = _blocks(says("one"), says("two"))
    conversation = Conversation()
    talk = blocks.hold(conversation)
    await talk.run("first")
    conversation.set_history([user("other", name="x"), assistant("history", name="y")])
    await talk.run("second")
    assert b"first" not in msgspec.json.encode(provider.requests[1].messages)
    assert len(conversation) == 4


async def test_a_restored_history_is_healed_and_goes_on() -> None:
    blocks, provider = _blocks(says("on"))
    stored = msgspec.json.encode((user("hi"), assistant(call("1"))))
    messages = msgspec.json.decode(stored, type=list[UserMessage | AssistantMessage])
    await blocks.hold(Conversation(heal_history(messages))).run("go on")
    assert b"tool_result" in msgspec.json.encode(provider.requests[0].messages)


async def test_settings_can_be_set_between_queries() -> None:
    blocks, provider = _blocks(says("a"), says("b"))
    talk = blocks.hold()
    await talk.run("one")
    talk.settings = msgspec.structs.replace(talk.settings, system_prompts=("Be brief.",))
    await talk.run("two")
    assert [request.system for request in provider.requests] == [(), ("Be brief.",)]


async def test_a_failure_is_an_outcome_and_an_event_and_no_exception() -> None:
    blocks, _ = _blocks(ValueError("broken"))
    talk = blocks.hold()
    seen = EventRecorder()
    talk.channel.subscribe(seen)
    outcome = await talk.run("hi")
    assert outcome.stop_reason == "error"
    assert outcome.error is not None
    assert seen.ends[0].error is not None
    assert seen.ends[0].error.code == outcome.error.code


async def test_a_question_is_answered_through_the_channel() -> None:
    blocks, provider = _blocks(
        calls(("pay", {"amount": 3})), calls(("pay", {"amount": 900})), says("ok"), tools=[pay]
    )
    talk = blocks.hold()

    def answer(asked: ApprovalRequested) -> None:
        if asked.arguments["amount"] > 100:
            command = DenyCall(
                id=new_command_id(), approval_id=asked.approval_id, reason="too much"
            )
            talk.channel.submit(command)
            return
        talk.channel.submit(ApproveCall(id=new_command_id(), approval_id=asked.approval_id))

    talk.channel.on(ApprovalRequested, answer)
    assert (await talk.run("pay")).stop_reason == "complete"
    sent = [msgspec.json.encode(request.messages) for request in provider.requests]
    assert b"paid 3" in sent[1]
    assert b"too much" in sent[2]
    assert b"paid 900" not in sent[2]


async def test_an_approver_can_answer_instead() -> None:
    async def approve(request: ApprovalRequest) -> Approve:
        return Approve({"amount": request.arguments["amount"] // 900})

    blocks, provider = _blocks(calls(("pay", {"amount": 900})), says("ok"), tools=[pay])
    await blocks.hold(approver=approve).run("pay")
    assert b"paid 1" in msgspec.json.encode(provider.requests[1].messages)


async def test_a_signal_stops_a_query_from_another_thread() -> None:
    gate, controller = Gate(), AbortController()
    blocks, provider = _blocks([*says("half")[:3], gate], says("again"))
    talk = blocks.hold()
    running = asyncio.ensure_future(talk.run("hi", signal=controller.signal))
    await gate.reached.wait()
    threading.Thread(target=controller.abort, args=("enough",)).start()
    outcome = await running
    assert outcome.stop_reason == "aborted"
    assert outcome.error is not None
    assert "enough" in outcome.error.message
    assert controller.signal.listener_count == 0
    assert provider.open_streams == 0
    assert isinstance(talk.conversation.tip, AssistantMessage)
    assert talk.conversation.tip.text == "half"
    assert (await talk.run("go on")).stop_reason == "complete"


async def test_a_signal_that_was_given_already_stops_a_query_before_the_model_is_asked() -> None:
    controller = AbortController()
    controller.abort()
    blocks, provider = _blocks(says("never"))
    outcome = await blocks.hold().run("hi", signal=controller.signal)
    assert outcome.stop_reason == "aborted"
    assert provider.requests == []


async def test_an_abort_can_be_submitted_to_the_channel() -> None:
    gate = Gate()
    blocks, _ = _blocks([gate])
    talk = blocks.hold()
    running = asyncio.ensure_future(talk.run("hi"))
    await gate.reached.wait()
    talk.channel.submit(AbortQuery(id=new_command_id(), reason="stop"))
    assert (await running).stop_reason == "aborted"


async def test_an_abort_that_is_meant_for_another_query_stops_nothing() -> None:
    gate = Gate()
    blocks, _ = _blocks([gate, *says("ok")])
    talk = blocks.hold()
    running = asyncio.ensure_future(talk.run("hi"))
    await gate.reached.wait()
    talk.channel.submit(AbortQuery(id=new_command_id(), query_id=new_query_id()))
    gate.open()
    assert (await running).stop_reason == "complete"


async def test_what_an_approver_says_through_the_channel_reaches_the_model() -> None:
    blocks, provider = _blocks(calls(("pay", {"amount": 3})), says("ok"), tools=[pay])
    talk = blocks.hold()

    def answer(asked: ApprovalRequested) -> None:
        talk.channel.submit(
            ApproveCall(
                id=new_command_id(), approval_id=asked.approval_id, feedback="the last time"
            )
        )

    talk.channel.on(ApprovalRequested, answer)
    await talk.run("pay")
    assert b"the last time" in msgspec.json.encode(provider.requests[1].messages)


@pytest.mark.parametrize(
    "command",
    [
        ChangeSession(id=new_command_id(), changes={"title": "x"}),
        ConfigureSession(id=new_command_id(), settings={"thinking": "high"}),
        RewindSession(id=new_command_id(), to=new_message_id()),
        UndoRewind(id=new_command_id()),
        CompactSession(id=new_command_id()),
    ],
    ids=lambda command: type(command).__name__,
)
async def test_what_only_a_session_can_be_told_is_refused(command: Command) -> None:
    blocks, _ = _blocks()
    talk = blocks.hold()
    with pytest.raises(ConfigError, match="a conversation without a session cannot be told to"):
        talk.channel.submit(command)


async def test_a_tool_that_fails_again_and_again_ends_the_query() -> None:
    @tool
    def look() -> str:
        """Look."""
        raise ValueError("dark")

    blocks, _ = _blocks(*[calls(("look", {}))] * 3, tools=[look])
    talk = blocks.hold()
    watchdogs = Watchdogs(repeated_errors=2)
    talk.settings = msgspec.structs.replace(talk.settings, watchdogs=watchdogs, loop_threshold=None)
    outcome = await talk.run("look")
    assert (outcome.stop_reason, outcome.stop_detail) == (
        "loop",
        "look failed again and again: ValueError: dark",
    )


async def test_a_cancelled_caller_leaves_a_conversation_at_rest() -> None:
    gate = Gate()
    blocks, provider = _blocks([*says("half")[:3], gate], says("again"))
    talk = blocks.hold()
    seen = EventRecorder()
    talk.channel.subscribe(seen)
    running = asyncio.ensure_future(talk.run("hi"))
    await gate.reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [end.stop_reason for end in seen.ends] == ["aborted"]
    assert provider.open_streams == 0
    assert (await talk.run("go on")).stop_reason == "complete"


async def test_a_caller_that_is_cancelled_again_and_again_leaves_a_conversation_at_rest() -> None:
    started, stopping, may_stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
    told, may_end, told_to_its_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> str:
        """Take a while to stop."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopping.set()
            await may_stop.wait()
        return "never"

    async def after_query(given: AfterQuery) -> None:
        told.set()
        await may_end.wait()
        told_to_its_end.set()

    blocks, _ = _blocks(
        calls(("slow", {})), says("again"), tools=[slow], hooks=Hooks(after_query=after_query)
    )
    talk = blocks.hold()
    seen, statuses = EventRecorder(), list[str]()
    talk.channel.subscribe(seen)
    talk.channel.on(StatusChanged, lambda event: statuses.append(type(event.status).__name__))
    running = asyncio.ensure_future(talk.run("hi"))
    async with asyncio.timeout(5):
        for reached, go_on in [(started, None), (stopping, may_stop), (told, may_end)]:
            await reached.wait()
            running.cancel()
            await asyncio.wait({running}, timeout=0)  # the cancellation arrives
            if go_on is not None:
                go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert [end.stop_reason for end in seen.ends] == ["aborted"]
    assert told_to_its_end.is_set()
    assert statuses == ["Busy", "Idle"]
    assert (await talk.run("go on")).stop_reason == "complete"


async def test_two_queries_at_the_same_time_are_refused() -> None:
    gate = Gate()
    blocks, _ = _blocks([gate, *says("ok")])
    talk = blocks.hold()
    running = asyncio.ensure_future(talk.run("hi"))
    await gate.reached.wait()
    with pytest.raises(SessionError) as caught:
        await talk.run("me too")
    assert caught.value.code is ErrorCode.BUSY
    gate.open()
    assert (await running).stop_reason == "complete"


async def test_a_prompt_that_finds_no_query_is_refused() -> None:
    blocks, _ = _blocks()
    talk = blocks.hold()
    message = UserMessage(id=new_message_id(), parts=(TextPart(text="hi"),))
    command = SendPrompt(id=new_command_id(), input_id=new_input_id(), message=message)
    with pytest.raises(SessionError) as caught:
        talk.channel.submit(command)
    assert caught.value.code is ErrorCode.NOT_FOUND


async def test_a_block_that_is_passed_in_is_used_instead() -> None:
    built: list[ModelRequest] = []

    def build(settings: Any, messages: Any, extras: RequestExtras) -> ModelRequest:
        request = msgspec.structs.replace(build_request(settings, messages, extras), seed=7)
        built.append(request)
        return request

    texts: list[str] = []
    processor = StreamProcessor(clock=SystemClock())
    processor.on(TextDelta, lambda delta: texts.append(delta.text))
    blocks, provider = _blocks(says("a", "b"), request_builder=build, stream_processor=processor)
    await blocks.hold().run("hi")
    assert provider.requests == built
    assert texts == ["a", "b"]


class _FailingTurns:
    """A turn runner that asks no model."""

    async def run(self, query: Query, plan: ModelPlan, extras: RequestExtras) -> TurnOutcome:
        raise ProviderError(ErrorCode.BAD_REQUEST, "not today")


async def test_a_turn_runner_that_is_passed_in_is_used_instead() -> None:
    blocks, provider = _blocks(turn_runner=_FailingTurns())
    outcome = await blocks.hold().run("hi")
    assert outcome.error is not None
    assert outcome.error.message == "not today"
    assert provider.requests == []


async def test_a_registry_that_is_passed_in_is_used_instead_and_takes_all_tools() -> None:
    registry = ToolRegistry([pay])
    blocks, provider = _blocks(says("ok"), tool_registry=registry)
    assert blocks.tool_registry is registry
    await blocks.hold().run("hi")
    assert [offered.name for offered in provider.requests[0].tools] == ["pay"]
    with pytest.raises(ConfigError, match="'tools' would not be used beside"):
        _blocks(tool_registry=registry, tools=[pay])


class _Refusing:
    """A query runner that records the prompt, and asks nothing."""

    async def start(self, query: Query) -> None:
        await query.recorder.record([QueryStarted(**query.stamp(), message=query.input.message)])

    async def run(self, query: Query) -> QueryOutcome:
        return QueryOutcome(stop_reason="refusal", stop_detail="not today")


async def test_a_query_runner_that_is_passed_in_is_used_instead() -> None:
    blocks, provider = _blocks(query_runner=_Refusing())
    talk = blocks.hold()
    seen = EventRecorder()
    talk.channel.subscribe(seen)
    outcome = await talk.run("hi")
    assert (outcome.stop_reason, outcome.stop_detail) == ("refusal", "not today")
    assert [end.stop_reason for end in seen.ends] == ["refusal"]
    assert len(talk.conversation) == 1
    assert provider.requests == []


class _Noting(ApprovalCoordinator):
    """An approval coordinator that notes what is answered."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.answers: list[str] = []

    async def settle(self, approval_id: Any, decision: Any, **also: Any) -> bool:
        self.answers.append(type(decision).__name__)
        return await super().settle(approval_id, decision, **also)


async def test_an_approval_coordinator_that_is_passed_in_is_used_instead() -> None:
    blocks, _ = _blocks(calls(("pay", {"amount": 3})), says("ok"), tools=[pay])
    talk = blocks.hold(approvals=_Noting, approver=lambda request: Approve())
    assert (await talk.run("pay")).stop_reason == "complete"
    assert isinstance(talk.approvals, _Noting)
    assert talk.approvals.answers == ["Approve"]


async def test_a_query_without_progress_ends() -> None:
    blocks, _ = _blocks([Gate()])
    talk = blocks.hold()
    talk.settings = msgspec.structs.replace(talk.settings, watchdogs=Watchdogs(idle_seconds=8))
    outcome = await talk.run("hi")
    assert (outcome.stop_reason, outcome.stop_detail) == (
        "limit",
        "idle_seconds=8: there was no progress",
    )


async def test_chance_that_is_passed_in_spreads_the_retries() -> None:
    class Half:
        asked = 0

        def random(self) -> float:
            self.asked += 1
            return 0.5

    busy = ProviderError(ErrorCode.OVERLOADED, "busy")
    blocks, _ = _blocks(busy, says("ok"), random=(chance := Half()))
    assert (await blocks.hold().run("hi")).stop_reason == "complete"
    assert chance.asked == 1


@pytest.mark.parametrize(("size", "has_space"), [(1, False), (100, True)])
async def test_the_buffer_of_handlers_is_as_large_as_the_runtime_says(
    size: int, has_space: bool
) -> None:
    blocks, _ = _blocks(runtime={"buffer_size": size})
    channel, free = blocks.hold().channel, asyncio.Event()

    async def wait(_event: Event) -> None:
        await free.wait()

    channel.subscribe(wait)
    channel.publish([StatusChanged(status=Idle())] * 3)
    assert channel.has_space is has_space
    free.set()
    await channel.drain()


async def test_aggregators_hold_what_the_turn_has_said_and_which_calls_run() -> None:
    seen: list[tuple[list[str], list[str]]] = []
    talks = AnswerAggregators()

    @tool
    def look() -> str:
        """Look."""
        seen.append(
            (list(talks.text.all().values()), [c.name for c in talks.running_calls.values()])
        )
        return "seen"

    blocks, _ = _blocks(calls(("look", {}), text="I look."), says("It ", "is."), tools=[look])
    talk = blocks.hold()
    talk.channel.subscribe(talks)
    await talk.run("look")
    assert seen == [(["I look."], ["look"])]
    assert list(talks.text.all().values()) == ["It is."]
    assert talks.running_calls == {}


async def test_the_status_says_when_a_query_runs() -> None:
    blocks, _ = _blocks(says("a"))
    talk = blocks.hold()
    statuses: list[str] = []
    talk.channel.on(StatusChanged, lambda event: statuses.append(type(event.status).__name__))
    ends: list[QueryEnded] = []
    talk.channel.on(QueryEnded, ends.append)
    await talk.run("hi")
    assert statuses == ["Busy", "Idle"]
    assert ends[0].turns == 1


async def test_many_conversations_share_the_blocks() -> None:
    blocks, provider = _blocks(*(says(f"answer {number}") for number in range(20)))
    talks = [blocks.hold() for _ in range(20)]
    await asyncio.gather(*(talk.run("hi") for talk in talks))
    tips = {talk.conversation.tip.text for talk in talks if talk.conversation.tip}
    assert tips == {f"answer {number}" for number in range(20)}
    provider.check()


def test_every_public_name_of_the_module_is_there_and_explained() -> None:
    names = building_blocks.__all__
    assert names == sorted(names, key=lambda name: (name[0].islower(), name))
    values = {name: getattr(building_blocks, name) for name in names}
    mute = [n for n, value in values.items() if isinstance(value, type) and not value.__doc__]
    assert mute == []


async def test_a_plain_function_can_approve() -> None:
    blocks, _ = _blocks(calls(("pay", {"amount": 3})), says("done"), tools=[pay])
    conversation = Conversation()
    outcome = await blocks.hold(conversation, approver=lambda request: Approve()).run("Pay 3.")
    assert outcome.stop_reason == "complete"
    assert "paid 3" in str(conversation.messages)


@pytest.mark.parametrize(
    ("name", "told"),
    [("system_prompt", "blocks.hold(settings="), ("tool", "did you mean 'tools'"), ("colour", "")],
)
def test_an_option_that_there_is_none_of_is_refused(name: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _blocks(**{name: "x"})
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert told in caught.value.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", "look"),
        ("tool_registry", [pay]),
        ("request_builder", "plain"),
        ("stream_processor", StreamProcessor),
        ("turn_runner", 5),
        ("query_runner", 5),
        ("hooks", {"before_tool": print}),
        ("random", 3),
        ("runtime", {"hook_second": 5}),
    ],
)
def test_a_value_that_an_option_cannot_have_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        _blocks(**{name: value})
    assert caught.value.code is ErrorCode.CONFIG_INVALID


def test_a_clock_that_is_none_is_refused() -> None:
    clock: Any = 5
    with pytest.raises(ConfigError, match=r"make_blocks\(\): option 'clock' must be a Clock"):
        make_blocks(ScriptedProvider(), clock=clock)


async def _never(given: BeforeTurn) -> Proceed:
    await asyncio.Event().wait()
    return Proceed()


async def test_the_runtime_may_be_a_dictionary() -> None:
    runtime: Any = {"hook_seconds": 0.01}
    blocks = make_blocks(ScriptedProvider(), hooks=Hooks(before_turn=_never), runtime=runtime)
    outcome = await blocks.hold().run("Hello")
    assert outcome.error is not None
    assert outcome.error.code is ErrorCode.HOOK_FAILED


async def test_without_a_runtime_that_of_the_configuration_file_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").write_text("[runtime]\nhook_seconds = 0.01\n")
    monkeypatch.setenv("HAPTERA_CONFIG_PATH", str(tmp_path / "config.toml"))
    blocks = make_blocks(ScriptedProvider(), hooks=Hooks(before_turn=_never))
    outcome = await blocks.hold().run("Hello")
    assert outcome.error is not None
    assert outcome.error.code is ErrorCode.HOOK_FAILED


# What is refused, as an agent refuses it.


@pytest.mark.parametrize("prompt", ["", " \n", None, b"hello", 7, ["hello"]], ids=repr)
async def test_a_prompt_that_a_user_cannot_send_is_refused_as_by_an_agent(prompt: Any) -> None:
    blocks, provider = _blocks()
    talk = blocks.hold()
    with pytest.raises(ConfigError) as caught:
        await talk.run(prompt)
    async with Agent("scripted/one", providers=[provider], environment={}) as agent:
        with pytest.raises(ConfigError) as same:
            await agent.run(prompt)
    assert caught.value.message == same.value.message
    assert provider.requests == []
    assert len(talk.conversation) == 0


async def test_a_message_keeps_its_own_id() -> None:
    blocks, _ = _blocks(says("Hello."))
    talk = blocks.hold()
    await talk.run(user("hi", name="mine"))
    assert talk.conversation.messages[0].id == user("hi", name="mine").id


@pytest.mark.parametrize(
    ("conversation", "options", "told"),
    [
        ("x", {}, "pass a Conversation, such as Conversation(messages), not str"),
        ([], {}, "pass a Conversation, such as Conversation(messages), not list"),
        (None, {"settings": {"model": "a/b"}}, "option 'settings' must be Settings, not dict"),
        (None, {"settings": Settings(max_tokens=-1)}, "Settings: max_tokens must be at least 0"),
        (None, {"channel": "x"}, "option 'channel' must be a ControlChannelInterface, not str"),
        (None, {"approvals": "x"}, "option 'approvals' must be a function, not str"),
        (None, {"approver": "x"}, "option 'approver' must be a function, not str"),
        (None, {"tools": []}, "tools is an option of make_blocks()"),
        (None, {"model": "a/b"}, "model is a setting; pass it as blocks.hold(settings=Settings("),
    ],
)
async def test_what_cannot_be_held_is_refused(
    conversation: Any, options: dict[str, Any], told: str
) -> None:
    blocks, _ = _blocks()
    with pytest.raises(ConfigError, match=re.escape(told)):
        blocks.hold(conversation, **options)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (
            "base_url",
            "base_url is an option of Agent(); for blocks, write it into [providers.NAME]",
        ),
        ("api_key", "set the variable of the provider, or pass a ModelClient of your own"),
        ("store", "store is an option of Agent()"),
        ("approver", "approver is an option of blocks.hold()"),
        ("temperature", "temperature is a setting; pass it as blocks.hold(settings=Settings("),
        ("tols", "tols is unknown; did you mean 'tools'?"),
    ],
)
def test_an_option_of_something_else_is_told_its_place(option: str, told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        make_blocks(ScriptedProvider(), **{option: "x"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([{"role": "user"}], "made of UserMessage and AssistantMessage, not dict; JSON becomes"),
        (["hello"], "made of UserMessage and AssistantMessage, not str"),
        ("hello", "pass a list of messages, not str"),
        ({"role": "user"}, "pass a list of messages, not dict"),
        (None, "pass a list of messages, not NoneType"),
    ],
)
def test_a_history_that_is_none_is_refused(messages: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Conversation(messages)
    kept = Conversation([user("hi")])
    with pytest.raises(ConfigError, match=told):
        kept.set_history(messages)
    assert len(kept) == 1


async def test_closed_blocks_answer_nothing() -> None:
    blocks, provider = _blocks()
    talk = blocks.hold()
    await blocks.close()
    with pytest.raises(SessionError) as caught:
        await talk.run("hello")
    assert caught.value.code is ErrorCode.CLOSED
    with pytest.raises(SessionError):
        blocks.hold()
    assert provider.requests == []
