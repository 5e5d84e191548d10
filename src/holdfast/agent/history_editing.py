"""Rewinding and editing a conversation, both by entries that are appended to its log.

Nothing is rewritten: the log keeps what was said, and a rewind behind an edit takes it back.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, cast

from msgspec.structs import replace

from holdfast.vocabulary.commands import RewindSession, UndoRewind, new_command_id
from holdfast.vocabulary.errors import ConfigError, ErrorCode, SessionError
from holdfast.vocabulary.file_snapshots import FileDiff, RewindReport
from holdfast.vocabulary.ids import MessageId, new_message_id
from holdfast.vocabulary.messages import AssistantMessage, UserMessage
from holdfast.vocabulary.parts import Part, TextPart

if TYPE_CHECKING:
    from holdfast.session.branching import Branches
    from holdfast.session.live_session import LiveSession


class HistoryEditing(ABC):
    """What can be edited in the conversation of an open session, while no query runs in it.

    Every method raises SessionError: BUSY while a query runs or a tool call waits for an approval,
    and MESSAGE_NOT_FOUND when there is no such message. A tool call without a result gets one that
    says so, and is never run.
    """

    @abstractmethod
    async def _live_session(self) -> "LiveSession":
        """Return what stands behind the session."""

    @abstractmethod
    async def _branches(self) -> "Branches":
        """Return what moves and edits the conversation."""

    async def rewind(
        self, *, to: str, files: bool = False, dry_run: bool = False, force: bool = False
    ) -> RewindReport:
        """Make a message the last one of the conversation; nothing is lost by it.

        Args:
            to: The id of the message.
            files: Whether the files of the workspace become what they were after that message. Only
                files that this session changed since then are touched.
            dry_run: Whether to say only which messages and files would change.
            force: Whether files that others changed since then are overwritten, too.

        Raises:
            SessionError: BUSY while a query runs, MESSAGE_NOT_FOUND when there is no such message.
            StoreError: CONFLICT when others changed files that would be overwritten; UNAVAILABLE
                when the files of that time are not known. Nothing is changed then.
            ConfigError: CONFIG_MISSING when the agent takes no snapshots of files.

        """
        order = RewindSession(
            id=new_command_id(), to=MessageId(to), files=files, dry_run=dry_run, force=force
        )
        return await (await self._live_session()).answered.rewind(order)

    async def undo_rewind(self, *, force: bool = False) -> RewindReport:
        """Take the last rewind back; files that it changed become again what they were before.

        Raises:
            SessionError: BUSY while a query runs, NOT_FOUND when nothing was rewound.
            StoreError: CONFLICT when such files were changed since, unless forced.

        """
        order = UndoRewind(id=new_command_id(), force=force)
        return await (await self._live_session()).answered.undo_rewind(order)

    async def diff(self, turn: str | None = None) -> FileDiff:
        """Return what a turn changed in the workspace, what its commands changed included.

        Args:
            turn: The id of a turn, of an answer or of a whole query; without one, the last query
                whose tools could change files.

        Raises:
            SessionError: NOT_FOUND when the session has nothing of that id.
            StoreError: UNAVAILABLE when no snapshot could be taken, or it is kept no longer.
            ConfigError: CONFIG_MISSING when the agent takes no snapshots of files.

        """
        return await (await self._live_session()).answered.files().diff(turn)

    async def add_message(
        self,
        content: str | Sequence[Part],
        *,
        role: Literal["user", "assistant"] = "user",
        after: str | None = None,
    ) -> MessageId:
        """Add a message after another, or at the end, and return its id; no model is asked.

        Neighbours of one role become one message, which keeps the id of the first.
        """
        if role not in {"user", "assistant"}:
            raise ConfigError(
                ErrorCode.CONFIG_INVALID, f"the role {role!r} is neither 'user' nor 'assistant'"
            )
        kind = UserMessage if role == "user" else AssistantMessage
        message = kind(id=new_message_id(), parts=_parts_of(content))
        await (await self._branches()).edit("add", after, message)
        return message.id

    async def replace_message(self, message_id: str, content: str | Sequence[Part]) -> None:
        """Let a message say something else; its id, model and usage stay."""
        branches = await self._branches()
        changed = replace(await branches.message(message_id), parts=_parts_of(content))
        await branches.edit("replace", message_id, changed)

    async def remove_message(self, message_id: str) -> None:
        """Take a message out of the conversation."""
        await (await self._branches()).edit("remove", message_id)

    async def replace_part(self, message_id: str, place: int, part: Part) -> None:
        """Put another part in the place of one; the first part of a message has place 0."""
        await self._replace_parts(message_id, place, (part,))

    async def remove_part(self, message_id: str, place: int) -> None:
        """Take a part out of a message; a message without parts is taken out as a whole."""
        await self._replace_parts(message_id, place, ())

    async def _replace_parts(self, message_id: str, place: int, parts: tuple[Part, ...]) -> None:
        branches = await self._branches()
        message = await branches.message(message_id)
        if not 0 <= place < len(message.parts):
            told = f"message {message_id!r} has {len(message.parts)} parts, and no place {place}"
            raise SessionError(ErrorCode.NOT_FOUND, told)
        kept = (*message.parts[:place], *parts, *message.parts[place + 1 :])
        if kept:
            await branches.edit("replace", message_id, replace(message, parts=kept))
        else:
            await branches.edit("remove", message_id)


def _parts_of(content: object) -> tuple[Part, ...]:
    parts: tuple[object, ...] = ()
    if isinstance(content, str):
        parts = (TextPart(text=content),) if content else ()
    elif isinstance(content, Sequence):
        parts = tuple(content)
    if not parts or not all(isinstance(part, Part) for part in parts):
        raise ConfigError(ErrorCode.CONFIG_INVALID, "a message must be a text or a list of parts")
    return cast("tuple[Part, ...]", parts)
