"""AgentSessions: the sessions of an agent's store as a collection: `agent.sessions`."""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeVar, Unpack, cast

import msgspec
from msgspec.structs import replace

from haptera.access import changing, finding, maintenance, sharing, transfer
from haptera.access.catalogue import Catalogue
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
from haptera.access.unowned import unowned_queries
from haptera.agent.session import AgentSession
from haptera.agent.verbs import open_fork
from haptera.kernel.session.notes import ProjectNote
from haptera.model.errors import ErrorCode, StoreError
from haptera.model.ids import SessionId
from haptera.model.json_types import JsonObject
from haptera.model.log.entry import Entry
from haptera.model.log.session_fold import SessionFold
from haptera.model.operations.operation import Operation
from haptera.model.operations.sessions import (
    ArchiveSession,
    CountSessions,
    CountUse,
    DeleteSession,
    DescribeTree,
    ExportSession,
    FindPrompt,
    ForgetNote,
    ForkSession,
    GetSession,
    GroupUse,
    ImportSession,
    KeepSummary,
    ListChildren,
    ListMessages,
    ListNotes,
    ListSessions,
    ListShares,
    PruneSessions,
    ReadContext,
    ReadShared,
    ReadSummary,
    RenameSession,
    RepairIndex,
    RevokeShare,
    SaveContext,
    SearchSessions,
    ShareSession,
    TagSession,
    TouchSession,
    UntagSession,
    UpdateSession,
    VerifySession,
)
from haptera.options.checks import check, checked
from haptera.options.operations import check_order
from haptera.options.signatures import takes
from haptera.ports.session_store import SessionRecord

if TYPE_CHECKING:
    from haptera.access.assembly.composition import Composition
    from haptera.kernel.session.session_descriptions import SessionRequest
    from haptera.ports.session_store import UnownedQueries

_IN_MEMORY = 1024 * 1024
"""A longer import that comes through a pipe is copied to a temporary file."""

OrderT = TypeVar("OrderT", bound=Operation)
ValueT = TypeVar("ValueT")
SessionFactory = Callable[["Composition", "SessionRequest"], AgentSession]
"""Makes the sessions that `create`, `fork` and `switch_to` return."""


class AgentSessions:
    """The sessions of one owner and project: lists, changes, shares, exports, deletes them.

    Made by `agent.sessions`. A session is named by its id or its name.
    """

    def __init__(self, composition: "Composition", request: "SessionRequest") -> None:
        self._catalogue = Catalogue(composition, owner=request.owner, project=request.project)
        self._composition = composition
        self._owner, self._project = request.owner, request.project
        self._request = request
        self.factory: SessionFactory = AgentSession
        """What makes the sessions that `create`, `fork` and `switch_to` open: set it to a subclass
        of `AgentSession`, or to a function that returns one."""
        self._active: AgentSession | None = None
        self._unowned: UnownedQueries | None = None

    @property
    def unowned(self) -> "UnownedQueries":
        """The queries that no process carries on, for a `SessionWorker`.

        They are of this project. Of a PostgreSQL store those whose holder has gone, at any time; of
        other stores those that earlier processes left in the last 24 hours, each once.
        """
        if self._unowned is None:
            self._unowned = unowned_queries(
                self._composition.store,
                owner=self._owner,
                project=self._project,
                clock=self._composition.clock,
            )
        return self._unowned

    def restrict_models(self, *, files: Collection[str] = ()) -> None:
        """Bound which models sessions may use, for callers who are not this program's user.

        From now on `local:PATH` may name only these files and those that the configuration names,
        and where `allowed_tools` of the agent is empty, no `claude-agent/…` or other agent with
        tools of its own is run. A server does this for each owner but its own.
        """
        self._composition.restrict_models(files)

    def restrict_plugins(self) -> None:
        """Load no plugin from now on but those that the agent's own configuration names.

        For programs that let others choose the model of a session. A server does this.
        """
        self._composition.restrict_plugins()

    @property
    def active(self) -> AgentSession | None:
        """The session that was switched to last; None before that, and when it is closed."""
        return self._active if self._active and not self._active.closed else None

    @takes(ListSessions)
    async def list(self, **options: Unpack[ListKeywords]) -> tuple[SessionDescription, ...]:
        """List sessions in an order, a page at a time.

        Raises:
            ConfigError: CONFIG_INVALID naming the option that there is none of, or whose value is
                wrong.

        """
        values = {"project": self._project, **options}
        order = checked(values, ListSessions, function="sessions.list()")
        return await self._carry_out(finding.list_sessions, order)

    @takes(CountSessions)
    async def count(self, **options: Unpack[CountKeywords]) -> int:
        """Count the sessions that `list` would list, all pages together.

        Raises:
            ConfigError: CONFIG_INVALID naming the option that there is none of, or whose value is
                wrong.

        """
        selection = {"project": self._project, **options}
        order = checked(selection, CountSessions, function="sessions.count()")
        return await self._carry_out(finding.count_sessions, order)

    @takes(SessionChanges)
    async def update(
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
        check(changes, SessionChanges, function="sessions.update()")
        order = UpdateSession(reference=reference, changes={**changes})
        return await self._carry_out(changing.update_session, order)

    async def set_context(self, reference: str, context: ActiveContext) -> None:
        """Save what a person is looking at; fields with their default keep what was saved."""
        order = SaveContext(reference=reference, context=msgspec.to_builtins(context))
        await self._carry_out(changing.set_context, order)

    async def set_summary(self, reference: str, summary: SessionSummary) -> None:
        """Keep a summary of a session."""
        order = KeepSummary(reference=reference, summary=msgspec.to_builtins(summary))
        await self._carry_out(changing.set_summary, order)

    async def forget_note(self, note: ProjectNote) -> None:
        """Take a note back, wherever its text was noted: new sessions do not get it any more.

        Sessions that have it keep it.
        """
        await self._carry_out(changing.forget_note, ForgetNote(text=note.text))

    def on(self, handler: Callable[[SessionEvent], object]) -> Callable[[], None]:
        """Call `handler` when a session is created, updated, deleted or switched to by this agent.

        Returns a function that ends this.
        """
        return self._catalogue.on(handler)

    def announce(
        self, kind: Literal["created", "updated", "deleted", "switched"], session_id: SessionId
    ) -> None:
        """Tell the handlers that something happened to a session."""
        self._catalogue.announce(kind, session_id)

    async def record(self, reference: str) -> SessionRecord:
        """Find a session of this project by its id or name, or of any project by its id.

        Raises:
            SessionError: NOT_FOUND.

        """
        return await self._catalogue.record(reference)

    async def folded(
        self, session_id: SessionId, *, through: int | None = None
    ) -> tuple[SessionFold, Sequence[Entry]]:
        """Return a session as its log leaves it, and its entries with those that it inherits.

        With `through` as it was after this `seq`.
        """
        return await self._catalogue.folded(session_id, through=through)

    async def _carry_out(
        self, handler: Callable[[Catalogue, OrderT], Awaitable[ValueT]], order: OrderT
    ) -> ValueT:
        return await handler(self._catalogue, order)

    # Made by scripts/write_verbs.py.

    async def share(
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
        order = ShareSession(reference=reference, days=days, redact=redact, live=live)
        check_order(order, function="sessions.share()")
        return await self._carry_out(sharing.share, order)

    async def shares(self, reference: str) -> tuple[Share, ...]:
        """List the valid links to a session, the first made first; without their tokens."""
        order = ListShares(reference=reference)
        check_order(order, function="sessions.shares()")
        return await self._carry_out(sharing.shares, order)

    async def unshare(self, reference: str, share_id: str) -> None:
        """Revoke a link, for good. It shows nothing any more when this returns.

        Args:
            reference: The id of the session, or its name.
            share_id: The id of the link.

        Raises:
            SessionError: NOT_FOUND when there is no such session or no such link; BUSY when the
                process that holds the session does not answer. That process is asked to revoke it
                all the same.

        """
        order = RevokeShare(reference=reference, share_id=share_id)
        check_order(order, function="sessions.unshare()")
        await self._carry_out(sharing.revoke_share, order)

    async def shared(self, token: str) -> SharedSession:
        """Return what a link shows.

        Args:
            token: The token of the link.

        Raises:
            SessionError: NOT_FOUND when the token is not valid, has expired or was revoked.

        """
        order = ReadShared(token=token)
        check_order(order, function="sessions.shared()")
        return await self._carry_out(sharing.shared, order)

    async def get(self, reference: str) -> SessionDescription:
        """Describe one session.

        Raises:
            SessionError: NOT_FOUND naming the project, and where else there is such a name.

        """
        order = GetSession(reference=reference)
        check_order(order, function="sessions.get()")
        return await self._carry_out(finding.get_session, order)

    async def search(
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
        order = SearchSessions(text=text, limit=limit, everywhere=everywhere, prefix=prefix)
        check_order(order, function="sessions.search()")
        return await self._carry_out(finding.search, order)

    async def children(self, reference: str) -> tuple[SessionDescription, ...]:
        """List the sessions that were forked from one, and those that its tool calls made."""
        order = ListChildren(reference=reference)
        check_order(order, function="sessions.children()")
        return await self._carry_out(finding.children, order)

    async def tree(self, reference: str) -> SessionTree:
        """Describe a session with those of its sub-agents, and theirs; forks are not among them."""
        order = DescribeTree(reference=reference)
        check_order(order, function="sessions.tree()")
        return await self._carry_out(finding.tree, order)

    async def stats(self, reference: str, *, children: bool = False) -> SessionStats:
        """Add up messages, tokens, cost and duration over the log of a session.

        With `children` the sessions of its sub-agents are added, too. Without it what they used is
        not in the numbers: adding up the numbers of all sessions counts everything once.

        Args:
            reference: The id of the session, or its name.
            children: Whether the sessions of its sub-agents are added, too.


        """
        order = CountUse(reference=reference, children=children)
        check_order(order, function="sessions.stats()")
        return await self._carry_out(finding.stats, order)

    async def messages(
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
        order = ListMessages(
            reference=reference, limit=limit, before=before, after=after, through=through
        )
        check_order(order, function="sessions.messages()")
        return await self._carry_out(finding.messages, order)

    async def context(self, reference: str) -> ActiveContext:
        """Return what a person was looking at when it was last saved."""
        order = ReadContext(reference=reference)
        check_order(order, function="sessions.context()")
        return await self._carry_out(finding.context, order)

    async def summary(self, reference: str) -> SessionSummary | None:
        """Return the summary of a session, when one was made."""
        order = ReadSummary(reference=reference)
        check_order(order, function="sessions.summary()")
        return await self._carry_out(finding.summary, order)

    async def find_prompt(self, reference: str, message_id: str) -> FoundPrompt | None:
        """Find a prompt that was sent with an id of its sender's choice; None without one.

        Args:
            reference: The id of the session, or its name.
            message_id: The id that the sender gave the message.


        """
        order = FindPrompt(reference=reference, message_id=message_id)
        check_order(order, function="sessions.find_prompt()")
        return await self._carry_out(finding.find_prompt, order)

    async def usage(
        self, reference: str, *, by: Literal["day", "model"] = "day"
    ) -> dict[str, SessionStats]:
        """Add up what a session used for each day (UTC, such as 2026-05-17), or for each model.

        A query, its tools and a compaction count for the model of the turn before their end.

        Args:
            reference: The id of the session, or its name.
            by: What is added up: each day (UTC), or each model.


        """
        order = GroupUse(reference=reference, by=by)
        check_order(order, function="sessions.usage()")
        return await self._carry_out(finding.usage, order)

    async def notes(
        self,
    ) -> tuple[ProjectNote, ...]:
        """List the notes of this project, the oldest first; a text comes once."""
        order = ListNotes()
        check_order(order, function="sessions.notes()")
        return await self._carry_out(finding.list_notes, order)

    async def rename(self, reference: str, name: str | None) -> SessionDescription:
        """Give a session another name; None takes its name away.

        Args:
            reference: The id of the session, or its name.
            name: The new name; None takes it away.


        """
        order = RenameSession(reference=reference, name=name)
        check_order(order, function="sessions.rename()")
        return await self._carry_out(changing.rename, order)

    async def untag(self, reference: str, *tags: str) -> SessionDescription:
        """Take tags off a session.

        Args:
            reference: The id of the session, or its name.
            tags: The tags.


        """
        order = UntagSession(reference=reference, tags=tags)
        check_order(order, function="sessions.untag()")
        return await self._carry_out(changing.untag, order)

    async def tag(self, reference: str, *tags: str) -> SessionDescription:
        """Add tags to a session.

        Args:
            reference: The id of the session, or its name.
            tags: The tags.


        """
        order = TagSession(reference=reference, tags=tags)
        check_order(order, function="sessions.tag()")
        return await self._carry_out(changing.tag, order)

    async def archive(self, reference: str, *, undo: bool = False) -> SessionDescription:
        """Put a session away, or (with `undo`) back.

        An archived session can still be opened; it is listed only when asked for. The sessions of
        its sub-agents go with it.

        Args:
            reference: The id of the session, or its name.
            undo: Whether it is brought back.


        """
        order = ArchiveSession(reference=reference, undo=undo)
        check_order(order, function="sessions.archive()")
        return await self._carry_out(changing.archive, order)

    async def touch(self, reference: str) -> SessionDescription:
        """Make a session the last updated one."""
        order = TouchSession(reference=reference)
        check_order(order, function="sessions.touch()")
        return await self._carry_out(changing.touch, order)

    async def delete(self, reference: str) -> None:
        """Delete a session with its payloads, its index and the sessions that its calls made.

        It is closed first if this agent has it open. Forks of it stay whole: as long as there is
        one, the log is kept for it, and nothing else can find it.

        Raises:
            SessionError: NOT_FOUND, BUSY when another process holds it.

        """
        order = DeleteSession(reference=reference)
        check_order(order, function="sessions.delete()")
        await self._carry_out(changing.delete, order)

    async def verify(self, reference: str) -> SessionHealth:
        """Read a whole session and say what cannot be read, and whether it can be opened."""
        order = VerifySession(reference=reference)
        check_order(order, function="sessions.verify()")
        return await self._carry_out(maintenance.verify, order)

    async def repair(
        self,
    ) -> int:
        """Derive the index again from the logs; returns how many sessions it holds.

        Damaged records are kept where they are, and `verify` goes on reporting them.
        """
        order = RepairIndex()
        check_order(order, function="sessions.repair()")
        return await self._carry_out(maintenance.repair, order)

    async def prune(self, *, days: float, dry_run: bool = False) -> tuple[SessionDescription, ...]:
        """Delete the sessions of this project that were not updated for a number of days.

        Returns those that it deletes; with `dry_run` it deletes nothing. Nothing else ever deletes
        a session by its age.

        Args:
            days: For how many days they were not updated.
            dry_run: Whether nothing is deleted.


        """
        order = PruneSessions(days=days, dry_run=dry_run)
        check_order(order, function="sessions.prune()")
        return await self._carry_out(maintenance.prune, order)

    # End.

    @takes(SessionChanges)
    async def create(self, **fields: Unpack[SessionChangeKeywords]) -> AgentSession:
        """Make a new session, open, with a name, title, tags or metadata; the caller closes it.

        Raises:
            StoreError: CONFLICT when the name is taken.
            ConfigError: CONFIG_INVALID naming the field that there is none of, or whose value is
                wrong.

        """
        check(fields, SessionChanges, function="sessions.create()")
        name = fields.pop("name", None)
        # Otherwise the session that has the name would be opened.
        if name is not None and await self._is_taken(name):
            raise StoreError(ErrorCode.CONFLICT, f"the name {name!r} is taken")
        session = await self._open(replace(self._request, reference=name))
        # Through the open session: `update` would announce it as updated before it is announced as
        # created.
        live = self._composition.held(session.session_id or SessionId(""))
        if live is not None and (changes := changing.changes_of(fields)):
            await live.change(changes)
        self.announce("created", session.session_id or SessionId(""))
        return session

    async def switch_to(self, reference: str) -> AgentSession:
        """Open a session that exists and make it the active one; the one before is closed.

        Raises:
            SessionError: NOT_FOUND, BUSY when another process holds it.

        """
        record = await self.record(reference)
        before = self.active
        if before is not None and before.session_id == record.id:
            return before
        request = replace(
            self._request, reference=record.id, project=record.project, must_exist=True
        )
        # Opened first: if that fails, the session before it stays the active one.
        session = await self._open(request)
        if before is not None:
            await before.close()
        self._active = session
        self.announce("switched", record.id)
        return session

    async def fork(
        self, reference: str, *, after: str | None = None, name: str | None = None
    ) -> AgentSession:
        """Go on from a message (itself included) in a new session, which the caller closes.

        Only the stored log is read: whichever process holds the session, it goes on undisturbed.

        Raises:
            SessionError: NOT_FOUND, MESSAGE_NOT_FOUND when there is no such message.
            StoreError: CONFLICT when the name is taken.

        """
        order = ForkSession(reference=reference, after=after, name=name)
        record, fork = await self._carry_out(finding.fork_point, order)
        request = replace(self._request, project=record.project)
        session = await open_fork(
            self._composition, request, fork, name=name, open_session=self._open
        )
        self.announce("created", session.session_id or SessionId(""))
        return session

    @takes(ExportSession)
    def export(
        self, reference: str, **options: Unpack[ExportKeywords]
    ) -> AsyncGenerator[bytes, None]:
        """Return the pieces of a file: an archive, or the file of another program."""
        # Not in the generator, whose first line runs only when the caller iterates: a wrong option
        # is an error of this call.
        check(options, ExportSession, function="sessions.export()")
        order = ExportSession(reference=reference, **options)
        return transfer.export_session(self._catalogue, order)

    @takes(ExportSession)
    async def export_to(
        self, path: str | Path, reference: str, **options: Unpack[ExportKeywords]
    ) -> None:
        """Write a session to a file, which must not exist yet.

        Raises:
            FileExistsError: when it does.
            SessionError: NOT_FOUND when there is no such session; no file is made then.

        """
        async with contextlib.aclosing(self.export(reference, **options)) as pieces:
            await transfer.write_pieces(Path(path), pieces)

    async def import_from(
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
        settings = self._request.settings
        async with _seekable(source) as file:
            order = ImportSession(
                of=of, name=name, project=project, metadata=metadata, keep_origin=keep_origin
            )
            imported = await transfer.import_session(
                self._catalogue, order, file=file, settings=settings
            )
        self.announce("created", imported.session.id)
        return imported

    async def _open(self, request: "SessionRequest") -> AgentSession:
        return await self.factory(self._composition, request).open()

    async def _is_taken(self, name: str) -> bool:
        bearer = await self._composition.store.index.find(self._owner, self._project, name=name)
        return bearer is not None


@contextlib.asynccontextmanager
async def _seekable(source: str | Path | BinaryIO) -> AsyncGenerator[BinaryIO, None]:
    """Open a file so that it can be read twice; what comes through a pipe is copied first."""
    with contextlib.ExitStack() as opened:
        if isinstance(source, str | Path):
            source = opened.enter_context(await asyncio.to_thread(Path(source).open, "rb"))
        if not source.seekable():
            copy = opened.enter_context(tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY))
            await asyncio.to_thread(shutil.copyfileobj, source, copy)
            copy.seek(0)
            source = cast("BinaryIO", copy)
        yield source
