"""Compacting a conversation, and looking at what a compaction left out."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from holdfast.agent.option_checks import check_options
from holdfast.agent.query_options import QueryOptions
from holdfast.agent.query_stream import QueryStream
from holdfast.ports.abort import AbortSignal
from holdfast.ports.runner import QueryInput
from holdfast.session.session_descriptions import NamedSettings
from holdfast.vocabulary.compactions import Compaction
from holdfast.vocabulary.errors import ErrorCode, SessionError
from holdfast.vocabulary.messages import Message

if TYPE_CHECKING:
    from holdfast.session.branching import Branches
    from holdfast.session.live_session import LiveSession
    from holdfast.session.query_handle import QueryHandle


class SessionCompaction(ABC):
    """What shortens a conversation, and shows what was left out.

    The log stays whole: a rewind to before a compaction takes it back.
    """

    @abstractmethod
    async def _live_session(self) -> "LiveSession":
        """Return what stands behind the session."""

    @abstractmethod
    async def _branches(self) -> "Branches":
        """Return what moves the conversation, and reads what it was."""

    @abstractmethod
    async def _submit(
        self, query: QueryInput, options: QueryOptions[Any], named: NamedSettings
    ) -> "QueryHandle":
        """Take in a query."""

    async def compact(
        self, instructions: str | None = None, *, signal: AbortSignal | None = None
    ) -> Compaction:
        """Replace the earlier messages by a summary in what is sent, and return what was done.

        A model is asked for the summary (`compaction.model`, or the session's). `instructions` say
        what it is to pay attention to.

        Raises:
            SessionError: BUSY while a query runs, is unfinished or waits for an approval;
                NOTHING_TO_SEND when there is nothing to compact.
            ConfigError: CONFIG_INVALID with a native agent, which compacts its own history.
            AgentError: when no usable summary could be made, or it was aborted; the conversation
                is as it was.

        """
        told: QueryOptions[Any] = check_options(
            QueryOptions(signal=signal), QueryOptions, door="session.compact()"
        )
        live = await self._live_session()

        async def start() -> "QueryHandle":
            query = live.answered.compaction(instructions)
            return await self._submit(query, told, NamedSettings())

        await QueryStream[Any](start, None, told).result()
        done = live.fold.compacted.last
        if done is None:
            raise SessionError(ErrorCode.NOTHING_TO_SEND, "there is nothing to compact")
        return done

    async def expand(self, compaction_id: str | None = None) -> tuple[Message, ...]:
        """Return the messages that a compaction left out, by the id of its event.

        Without an id, those of the last compaction. Nothing is changed by it.

        Raises:
            SessionError: NOT_FOUND when there is no such compaction, or it left nothing out.

        """
        return await (await self._branches()).expand(compaction_id)
