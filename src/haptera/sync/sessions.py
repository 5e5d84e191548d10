"""AgentSessions, blocking: generated from its async twin, and waits for it.

Made by scripts/write_sync_faces.py, never edited by hand.
"""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import BinaryIO, Literal, Unpack

from haptera.access import transfer
from haptera.access.descriptions import (
    ActiveContext,
    FoundPrompt,
    FoundText,
    MessageDescription,
    SessionChanges,
    SessionDescription,
    SessionEvent,
    SessionStats,
    SessionSummary,
    SessionTree,
)
from haptera.access.keywords import (
    CountKeywords,
    ExportKeywords,
    ListKeywords,
    SessionChangeKeywords,
)
from haptera.access.maintenance import SessionHealth
from haptera.access.sharing import Share, SharedSession
from haptera.agent.sessions import AgentSessions as AsyncAgentSessions
from haptera.kernel.session.notes import ProjectNote
from haptera.model.json_types import JsonObject
from haptera.model.operations.sessions import CountSessions, ExportSession, ListSessions
from haptera.options.signatures import takes
from haptera.sync.background_loop import LoopAccess
from haptera.sync.session import AgentSession


class AgentSessions:
    """The blocking face of `haptera.AgentSessions`."""

    def __init__(self, inner: AsyncAgentSessions, access: LoopAccess) -> None:
        self._inner, self._access = inner, access

    def restrict_models(self, *, files: Collection[str] = ()) -> None:
        """Bound which models sessions may use, for callers who are not this program's user.

        From now on `local:PATH` may name only these files and those that the configuration names,
        and where `allowed_tools` of the agent is empty, no `claude-agent/…` or other agent with
        tools of its own is run. A server does this for each owner but its own.
        """
        self._inner.restrict_models(files=files)

    def restrict_plugins(self) -> None:
        """Load no plugin from now on but those that the agent's own configuration names.

        For programs that let others choose the model of a session. A server does this.
        """
        self._inner.restrict_plugins()

    @property
    def active(self) -> AgentSession | None:
        """The session that was switched to last; None before that, and when it is closed."""
        inner = self._inner.active
        return None if inner is None else AgentSession(inner, self._access)

    @takes(ListSessions)
    def list(self, **options: Unpack[ListKeywords]) -> tuple[SessionDescription, ...]:
        """List sessions in an order, a page at a time.

        Raises:
            ConfigError: CONFIG_INVALID naming the option that there is none of, or whose value is
                wrong.

        """
        return self._access.call(self._inner.list(**options))

    @takes(CountSessions)
    def count(self, **options: Unpack[CountKeywords]) -> int:
        """Count the sessions that `list` would list, all pages together.

        Raises:
            ConfigError: CONFIG_INVALID naming the option that there is none of, or whose value is
                wrong.

        """
        return self._access.call(self._inner.count(**options))

    @takes(SessionChanges)
    def update(
        self, reference: str, **changes: Unpack[SessionChangeKeywords]
    ) -> SessionDescription:
        """Change name, title, tags, metadata or system prompt of a session.

        A session that another process holds is changed by that process, soon after this returns.

        Raises:
            SessionError: NOT_FOUND.
            StoreError: CONFLICT when the name is taken.
            ConfigError: CONFIG_INVALID naming the field that there is none of, or whose value is
                wrong.

        """
        return self._access.call(self._inner.update(reference, **changes))

    def set_context(self, reference: str, context: ActiveContext) -> None:
        """Save what a person is looking at; fields with their default keep what was saved."""
        self._access.call(self._inner.set_context(reference, context))

    def set_summary(self, reference: str, summary: SessionSummary) -> None:
        """Keep a summary of a session."""
        self._access.call(self._inner.set_summary(reference, summary))

    def forget_note(self, note: ProjectNote) -> None:
        """Take a note back, wherever its text was noted: new sessions do not get it any more.

        Sessions that have it keep it.
        """
        self._access.call(self._inner.forget_note(note))

    def on(self, handler: Callable[[SessionEvent], object]) -> Callable[[], None]:
        """Call `handler` when a session is created, updated, deleted or switched to by this agent.

        Returns a function that ends this.
        """
        return self._inner.on(handler)

    def share(
        self, reference: str, *, days: float = 7, redact: bool = True, live: bool = False
    ) -> Share:
        """Make a link under which others may read a session; the result has its token, once.

        The link shows the session as it is now, or (with `live`) as it is when it is read. It is
        valid when this returns. Forks and imports of the session do not have it, and it ends with
        the session.

        Args:
            reference: The id of the session, or its name.
            days: How many days the link is valid.
            redact: Whether secrets, paths, media and notes to the model are masked.
            live: Whether it shows the session as it is, and not as it was when it was shared.

        Raises:
            ConfigError: CONFIG_INVALID naming an option whose value is wrong.
            SessionError: NOT_FOUND; BUSY when the process that holds the session does not answer,
                or the session has 100 valid links.

        """
        return self._access.call(self._inner.share(reference, days=days, redact=redact, live=live))

    def shares(self, reference: str) -> tuple[Share, ...]:
        """List the valid links to a session, the first made first; without their tokens."""
        return self._access.call(self._inner.shares(reference))

    def unshare(self, reference: str, share_id: str) -> None:
        """Revoke a link, for good. It shows nothing any more when this returns.

        Args:
            reference: The id of the session, or its name.
            share_id: The id of the link.

        Raises:
            SessionError: NOT_FOUND when there is no such session or no such link; BUSY when the
                process that holds the session does not answer. That process is asked to revoke it
                all the same.

        """
        self._access.call(self._inner.unshare(reference, share_id))

    def shared(self, token: str) -> SharedSession:
        """Return what a link shows.

        Args:
            token: The token of the link.

        Raises:
            SessionError: NOT_FOUND when the token is not valid, has expired or was revoked.

        """
        return self._access.call(self._inner.shared(token))

    def get(self, reference: str) -> SessionDescription:
        """Describe one session.

        Raises:
            SessionError: NOT_FOUND naming the project, and where else there is such a name.

        """
        return self._access.call(self._inner.get(reference))

    def search(
        self, text: str, *, limit: int = 20, everywhere: bool = False, prefix: bool = False
    ) -> tuple[FoundText, ...]:
        """Find what was said: texts that hold every word, the best first.

        `swallow*` finds words that begin so. In scripts without spaces a run of characters is found
        wherever it stands.

        Args:
            text: Words that were said.
            limit: How many places are returned at most.
            everywhere: Whether the sessions of all projects are searched.
            prefix: Whether each word finds those that begin with it.

        """
        return self._access.call(
            self._inner.search(text, limit=limit, everywhere=everywhere, prefix=prefix)
        )

    def children(self, reference: str) -> tuple[SessionDescription, ...]:
        """List the sessions that were forked from one, and those that its tool calls made."""
        return self._access.call(self._inner.children(reference))

    def tree(self, reference: str) -> SessionTree:
        """Describe a session with those of its sub-agents, and theirs; forks are not among them."""
        return self._access.call(self._inner.tree(reference))

    def stats(self, reference: str, *, children: bool = False) -> SessionStats:
        """Add up messages, tokens, cost and duration over the log of a session.

        With `children` the sessions of its sub-agents are added, too. Without it what they used is
        not in the numbers: adding up the numbers of all sessions counts everything once.

        Args:
            reference: The id of the session, or its name.
            children: Whether the sessions of its sub-agents are added, too.

        """
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
        """Return messages with their time, parent, model, cost and error, oldest first.

        With `before` the last ones before a message, with `after` the first ones after it. With
        `through` the messages as they were after this `seq` of the log.

        Args:
            reference: The id of the session, or its name.
            limit: How many are returned at most; None: all of them.
            before: The id of a message: the last ones before it are returned.
            after: The id of a message: the first ones after it are returned.
            through: The `seq` of the log after which they are read.

        Raises:
            SessionError: NOT_FOUND; MESSAGE_NOT_FOUND when there is no such message.

        """
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

    def find_prompt(self, reference: str, message_id: str) -> FoundPrompt | None:
        """Find a prompt that was sent with an id of its sender's choice; None without one.

        Args:
            reference: The id of the session, or its name.
            message_id: The id that the sender gave the message.

        """
        return self._access.call(self._inner.find_prompt(reference, message_id))

    def usage(
        self, reference: str, *, by: Literal["day", "model"] = "day"
    ) -> dict[str, SessionStats]:
        """Add up what a session used for each day (UTC, such as 2026-05-17), or for each model.

        A query, its tools and a compaction count for the model of the turn before their end.

        Args:
            reference: The id of the session, or its name.
            by: What is added up: each day (UTC), or each model.

        """
        return self._access.call(self._inner.usage(reference, by=by))

    def notes(self) -> tuple[ProjectNote, ...]:
        """List the notes of this project, the oldest first; a text comes once."""
        return self._access.call(self._inner.notes())

    def rename(self, reference: str, name: str | None) -> SessionDescription:
        """Give a session another name; None takes its name away.

        Args:
            reference: The id of the session, or its name.
            name: The new name; None takes it away.

        """
        return self._access.call(self._inner.rename(reference, name))

    def untag(self, reference: str, *tags: str) -> SessionDescription:
        """Take tags off a session.

        Args:
            reference: The id of the session, or its name.
            tags: The tags.

        """
        return self._access.call(self._inner.untag(reference, *tags))

    def tag(self, reference: str, *tags: str) -> SessionDescription:
        """Add tags to a session.

        Args:
            reference: The id of the session, or its name.
            tags: The tags.

        """
        return self._access.call(self._inner.tag(reference, *tags))

    def archive(self, reference: str, *, undo: bool = False) -> SessionDescription:
        """Put a session away, or (with `undo`) back.

        An archived session can still be opened; it is listed only when asked for. The sessions of
        its sub-agents go with it.

        Args:
            reference: The id of the session, or its name.
            undo: Whether it is brought back.

        """
        return self._access.call(self._inner.archive(reference, undo=undo))

    def touch(self, reference: str) -> SessionDescription:
        """Make a session the last updated one."""
        return self._access.call(self._inner.touch(reference))

    def delete(self, reference: str) -> None:
        """Delete a session with its payloads, its index and the sessions that its calls made.

        It is closed first if this agent has it open. Forks of it stay whole: as long as there is
        one, the log is kept for it, and nothing else can find it.

        Raises:
            SessionError: NOT_FOUND, BUSY when another process holds it.

        """
        self._access.call(self._inner.delete(reference))

    def verify(self, reference: str) -> SessionHealth:
        """Read a whole session and say what cannot be read, and whether it can be opened."""
        return self._access.call(self._inner.verify(reference))

    def repair(self) -> int:
        """Derive the index again from the logs; returns how many sessions it holds.

        Damaged records are kept where they are, and `verify` goes on reporting them.
        """
        return self._access.call(self._inner.repair())

    def prune(self, *, days: float, dry_run: bool = False) -> tuple[SessionDescription, ...]:
        """Delete the sessions of this project that were not updated for a number of days.

        Returns those that it deletes; with `dry_run` it deletes nothing. Nothing else ever deletes
        a session by its age.

        Args:
            days: For how many days they were not updated.
            dry_run: Whether nothing is deleted.

        """
        return self._access.call(self._inner.prune(days=days, dry_run=dry_run))

    @takes(SessionChanges)
    def create(self, **fields: Unpack[SessionChangeKeywords]) -> AgentSession:
        """Make a new session, open, with a name, title, tags or metadata; the caller closes it.

        Raises:
            StoreError: CONFLICT when the name is taken.
            ConfigError: CONFIG_INVALID naming the field that there is none of, or whose value is
                wrong.

        """
        return AgentSession(self._access.call(self._inner.create(**fields)), self._access)

    def switch_to(self, reference: str) -> AgentSession:
        """Open a session that exists and make it the active one; the one before is closed.

        Raises:
            SessionError: NOT_FOUND, BUSY when another process holds it.

        """
        return AgentSession(self._access.call(self._inner.switch_to(reference)), self._access)

    def fork(
        self, reference: str, *, after: str | None = None, name: str | None = None
    ) -> AgentSession:
        """Go on from a message (itself included) in a new session, which the caller closes.

        Only the stored log is read: whichever process holds the session, it goes on undisturbed.

        Raises:
            SessionError: NOT_FOUND, MESSAGE_NOT_FOUND when there is no such message.
            StoreError: CONFLICT when the name is taken.

        """
        return AgentSession(
            self._access.call(self._inner.fork(reference, after=after, name=name)), self._access
        )

    @takes(ExportSession)
    def export(self, reference: str, **options: Unpack[ExportKeywords]) -> Iterator[bytes]:
        """Return the pieces of a file: an archive, or the file of another program."""
        return self._access.iterate(self._inner.export(reference, **options))

    @takes(ExportSession)
    def export_to(
        self, path: str | Path, reference: str, **options: Unpack[ExportKeywords]
    ) -> None:
        """Write a session to a file, which must not exist yet.

        Raises:
            FileExistsError: when it does.
            SessionError: NOT_FOUND when there is no such session; no file is made then.

        """
        self._access.call(self._inner.export_to(path, reference, **options))

    def import_from(
        self,
        source: str | Path | BinaryIO,
        *,
        of: str | None = None,
        name: str | None = None,
        project: str | None = None,
        metadata: JsonObject | None = None,
        keep_origin: bool = False,
    ) -> transfer.Imported:
        """Make a new session from a file; its format is recognised unless `of` names it.

        Nothing in a file is trusted: no permission, name, owner or project comes with it, and
        nothing that it has begun is carried on. With `keep_origin` the session of another program
        keeps the times that the file says, and its metadata say where it comes from, its model and
        its cost (`imported_from`, `imported_id`, `imported_model`, `imported_cost`). `metadata` is
        added, to sessions of other programs only.

        Raises:
            ConfigError: CONFIG_INVALID when it is of no known format, or exceeds a limit.
            StoreError: CORRUPT when it is damaged, VERSION_UNSUPPORTED when it is newer.

        """
        return self._access.call(
            self._inner.import_from(
                source,
                of=of,
                name=name,
                project=project,
                metadata=metadata,
                keep_origin=keep_origin,
            )
        )
