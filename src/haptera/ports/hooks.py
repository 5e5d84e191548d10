"""The port to hooks: what each of them is given, and what it may answer.

A hook is a function of the program, async or not, that is called at one point of a session:

- A gate (`before_*`) answers with a verdict, and nothing goes on before it has.
- A transform (`transform_*`) returns what it was given, changed or not.
- An observer (`after_*`, `session_*`) returns nothing.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from haptera.model.errors import ErrorReport
from haptera.model.ids import QueryId, SessionId
from haptera.model.json_types import Json
from haptera.model.log.compactions import CompactionTrigger
from haptera.model.log.queries import QueryEnded
from haptera.model.log.tools import ToolEnded
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import ResultContent, ToolCallPart
from haptera.model.requests import ModelRequest

HookPoint: TypeAlias = Literal[
    "session_start",
    "session_resume",
    "session_end",
    "before_query",
    "after_query",
    "before_turn",
    "after_turn",
    "transform_messages",
    "transform_request",
    "before_tool",
    "after_tool",
    "before_compaction",
    "after_compaction",
]
"""Where hooks are called."""


class HookNote(msgspec.Struct, frozen=True):
    """What a hook has said, until it is recorded as `hook.message`."""

    text: str
    display: bool = True


class HookInput(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What every hook is given."""

    session_id: SessionId
    deps: Any = None
    """What the query, its session or the agent was given as `deps=`; the first of them."""
    said: list[HookNote] = msgspec.field(default_factory=list)
    """What was said so far; recorded once the hook has returned or failed."""

    def say(self, text: str, *, display: bool = True) -> None:
        """Say something to people: a `hook.message` in the log, which no model is sent.

        With `display` it appears on the stream, too.
        """
        self.said.append(HookNote(text, display))


class QueryHookInput(HookInput, frozen=True, kw_only=True, eq=False):
    """What every hook of a query is given."""

    query_id: QueryId


class SessionStart(HookInput, frozen=True, kw_only=True, eq=False):
    """A new session was opened; a fork is one, too."""

    owner: str
    project: str
    name: str | None = None
    parent: SessionId | None = None
    """The session that it was forked from."""


class SessionResume(HookInput, frozen=True, kw_only=True, eq=False):
    """A session that was there already was opened again, after a close or a crash."""

    owner: str
    project: str
    name: str | None = None
    unfinished: QueryId | None = None
    """The query that has not come to rest: the process ended, or it waits for an approval."""


class SessionEnd(HookInput, frozen=True, kw_only=True, eq=False):
    """A session is being closed: its queries have ended, and it can be opened again."""


class BeforeQuery(QueryHookInput, frozen=True, kw_only=True, eq=False):
    """A query is about to begin; its prompt is in the log."""

    prompt: UserMessage | None
    """None when it goes on with what is there, as a resumed query does."""
    model: str
    resumes: QueryId | None = None


class AfterQuery(QueryHookInput, frozen=True, kw_only=True, eq=False):
    """A query has ended, however it ended."""

    ended: QueryEnded
    """Why, with usage, cost and error."""


class BeforeTurn(QueryHookInput, frozen=True, kw_only=True, eq=False):
    """A model is about to be asked. A request that is repeated after an error is no new turn."""

    model: str
    number: int
    """1 for the first turn of a query."""


class AfterTurn(QueryHookInput, frozen=True, kw_only=True, eq=False):
    """A model has answered, or could not, or was interrupted."""

    model: str
    number: int
    message: AssistantMessage | None = None
    """The answer, with usage and cost; None when nothing was kept of it."""
    error: ErrorReport | None = None
    """What the query ended with, if the turn did not end by itself."""


class TransformMessages(QueryHookInput, frozen=True, kw_only=True, eq=False):
    """A request is about to be made of these messages."""

    provider: str
    model: str
    messages: tuple[Message, ...]


class TransformRequest(QueryHookInput, frozen=True, kw_only=True, eq=False):
    """A request is about to be sent."""

    provider: str
    request: ModelRequest


class BeforeTool(QueryHookInput, frozen=True, kw_only=True, eq=False):
    """A tool call is about to be looked at: its arguments are not parsed yet."""

    call: ToolCallPart


class AfterTool(QueryHookInput, frozen=True, kw_only=True, eq=False):
    """A tool call has ended: it ran, failed, or was denied or answered in its tool's place."""

    call: ToolCallPart
    """As the model made it."""
    ended: ToolEnded


class BeforeCompaction(HookInput, frozen=True, kw_only=True, eq=False):
    """The conversation is about to be compacted."""

    query_id: QueryId | None = None
    """The query that needs it; None when it was asked for between two queries."""
    trigger: CompactionTrigger
    tokens: int | None = None
    """What the next request would hold, as far as that is known."""
    context_window: int | None = None
    """What the model takes."""


class AfterCompaction(HookInput, frozen=True, kw_only=True, eq=False):
    """The conversation was compacted."""

    query_id: QueryId | None = None
    trigger: CompactionTrigger
    strategy: str
    tokens_before: int | None = None
    tokens_after: int | None = None


class Proceed(msgspec.Struct, frozen=True):
    """A gate lets something go on; a tool call with other arguments, if they are given."""

    arguments: Json | None = None


class Block(msgspec.Struct, frozen=True):
    """A gate refuses.

    A tool call is denied and the model is told why; a query or a turn ends the query with the stop
    reason `refusal`; a compaction is left out.
    """

    reason: str


class Answer(msgspec.Struct, frozen=True):
    """A hook answers a tool call itself; the tool is not run."""

    content: tuple[ResultContent, ...]


GateVerdict: TypeAlias = Proceed | Block
Verdict: TypeAlias = Proceed | Block | Answer
"""About a tool call."""

SessionStartHook: TypeAlias = Callable[[SessionStart], Awaitable[None] | None]
SessionResumeHook: TypeAlias = Callable[[SessionResume], Awaitable[None] | None]
SessionEndHook: TypeAlias = Callable[[SessionEnd], Awaitable[None] | None]
BeforeQueryHook: TypeAlias = Callable[[BeforeQuery], Awaitable[GateVerdict] | GateVerdict]
AfterQueryHook: TypeAlias = Callable[[AfterQuery], Awaitable[None] | None]
BeforeTurnHook: TypeAlias = Callable[[BeforeTurn], Awaitable[GateVerdict] | GateVerdict]
AfterTurnHook: TypeAlias = Callable[[AfterTurn], Awaitable[None] | None]
TransformMessagesHook: TypeAlias = Callable[
    [TransformMessages], Awaitable[Sequence[Message]] | Sequence[Message]
]
TransformRequestHook: TypeAlias = Callable[
    [TransformRequest], Awaitable[ModelRequest] | ModelRequest
]
BeforeToolHook: TypeAlias = Callable[[BeforeTool], Awaitable[Verdict] | Verdict]
AfterToolHook: TypeAlias = Callable[[AfterTool], Awaitable[None] | None]
BeforeCompactionHook: TypeAlias = Callable[[BeforeCompaction], Awaitable[GateVerdict] | GateVerdict]
AfterCompactionHook: TypeAlias = Callable[[AfterCompaction], Awaitable[None] | None]
