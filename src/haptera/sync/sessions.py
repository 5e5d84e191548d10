"""AgentSessions, blocking: each method is its async twin, waited for."""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import BinaryIO, Literal, Unpack

from haptera.access.descriptions import (
    ActiveContext,
    ExportOptions,
    FoundPrompt,
    FoundText,
    ListOptions,
    MessageDescription,
    SessionChanges,
    SessionDescription,
    SessionEvent,
    SessionStats,
    SessionSummary,
    SessionTree,
    ShareOptions,
)
from haptera.access.keywords import (
    ExportKeywords,
    ListKeywords,
    SessionChangeKeywords,
    ShareKeywords,
)
from haptera.access.maintenance import SessionHealth
from haptera.access.sharing import Share, SharedSession
from haptera.access.transfer import Imported
from haptera.agent.sessions import AgentSessions as AsyncAgentSessions
from haptera.kernel.session.notes import ProjectNote
from haptera.options.signatures import takes
from haptera.sync.background_loop import LoopAccess
from haptera.sync.session import AgentSession


class FoundSessions:
    """The blocking face of what `agent.sessions` finds; see `haptera.AgentSessions`."""

    def __init__(self, inner: AsyncAgentSessions, access: LoopAccess) -> None:
        self._inner = inner
        self._access = access

    @takes(ListOptions)
    def list(self, **options: Unpack[ListKeywords]) -> tuple[SessionDescription, ...]:
        """List sessions, the last updated first, a page at a time."""
        return self._access.call(self._inner.list(**options))

    def get(self, reference: str) -> SessionDescription:
        """Describe one session."""
        return self._access.call(self._inner.get(reference))

    def search(
        self, text: str, *, limit: int = 20, everywhere: bool = False
    ) -> tuple[FoundText, ...]:
        """Find what was said: texts that hold every word, the best first."""
        return self._access.call(self._inner.search(text, limit=limit, everywhere=everywhere))

    def children(self, reference: str) -> tuple[SessionDescription, ...]:
        """List the sessions that were forked from one, and those that its tool calls made."""
        return self._access.call(self._inner.children(reference))

    def tree(self, reference: str) -> SessionTree:
        """Describe a session with those of its sub-agents, and theirs."""
        return self._access.call(self._inner.tree(reference))

    def stats(self, reference: str, *, children: bool = False) -> SessionStats:
        """Add up messages, tokens, cost and duration over the log of a session."""
        return self._access.call(self._inner.stats(reference, children=children))

    def messages(
        self,
        reference: str,
        *,
        limit: int | None = None,
        before: str | None = None,
        after: str | None = None,
        through: int | None = None,
    ) -> tuple[MessageDescription, ...]:
        """Return messages with their time, parent, model, cost and error, oldest first."""
        return self._access.call(
            self._inner.messages(
                reference, limit=limit, before=before, after=after, through=through
            )
        )

    def context(self, reference: str) -> ActiveContext:
        """Return what a person was looking at when it was last saved."""
        return self._access.call(self._inner.context(reference))

    def summary(self, reference: str) -> SessionSummary | None:
        """Return the summary of a session, when one was made."""
        return self._access.call(self._inner.summary(reference))

    def notes(self) -> tuple[ProjectNote, ...]:
        """List the notes of this project, the oldest first; a text comes once."""
        return self._access.call(self._inner.notes())

    def verify(self, reference: str) -> SessionHealth:
        """Read a whole session and say what cannot be read, and whether it can be opened."""
        return self._access.call(self._inner.verify(reference))


class ChangedSessions(FoundSessions):
    """The blocking face of what `agent.sessions` changes; see `haptera.AgentSessions`."""

    @takes(SessionChanges)
    def update(
        self, reference: str, **changes: Unpack[SessionChangeKeywords]
    ) -> SessionDescription:
        """Change name, title, tags, metadata or system prompt of a session."""
        return self._access.call(self._inner.update(reference, **changes))

    def rename(self, reference: str, name: str | None) -> SessionDescription:
        """Give a session another name; None takes its name away."""
        return self._access.call(self._inner.rename(reference, name))

    def tag(self, reference: str, *tags: str) -> SessionDescription:
        """Add tags to a session."""
        return self._access.call(self._inner.tag(reference, *tags))

    def untag(self, reference: str, *tags: str) -> SessionDescription:
        """Take tags off a session."""
        return self._access.call(self._inner.untag(reference, *tags))

    def archive(self, reference: str, *, undo: bool = False) -> SessionDescription:
        """Put a session away, or (with `undo`) back."""
        return self._access.call(self._inner.archive(reference, undo=undo))

    def touch(self, reference: str) -> SessionDescription:
        """Make a session the last updated one."""
        return self._access.call(self._inner.touch(reference))

    def set_context(self, reference: str, context: ActiveContext) -> None:
        """Save what a person is looking at; fields with their default keep what was saved."""
        self._access.call(self._inner.set_context(reference, context))

    def set_summary(self, reference: str, summary: SessionSummary) -> None:
        """Keep a summary of a session."""
        self._access.call(self._inner.set_summary(reference, summary))

    def forget_note(self, note: ProjectNote) -> None:
        """Take a note back: new sessions do not get it any more."""
        self._access.call(self._inner.forget_note(note))

    def delete(self, reference: str) -> None:
        """Delete a session with everything that belongs to it."""
        self._access.call(self._inner.delete(reference))

    def on(self, handler: Callable[[SessionEvent], object]) -> Callable[[], None]:
        """Call `handler` when a session is created, updated, deleted or switched to."""
        return self._inner.on(handler)


class SharedSessions(ChangedSessions):
    """The blocking face of the links of `agent.sessions`; see `haptera.AgentSessions`."""

    @takes(ShareOptions)
    def share(self, reference: str, **options: Unpack[ShareKeywords]) -> Share:
        """Make a link under which others may read a session; the result has its token, once."""
        return self._access.call(self._inner.share(reference, **options))

    def unshare(self, reference: str, share_id: str) -> None:
        """Revoke a link, for good. It shows nothing any more when this returns."""
        self._access.call(self._inner.unshare(reference, share_id))

    def shares(self, reference: str) -> tuple[Share, ...]:
        """List the valid links to a session, the first made first; without their tokens."""
        return self._access.call(self._inner.shares(reference))

    def shared(self, token: str) -> SharedSession:
        """Return what a link shows."""
        return self._access.call(self._inner.shared(token))


class AgentSessions(SharedSessions):
    """The blocking face of `agent.sessions`; see `haptera.AgentSessions`."""

    @property
    def active(self) -> AgentSession | None:
        """The session that was switched to last."""
        inner = self._inner.active
        return None if inner is None else AgentSession(inner, self._access)

    @takes(SessionChanges)
    def create(self, **fields: Unpack[SessionChangeKeywords]) -> AgentSession:
        """Make a new session, open, with a name, title, tags or metadata; the caller closes it."""
        return AgentSession(self._access.call(self._inner.create(**fields)), self._access)

    def fork(
        self, reference: str, *, after: str | None = None, name: str | None = None
    ) -> AgentSession:
        """Go on from a message (itself included) in a new session, which the caller closes."""
        forking = self._inner.fork(reference, after=after, name=name)
        return AgentSession(self._access.call(forking), self._access)

    def switch_to(self, reference: str) -> AgentSession:
        """Open a session that exists and make it the active one; the one before is closed."""
        return AgentSession(self._access.call(self._inner.switch_to(reference)), self._access)

    @takes(ExportOptions)
    def export(self, reference: str, **options: Unpack[ExportKeywords]) -> Iterator[bytes]:
        """Return the pieces of a file: an archive, or the file of another program."""
        return self._access.iterate(self._inner.export(reference, **options))

    @takes(ExportOptions)
    def export_to(
        self, path: str | Path, reference: str, **options: Unpack[ExportKeywords]
    ) -> None:
        """Write a session to a file, which must not exist yet."""
        self._access.call(self._inner.export_to(path, reference, **options))

    def import_from(
        self, source: str | Path | BinaryIO, *, of: str | None = None, name: str | None = None
    ) -> Imported:
        """Make a new session from a file; its format is recognised unless `of` names it."""
        return self._access.call(self._inner.import_from(source, of=of, name=name))

    def restrict_models(self, *, files: Collection[str] = ()) -> None:
        """Bound which models sessions may use, for callers who are not this program's user."""
        self._inner.restrict_models(files=files)

    def restrict_plugins(self) -> None:
        """Load no plugin from now on but those that the agent's own configuration names."""
        self._inner.restrict_plugins()

    def usage(
        self, reference: str, *, by: Literal["day", "model"] = "day"
    ) -> dict[str, SessionStats]:
        """Add up what a session used for each day (UTC), or for each model."""
        return self._access.call(self._inner.usage(reference, by=by))

    def find_prompt(self, reference: str, message_id: str) -> FoundPrompt | None:
        """Find a prompt that was sent with an id of its sender's choice; None without one."""
        return self._access.call(self._inner.find_prompt(reference, message_id))

    def repair(self) -> int:
        """Derive the index again from the logs; returns how many sessions it holds."""
        return self._access.call(self._inner.repair())

    def prune(self, *, days: float, dry_run: bool = False) -> tuple[SessionDescription, ...]:
        """Delete the sessions of this project that were not updated for a number of days."""
        return self._access.call(self._inner.prune(days=days, dry_run=dry_run))
