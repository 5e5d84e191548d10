"""Other names that users know our events by, from the systems they come from."""

ALIASES: dict[str, tuple[str, ...]] = {
    "session.opened": ("session.created",),
    "session.changed": ("session.updated",),
    "session.deleted": ("session.deleted",),
    "session.status": ("session.status", "status", "session.error"),
    "query.started": ("start", "agent_start", "stream.start", "query_summary"),
    "query.ended": ("finish", "agent_end", "stream.end", "done", "error"),
    "turn.started": ("step-start", "turn_start", "message.created", "message_start"),
    "turn.ended": ("message_usage", "step-finish", "turn_end", "message.updated", "message_end"),
    "turn.discarded": ("message.deleted", "part.deleted"),
    "part.started": ("part.created", "text-start", "reasoning-start", "tool-input-start"),
    "part.checkpoint": ("part.updated",),
    "part.ended": ("part.updated", "text-end", "reasoning-end", "tool-input-end", "tool-call"),
    "text.delta": ("text-delta", "stream.delta", "message_text"),
    "reasoning.delta": ("reasoning-delta", "message_thinking"),
    "tool.input.delta": ("tool-input-delta",),
    "approval.requested": ("tool_approval_request",),
    "approval.settled": ("tool_approval_response",),
    "tool.ended": ("tool-result", "tool-error"),
    "tool.failed": ("tool_error",),
    "subagent": ("agent_status", "agent_joined", "agent_left"),
    "retry.scheduled": ("retry",),
    "compaction": ("compact_boundary", "message_compaction"),
    "usage.reported": ("result_usage",),
    "hook.message": ("hookMessage",),
}


def alias_of(kind: str) -> str:
    """Return the best known other name of a kind, or the kind itself."""
    return next(iter(ALIASES.get(kind, ())), kind)
