"""AgentSessions: the sessions of an agent's store as a collection: `agent.sessions`."""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Unpack, cast

from msgspec.structs import replace

from haptera.access import transfer
from haptera.access.catalogue import changes_of
from haptera.access.descriptions import (
    ExportOptions,
    SessionChanges,
    SessionDescription,
    describe,
)
from haptera.access.keywords import ExportKeywords, SessionChangeKeywords
from haptera.access.maintenance import (
    SessionHealth,
    check_session,
    old_sessions,
    prune_sessions,
)
from haptera.access.sharing import SharedSessions
from haptera.access.transfer import write_pieces
from haptera.access.unowned import unowned_queries
from haptera.agent.session import AgentSession
from haptera.agent.verbs import open_fork
from haptera.model.errors import ErrorCode, StoreError
from haptera.model.ids import SessionId
from haptera.options.checks import check, checked
from haptera.options.signatures import takes

if TYPE_CHECKING:
    from haptera.access.assembly.composition import Composition
    from haptera.kernel.session.session_descriptions import SessionRequest
    from haptera.ports.session_store import UnownedQueries

_IN_MEMORY = 1024 * 1024
"""A longer import that comes through a pipe is copied to a temporary file."""

SessionFactory = Callable[["Composition", "SessionRequest"], AgentSession]
"""Makes the sessions that `create`, `fork` and `switch_to` return."""


class AgentSessions(SharedSessions):
    """The sessions of one owner and project: lists, changes, shares, exports, deletes them.

    Made by `agent.sessions`. A session is named by its id or its name.
    """

    def __init__(self, composition: "Composition", request: "SessionRequest") -> None:
        super().__init__(composition, owner=request.owner, project=request.project)
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
        if live is not None and (changes := changes_of(fields)):
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
        record = await self.record(reference)
        fork = await self._composition.read_fork(record.id, after)
        request = replace(self._request, project=record.project)
        session = await open_fork(
            self._composition, request, fork, name=name, open_session=self._open
        )
        self.announce("created", session.session_id or SessionId(""))
        return session

    @takes(ExportOptions)
    def export(
        self, reference: str, **options: Unpack[ExportKeywords]
    ) -> AsyncGenerator[bytes, None]:
        """Return the pieces of a file: an archive, or the file of another program."""
        # Not in the generator, whose first line runs only when the caller iterates: a wrong option
        # is an error of this call.
        told = checked(options, ExportOptions, function="sessions.export()")
        return self._export(reference, told)

    @takes(ExportOptions)
    async def export_to(
        self, path: str | Path, reference: str, **options: Unpack[ExportKeywords]
    ) -> None:
        """Write a session to a file, which must not exist yet.

        Raises:
            FileExistsError: when it does.
            SessionError: NOT_FOUND when there is no such session; no file is made then.

        """
        told = checked(options, ExportOptions, function="sessions.export_to()")
        async with contextlib.aclosing(self._export(reference, told)) as pieces:
            await write_pieces(Path(path), pieces)

    async def import_from(
        self, source: str | Path | BinaryIO, *, of: str | None = None, name: str | None = None
    ) -> transfer.Imported:
        """Make a new session from a file; its format is recognised unless `of` names it.

        Nothing in a file is trusted: no permission, name, owner or project comes with it, and
        nothing that it has begun is carried on.

        Raises:
            ConfigError: CONFIG_INVALID when it is of no known format, or exceeds a limit.
            StoreError: CORRUPT when it is damaged, VERSION_UNSUPPORTED when it is newer.

        """
        opening = transfer.new_opening(
            self._composition,
            owner=self._owner,
            project=self._project,
            name=name,
            settings=self._request.settings,
        )
        async with _seekable(source) as file:
            imported = await transfer.import_session(
                self._composition, file, opening, format_name=of
            )
        self.announce("created", imported.session.id)
        return imported

    async def verify(self, reference: str) -> SessionHealth:
        """Read a whole session and say what cannot be read, and whether it can be opened."""
        return await check_session(self._composition, await self.record(reference))

    async def repair(self) -> int:
        """Derive the index again from the logs; returns how many sessions it holds.

        Damaged records are kept where they are, and `verify` goes on reporting them.
        """
        return await self._composition.store.index.rebuild()

    async def prune(self, *, days: float, dry_run: bool = False) -> tuple[SessionDescription, ...]:
        """Delete the sessions of this project that were not updated for a number of days.

        Returns those that it deletes; with `dry_run` it deletes nothing. Nothing else ever deletes
        a session by its age.
        """
        old = await old_sessions(
            self._composition, owner=self._owner, project=self._project, days=days
        )
        return tuple(map(describe, old if dry_run else await prune_sessions(self, old)))

    async def _export(self, reference: str, told: ExportOptions) -> AsyncGenerator[bytes, None]:
        record = await self.record(reference)
        pieces = transfer.export_session(
            self, self._composition, record, format_name=told.to, redact=told.redact
        )
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                yield piece

    async def _open(self, request: "SessionRequest") -> AgentSession:
        return await self.factory(self._composition, request).open()

    async def _is_taken(self, name: str) -> bool:
        found = await self._composition.store.index.find(self._owner, self._project, name=name)
        return found is not None


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
