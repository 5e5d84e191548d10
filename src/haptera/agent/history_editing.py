"""Rewinding, compacting and editing a conversation, all by entries that are appended to its log.

Nothing is rewritten: the log keeps what was said, and a rewind behind an edit takes it back.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec.structs import replace

from haptera.agent.query_options import QueryOptions, ResumeOptions
from haptera.agent.query_stream import QueryStream
from haptera.agent.verbs import SessionT, SessionVerbs
from haptera.kernel.session.session_descriptions import NamedSettings
from haptera.model.commands import CompactSession, RewindSession, UndoRewind
from haptera.model.errors import ConfigError, ErrorCode, SessionError
from haptera.model.file_snapshots import FileDiff, RewindReport
from haptera.model.ids import MessageId, new_message_id
from haptera.model.log.compactions import Compaction
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import Part, TextPart
from haptera.ports.runner import QueryInput

if TYPE_CHECKING:
    from haptera.kernel.session.branching import Branches
    from haptera.kernel.session.live_session import LiveSession
    from haptera.kernel.session.query_handle import QueryHandle


class HistoryEditing(SessionVerbs[SessionT]):
    """What can be changed in the conversation of an open session, while no query runs in it.

    Every method that edits raises SessionError: BUSY while a query runs or a tool call waits for an
    approval, and MESSAGE_NOT_FOUND when there is no such message. A tool call without a result gets
    one that says so, and is never run.
    """

    @abstractmethod
    async def _live_session(self) -> "LiveSession":
        """Return what stands behind the session."""

    @abstractmethod
    async def _branches(self) -> "Branches":
        """Return what moves and edits the conversation, and reads what it was."""

    @abstractmethod
    async def _submit(
        self, query: QueryInput, options: ResumeOptions[Any], named: NamedSettings
    ) -> "QueryHandle":
        """Take in a query."""

    async def _rewind(self, order: RewindSession | UndoRewind) -> RewindReport:
        answered = (await self._live_session()).answered
        if isinstance(order, UndoRewind):
            return await answered.undo_rewind(order)
        return await answered.rewind(order)

    async def _compact(self, order: CompactSession, options: QueryOptions[Any]) -> Compaction:
        live = await self._live_session()

        async def start() -> "QueryHandle":
            return await self._submit(live.answered.compaction(order), options, NamedSettings())

        result = await QueryStream[Any](start, None, options).result()
        return live.answered.compaction_made(order, result)

    async def expand(self, compaction_id: str | None = None) -> tuple[Message, ...]:
        """Return the messages that a compaction left out, by the id of its event.

        Without an id, those of the last compaction. Nothing is changed by it.

        Raises:
            SessionError: NOT_FOUND when there is no such compaction, or it left nothing out.

        """
        return await (await self._branches()).expand(compaction_id)

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
