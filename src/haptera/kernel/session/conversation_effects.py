"""What is done when the conversation of a held session is edited, read or noted beside."""

from collections.abc import Sequence
from typing import cast

from msgspec.structs import replace

from haptera.kernel.session.command_effects import HeldSession
from haptera.kernel.session.session_descriptions import state_of
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.file_snapshots import FileDiff
from haptera.model.ids import MessageId, new_message_id
from haptera.model.log.notes import ContextNoted
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.operations.held import (
    AddMessage,
    CompareFiles,
    DrainQueue,
    ExpandCompaction,
    ExportState,
    KeepNote,
    RemoveMessage,
    RemovePart,
    ReplaceMessage,
    ReplacePart,
)
from haptera.model.operations.operation import handles
from haptera.model.parts import Part, TextPart
from haptera.model.session_state import SessionState


@handles(ExpandCompaction)
async def expand(held: HeldSession, order: ExpandCompaction) -> tuple[Message, ...]:
    """Return the messages that a compaction left out."""
    return await held.branches().expand(order.compaction_id)


@handles(CompareFiles)
async def diff(held: HeldSession, order: CompareFiles) -> FileDiff:
    """Return what a turn changed in the workspace."""
    return await held.files().diff(order.turn)


@handles(AddMessage)
async def add_message(held: HeldSession, order: AddMessage) -> MessageId:
    """Add a message after another, or at the end, and return its id."""
    kind = UserMessage if order.role == "user" else AssistantMessage
    message = kind(id=new_message_id(), parts=_parts_of(order.content))
    await held.branches().edit("add", order.after, message)
    return message.id


@handles(ReplaceMessage)
async def replace_message(held: HeldSession, order: ReplaceMessage) -> None:
    """Let a message say something else."""
    message = await held.branches().message(order.message_id)
    changed = replace(message, parts=_parts_of(order.content))
    await held.branches().edit("replace", order.message_id, changed)


@handles(RemoveMessage)
async def remove_message(held: HeldSession, order: RemoveMessage) -> None:
    """Take a message out of the conversation."""
    await held.branches().edit("remove", order.message_id)


@handles(ReplacePart)
async def replace_part(held: HeldSession, order: ReplacePart) -> None:
    """Put another part in the place of one."""
    await held.branches().replace_part(order.message_id, order.place, (order.part,))


@handles(RemovePart)
async def remove_part(held: HeldSession, order: RemovePart) -> None:
    """Take a part out of a message."""
    await held.branches().replace_part(order.message_id, order.place, ())


@handles(KeepNote)
async def keep_note(held: HeldSession, order: KeepNote) -> None:
    """Keep a note for every session of the project."""
    if not order.text.strip():
        raise ConfigError(ErrorCode.CONFIG_INVALID, "a note must not be empty")
    await record_note(held, ContextNoted(**held.live.stamp(), text=order.text.strip()))


async def record_note(held: HeldSession, noted: ContextNoted) -> None:
    """Record what the model is told with the next prompt."""
    held.live.check_open()
    # After a failed append the recorder refuses all others until it has read the log again.
    await held.live.queue.recover()
    await held.live.recorder.commit([noted])


@handles(ExportState)
async def export(held: HeldSession, _order: ExportState) -> SessionState:
    """Return the conversation as a value."""
    fold = await held.live.branches.whole_fold()
    return state_of(fold, exported_at=held.live.stamp.clock.time_ms())


@handles(DrainQueue)
async def drain_queue(held: HeldSession, _order: DrainQueue) -> tuple[UserMessage, ...]:
    """Take every prompt that waits out of the queue."""
    return await held.live.queue.drain()


def _parts_of(content: str | Sequence[Part]) -> tuple[Part, ...]:
    """Return the content of a message as parts.

    Raises:
        ConfigError: CONFIG_INVALID when it is none.

    """
    parts: tuple[object, ...] = ()
    if isinstance(content, str):
        parts = (TextPart(text=content),) if content else ()
    elif isinstance(content, Sequence):
        parts = tuple(content)
    if not parts or not all(isinstance(part, Part) for part in parts):
        raise ConfigError(ErrorCode.CONFIG_INVALID, "a message must be a text or a list of parts")
    return cast("tuple[Part, ...]", parts)
