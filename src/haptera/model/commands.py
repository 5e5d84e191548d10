"""Commands: what one process asks of the process that holds a session."""

from typing import NewType, TypeAlias

import msgspec

from haptera.model.approvals import ApprovalScope
from haptera.model.ids import ApprovalId, InputId, MessageId, QueryId, new_id
from haptera.model.json_types import Json, JsonObject
from haptera.model.messages import UserMessage
from haptera.model.settings import Delivery
from haptera.model.source_names import command_name

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
        return command_name(str(self.__struct_config__.tag))


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


class RewindSession(_Command, frozen=True, kw_only=True, tag="rewind"):
    """Make a message the last one of the conversation."""

    to: MessageId
    files: bool = False
    """Whether the files of the workspace become what they were, too."""
    dry_run: bool = False
    force: bool = False


class UndoRewind(_Command, frozen=True, kw_only=True, tag="undo_rewind"):
    """Take the last rewind back."""

    force: bool = False


class CompactSession(_Command, frozen=True, kw_only=True, tag="compact"):
    """Replace the earlier messages by a summary in what is sent."""

    instructions: str | None = None


class ConfigureSession(_Command, frozen=True, kw_only=True, tag="configure"):
    """Change settings, from the next turn on."""

    settings: JsonObject


AnsweredCommand: TypeAlias = RewindSession | UndoRewind | CompactSession | ConfigureSession
"""Commands whose sender waits for their end: a `command.ended` in the log."""
PlainCommand: TypeAlias = AbortQuery | SendPrompt | ApproveCall | DenyCall | ChangeSession
"""Commands that have no end in the log: what they do is there."""
Command: TypeAlias = PlainCommand | AnsweredCommand
