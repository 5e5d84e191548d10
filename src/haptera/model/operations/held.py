"""What the process that holds a session can be asked of its conversation.

None of these waits in an inbox: a session that another process holds is not asked for them. What
edits raises BUSY while a query runs or a call waits for an approval, and MESSAGE_NOT_FOUND when
there is no such message. A call without a result gets one that says so, and is never run.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from haptera.model.ids import MessageId
from haptera.model.operations.operation import Facts, Operation
from haptera.model.parts import Part


class HeldOperation(Operation, frozen=True, kw_only=True):
    """What is asked of a session that this process holds."""


class ExpandCompaction(HeldOperation, frozen=True, kw_only=True, tag="expand"):
    """Return the messages that a compaction left out, by the id of its event.

    Without an id, those of the last compaction. Nothing is changed by it.

    Raises:
        SessionError: NOT_FOUND when there is no such compaction, or it left nothing out.

    """

    facts: ClassVar[Facts] = Facts(face="expand", by_place=1)

    compaction_id: Annotated[str | None, Meta(description="The id of the compaction.")] = None


class CompareFiles(HeldOperation, frozen=True, kw_only=True, tag="diff"):
    """Return what a turn changed in the workspace, what its commands changed included.

    Raises:
        SessionError: NOT_FOUND when the session has nothing of that id.
        StoreError: UNAVAILABLE when no snapshot could be taken, or it is kept no longer.
        ConfigError: CONFIG_MISSING when the agent takes no snapshots of files.

    """

    facts: ClassVar[Facts] = Facts(face="diff", by_place=1)

    turn: Annotated[
        str | None,
        Meta(
            description="The id of a turn, of an answer or of a whole query; without one, the last "
            "query whose tools could change files."
        ),
    ] = None


class AddMessage(HeldOperation, frozen=True, kw_only=True, tag="add_message"):
    """Add a message after another, or at the end, and return its id; no model is asked.

    Neighbours of one role become one message, which keeps the id of the first.
    """

    facts: ClassVar[Facts] = Facts(face="add_message", by_place=1)

    content: Annotated[str | Sequence[Part], Meta(description="What it says.")]
    role: Annotated[Literal["user", "assistant"], Meta(description="Who says it.")] = "user"
    after: Annotated[
        MessageId | None, Meta(description="The message that it follows; the last without it.")
    ] = None


class ReplaceMessage(HeldOperation, frozen=True, kw_only=True, tag="replace_message"):
    """Let a message say something else; its id, model and usage stay."""

    facts: ClassVar[Facts] = Facts(face="replace_message", by_place=2)

    message_id: Annotated[MessageId, Meta(description="The id of the message.")]
    content: Annotated[str | Sequence[Part], Meta(description="What it says from now on.")]


class RemoveMessage(HeldOperation, frozen=True, kw_only=True, tag="remove_message"):
    """Take a message out of the conversation."""

    facts: ClassVar[Facts] = Facts(face="remove_message", by_place=1)

    message_id: Annotated[MessageId, Meta(description="The id of the message.")]


class ReplacePart(HeldOperation, frozen=True, kw_only=True, tag="replace_part"):
    """Put another part in the place of one; the first part of a message has place 0."""

    facts: ClassVar[Facts] = Facts(face="replace_part", by_place=3)

    message_id: Annotated[MessageId, Meta(description="The id of the message.")]
    place: Annotated[int, Meta(description="The place of the part in the message.")]
    part: Annotated[Part, Meta(description="What stands there from now on.")]


class RemovePart(HeldOperation, frozen=True, kw_only=True, tag="remove_part"):
    """Take a part out of a message; a message without parts is taken out as a whole."""

    facts: ClassVar[Facts] = Facts(face="remove_part", by_place=2)

    message_id: Annotated[MessageId, Meta(description="The id of the message.")]
    place: Annotated[int, Meta(description="The place of the part in the message.")]


class KeepNote(HeldOperation, frozen=True, kw_only=True, tag="note"):
    """Keep a note for every session of this project.

    The model gets it with the next prompt of this session, and with the first one of each
    session that is opened anew. `agent.sessions.notes()` lists notes, and `forget_note()` takes
    one back.

    Raises:
        ConfigError: CONFIG_INVALID when it is blank.

    """

    facts: ClassVar[Facts] = Facts(face="note", by_place=1)

    text: Annotated[str, Meta(description="The note.")]


class IncludeSession(HeldOperation, frozen=True, kw_only=True, tag="include"):
    """Tell the model of another session, with the next prompt."""

    facts: ClassVar[Facts] = Facts(face="include", by_hand=True)

    other: str
    as_: Literal["summary", "full"] = "summary"


class ExportState(HeldOperation, frozen=True, kw_only=True, tag="export_state"):
    """Return the conversation as a value that a new session can be restored from."""

    facts: ClassVar[Facts] = Facts(face="export")


class DrainQueue(HeldOperation, frozen=True, kw_only=True, tag="drain_queue"):
    """Take every prompt that waits out of the queue and return them."""

    facts: ClassVar[Facts] = Facts(face="drain_queue")
