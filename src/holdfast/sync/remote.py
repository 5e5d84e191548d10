"""AgentRemote, blocking: a session that another process may hold."""

from collections.abc import Iterator
from typing import Unpack

from holdfast.agent.agent_options import SettingsOptions
from holdfast.agent.option_checks import takes
from holdfast.agent.remote import AgentRemote as AsyncAgentRemote
from holdfast.session.session_descriptions import SessionView, Unfinished
from holdfast.sync.session import AgentSession, SessionVerbs
from holdfast.vocabulary.approvals import ApprovalRequest
from holdfast.vocabulary.compactions import Compaction
from holdfast.vocabulary.events import Event, SessionStatus
from holdfast.vocabulary.file_snapshots import RewindReport
from holdfast.vocabulary.ids import SessionId
from holdfast.vocabulary.messages import Message
from holdfast.vocabulary.requests import TokenCount


class RemoteSession(SessionVerbs[AsyncAgentRemote]):
    """What can be read of a session in another process, blocking."""

    @property
    def session_id(self) -> SessionId:
        """The session's id."""
        return self._inner.session_id

    def messages(self) -> tuple[Message, ...]:
        """Read the conversation so far."""
        return self._access.call(self._inner.messages())

    def pending(self) -> tuple[ApprovalRequest, ...]:
        """Read the approvals without an answer."""
        return self._access.call(self._inner.pending())

    def status(self) -> SessionStatus:
        """Read what the session is doing, by its log."""
        return self._access.call(self._inner.status())

    def snapshot(self) -> SessionView:
        """Read what the session is at this moment, by its log."""
        return self._access.call(self._inner.snapshot())

    def unfinished(self) -> Unfinished:
        """Read what has no recorded end: a query that runs elsewhere, too."""
        return self._access.call(self._inner.unfinished())

    def is_native(self) -> bool:
        """Read whether its model is run by an agent that keeps a session of its own."""
        return self._access.call(self._inner.is_native())

    def count_tokens(self) -> TokenCount:
        """Count the tokens that the next request would hold, with the tools of this agent."""
        return self._access.call(self._inner.count_tokens())

    def events(self, *, after: int = 0) -> Iterator[Event]:
        """Read what happened after a `seq`, then what happens, until closed or deleted."""
        return self._access.iterate(self._inner.events(after=after))


class AgentRemote(RemoteSession):
    """The blocking face of a session in another process; see `holdfast.AgentRemote`."""

    def abort(self, reason: str | None = None, *, query_id: str | None = None) -> None:
        """Ask for the running query to be stopped; with an id, only if it is that one."""
        self._access.call(self._inner.abort(reason, query_id=query_id))

    def fork(self, *, after: str | None = None, name: str | None = None) -> AgentSession:
        """Go on from a message in a new session, which the caller closes."""
        return AgentSession(
            self._access.call(self._inner.fork(after=after, name=name)), self._access
        )

    def rewind(
        self, *, to: str, files: bool = False, dry_run: bool = False, force: bool = False
    ) -> RewindReport:
        """Make a message the last one of the conversation, with `files` also for the workspace."""
        rewinding = self._inner.rewind(to=to, files=files, dry_run=dry_run, force=force)
        return self._access.call(rewinding)

    def undo_rewind(self, *, force: bool = False) -> RewindReport:
        """Take the last rewind back, with what it did to files."""
        return self._access.call(self._inner.undo_rewind(force=force))

    def compact(self, instructions: str | None = None) -> Compaction:
        """Replace the earlier messages by a summary in what is sent, and return what was done."""
        return self._access.call(self._inner.compact(instructions))

    @takes(SettingsOptions)
    def configure(self, **options: Unpack[SettingsOptions]) -> None:
        """Change settings, from the next turn on."""
        self._access.call(self._inner.configure(**options))
