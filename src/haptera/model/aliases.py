"""Other names that users know our events and errors by, from the systems they come from."""

from collections.abc import Callable
from typing import Any

from haptera.model.json_types import Value

EVENT_ALIASES: dict[str, tuple[str, ...]] = {
    "session.opened": ("session.created",),
    "session.changed": ("session.updated",),
    "session.deleted": ("session.deleted",),
    "session.status": ("session.status", "status", "session.error"),
    "input.promoted": ("message.created",),
    "query.started": ("start", "agent_start", "stream.start"),
    "query.suspended": ("query.suspended",),
    "query.ended": ("finish", "agent_end", "stream.end", "done", "error"),
    "turn.started": ("step-start", "turn_start", "message.created", "message_start"),
    "turn.ended": ("message_usage", "turn_end", "message.updated", "message_end"),
    "turn.discarded": ("message.deleted", "part.deleted"),
    "part.started": (
        *("part.created", "text-start", "reasoning-start", "tool-input-start"),
        "message_compaction_start",
    ),
    "part.checkpoint": ("part.updated",),
    "part.ended": (
        *("part.updated", "text-end", "reasoning-end", "tool-input-end"),
        "message_compaction",
    ),
    "text.delta": ("text-delta", "stream.delta", "message_text"),
    "reasoning.delta": ("reasoning-delta", "stream.delta", "message_thinking"),
    "compaction.delta": ("stream.delta",),
    "tool.input.delta": ("tool-input-delta", "stream.delta"),
    "tool.progress": ("stream.delta",),
    "approval.requested": ("tool_approval_request",),
    "approval.settled": ("tool_approval_response",),
    "tool.started": ("tool-call",),
    "tool.ended": ("tool-result", "tool-error"),
    "tool.failed": ("tool_error",),
    "subagent": ("agent_status", "agent_joined", "agent_left"),
    "retry.scheduled": ("retry",),
    "compaction": ("compact_boundary", "message_compaction"),
    "usage.reported": ("result_usage",),
    "hook.message": ("hookMessage",),
    "instrumentation.summary": ("query_summary",),
    "instrumentation.turn": ("step-finish",),
    "stream.heartbeat": ("heartbeat",),
}
"""By kind, all the names of its events; the best known one first."""

_OF_VARIANTS: dict[str, dict[str, tuple[str, ...]]] = {
    "session.status": {
        "error": ("session.error", "session.status", "status"),
        "": ("session.status", "status"),
    },
    "query.started": {"resumed": ("stream.start", "start", "agent_start")},
    "query.ended": {
        "error": ("error", "agent_end", "stream.end", "done"),
        "aborted": ("stream.end", "agent_end", "done"),
        "": ("finish", "agent_end", "stream.end", "done"),
    },
    "turn.ended": {
        "interrupted": ("message.updated", "message_usage", "turn_end", "message_end"),
    },
    "turn.discarded": {"failed": ("part.deleted", "message.deleted")},
    "part.started": {
        "text": ("text-start", "part.created"),
        "reasoning": ("reasoning-start", "part.created"),
        "tool_call": ("tool-input-start", "part.created"),
        "compaction": ("message_compaction_start", "part.created"),
        "": ("part.created",),
    },
    "part.ended": {
        "text": ("text-end", "part.updated"),
        "reasoning": ("reasoning-end", "part.updated"),
        "tool_call": ("tool-input-end", "part.updated"),
        "compaction": ("message_compaction", "part.updated"),
        "": ("part.updated",),
    },
    "tool.ended": {"ok": ("tool-result",), "": ("tool-error",)},
    "subagent": {
        "joined": ("agent_joined",),
        "status": ("agent_status",),
        "left": ("agent_left",),
    },
    "instrumentation.turn": {"failed": ()},
}
"""Where the names depend on what an event holds; those of any other variant are under ""."""

_VARIANT_OF: dict[str, Callable[[Any], str]] = {
    "session.status": lambda event: str(event.status.__struct_config__.tag),
    "query.started": lambda event: "resumed" if event.message is None else "",
    "query.ended": lambda event: str(event.stop_reason),
    "subagent": lambda event: str(event.change),
    "turn.ended": lambda event: "interrupted" if event.interrupted else "",
    "turn.discarded": lambda event: "failed" if event.error is not None else "",
    "part.started": lambda event: str(event.part_kind),
    "part.ended": lambda event: str(event.part.__struct_config__.tag),
    "tool.ended": lambda event: str(event.outcome),
    "instrumentation.turn": lambda event: "failed" if event.error or event.interrupted else "",
}
"""What tells the variants of a kind apart."""

COMMAND_ALIASES: dict[str, str] = {
    "abort": "cancel",
    "approve": "tool_approval_response",
    "deny": "tool_approval_response",
}
"""By kind, the name of a command."""

ERROR_ALIASES: dict[str, str] = {
    "BUSY": "session_busy",
    "STREAM_BUSY": "session_busy",
    "NOT_FOUND": "session_not_found",
    "MESSAGE_NOT_FOUND": "message_not_found",
    "AUTH": "provider_auth_error",
    "RATE_LIMITED": "api_error",
    "OVERLOADED": "api_error",
    "MODEL_NOT_FOUND": "api_error",
    "SERVER_ERROR": "api_error",
    "QUOTA": "api_error",
    "BAD_REQUEST": "api_error",
    "CONTENT_FILTER": "api_error",
    "PROTOCOL": "api_error",
    "CONTEXT_LENGTH": "output_length_error",
    "ABORTED": "aborted",
}
"""By code, the type of a session's error; what has none is `unknown`."""


NATIVE_ID_ALIASES = ("cliSessionId", "sdkSessionId")
"""Other names of `native_session_id`, written beside it."""


class NamedEvent(Value, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """What entries and live-only events share: a kind, and other names of it."""

    @property
    def kind(self) -> str:
        """The event's name on the wire, such as `turn.started`."""
        return str(self.__struct_config__.tag)

    @property
    def alias(self) -> str:
        """The name that users of other systems know this event by."""
        return alias_of(self.kind, self)

    @property
    def aliases(self) -> tuple[str, ...]:
        """All such names, of every system that has one for this event."""
        return aliases_of(self.kind, self)


def aliases_of(kind: str, event: object = None) -> tuple[str, ...]:
    """Return all other names of an event, or of a kind; the best known one first."""
    names, variants = EVENT_ALIASES.get(kind, ()), _OF_VARIANTS.get(kind)
    if event is None or variants is None:
        return names
    try:
        variant = _VARIANT_OF[kind](event)
    except AttributeError:  # an entry that a later version stored in a way of its own
        return names
    return variants.get(variant, variants.get("", names))


def alias_of(kind: str, event: object = None) -> str:
    """Return the best known other name of an event or of a kind; without one, the kind itself."""
    return next(iter(aliases_of(kind, event)), kind)


def error_alias_of(code: str) -> str:
    """Return the type of a session's error that a code belongs to."""
    return ERROR_ALIASES.get(code, "unknown")
