"""Agent: a model, its tools and a store, joined once; and an agent for one call only."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, Unpack

from msgspec.structs import replace

from haptera import agent as agent_names
from haptera.access import assembly
from haptera.access.assembly.agent_inputs import checked_model
from haptera.agent.agent_options import AgentOptions, SubAgentOptions
from haptera.agent.option_checks import (
    arguments_of,
    check_reference,
    check_text,
    checked_options,
    hide_key,
    inputs_of,
    named_settings,
    refuse_wrong,
    sources_of,
)
from haptera.agent.query_options import (
    CreateSessionOptions,
    OneCallOptions,
    OpeningOptions,
    Prompt,
    QueryOnlyOptions,
    SessionOptions,
    SingleQueryOptions,
)
from haptera.agent.query_stream import QueryStream
from haptera.agent.remote import AgentRemote
from haptera.agent.session import AgentSession
from haptera.kernel.blocks.hook_dispatch.registration import Hooks
from haptera.kernel.blocks.tool_registry.registry import ToolRegistry
from haptera.kernel.blocks.tool_registry.tool import AnyTool
from haptera.kernel.session.session_descriptions import SessionBindings, SessionRequest
from haptera.model.errors import AgentError, ConfigError, ErrorCode, without_frames
from haptera.model.option_declarations import options_of, takes
from haptera.model.outcomes import Err, Ok
from haptera.model.results import AgentResult, OutputT
from haptera.model.session_state import check_state
from haptera.model.settings import Settings, changed_settings
from haptera.model.tools import ToolSpec
from haptera.system.abort import query_stopped
from haptera.system.clock import Clock
from haptera.system.owned_tasks import LEAVING_SECONDS, to_its_end

if TYPE_CHECKING:
    from haptera.access.assembly.composition import Composition
    from haptera.agent.sessions import AgentSessions
    from haptera.kernel.session.query_handle import QueryHandle


class AgentFacts:
    """What can be read of an agent."""

    _composition: "Composition"
    _new_session: SessionRequest

    @property
    def settings(self) -> Settings:
        """What new sessions start with."""
        return self._new_session.settings

    @property
    def owner(self) -> str:
        """Whose sessions it has."""
        return self._new_session.owner

    @property
    def clock(self) -> Clock:
        """The time that it goes by."""
        return self._composition.clock

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that new sessions offer to the model."""
        settings = self._new_session.settings
        registered = self._composition.registry.current()
        return tuple(registered.view(settings.allowed_tools, settings.denied_tools).wire_tools)

    @property
    def hooks(self) -> Hooks:
        """The hooks of its sessions: what was given as `hooks=`, or none yet.

        Register functions with `@agent.hooks.on("before_tool")`.
        """
        return self._composition.hooks


@takes(AgentOptions)
class Agent(AgentFacts):
    """Holds what queries share. Constructed once; use it with `async with`, or close it.

    Raises:
        ConfigError: CONFIG_INVALID or CONFIG_MISSING naming what is wrong with an option.

    """

    def __init__(self, model: str = "", /, **options: Unpack[AgentOptions]) -> None:
        # Before anything can fail: a traceback may show what its frames hold.
        hide_key(options)
        if model:
            if "model" in options:
                told = f"Agent(): two models are given, {model!r} and {options['model']!r}"
                raise ConfigError(ErrorCode.CONFIG_INVALID, told)
            options["model"] = model
        self._composition, self._new_session = _prepare(options)
        self._sessions: AgentSessions | None = None

    @property
    def sessions(self) -> "AgentSessions":
        """The sessions of the store: to list, search, change, export, import and delete them."""
        if self._sessions is None:
            # Through the package, which imports the collection when it is first used.
            self._sessions = agent_names.AgentSessions(self._composition, self._new_session)
        return self._sessions

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await to_its_end(self.close(), name="haptera-leaving", within=LEAVING_SECONDS)

    @takes(SingleQueryOptions)
    async def run(
        self, prompt: Prompt, **options: Unpack[SingleQueryOptions[OutputT]]
    ) -> AgentResult[OutputT]:
        """Answer one prompt in a session of its own.

        Raises:
            AgentError: when the query fails or is aborted; its `result` is what was kept.

        """
        refuse_wrong(options, SingleQueryOptions, function="agent.run()")
        return await self.stream(prompt, **options).result()

    @takes(SingleQueryOptions)
    def stream(
        self, prompt: Prompt, **options: Unpack[SingleQueryOptions[OutputT]]
    ) -> QueryStream[OutputT]:
        """Answer one prompt in a session of its own, and watch the answer come."""
        refuse_wrong(options, SingleQueryOptions, function="agent.stream()")
        request = replace(self._new_session, is_for_one_query=True)
        session = AgentSession(self._composition, request, closes_after_query=True)
        return session.stream(prompt, **options)

    @takes(SessionOptions)
    def session(
        self, reference: str | None = None, **options: Unpack[SessionOptions]
    ) -> AgentSession:
        """Return a session by its name or id: a new one, or as the store has it.

        Raises:
            ConfigError: CONFIG_INVALID when the name or a state to restore is not valid.

        """
        request = _request_for(reference, options, self._composition, like=self._new_session)
        return AgentSession(self._composition, request)

    async def remote(self, reference: str) -> AgentRemote:
        """Reach a session that another process may hold, by its name or id.

        Raises:
            SessionError: NOT_FOUND when the store has no such session.

        """
        check_reference(reference)
        request = replace(self._new_session, reference=reference)
        try:
            found = await self._composition.find(request)
        except AgentError as error:
            raise without_frames(error) from error.__cause__
        return AgentRemote(self._composition, replace(request, reference=found))

    @takes(SubAgentOptions)
    def as_tool(
        self, *, name: str, description: str, **options: Unpack[SubAgentOptions]
    ) -> AnyTool:
        """Return a tool whose calls this agent answers, as the sub-agent of another agent.

        Each call is answered in a session of its own, in the store of the agent that has the tool.
        The model gives the tool a `prompt`, and gets the text of the answer, or JSON with an
        `output_type`. `name` and `description` are what the model sees of it.

        Raises:
            ConfigError: CONFIG_INVALID naming what cannot be used: the name, the type of the
                answer, or an option.

        """
        told: Any = checked_options(options, SubAgentOptions, function="agent.as_tool()")
        output_type = told.pop("output_type")
        tool_options: Any = {"name": name, "description": description, **told}
        return agent_names.make_sub_agent(
            self._composition, self._new_session, tool_options, output_type=output_type
        )

    async def close(self) -> None:
        """Close every session, then what they share. Closing twice is fine."""
        await self._composition.close()


@takes(OneCallOptions)
async def run_agent(
    prompt: Prompt, **options: Unpack[OneCallOptions[OutputT]]
) -> AgentResult[OutputT]:
    """Answer one prompt.

    Raises:
        AgentError: when the query fails or is aborted; its `result` is what was kept.

    """
    return await run_agent_stream(prompt, **options).result()


@takes(OneCallOptions)
async def run_agent_result(
    prompt: Prompt, **options: Unpack[OneCallOptions[OutputT]]
) -> Ok[AgentResult[OutputT]] | Err:
    """Answer one prompt; an `AgentError` comes back as a value instead of being raised."""
    try:
        return Ok(await run_agent(prompt, **options))
    except AgentError as error:
        return Err(error)


@takes(OneCallOptions)
def run_agent_stream(
    prompt: Prompt, **options: Unpack[OneCallOptions[OutputT]]
) -> QueryStream[OutputT]:
    """Answer one prompt and watch the answer come."""
    agent_options, query_options = _split(options)
    checked = checked_options(query_options, SingleQueryOptions, function="run_agent_stream()")
    if checked["signal"] is not None and checked["signal"].aborted:
        # Nothing is built, and no configuration read, for a query that was stopped before it began.
        refuse_wrong(agent_options, AgentOptions, function="run_agent_stream()")
        return QueryStream(_start_nothing, None, checked)
    hide_key(agent_options)
    composition, request = _prepare(agent_options)
    request = replace(request, is_for_one_query=True)
    session = AgentSession(composition, request, closes_after_query=True, closes_agent=True)
    return session.stream(prompt, **query_options)


@takes(CreateSessionOptions)
async def create_agent_session(**options: Unpack[CreateSessionOptions]) -> AgentSession:
    """Open a session with an agent of its own; closing the session closes the agent."""
    agent_options, session_options = _part_session(options)
    hide_key(agent_options)
    composition, new_session = _prepare(agent_options)
    request = _request_for(options.get("name"), session_options, composition, like=new_session)
    try:
        return await AgentSession(composition, request, closes_agent=True).open()
    except BaseException:
        # Nothing but the session that failed to open would have closed it.
        await composition.close()
        raise


async def _start_nothing() -> "QueryHandle":
    """Stand for a query whose signal was aborted: its stream raises ABORTED instead."""
    raise query_stopped()


def _prepare(options: AgentOptions) -> "tuple[Composition, SessionRequest]":
    """Check an agent's options; return its joined blocks, and how its new sessions start."""
    try:
        return _joined(checked_options(options, AgentOptions, function="Agent()"))
    except AgentError as error:
        raise without_frames(error) from error.__cause__


def _joined(options: AgentOptions) -> "tuple[Composition, SessionRequest]":
    configuration = assembly.Configuration(arguments_of(options), sources_of(options))
    resolved = configuration.resolved
    # Only for its check.
    checked_model(configuration.settings.model)
    request = SessionRequest(
        owner=resolved.agent.owner,
        project=configuration.project,
        settings=configuration.settings,
        named_by_agent=named_settings(options, configuration),
    )
    check_text(request.owner, of="the owner")
    check_text(request.project, of="the project")
    return assembly.Composition(inputs_of(options, resolved), configuration), request


def _request_for(
    reference: str | None,
    options: SessionOptions,
    composition: "Composition",
    *,
    like: SessionRequest,
) -> SessionRequest:
    """Return the request for a session by its name or id, checked."""
    check_reference(reference)
    options = checked_options(options, SessionOptions, function="agent.session()")
    state, tools = options["restore"], options["tools"]
    named = named_settings(options, composition.configuration)
    return replace(
        like,
        reference=reference,
        # For a new session. What is named is also kept apart: it wins over what a stored one has.
        settings=changed_settings(like.settings, named.changes_to(like.settings)),
        named_here=named,
        bindings=SessionBindings(
            tools=None if tools is None else ToolRegistry(tools), deps=options["deps"]
        ),
        busy=options["busy"],
        history=check_state(state).messages if state is not None else (),
        must_exist=options["must_exist"],
        native_session_id=options["native_session_id"],
    )


def _split(options: OneCallOptions[Any]) -> tuple[AgentOptions, SingleQueryOptions[Any]]:
    """Part what is the agent's from what is the query's."""
    agent, query = _parted(options, QueryOnlyOptions)
    return agent, query


def _part_session(options: CreateSessionOptions) -> tuple[AgentOptions, SessionOptions]:
    """Part what is the agent's from what is the session's."""
    agent, session = _parted(options, OpeningOptions)
    agent.pop("name", None)
    return agent, session


def _parted(options: Mapping[str, object], kind: type) -> tuple[Any, Any]:
    """Return the options that a TypedDict does not have, and those that it has."""
    known = options_of(kind)
    has = {name: value for name, value in options.items() if name in known}
    return {name: value for name, value in options.items() if name not in known}, has
