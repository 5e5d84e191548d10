"""Events: what a consumer sees. Entries as they are appended, live-only events between them."""

from decimal import Decimal
from typing import Literal, TypeAlias

import msgspec

from haptera.model.errors import ConfigError, ErrorCode, ErrorReport
from haptera.model.ids import CallId, PartId, QueryId, SessionId, TurnId
from haptera.model.json_types import Json, JsonObject
from haptera.model.log.entry import Entry, NamedEvent
from haptera.model.results import StopReason
from haptera.model.usage import Usage


class _Status(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """What all statuses share."""


class Idle(_Status, frozen=True, kw_only=True, tag="idle"):
    """Nothing runs."""

    approvals: int = 0
    """Tool calls that wait for an approval."""
    calls: int = 0
    """Tool calls whose answer comes later."""
    waiting: int = 0
    """Prompts that wait. Behind a query that rests on an approval they start when it is resumed,
    or when a new prompt is sent."""


class Busy(_Status, frozen=True, kw_only=True, tag="busy"):
    """A query runs."""


class Retrying(_Status, frozen=True, kw_only=True, tag="retry"):
    """A model call failed and will be repeated."""

    attempt: int
    message: str
    next_at: int
    """Wall-clock milliseconds of the next attempt."""
    account_limited: bool = False


class Failed(_Status, frozen=True, kw_only=True, tag="error"):
    """The last query failed; a new prompt may still be sent."""

    error: ErrorReport


SessionStatus: TypeAlias = Idle | Busy | Retrying | Failed

StreamPhase: TypeAlias = Literal[
    "idle", "connecting", "connected", "reconnecting", "closed", "error"
]
"""What the stream of one query is doing."""


class LiveEvent(NamedEvent, frozen=True, kw_only=True):
    """What all live-only events share: they have no `seq` and are not stored."""


# Deltas are not `kw_only`: an answer has thousands of them, and positions are faster than names.


class TextDelta(LiveEvent, frozen=True, gc=False, tag="text.delta"):
    """More answer text; `offset` is where it begins in its part, in characters."""

    part_id: PartId
    offset: int
    text: str


class ReasoningDelta(LiveEvent, frozen=True, gc=False, tag="reasoning.delta"):
    """More of what the model thinks."""

    part_id: PartId
    offset: int
    text: str


class CompactionDelta(LiveEvent, frozen=True, gc=False, tag="compaction.delta"):
    """More of the summary that a provider makes of the conversation; it is no part of an answer."""

    part_id: PartId
    offset: int
    text: str


class ToolInputDelta(LiveEvent, frozen=True, gc=False, tag="tool.input.delta"):
    """More of a tool call's arguments, as JSON text."""

    part_id: PartId
    offset: int
    text: str


class ToolProgress(LiveEvent, frozen=True, kw_only=True, tag="tool.progress"):
    """A running tool reports how far it is."""

    call_id: CallId
    tool: str
    progress: Json


class ToolFailed(LiveEvent, frozen=True, kw_only=True, tag="tool.failed"):
    """A tool refused its input or failed; the model hears of it in the call's result."""

    call_id: CallId
    tool: str
    error: ErrorReport
    arguments: Json = None
    """The input: what the tool ran with, or the text that is not JSON."""


class SubagentChanged(LiveEvent, frozen=True, kw_only=True, tag="subagent"):
    """A sub-agent began, reports, or ended."""

    change: Literal["joined", "status", "left"]
    agent: str
    """The name of its tool, or what a native agent calls it."""
    call_id: CallId | None = None
    """The tool call that started it."""
    session_id: SessionId | None = None
    """Its session; None for a sub-agent that a native agent runs itself."""
    status: str = ""
    """Its stop reason when it left; empty when it failed."""
    description: str = ""


class SubagentEvent(LiveEvent, frozen=True, kw_only=True, tag="subagent.event"):
    """An event of a sub-agent's session, as the stream of the session that called it shows it."""

    call_id: CallId
    """The call that the sub-agent works for."""
    agent: str
    """The name of its tool."""
    session_id: SessionId
    """The sub-agent's session."""
    event: "Event"
    """The event itself; one of a sub-agent's own sub-agent is a `SubagentEvent` again."""


class NativeNoted(LiveEvent, frozen=True, kw_only=True, tag="native.notice"):
    """Something that a native agent says of itself and no other event tells."""

    name: str
    """The agent's own word for it."""
    facts: JsonObject


class StatusChanged(LiveEvent, frozen=True, kw_only=True, tag="session.status"):
    """The session is doing something else now."""

    status: SessionStatus


class QuerySuspended(LiveEvent, frozen=True, kw_only=True, tag="query.suspended"):
    """The query was stopped without an end, because its session is closed; nothing follows.

    The next server or worker carries it on, or `resume()`.
    """

    query_id: QueryId
    reason: str


class SessionDeleted(LiveEvent, frozen=True, kw_only=True, tag="session.deleted"):
    """The session was deleted while it was observed; nothing follows."""

    session_id: SessionId


class Heartbeat(LiveEvent, frozen=True, kw_only=True, tag="stream.heartbeat"):
    """A provider says nothing, and the turn still waits for it."""

    turn_id: TurnId
    provider: str
    model: str
    silent_seconds: float
    """How long it has said nothing, at least."""


class Instrumented(LiveEvent, frozen=True, kw_only=True):
    """What all measurements of the runtime share; `instrumentation=` gets each of them."""

    session_id: SessionId
    query_id: QueryId
    """Empty where something belongs to no query, as hooks of a session do."""


class QuerySummary(Instrumented, frozen=True, kw_only=True, tag="instrumentation.summary"):
    """What the next turn sends; shown before every turn."""

    system_prompts: int
    user_messages: int
    """Messages of the user's side, those with results of tools included."""
    assistant_messages: int
    thinking_blocks: int
    tools: int
    system_reminder: str | None = None
    """The reminders that go with this request only."""


class TurnMeasured(Instrumented, frozen=True, kw_only=True, tag="instrumentation.turn"):
    """How one request to a model went: answered, failed or cut off."""

    turn_id: TurnId
    provider: str
    model: str
    attempt: int
    """1 for the first request to this model in this turn."""
    duration_ms: int
    first_token_ms: int | None = None
    """Latency: from the request to the first piece of the answer; None when none came."""
    finish_reason: str | None = None
    usage: Usage = Usage()
    cost: Decimal | None = None
    response_model: str | None = None
    """The model that answered, as the provider names it."""
    response_id: str | None = None
    request_id: str | None = None
    """The provider's id of the request, for its support."""
    error: ErrorReport | None = None
    interrupted: bool = False
    """Whether the query was stopped meanwhile."""


class ToolMeasured(Instrumented, frozen=True, kw_only=True, tag="instrumentation.tool"):
    """How one tool call went that was run."""

    turn_id: TurnId | None
    call_id: CallId
    tool: str
    outcome: Literal["ok", "error", "cancelled", "timed_out"]
    duration_ms: int
    attempts: int
    """How many times the tool was run."""
    error: ErrorReport | None = None


class QueryMeasured(Instrumented, frozen=True, kw_only=True, tag="instrumentation.query"):
    """How one query went; shown before its end."""

    stop_reason: StopReason
    duration_ms: int
    first_token_ms: int | None = None
    """From the start of the query to the first piece of any answer."""
    turns: int = 0
    """Turns that were answered."""
    attempts: int = 0
    """Requests to models, those that failed included."""
    tool_calls: int = 0
    """Tool calls that were run."""
    finish_reason: str | None = None
    usage: Usage = Usage()
    cost: Decimal | None = None
    error: ErrorReport | None = None


class HookFailed(Instrumented, frozen=True, kw_only=True, tag="instrumentation.hook"):
    """A hook that only observes has failed; nothing else has changed."""

    point: str
    """Where it was called, such as `after_tool`."""
    error: ErrorReport


class ObserverLagged(LiveEvent, frozen=True, kw_only=True, tag="observer.lagged"):
    """An observer fell too far behind; it loses nothing by resuming from this `seq`."""

    resume_after: int


Measured: TypeAlias = TurnMeasured | ToolMeasured | QueryMeasured
Delta: TypeAlias = TextDelta | ReasoningDelta | CompactionDelta | ToolInputDelta
Event: TypeAlias = Entry | LiveEvent


def check_handler(kind: object, handler: object) -> None:
    """Refuse a subscription that could never be served.

    Raises:
        ConfigError: CONFIG_INVALID when the kind is no class of events, or the handler no function.

    """
    is_kind = isinstance(kind, type) and (
        issubclass(kind, NamedEvent) or kind in NamedEvent.__mro__
    )
    if not is_kind:
        shown = kind.__name__ if isinstance(kind, type) else repr(kind)
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"pass the class of an event, such as TextDelta, not {shown}",
        )
    if not callable(handler):
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, f"a handler must be a function, not {handler!r}"
        )
