"""Adopting native sessions: what an agent keeps of one becomes the conversation of a session.

Also how a session would go on: natively, by a hand-over, or not at all.
"""

import asyncio
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from haptera.formats.formats import read_session
from haptera.kernel.native.native_opening import known_transcript, system_digest
from haptera.model.errors import ConfigError, ErrorCode, SessionError
from haptera.model.json_types import JsonObject
from haptera.model.log.entry import Entry
from haptera.model.log.history import HistoryEdited
from haptera.model.log.sessions import SessionChanged
from haptera.model.messages import Message
from haptera.model.results import ResumeKind
from haptera.ports.native_agent import ReadTranscript

if TYPE_CHECKING:
    from haptera.access.assembly.model_clients import ModelClients
    from haptera.kernel.session.live_session import LiveSession
    from haptera.model.log.session_fold import SessionFold
    from haptera.model.native_settings import ResumePolicy


class NativeSessions:
    """Adopts native sessions for one agent. Does not own them: the native agent does."""

    def __init__(self, clients: "ModelClients", *, owner: str, policy: "ResumePolicy") -> None:
        self._clients = clients
        self._owner = owner
        self._policy = policy

    async def adopt(self, live: "LiveSession", native_session_id: str, *, is_own: bool) -> None:
        """Go on with a native session in a session of ours that has no conversation yet.

        Raises:
            ConfigError: CONFIG_INVALID when the session has a conversation, or no native agent.
            SessionError: NOT_FOUND when there is no such native session that may be adopted.

        """
        fold = live.fold
        if fold.native.session_id == native_session_id:
            return
        if fold.messages() or fold.inputs or fold.unfinished_query():
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                "a native session is adopted by a session without a conversation of its own",
            )
        found = await self._clients.native(live.settings.model)
        if found is None:
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                f"{live.settings.model} keeps no session of its own: native_session_id is for "
                "models such as claude-agent/…",
            )
        read = await found[0].read(native_session_id, owner=self._owner, is_own=is_own)
        messages = () if read is None else await asyncio.to_thread(_messages_in, read)
        if read is None or not messages:
            raise SessionError(
                ErrorCode.NOT_FOUND,
                f"{found[0].provider} has no session {native_session_id[:60]} that can be adopted",
                provider=found[0].provider,
            )
        live.check_open()
        await live.queue.recover()
        await live.recorder.commit(
            _adopted(live, read, messages, native_session_id=native_session_id)
        )

    async def resume_kind(self, fold: "SessionFold") -> ResumeKind | None:
        """Return how the next query gets the conversation; None when there is none to go on with.

        For a session that no process has open: an open agent has what it was given.
        """
        history, known = fold.messages(), fold.native
        if not history:
            return None
        found = await self._clients.native(fold.settings.model)
        wanted = known.session_id or known.fork_of
        if found is None or wanted is None or self._policy == "replay":
            return "replay"
        transcript = known_transcript(known, history, resumes=fold.unfinished_query())
        if transcript is None or known.system not in {None, system_digest(fold.settings)}:
            return "replay"
        has_it = await found[0].find(wanted, owner=self._owner, known=transcript)
        return "native" if has_it is not None else "replay"


def _messages_in(read: ReadTranscript) -> Sequence[Message]:
    session = read_session(io.BytesIO(read.content), "claude-code")
    return tuple(each.message for each in session.messages)


def _adopted(
    live: "LiveSession",
    read: ReadTranscript,
    messages: Sequence[Message],
    *,
    native_session_id: str,
) -> list[Entry]:
    """Return what an adoption records: the conversation, and that the agent has all of it."""
    entries: list[Entry] = [
        HistoryEdited(**live.stamp(), action="add", message=message) for message in messages
    ]
    changes: JsonObject = {
        "native_session_id": native_session_id,
        "native_system": system_digest(live.settings),
        "native_through": messages[-1].id,
        "native_entry": read.entry,
        "native_entries": read.count,
    }
    return [*entries, SessionChanged(**live.stamp(), changes=changes)]
