"""Messages: what a user and a model said, as immutable values with parts."""

from typing import Literal, TypeAlias

import msgspec

from holdfast.vocabulary.ids import MessageId, QueryId, TurnId
from holdfast.vocabulary.parts import Part, ToolCallPart, text_of
from holdfast.vocabulary.usage import Usage


class Sender(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Who spoke in a user message."""

    kind: Literal["human", "agent", "orchestrator"] = "human"
    user_id: str | None = None


class _Message(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="role", gc=False
):
    id: MessageId
    parts: tuple[Part, ...]
    query_id: QueryId | None = None
    turn_id: TurnId | None = None

    @property
    def text(self) -> str:
        """The text parts joined."""
        return text_of(self.parts)


class UserMessage(_Message, frozen=True, kw_only=True, tag="user"):
    """What was said to the model: prompts, tool results, reminders."""

    sender: Sender | None = None


class AssistantMessage(_Message, frozen=True, kw_only=True, tag="assistant"):
    """What a model said."""

    provider: str = ""
    model: str = ""
    usage: Usage | None = None
    finish_reason: str | None = None
    """The provider's own word."""
    interrupted: bool = False
    """Whether the model was cut off: by an abort, a crash or a dropped stream."""

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The calls this message asks for, in the model's order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCallPart))


Message: TypeAlias = UserMessage | AssistantMessage
