"""RemoteSession: a session that another process holds, as far as one can reach it from here."""

from collections.abc import AsyncGenerator

from holdfast.ports.session_store import Store
from holdfast.session.observers import follow_entries
from holdfast.vocabulary.approvals import ApprovalScope
from holdfast.vocabulary.commands import (
    AbortQuery,
    ApproveCall,
    Command,
    CommandId,
    DenyCall,
    SendPrompt,
)
from holdfast.vocabulary.entries import Entry
from holdfast.vocabulary.ids import ApprovalId, SessionId, new_id, new_input_id
from holdfast.vocabulary.json_types import Json
from holdfast.vocabulary.messages import UserMessage
from holdfast.vocabulary.settings import Delivery


class RemoteSession:
    """Leaves commands for whoever holds a session, and reads its log.

    A command is durable once its call returns; the holder carries it out, or the next one does.
    """

    def __init__(self, store: Store, session_id: SessionId, *, by: str | None = None) -> None:
        self._store = store
        self._by = by
        self.session_id = session_id

    async def abort(self, reason: str | None = None) -> None:
        """Ask for the running query to be stopped."""
        await self._put(AbortQuery(id=_command_id(), by=self._by, reason=reason))

    async def prompt(self, message: UserMessage, *, delivery: Delivery = "queue") -> None:
        """Send a prompt."""
        await self._put(
            SendPrompt(
                id=_command_id(),
                by=self._by,
                input_id=new_input_id(),
                message=message,
                delivery=delivery,
            )
        )

    async def approve(
        self, approval_id: str, *, arguments: Json | None = None, scope: ApprovalScope = "once"
    ) -> None:
        """Let a waiting tool call run."""
        await self._put(
            ApproveCall(
                id=_command_id(),
                by=self._by,
                approval_id=ApprovalId(approval_id),
                arguments=arguments,
                scope=scope,
            )
        )

    async def deny(self, approval_id: str, reason: str | None = None) -> None:
        """Refuse a waiting tool call."""
        await self._put(
            DenyCall(
                id=_command_id(), by=self._by, approval_id=ApprovalId(approval_id), reason=reason
            )
        )

    def events(self, *, after: int = 0) -> AsyncGenerator[Entry, None]:
        """Read what happened after a `seq`, then what happens, until closed."""
        return follow_entries(self._store.log, self.session_id, after=after)

    async def _put(self, command: Command) -> None:
        await self._store.inbox.put(self.session_id, command)


def _command_id() -> CommandId:
    return CommandId(new_id("cmd"))
