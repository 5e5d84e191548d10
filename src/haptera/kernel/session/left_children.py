"""Ends the sessions of sub-agents whose calls are over, so that none of them waits for ever.

A module of its own because it works on the logs of other sessions than the one that is open.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from uuid import UUID

from msgspec.structs import replace

from haptera.kernel.session.log_reading import fold_log
from haptera.kernel.session.recorder import ends_of_cut_off
from haptera.model.errors import AgentError, ErrorCode, RequestError
from haptera.model.ids import CallId, SessionId, new_id, new_query_id
from haptera.model.log.approvals import ApprovalSettled
from haptera.model.log.entry import Entry
from haptera.model.log.queries import QueryEnded, QueryStarted
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.tools import ToolEnded
from haptera.model.parts import TextPart
from haptera.ports.session_store import Store
from haptera.system.clock import Clock, Stamp

_STORE_SECONDS = 2.0
"""How long the end of one sub-agent may take: the caller of the query waits for it."""
_LEFT = "the session that called the sub-agent went on without it"


def child_id_of(parent: SessionId, message_id: str, call_id: CallId) -> SessionId:
    """Return the id of the session that answers a call: a UUIDv7, the same in every process.

    The message is part of it, because providers use the ids of calls again. Its time is that of
    the parent's id.
    """
    digest = hashlib.sha256(f"{parent}\0{message_id}\0{call_id}".encode()).digest()
    time = UUID(parent).int >> 80
    chance = int.from_bytes(digest[:10])
    # RFC 9562 fixes the version (7) and the variant (0b10); 74 bits of the digest are the rest.
    value = time << 80 | 0x7 << 76 | (chance >> 62 & 0xFFF) << 64
    value |= 0b10 << 62 | chance & (1 << 62) - 1
    return SessionId(str(UUID(int=value)))


def children_at_rest(fold: SessionFold) -> list[SessionId]:
    """Return the sessions that may answer calls of the last turn which have no result.

    A call of a tool that is idempotent may be that of a sub-agent. There need not be such a
    session.
    """
    opened, tip = fold.opened, fold.conversation.tip
    if opened is None or tip is None:
        return []
    return [
        child_id_of(opened.session_id, tip.id, call.part.call_id)
        for call in fold.calls.values()
        # A query that was stopped has ended the call as cancelled, and left the child as it was.
        if call.idempotent and (call.ended is None or call.ended.outcome == "cancelled")
    ]


class LeftChildren:
    """Ends what sub-agents left unfinished, in their own logs.

    - Nothing of a sub-agent is run: no model is asked, no tool and no hook is called.
    - A session that is held, here or elsewhere, is left alone: its holder ends it.
    - A store that fails changes nothing for the session that called.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def end(self, children: Iterable[SessionId]) -> None:
        """End the unfinished queries of these sessions, and of their own sub-agents."""
        for session_id in children:
            with suppress(AgentError, TimeoutError):  # there is none, or it is held
                async with asyncio.timeout(_STORE_SECONDS):
                    await self._end(session_id)

    async def _end(self, session_id: SessionId) -> None:
        log, leases = self._store.log, self._store.leases
        # Most children have nothing to end and need no lease. Under the lease the log is read
        # again: it may have grown.
        if not self._ends(await fold_log(log, await log.read(session_id))):
            return
        lease = await leases.acquire(session_id, new_id("run"))
        try:
            fold = await fold_log(log, await log.read(session_id))
            grandchildren = children_at_rest(fold)
            ends = [
                # Numbered here: the session is not open in this process, so it has no recorder.
                replace(entry, seq=fold.head + number)
                for number, entry in enumerate(self._ends(fold), start=1)
            ]
            if ends:
                await log.append(lease, ends)
        finally:
            with suppress(AgentError):
                await leases.release(lease)
        await self.end(grandchildren)

    def _ends(self, fold: SessionFold) -> Sequence[Entry]:
        """Return what ends the query of a child, as if it had been carried on and aborted."""
        if not fold.is_resting():
            return ends_of_cut_off(fold, self._clock)
        # A query that rests has its `query.ended`. Only a query that resumes it can end it
        # otherwise.
        stamp = Stamp(self._clock, query_id=new_query_id())
        error = RequestError(ErrorCode.ABORTED, f"aborted: {_LEFT}").report
        return [
            QueryStarted(**stamp(), resumes=fold.unfinished_query()),
            *(
                ApprovalSettled(
                    **stamp(),
                    approval_id=asked.approval_id,
                    call_id=asked.call_id,
                    decision="cancelled",
                    reason=_LEFT,
                )
                for asked in fold.approvals.values()
            ),
            *(
                ToolEnded(
                    **stamp(),
                    call_id=call.part.call_id,
                    tool=call.part.name,
                    outcome="cancelled",
                    content=(TextPart(text=f"This call was cancelled: {_LEFT}."),),
                )
                for call in fold.calls.values()
                if call.ended is None
            ),
            QueryEnded(**stamp(), stop_reason="aborted", error=error),
        ]
