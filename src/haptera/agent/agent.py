"""Agent: a model, its tools and a store, joined once; and an agent for one call only."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, Unpack

from msgspec.structs import replace

from haptera import agent as agent_names
from haptera.access import assembly
from haptera.access.assembly.agent_inputs import ConfigurationSources, checked_model
from haptera.agent.agent_options import AGENT, SubAgentOptions
from haptera.agent.keywords import (
    AgentKeywords,
    CreateSessionKeywords,
    OneCallKeywords,
    SessionKeywords,
    SingleQueryKeywords,
    SubAgentKeywords,
)
from haptera.agent.option_checks import (
    arguments_of,
    check_options,
    check_reference,
    check_text,
    hide_key,
    inputs_of,
    named_settings,
)
from haptera.agent.query_options import (
    CREATE_SESSION,
    ONE_CALL,
    SESSION,
    SINGLE_QUERY,
    Prompt,
    QueryOptions,
    SessionOptions,
)
from haptera.agent.query_stream import QueryStream
from haptera.agent.remote import AgentRemote
from haptera.agent.session import AgentSession, QuerySession
from haptera.kernel.blocks.hook_dispatch.registration import Hooks
from haptera.kernel.blocks.tool_registry.registry import ToolRegistry
from haptera.kernel.blocks.tool_registry.tool import AnyTool
from haptera.kernel.session.session_descriptions import NamedTwice, SessionOrigin, SessionRequest
from haptera.model.errors import AgentError, ConfigError, ErrorCode, without_frames
from haptera.model.outcomes import Err, Ok
from haptera.model.results import AgentResult, OutputT
from haptera.model.session_state import check_state
from haptera.model.settings import Settings, changed_settings
from haptera.model.tools import ToolSpec
from haptera.options.checks import filled
from haptera.options.declarations import Keywords
from haptera.options.signatures import takes
from haptera.ports.runner import SessionBindings
from haptera.system.abort import query_stopped
from haptera.system.clock import Clock
from haptera.system.owned_tasks import LEAVING_SECONDS, to_its_end

if TYPE_CHECKING:
    from haptera.access.assembly.composition import Composition
    from haptera.agent.sessions import AgentSessions
    from haptera.kernel.session.session import QueryHandle


@takes(AGENT)
class Agent:
    """Holds what queries share. Constructed once; use it with `async with`, or close it.

    Raises:
        ConfigError: CONFIG_INVALID or CONFIG_MISSING naming what is wrong with an option.

    """

    def __init__(self, model: str = "", /, **options: Unpack[AgentKeywords]) -> None:
        # Before anything can fail: a traceback may show what its frames hold.
        hide_key(options)
        if model:
            if "model" in options:
                told = f"Agent(): two models are given, {model!r} and {options['model']!r}"
                raise ConfigError(ErrorCode.CONFIG_INVALID, told)
            options["model"] = model
        check_options(options, AGENT, function="Agent()")
        self._composition, self._new_session = _prepare(options)
        self._sessions: AgentSessions | None = None

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

    @takes(SINGLE_QUERY)
    async def run(
        self, prompt: Prompt, **options: Unpack[SingleQueryKeywords[OutputT]]
    ) -> AgentResult[OutputT]:
        """Answer one prompt in a session of its own.

        Raises:
            AgentError: when the query fails or is aborted; its `result` is what was kept.

        """
        check_options(options, SINGLE_QUERY, function="agent.run()")
        return await self._stream(prompt, options).result()

    @takes(SINGLE_QUERY)
    def stream(
        self, prompt: Prompt, **options: Unpack[SingleQueryKeywords[OutputT]]
    ) -> QueryStream[OutputT]:
        """Answer one prompt in a session of its own, and watch the answer come."""
        check_options(options, SINGLE_QUERY, function="agent.stream()")
        return self._stream(prompt, options)

    def _stream(
        self, prompt: Prompt, options: SingleQueryKeywords[OutputT]
    ) -> QueryStream[OutputT]:
        request = replace(self._new_session, is_for_one_query=True)
        session = QuerySession(self._composition, request, closes_after_query=True)
        return session.answer(prompt, options)

    @takes(SESSION)
    def session(
        self, reference: str | None = None, **options: Unpack[SessionKeywords]
    ) -> AgentSession:
        """Return a session by its name or id: a new one, or as the store has it.

        Raises:
            ConfigError: CONFIG_INVALID when the name or a state to restore is not valid.

        """
        check_options(options, SESSION, function="agent.session()")
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
            found = await self._composition.stored.find(request)
        except AgentError as error:
            raise without_frames(error) from error.__cause__
        return AgentRemote(self._composition, replace(request, reference=found))

    @takes(SubAgentOptions)
    def as_tool(
        self, *, name: str, description: str, **options: Unpack[SubAgentKeywords]
    ) -> AnyTool:
        """Return a tool whose calls this agent answers, as the sub-agent of another agent.

        Each call is answered in a session of its own, in the store of the agent that has the tool.
        The model gives the tool a `prompt`, and gets the text of the answer, or JSON with an
        `output_type`. `name` and `description` are what the model sees of it.

        Raises:
            ConfigError: CONFIG_INVALID naming what cannot be used: the name, the type of the
                answer, or an option.

        """
        check_options(options, SubAgentOptions, function="agent.as_tool()")
        output_type = options.pop("output_type", None)
        tool_options: Any = {"name": name, "description": description, **options}
        return agent_names.make_sub_agent(
            self._composition, self._new_session, tool_options, output_type=output_type
        )

    async def close(self) -> None:
        """Close every session, then what they share. Closing twice is fine.

        Raises:
            AgentError: the first failure, after everything was closed; each is a warning in the
                log, with its session. UNAVAILABLE when a store did not answer in time: nothing
                uses the session any more, and the store gives it back as soon as it can.

        """
        await self._composition.close()


@takes(ONE_CALL)
async def run_agent(
    prompt: Prompt, **options: Unpack[OneCallKeywords[OutputT]]
) -> AgentResult[OutputT]:
    """Answer one prompt.

    Raises:
        AgentError: when the query fails or is aborted; its `result` is what was kept.

    """
    return await run_agent_stream(prompt, **options).result()


@takes(ONE_CALL)
async def run_agent_result(
    prompt: Prompt, **options: Unpack[OneCallKeywords[OutputT]]
) -> Ok[AgentResult[OutputT]] | Err:
    """Answer one prompt; an `AgentError` comes back as a value instead of being raised."""
    try:
        return Ok(await run_agent(prompt, **options))
    except AgentError as error:
        return Err(error)


@takes(ONE_CALL)
def run_agent_stream(
    prompt: Prompt, **options: Unpack[OneCallKeywords[OutputT]]
) -> QueryStream[OutputT]:
    """Answer one prompt and watch the answer come."""
    hide_key(options)
    check_options(options, ONE_CALL, function="run_agent_stream()")
    of_agent, of_query = _parted(options, AGENT)
    query = filled(of_query, QueryOptions)
    if query.signal is not None and query.signal.aborted:
        # Nothing is built, and no configuration read, for a query that was stopped before it began.
        return QueryStream(_start_nothing, None, query)
    composition, request = _prepare(of_agent)
    request = replace(request, is_for_one_query=True)
    session = QuerySession(composition, request, closes_after_query=True, closes_agent=True)
    return session.answer(prompt, of_query)


@takes(CREATE_SESSION)
async def create_agent_session(**options: Unpack[CreateSessionKeywords]) -> AgentSession:
    """Open a session with an agent of its own; closing the session closes the agent."""
    hide_key(options)
    check_options(options, CREATE_SESSION, function="create_agent_session()")
    of_agent, of_session = _parted(options, AGENT)
    composition, new_session = _prepare(of_agent)
    request = _request_for(of_session.get("name"), of_session, composition, like=new_session)
    try:
        return await AgentSession(composition, request, closes_agent=True).open()
    except BaseException:
        # Nothing but the session that failed to open would have closed it.
        await composition.close()
        raise


async def _start_nothing() -> "QueryHandle":
    """Stand for a query whose signal was aborted: its stream raises ABORTED instead."""
    raise query_stopped()


def _prepare(options: Mapping[str, Any]) -> "tuple[Composition, SessionRequest]":
    """Return the joined blocks of an agent by its options, and how its new sessions start."""
    try:
        return _joined(options)
    except AgentError as error:
        raise without_frames(error) from error.__cause__


def _joined(options: Mapping[str, Any]) -> "tuple[Composition, SessionRequest]":
    sources = filled(options, ConfigurationSources)
    configuration = assembly.Configuration(arguments_of(options), sources)
    resolved = configuration.resolved
    # Only for its check.
    checked_model(configuration.settings.model)
    request = SessionRequest(
        owner=resolved.agent.owner,
        project=configuration.project,
        settings=configuration.settings,
        named=NamedTwice(by_agent=named_settings(options, configuration.in_full)),
    )
    check_text(request.owner, of="the owner")
    check_text(request.project, of="the project")
    return assembly.Composition(inputs_of(options, resolved), configuration), request


def _request_for(
    reference: str | None,
    given: Mapping[str, Any],
    composition: "Composition",
    *,
    like: SessionRequest,
) -> SessionRequest:
    """Return the request for a session by its name or id, with checked options."""
    check_reference(reference)
    options = filled(given, SessionOptions)
    state, tools = options.restore, options.tools
    named = named_settings(given, composition.configuration.changed)
    return replace(
        like,
        reference=reference,
        # For a new session. What is named is also kept apart: it wins over what a stored one has.
        settings=changed_settings(like.settings, named.changes_to(like.settings)),
        named=replace(like.named, here=named),
        bindings=SessionBindings(
            tools=None if tools is None else ToolRegistry(tools), deps=options.deps
        ),
        busy=options.busy,
        origin=SessionOrigin(history=() if state is None else check_state(state).messages),
        must_exist=options.must_exist,
        native_session_id=options.native_session_id,
    )


def _parted(
    options: Mapping[str, Any], first: Keywords
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the options that some keywords have, and the others."""
    has = {name: value for name, value in options.items() if name in first.options}
    return has, {name: value for name, value in options.items() if name not in has}
