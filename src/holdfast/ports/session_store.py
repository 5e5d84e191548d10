"""The ports of a store: a log, an index over it, leases, an inbox, blobs.

A store is the bundle of these five. `holdfast.testing` has the exam that each one passes.
"""

from collections.abc import AsyncGenerator, Collection, Sequence
from typing import Literal, Protocol

import msgspec

from holdfast.vocabulary.commands import Command, CommandId
from holdfast.vocabulary.entries import Entry
from holdfast.vocabulary.ids import SessionId


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to append to one session. A higher epoch fences every lower one."""

    session_id: SessionId
    holder: str
    epoch: int


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """A stored record that cannot be read; it is kept aside, and later records are still read."""

    session_id: SessionId
    place: str
    """Where it is: a byte offset in a file, or a row."""
    reason: str


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an index knows of a session; all of it can be rebuilt from the log."""

    id: SessionId
    owner: str
    project: str
    name: str | None = None
    title: str | None = None
    model: str = ""
    parent: SessionId | None = None
    native_session_id: str | None = None
    created: int = 0
    updated: int = 0
    head: int = 0
    """The `seq` of the last entry."""


class SessionLog(Protocol):
    """Append-only logs, one per session.

    - `append` is atomic and durable when it returns. Each `seq` must follow the one before; a gap
      or a foreign entry raises CONFLICT. Entries that are already stored under the same id and
      `seq` are accepted again without effect.
    - An append under a lease that is no longer the newest raises FENCED, whatever the clocks say.
    - `consumed` commands leave the inbox in the same step: entries and consumption are stored
      together or not at all. A holder consumes a command in the append that holds its effect, and
      in no other, so that a crash loses none and repeats none.
    - `session.opened` and `session.changed` update the index in the same step; a name that is
      taken by the same owner and project raises CONFLICT.
    - Reading never blocks a writer, in this process or another. Unknown entries come back as they
      were stored.
    - Deleting is for a whole session; there is no other way to lose an entry.
    - A stored value that cannot be read harms its own record only: `inspect` reports it, every
      other record is read, and no operation on any session fails with anything but an AgentError.
    - An append returns only when its entries are in the file that the store is found by: one that
      was deleted, moved or replaced while it was open is UNAVAILABLE.
    """

    async def append(
        self, lease: Lease, entries: Sequence[Entry], *, consumed: Sequence[CommandId] = ()
    ) -> None:
        """Append entries that already have their `seq`."""
        ...

    async def read(
        self, session_id: SessionId, *, after: int = 0, limit: int | None = None
    ) -> list[Entry]:
        """Read entries in order; an unknown session has none."""
        ...

    def follow(self, session_id: SessionId, *, after: int = 0) -> AsyncGenerator[list[Entry], None]:
        """Yield entries as they are appended, by any process, until closed."""
        ...

    async def inspect(self, session_id: SessionId) -> tuple[Damage, ...]:
        """Report what cannot be read."""
        ...

    async def delete(self, session_id: SessionId) -> None:
        """Remove a session with everything that belongs to it."""
        ...


class SessionIndex(Protocol):
    """Finds sessions. Every look-up is bound to one owner and project; nothing crosses them."""

    async def find(
        self,
        owner: str,
        project: str,
        *,
        session_id: SessionId | None = None,
        name: str | None = None,
    ) -> SessionRecord | None:
        """Find by id or by name; a session of somebody else is not found."""
        ...

    async def browse(
        self, owner: str, project: str, *, limit: int | None = None, after: SessionId | None = None
    ) -> Sequence[SessionRecord]:
        """List sessions, the last updated first."""
        ...

    async def rebuild(self) -> int:
        """Make the index anew from the logs; returns how many sessions it holds."""
        ...


class Leases(Protocol):
    """One writer per session, across processes.

    - `acquire` raises BUSY while another holder is alive, unless told to wait.
    - A lease whose holder died can be acquired; the new one has a higher epoch.
    - A holder that is stopped keeps its lease for a while and then loses it, wherever it stands,
      also inside an append. What it writes when it goes on is no part of the log, and it is FENCED.
    - Those who wait get the lease in the order in which they asked, also in different processes;
      while any of them waits, a free session is BUSY for one who does not. One that is cancelled,
      whose process is gone or stopped, or that does not take a lease that is free is passed over.
    - A lease that is granted has an owner from the first instant. An `acquire` that is cancelled,
      wherever it was, holds nothing once it has raised: the session can be acquired at once. A
      `release` that is cancelled releases all the same.
    """

    async def acquire(
        self, session_id: SessionId, holder: str, *, busy: Literal["wait", "reject"] = "reject"
    ) -> Lease:
        """Become the writer of a session."""
        ...

    async def renew(self, lease: Lease) -> None:
        """Stay the writer; raises FENCED when somebody else took over."""
        ...

    async def release(self, lease: Lease) -> None:
        """Let somebody else become the writer; doing it twice is fine."""
        ...


class Inbox(Protocol):
    """Commands from anyone to the process that holds a session.

    - `put` is durable when it returns; putting the same command id again has no effect.
    - `pending` gives commands in the order they came, until an append consumes them; a command
      that its holder could not carry out, because it was closing or its store failed, is still
      there for the next holder.
    - `wait` returns soon after a command is pending that the caller has not `seen`; one that
      arrives between looking and waiting is not missed.
    """

    async def put(self, session_id: SessionId, command: Command) -> None:
        """Leave a command for the holder."""
        ...

    async def pending(self, session_id: SessionId) -> Sequence[Command]:
        """Look at the commands that nobody has consumed."""
        ...

    async def wait(self, session_id: SessionId, *, seen: Collection[CommandId] = ()) -> None:
        """Wait for a command that is not among those `seen`."""
        ...


class Blobs(Protocol):
    """Content too big for a log line, named by its SHA-256, kept as long as its session."""

    async def put(self, session_id: SessionId, content: bytes) -> str:
        """Store content durably and return its name."""
        ...

    async def get(self, session_id: SessionId, name: str) -> bytes:
        """Return content; raises NOT_FOUND, or CORRUPT when it does not match its name."""
        ...


class Store(Protocol):
    """The five ports of one place where sessions are kept."""

    @property
    def log(self) -> SessionLog:
        """The logs."""
        ...

    @property
    def index(self) -> SessionIndex:
        """The index over the logs."""
        ...

    @property
    def leases(self) -> Leases:
        """The leases."""
        ...

    @property
    def inbox(self) -> Inbox:
        """The commands."""
        ...

    @property
    def blobs(self) -> Blobs:
        """The big payloads."""
        ...

    async def close(self) -> None:
        """Let go of files and threads; what was appended stays."""
        ...
