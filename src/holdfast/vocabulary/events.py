"""Events: what a consumer sees. Entries as they are appended, live-only events between them."""

from typing import Literal, TypeAlias

import msgspec

from holdfast.vocabulary.aliases import alias_of
from holdfast.vocabulary.entries import Entry
from holdfast.vocabulary.errors import ErrorReport
from holdfast.vocabulary.ids import CallId, PartId
from holdfast.vocabulary.json_types import Json, JsonObject


class _Status(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """What all statuses share."""


class Idle(_Status, frozen=True, kw_only=True, tag="idle"):
    """Nothing runs."""

    approvals: int = 0
    """Tool calls that wait for an answer."""
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


class LiveEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """What all live-only events share: they have no `seq` and are not stored."""

    @property
    def kind(self) -> str:
        """The event's name on the wire."""
        return str(self.__struct_config__.tag)

    @property
    def alias(self) -> str:
        """The name that users of other systems know this kind by."""
        return alias_of(self.kind)


class TextDelta(LiveEvent, frozen=True, kw_only=True, gc=False, tag="text.delta"):
    """More answer text; `offset` is where it begins in its part, in characters."""

    part_id: PartId
    offset: int
    text: str


class ReasoningDelta(LiveEvent, frozen=True, kw_only=True, gc=False, tag="reasoning.delta"):
    """More of what the model thinks."""

    part_id: PartId
    offset: int
    text: str


class ToolInputDelta(LiveEvent, frozen=True, kw_only=True, gc=False, tag="tool.input.delta"):
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


class SubagentChanged(LiveEvent, frozen=True, kw_only=True, tag="subagent"):
    """A sub-agent of a native agent began, reports, or ended."""

    change: Literal["joined", "status", "left"]
    agent: str
    call_id: CallId | None = None
    """The tool call that started it."""
    status: str = ""
    description: str = ""

    @property
    def alias(self) -> str:
        """The name by what changed: `agent_joined`, `agent_status` or `agent_left`."""
        return f"agent_{self.change}"


class StatusChanged(LiveEvent, frozen=True, kw_only=True, tag="session.status"):
    """The session is doing something else now."""

    status: SessionStatus


class Instrumented(LiveEvent, frozen=True, kw_only=True, tag="instrumentation"):
    """A measurement of the runtime itself."""

    name: str
    facts: JsonObject


class ObserverLagged(LiveEvent, frozen=True, kw_only=True, tag="observer.lagged"):
    """An observer fell too far behind; it loses nothing by resuming from this `seq`."""

    resume_after: int


Delta: TypeAlias = TextDelta | ReasoningDelta | ToolInputDelta
Event: TypeAlias = Entry | LiveEvent
