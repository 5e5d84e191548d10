"""Commands: what one process asks of the process that holds a session."""

from typing import NewType, TypeAlias

import msgspec

from holdfast.vocabulary.aliases import COMMAND_ALIASES
from holdfast.vocabulary.approvals import ApprovalScope
from holdfast.vocabulary.ids import ApprovalId, InputId, QueryId, new_id
from holdfast.vocabulary.json_types import Json, JsonObject
from holdfast.vocabulary.messages import UserMessage
from holdfast.vocabulary.settings import Delivery

CommandId = NewType("CommandId", str)


def new_command_id() -> CommandId:
    """Return a new id of a command; later ones sort behind earlier ones."""
    return CommandId(new_id("cmd"))


class _Command(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    id: CommandId
    by: str | None = None
    """Who asks, for the log."""

    @property
    def alias(self) -> str:
        """The name that users of other systems know this command by."""
        kind = str(self.__struct_config__.tag)
        return COMMAND_ALIASES.get(kind, kind)


class AbortQuery(_Command, frozen=True, kw_only=True, tag="abort"):
    """Stop what is running."""

    reason: str | None = None
    query_id: QueryId | None = None
    """The query that is meant; nothing happens when another one runs by then."""


class SendPrompt(_Command, frozen=True, kw_only=True, tag="prompt"):
    """Answer a prompt, delivered as asked."""

    input_id: InputId
    message: UserMessage
    delivery: Delivery = "queue"
    once: bool = False
    """Whether a message with this id is taken in only if the log has none yet."""


class ApproveCall(_Command, frozen=True, kw_only=True, tag="approve"):
    """Let a waiting tool call run."""

    approval_id: ApprovalId
    arguments: Json | None = None
    scope: ApprovalScope = "once"
    feedback: str | None = None


class DenyCall(_Command, frozen=True, kw_only=True, tag="deny"):
    """Refuse a waiting tool call."""

    approval_id: ApprovalId
    reason: str | None = None


class ChangeSession(_Command, frozen=True, kw_only=True, tag="change"):
    """Change facts of the session, as `session.changed` has them."""

    changes: JsonObject


Command: TypeAlias = AbortQuery | SendPrompt | ApproveCall | DenyCall | ChangeSession
