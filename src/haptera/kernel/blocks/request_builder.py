"""The request builder: a neutral request as a pure function of settings and conversation."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from haptera.model.errors import ErrorCode, SessionError
from haptera.model.messages import Message, UserMessage
from haptera.model.parts import CompactionPart, MediaPart, Part, ReminderPart
from haptera.model.requests import ModelRequest, OutputSchema
from haptera.model.settings import Settings
from haptera.model.tools import ToolSpec


class RequestExtras(msgspec.Struct, frozen=True, kw_only=True):
    """What belongs to one request only."""

    model: str
    """The model's name without its provider."""
    tools: tuple[ToolSpec, ...] = ()
    reminders: tuple[str, ...] = ()
    """Notes for this request alone; they are never stored."""
    output_schema: OutputSchema | None = None
    require_tool: str | None = None
    """The one tool that the model must call."""
    context: tuple[str, ...] = ()
    """What follows the system prompts: texts of the project's context files."""
    fresh_media: tuple[MediaPart, ...] = ()
    """What the user has just handed in."""
    caches_tail: bool = True
    """Whether a later request may repeat this one."""


class RequestBuilder(Protocol):
    """Makes the request of a turn; a substitute for `build_request` is a function like this.

    - It is pure: the same arguments give an equal request, and none of them is changed.
    - It raises NOTHING_TO_SEND when there is no user message.
    - Reminders go to the end of the last user message of the request, and nowhere else.
    - Everything that the settings and the extras say about a request is in it.
    """

    def __call__(
        self, settings: Settings, messages: tuple[Message, ...], extras: RequestExtras
    ) -> ModelRequest:
        """Make the request."""
        ...


def build_request(
    settings: Settings, messages: tuple[Message, ...], extras: RequestExtras
) -> ModelRequest:
    """Make the request; the messages are shared, not copied.

    Raises:
        SessionError: NOTHING_TO_SEND when there is no user message.

    """
    if not any(isinstance(message, UserMessage) for message in messages):
        raise SessionError(
            ErrorCode.NOTHING_TO_SEND, "the conversation has no user message to answer"
        )
    compaction = settings.compaction
    if compaction.strategy == "server" and not compaction.enabled:
        # One answer to whether the provider compacts.
        compaction = msgspec.structs.replace(compaction, enabled=True)
    return ModelRequest(
        model=extras.model,
        messages=_with_reminders(messages, extras.reminders) if extras.reminders else messages,
        # Context files are behind the user's own prompts, at the same position of every request, so
        # that the caches of providers hold.
        system=settings.system_prompts + extras.context,
        tools=extras.tools,
        require_tool=extras.require_tool,
        thinking=settings.thinking,
        max_tokens=settings.max_tokens or None,
        temperature=settings.temperature,
        stop=settings.stop,
        seed=settings.seed,
        output_schema=extras.output_schema,
        cache_ttl=settings.cache_ttl,
        caches_tail=extras.caches_tail,
        compaction=compaction,
        betas=settings.betas,
        timeouts=settings.timeouts,
        reply_bytes=settings.limits.reply_bytes,
        fresh_media=extras.fresh_media,
        parallel_tool_calls=settings.parallel_tool_calls,
    )


def lead_with_reminders(
    message: UserMessage, reminders: Sequence[str], sent_view: Sequence[Message]
) -> UserMessage:
    """Put the standing reminders before the first prompt of what is sent.

    The view decides, not the history: after a compaction the prompt that had them is gone from what
    is sent, and they come back with the next one, also when later prompts were kept.
    """
    is_compacted = bool(sent_view) and _holds(sent_view[0], CompactionPart)
    leads = _holds_reminder if is_compacted else _is_prompt
    if not reminders or any(leads(item) for item in sent_view):
        return message
    leading: tuple[Part, ...] = tuple(ReminderPart(text=text, persisted=True) for text in reminders)
    return msgspec.structs.replace(message, parts=leading + message.parts)


def _holds(message: Message, kind: type[Part]) -> bool:
    return any(isinstance(part, kind) for part in message.parts)


def _holds_reminder(message: Message) -> bool:
    return any(isinstance(part, ReminderPart) and part.persisted for part in message.parts)


def _is_prompt(message: Message) -> bool:
    return isinstance(message, UserMessage) and not all(
        isinstance(part, CompactionPart | ReminderPart) for part in message.parts
    )


def _with_reminders(messages: tuple[Message, ...], reminders: Sequence[str]) -> tuple[Message, ...]:
    """Add reminders to the end of the last user message of the view; the history keeps its own."""
    # At the end, because they are gone in the next request: whatever precedes them stays the same,
    # and so does what a provider has cached of it.
    added: tuple[Part, ...] = tuple(ReminderPart(text=text) for text in reminders)
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, UserMessage):
            noted = msgspec.structs.replace(message, parts=message.parts + added)
            return (*messages[:index], noted, *messages[index + 1 :])
    return messages
