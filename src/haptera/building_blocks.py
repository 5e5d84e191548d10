"""The building blocks of an agent, for programs that want a loop of their own without a session.

    async with make_blocks("anthropic/claude-sonnet-5", tools=[temperature]) as blocks:
        talk = blocks.hold(Conversation())
        talk.channel.on(TextDelta, lambda delta: print(delta.text, end=""))
        outcome = await talk.run("How warm is it in Lisbon?")

`make_blocks` makes each block once and joins them; a block that is passed to it is used instead of
the default one. The same function of the engine joins the blocks of an `Agent`. Each block has an
interface, whose docstring is its contract, and a suite in `haptera.testing.contracts` that checks
a substitute against it. The guide is docs/building-blocks.md.

A model that Haptera does not know is a `ModelClient` of your own, made of the names below:
docs/custom-providers.md.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self, Unpack

from msgspec.structs import replace

from haptera.access.assembly.agent_inputs import ConfigurationSources, OwnAccess, checked_model
from haptera.access.assembly.block_options import (
    BlockChoices,
    HoldChoices,
    place_of_option,
)
from haptera.access.assembly.configuration import Configuration
from haptera.access.assembly.keywords import BlockOptions, HoldOptions
from haptera.access.assembly.model_clients import ClientOptions, ModelClients
from haptera.kernel.agent_blocks import AgentBlocks, ModelAccess
from haptera.kernel.blocks.approval_coordinator import (
    ApprovalCoordinator,
    ApprovalCoordinatorInterface,
)
from haptera.kernel.blocks.control_channel import (
    ControlChannel,
    ControlChannelInterface,
    Subscription,
)
from haptera.kernel.blocks.hook_dispatch.dispatch import HookDispatch
from haptera.kernel.blocks.request_builder import RequestBuilder, RequestExtras, build_request
from haptera.kernel.blocks.stream_processor.aggregators import (
    AnswerAggregators,
    ReasoningAggregator,
    TextAggregator,
    ToolCallAggregator,
)
from haptera.kernel.blocks.stream_processor.processor import (
    AnswerInterface,
    AnswerSource,
    ProcessedStream,
    StreamProcessor,
    StreamProcessorInterface,
)
from haptera.kernel.blocks.tool_registry.registry import (
    FunctionFailed,
    InvalidInput,
    NotFound,
    Ready,
    Succeeded,
    ToolRegistry,
    ToolRegistryInterface,
    ToolSet,
)
from haptera.kernel.blocks.tool_registry.running import as_approver
from haptera.kernel.own_blocks import OwnBlocks
from haptera.kernel.query.query import ModelPlan, Query, Runner, Turn
from haptera.kernel.query_runner import QueryRunner
from haptera.kernel.session.recorder import Recorder
from haptera.kernel.turns.turn_runner import TurnOutcome, TurnRunner, TurnRunnerInterface
from haptera.kernel.unstored_session import UnstoredSession
from haptera.model.errors import ConfigError, ErrorCode, SessionError
from haptera.model.ids import DEFAULT_OWNER
from haptera.model.json_types import JsonObject
from haptera.model.log.conversation import Conversation, ConversationInterface
from haptera.model.log.history import heal_history
from haptera.model.native_messages import NativeAnswer, NativeMessage, NativeResult
from haptera.model.native_settings import ClaudeAgentSettings
from haptera.model.operations.operation import new_command_id
from haptera.model.operations.session import AbortQuery, ApproveCall, Command, DenyCall, SendPrompt
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    ProviderPart,
    ReasoningPart,
    ReminderPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from haptera.model.requests import ModelRequest, OutputSchema, TokenCount
from haptera.model.settings import Settings
from haptera.model.stream_parts import (
    FinishKind,
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
from haptera.options.checks import checked, checked_fields
from haptera.options.signatures import takes
from haptera.ports.model_client import ModelCatalogue, ModelClient
from haptera.ports.native_agent import (
    Allow,
    CallResult,
    NativeAgent,
    NativeCall,
    NativeHost,
    NativeOpening,
    NativeSession,
    Refuse,
)
from haptera.ports.runner import QueryInput, QueryOutcome
from haptera.system.clock import Clock, Random, SystemClock

__all__ = [
    "AbortQuery",
    "AgentBlocks",
    "Allow",
    "AnswerAggregators",
    "AnswerInterface",
    "AnswerSource",
    "ApprovalCoordinator",
    "ApprovalCoordinatorInterface",
    "ApproveCall",
    "BlockOptions",
    "Blocks",
    "CallResult",
    "Clock",
    "Command",
    "CompactionPart",
    "ControlChannel",
    "ControlChannelInterface",
    "Conversation",
    "ConversationInterface",
    "DenyCall",
    "FinishKind",
    "FunctionFailed",
    "HoldOptions",
    "InvalidInput",
    "MediaPart",
    "ModelAccess",
    "ModelCatalogue",
    "ModelClient",
    "ModelPlan",
    "ModelRequest",
    "NativeAgent",
    "NativeAnswer",
    "NativeCall",
    "NativeHost",
    "NativeModel",
    "NativeOpening",
    "NativeResult",
    "NativeSession",
    "NotFound",
    "OutputSchema",
    "OwnBlocks",
    "PartClosed",
    "PartDelta",
    "PartOpaque",
    "PartOpened",
    "ProcessedStream",
    "ProviderPart",
    "Query",
    "QueryInput",
    "QueryOutcome",
    "QueryRunner",
    "Random",
    "Ready",
    "ReasoningAggregator",
    "ReasoningPart",
    "Recorder",
    "Refuse",
    "ReminderPart",
    "RequestBuilder",
    "RequestExtras",
    "Runner",
    "SendPrompt",
    "StreamFinished",
    "StreamOpened",
    "StreamPart",
    "StreamProcessor",
    "StreamProcessorInterface",
    "Subscription",
    "Succeeded",
    "SystemClock",
    "TextAggregator",
    "TextPart",
    "TokenCount",
    "ToolCallAggregator",
    "ToolCallPart",
    "ToolRegistry",
    "ToolRegistryInterface",
    "ToolResultPart",
    "ToolSet",
    "ToolSpec",
    "Turn",
    "TurnOutcome",
    "TurnRunner",
    "TurnRunnerInterface",
    "UnstoredSession",
    "Usage",
    "build_request",
    "heal_history",
    "make_blocks",
    "make_native",
    "new_command_id",
]


class Blocks:
    """The blocks of `make_blocks`, joined. Use it with `async with`, or close it.

    Shared by any number of conversations: nothing in it belongs to one of them.
    """

    def __init__(
        self,
        joined: AgentBlocks,
        *,
        clients: ModelClients,
        settings: Settings,
    ) -> None:
        self.request_builder = joined.request_builder
        self.stream_processor = joined.stream_processor
        self.tool_registry = joined.tool_registry
        self.turn_runner = joined.turn_runner
        self.query_runner = joined.query_runner
        self._joined = joined
        self._closed = False
        self.settings = settings
        """What a held conversation starts with, unless it is given settings of its own."""
        self._clients = clients

    @takes(HoldChoices)
    def hold(
        self, conversation: ConversationInterface | None = None, **options: Unpack[HoldOptions]
    ) -> UnstoredSession:
        """Join the blocks with a conversation and a channel that the caller holds.

        Raises:
            SessionError: CLOSED.
            ConfigError: CONFIG_INVALID naming what is wrong.

        """
        self._check_open()
        told = checked(options, HoldChoices, function="blocks.hold()", elsewhere=place_of_option)
        if conversation is not None and not callable(getattr(conversation, "wire_view", None)):
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                "blocks.hold(): pass a Conversation, such as Conversation(messages), not "
                f"{type(conversation).__name__}",
            )
        settings, approver = told.settings, told.approver
        return UnstoredSession(
            self._joined,
            settings=self.settings if settings is None else checked_fields(settings),
            conversation=conversation,
            channel=told.channel,
            approvals=told.approvals,
            approver=None if approver is None else as_approver(approver),
            check_open=self._check_open,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections to providers; a client that was passed in stays open.

        Later queries are CLOSED, also on conversations that are held already.
        """
        self._closed = True
        await self._clients.close()

    def _check_open(self) -> None:
        if self._closed:
            raise SessionError(ErrorCode.CLOSED, "the blocks are closed")


class NativeModel:
    """A model of an agent that keeps its own session, without a session of ours around it.

    Made by `make_native`. What it opens is the caller's to close.
    """

    def __init__(self, clients: ModelClients, model: str, *, settings: Settings) -> None:
        self._clients = clients
        self._model = model
        self._settings = settings

    async def open(
        self,
        *,
        resume: str | None = None,
        host: NativeHost | None = None,
        tools: Sequence[ToolSpec] = (),
        fork: bool = False,
    ) -> NativeSession:
        """Open a live session; `host` answers what it asks, and runs the tools.

        Raises:
            ConfigError: CONFIG_INVALID or CONFIG_MISSING naming what is wrong.
            SessionError: NOT_FOUND when there is no such session to resume.

        """
        agent, name = await self._agent()
        opening = replace(self._opening(name), host=host, tools=tuple(tools), fork=fork)
        if resume is not None:
            return await agent.resume_session(resume, opening)
        return await agent.open(opening)

    async def resume_session(self, session_id: str) -> NativeSession:
        """Open an earlier session of this machine by its id."""
        return await self.open(resume=session_id)

    async def prompt(self, text: str) -> Sequence[NativeMessage]:
        """Answer one prompt in a session of its own, and return all messages up to the result."""
        agent, name = await self._agent()
        return await agent.prompt(text, self._opening(name))

    async def close(self) -> None:
        """Close what its sessions share."""
        await self._clients.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _agent(self) -> tuple[NativeAgent, str]:
        found = await self._clients.native(self._model)
        if found is None:
            told = f"{self._model} keeps no session of its own; use make_blocks"
            raise ConfigError(ErrorCode.CONFIG_INVALID, told)
        return found

    def _opening(self, name: str) -> NativeOpening:
        return NativeOpening(model=name, settings=self._settings, owner=DEFAULT_OWNER)


def make_native(
    model: str,
    *,
    claude_agent: ClaudeAgentSettings | None = None,
    system_prompt: str | None = None,
    environment: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
) -> NativeModel:
    """Make what opens live sessions of `claude-agent/…`, with keys found as for an `Agent`.

    Raises:
        ConfigError: CONFIG_INVALID or CONFIG_MISSING naming what is wrong.

    """
    told = {"model": model, "claude_agent": claude_agent, "system_prompt": system_prompt}
    arguments = {name: value for name, value in told.items() if value is not None}
    sources = ConfigurationSources(environment=environment, cwd=None if cwd is None else Path(cwd))
    configuration = Configuration(arguments, sources)
    clients = ModelClients(
        configuration, given=(), own=OwnAccess(), options=ClientOptions(clock=SystemClock())
    )
    return NativeModel(clients, configuration.model, settings=configuration.settings)


@takes(BlockChoices)
def make_blocks(model: str | ModelClient = "", /, **options: Unpack[BlockOptions]) -> Blocks:
    """Make the blocks of an agent and join them.

    `model` is `provider/model`, with keys and files found as for an `Agent`; or a client, which
    then answers for every model of its provider. There are no sessions: their hooks are not called,
    and the fields of `runtime` that are for them have no effect.

    Raises:
        ConfigError: CONFIG_INVALID or CONFIG_MISSING naming what is wrong.

    """
    told = checked(options, BlockChoices, function="make_blocks()", elsewhere=place_of_option)
    if told.tools is not None and told.tool_registry is not None:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            "make_blocks(): 'tools' would not be used beside 'tool_registry'; put them into it",
        )
    given = () if isinstance(model, str) else (model,)
    name = model if isinstance(model, str) else f"{model.provider}/default"
    arguments: JsonObject = {"model": name} if name else {}
    if "runtime" in options:
        arguments["runtime"] = options["runtime"]
    configuration = Configuration(arguments, ConfigurationSources())
    checked_model(configuration.settings.model)
    clock, runtime = told.clock, configuration.resolved.runtime
    clients = ModelClients(
        configuration, given=given, own=OwnAccess(), options=ClientOptions(clock=clock)
    )
    joined = AgentBlocks(
        ModelAccess(route=clients.route, catalogue=configuration.known_models(clock)),
        ToolRegistry(told.tools or ()),
        clock=clock,
        random=told.random,
        runtime=runtime,
        hooks=HookDispatch(told.hooks, seconds=runtime.hook_seconds),
        own=OwnBlocks(
            request_builder=told.request_builder,
            stream_processor=told.stream_processor,
            tool_registry=told.tool_registry,
            turn_runner=told.turn_runner,
            query_runner=told.query_runner,
        ),
    )
    return Blocks(joined, clients=clients, settings=configuration.settings)
