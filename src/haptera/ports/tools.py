"""The ports around tools: what a tool can do and know, and who is asked before it runs."""

from collections.abc import Awaitable, Callable, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
    runtime_checkable,
)

import msgspec

from haptera.model.approvals import ApprovalRequest, Approve, Decision, Deny, check_decision
from haptera.model.canonical import arguments_hash
from haptera.model.ids import CallId, QueryId, SessionId, new_approval_id
from haptera.model.json_types import Json, JsonObject
from haptera.model.late_names import late_module
from haptera.model.messages import Message, Sender
from haptera.model.settings import Settings
from haptera.model.tools import ToolRules, ToolSpec
from haptera.ports.child_sessions import ChildCall
from haptera.ports.permissions import NO_SURROUNDINGS, ToolSurroundings
from haptera.system.abort import AbortSignal
from haptera.system.logs import scrubbed_logger

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    import typing_extensions


if TYPE_CHECKING:
    # A default: where a program has no deps, `ToolContext` needs no brackets.
    DepsT_co = typing_extensions.TypeVar("DepsT_co", covariant=True, default=Any)
else:
    DepsT_co = TypeVar("DepsT_co", covariant=True)


class ToolSession(Protocol):
    """The session of a call as its tool may use it: an `AgentSession`.

    A tool may not wait for an answer of the session that waits for the tool: that is BUSY.
    """

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far."""
        ...

    @property
    def settings(self) -> Settings:
        """The settings of the session, without those of the query alone."""
        ...

    async def send(self, prompt: str) -> QueryId:
        """Send a prompt that is answered after the running query."""
        ...

    async def steer(self, prompt: str) -> None:
        """Say something into the running query."""
        ...


class ToolCaller(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """For whom a tool is called; see the properties of `ToolContext`."""

    query_id: QueryId = QueryId("")
    sender: Sender | None = None
    deps: Any = None
    session: ToolSession | None = None
    cwd: "str | Path" = "."
    approver: "Approver | None" = None
    child_call: ChildCall | None = None


_NO_CALLER = ToolCaller()
_logger = scrubbed_logger(__name__)


class ToolContext(Generic[DepsT_co]):
    """Handed to a tool that asks for it: who calls, whether to stop, and how to report progress.

    `ToolContext[Deps]` tells a type checker what `deps` are.
    """

    def __init__(
        self,
        *,
        session_id: SessionId,
        call_id: CallId,
        signal: AbortSignal,
        report: Callable[[Json], None],
        caller: ToolCaller = _NO_CALLER,
        surroundings: ToolSurroundings = NO_SURROUNDINGS,
    ) -> None:
        self._caller = caller
        self.surroundings = surroundings
        self.session_id = session_id
        self.call_id = call_id
        self.signal = signal
        self._report = report

    @property
    def deps(self) -> DepsT_co:
        """What the query, its session or the agent was given as `deps=`; the first of them."""
        deps: DepsT_co = self._caller.deps
        return deps

    @property
    def sender(self) -> Sender | None:
        """Who sent the prompt that is being answered, if that was said."""
        return self._caller.sender

    @property
    def query_id(self) -> QueryId:
        """The id of the query that made the call."""
        return self._caller.query_id

    @property
    def session(self) -> ToolSession | None:
        """The session itself; None where a tool runs without one."""
        return self._caller.session

    @property
    def cwd(self) -> "Path":
        """The folder that the agent takes relative paths from."""
        folder: Path = late_module("pathlib").Path(self._caller.cwd)
        return folder

    @property
    def child_call(self) -> ChildCall | None:
        """The call, for a tool that answers it with a session of its own; see `Agent.as_tool`."""
        return self._caller.child_call

    def progress(self, value: Json) -> None:
        """Show consumers how far the tool is; safe from a tool's own thread."""
        self._report(value)

    async def ask(self, tool: str, arguments: JsonObject, *, reason: str) -> Decision:
        """Ask the approver of the session something that comes up while the call runs.

        The answer is `Approve`, whose `arguments` may hold what the person says, or `Deny`: also
        when there is no approver, or it fails. Neither question nor answer is kept in the log: the
        call has started, and what a person fills in may be meant for the other side only.
        """
        approver = self._caller.approver
        if approver is None:
            return Deny("there is no approver")
        request = ApprovalRequest(
            id=new_approval_id(),
            call_id=self.call_id,
            tool=tool,
            arguments=arguments,
            arguments_hash=arguments_hash(tool, arguments),
            session_id=self.session_id,
            asked_by="tool",
            reason=reason,
        )
        try:
            # An object, because a function of the program's may return anything.
            decision: object = await approver(request)
            if isinstance(decision, Approve | Deny):
                return check_decision(decision)
        except Exception as error:
            _logger.exception("an approver failed; what was asked is denied")
            return Deny(f"the approver failed: {type(error).__name__}")
        return Deny(
            f"the approver returned {type(decision).__name__}; it must return Approve or Deny"
        )


class Later(Exception):
    """Raised by a tool whose answer comes later, by `session.deliver`; the call waits for it.

    `ref` is what the program calls the call, such as the number of an order: no other call that
    waits in the session may have it, and no argument of the call may be it, since models choose
    these. `schema` is what the answer must be, as a JSON Schema. `until` is when the call waits no
    longer, as seconds from now or as a moment with a time zone; its answer is then `otherwise`, or
    that its time was up.
    """

    def __init__(
        self,
        *,
        ref: str | None = None,
        schema: JsonObject | None = None,
        until: "float | datetime | None" = None,
        otherwise: object = None,
    ) -> None:
        super().__init__("the answer comes later")
        self.ref = ref
        self.schema = schema
        self.until = until
        self.otherwise = otherwise


PreparedCall: TypeAlias = Callable[[ToolContext[Any]], Awaitable[object]]
"""Runs a tool on the input that was parsed for it, and returns its raw output."""


class OfferedTool(Protocol):
    """A tool that a model may call.

    - `prepare` checks and parses the arguments of a call. It raises ValueError, TypeError or
      `msgspec.ValidationError` with a message for the model when they do not fit, and has no
      effect otherwise.
    - What a prepared call gets is its own: it may change it without changing the arguments.
    - A prepared call has no effect before it runs. It may raise anything; the model is told.
    """

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model sees it."""
        ...

    @property
    def rules(self) -> ToolRules:
        """How the runtime treats the tool."""
        ...

    def prepare(self, arguments: JsonObject) -> PreparedCall:
        """Check and parse the arguments of one call."""
        ...


@runtime_checkable
class ToolSource(Protocol):
    """Offers tools.

    - `tools` returns at once and does not raise: a source that asks another program for its list
      keeps the last one it got.
    - It returns the same object as long as nothing changed.
    - A changed list takes effect with the next turn of each query. The calls of a turn run on the
      tools that were offered in it.
    """

    def tools(self) -> Sequence[OfferedTool]:
        """Return what can be called now."""
        ...


@runtime_checkable
class RunningToolSource(Protocol):
    """A source of tools with something that runs behind its list, such as a server.

    - `ready` returns once the list is as complete as it can be made now. It is bounded in time, and
      what fails is logged, not raised: a query goes on without the tools that are not there. Only a
      ConfigError is raised.
    - `close` ends what runs. Closing twice is fine, and a later `ready` or call starts it again.
    """

    async def ready(self) -> None:
        """Start what is needed for the list, unless it runs."""
        ...

    async def close(self) -> None:
        """End what runs behind the list."""
        ...


class Resting(msgspec.Struct, frozen=True):
    """What a sub-agent's tool returns when its session rests: the call has no result yet.

    The call is run again when the query is resumed.
    """


OutputTransform: TypeAlias = Callable[[str, object], object]
"""Changes a tool's raw output before it is encoded; gets the tool's name and the output."""


Approver: TypeAlias = Callable[[ApprovalRequest], Awaitable[Decision]]
"""Asked once per tool call that needs approval; calls of one turn are asked at the same time.

Cancelled when the query is aborted. An exception counts as a denial.
"""

Unanswered: TypeAlias = Literal["stop", "deny"]
"""What happens to an approval without an approver: the query rests, or the call is denied."""
