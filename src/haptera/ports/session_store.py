"""The ports of a store: a log, an index over it, leases, an inbox, blobs and search.

A store is the bundle of these six. `haptera.testing.store_conformance` checks the promises in the
docstrings on this page.
"""

from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from functools import cache
from typing import Literal, Protocol, cast, runtime_checkable

import msgspec

from haptera.model.ids import MessageId, PartId, SessionId
from haptera.model.json_types import JsonObject
from haptera.model.late_names import late_module
from haptera.model.log.entry import Entry
from haptera.model.operations.operation import CommandId
from haptera.model.operations.session import Command
from haptera.model.results import SessionOrder, SessionPhase
from haptera.model.shares import StoredShare

_LONGEST_LABEL = 200


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
    """The session that it was forked from."""
    spawned_by: SessionId | None = None
    """The session whose tool call made it."""
    native_session_id: str | None = None
    created: int = 0
    updated: int = 0
    head: int = 0
    """The `seq` of the last entry."""
    tags: tuple[str, ...] = ()
    archived: int | None = None
    """When it was archived; None if it is not."""
    deleted: int | None = None
    """When it was deleted, of a session whose log is kept because forks need it."""
    metadata: JsonObject = {}
    status: SessionPhase = "idle"
    error: str | None = None
    """What the last query failed with; None when it did not fail."""
    notes: tuple[int, ...] = ()
    """The `seq` of each note for the project that was made in it and not taken back."""
    compacted: tuple[int, int] | None = None
    """The `seq` of the last compaction, and the first `seq` that has to be read to go on from it;
    None when all entries have to be read."""
    folded: tuple[int, int] | None = None
    """The `seq` of the last entry that says what the session was without its messages, and that of
    the entry after which it was so."""
    shares: tuple[StoredShare, ...] = ()
    """The links under which others may read it; some of them may have expired."""
    senders: tuple[str, ...] = ()
    """The users who spoke in it (`Sender.user_id`), sorted."""

    @property
    def shown_status(self) -> str:
        """The status that a program has set as metadata, or else what the last query does."""
        return str(self.metadata.get("status", self.status))

    @property
    def labels(self) -> frozenset[str]:
        """What it is looked up by: its tags, its metadata and who spoke in it, one text each."""
        return _labels(self.tags, self.metadata, self.senders)


def _labels(tags: Iterable[str], metadata: JsonObject, senders: Iterable[str]) -> frozenset[str]:
    fields = (msgspec.json.encode(each, order="sorted").decode() for each in metadata.items())
    labels = (
        *(f"tag:{tag}" for tag in tags),
        *(f"metadata:{field}" for field in fields),
        *(f"sender:{sender}" for sender in senders),
    )
    return frozenset(each if len(each) <= _LONGEST_LABEL else _digest(each) for each in labels)


def _digest(label: str) -> str:
    # An index of long texts would be as large as they are.
    return str(late_module("hashlib").sha256(label.encode(errors="replace")).hexdigest())


class SessionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions to list. None in a field means that it does not matter."""

    name: str | None = None
    name_prefix: str | None = None
    tags: tuple[str, ...] = ()
    """Tags that it has, all of them."""
    metadata: JsonObject = {}
    """Fields of its metadata with their values, all of them."""
    sender: str | None = None
    """A user who spoke in it."""
    status: str | None = None
    """What is shown as its status: the metadata `status`, or else its phase."""
    parent: SessionId | None = None
    spawned_by: SessionId | None = None
    spawned: bool | None = None
    """Whether a tool call of another session made it."""
    archived: bool | None = None
    deleted: bool | None = False
    phase: SessionPhase | None = None
    noted: bool | None = None
    """Whether notes for the project were made in it."""
    updated_after: int | None = None
    updated_before: int | None = None
    since: int | None = None
    """The first time of their last update."""

    @property
    def labels(self) -> frozenset[str]:
        """The labels of a record that it looks for."""
        return _labels(self.tags, self.metadata, () if self.sender is None else (self.sender,))

    def matches(self, record: SessionRecord) -> bool:
        """Whether a session is to be listed."""
        return (
            self.name in {None, record.name}
            and (self.name_prefix is None or (record.name or "").startswith(self.name_prefix))
            and (not self.labels or self.labels <= record.labels)
            and self.status in {None, record.shown_status}
            and self.parent in {None, record.parent}
            and self.spawned_by in {None, record.spawned_by}
            and self.spawned in {None, record.spawned_by is not None}
            and self.archived in {None, record.archived is not None}
            and self.deleted in {None, record.deleted is not None}
            and self.phase in {None, record.status}
            and self.noted in {None, bool(record.notes)}
            and (self.updated_after is None or record.updated > self.updated_after)
            and (self.updated_before is None or record.updated < self.updated_before)
            and (self.since is None or record.updated >= self.since)
        )


ANY_SESSION = SessionFilter()
"""Every session that was not deleted."""


class SearchHit(msgspec.Struct, frozen=True, kw_only=True):
    """A text in which a search found all its words."""

    session_id: SessionId
    seq: int
    """The entry that the text begins with: a prompt, the start of a part, or `session.opened`."""
    message_id: MessageId | None = None
    """The message of the text; None for a restored history, which is searched as one text."""
    part_id: PartId | None = None
    """The part of the answer; None for a prompt or a restored history."""
    snippet: str = ""
    """The piece of the text around the first of the words, on one line."""


class SessionLog(Protocol):
    """Append-only logs, one per session.

    Owns entries. Does not own the right to append, which is a lease's, nor what entries mean.

    - `append` is atomic and durable when it returns. Each `seq` must follow the one before; a gap
      or a foreign entry raises CONFLICT. Entries that are already stored under the same id and
      `seq` are accepted again without effect.
    - An append under a lease that is no longer the newest raises FENCED, whatever the clocks say.
    - `consumed` commands leave the inbox in the same step as the entries are stored, or neither
      happens. A holder consumes a command in the append that holds its effect, and in no other, so
      that a crash loses none and repeats none.
    - `session.opened` and `session.changed` update the index in the same step; a name that is
      taken by the same owner and project raises CONFLICT.
    - Reading never blocks a writer, in this process or another. Unknown entries come back as they
      were stored.
    - `limit` counts the entries that can be read: fewer come back only at the end of the log.
    - Deleting is for a whole session; there is no other way to lose an entry. A `follow` that has
      yielded entries of it, or began after one of them, ends.
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
        """Yield entries as they are appended, by any process, until closed or deleted."""
        ...

    async def inspect(self, session_id: SessionId) -> tuple[Damage, ...]:
        """Report what cannot be read."""
        ...

    async def delete(self, session_id: SessionId) -> None:
        """Remove a session with everything that belongs to it."""
        ...


class SessionIndex(Protocol):
    """Finds sessions. Every look-up is bound to one owner; nothing crosses owners.

    It is bound to one project, too, unless the project is None, which means all of the owner's.
    A session that was deleted is found by nothing but a filter that asks for it.
    """

    async def find(
        self,
        owner: str,
        project: str | None,
        *,
        session_id: SessionId | None = None,
        name: str | None = None,
    ) -> SessionRecord | None:
        """Find by id or by name; a session of another owner or project is not found."""
        ...

    async def browse(
        self,
        owner: str,
        project: str | None,
        *,
        matching: SessionFilter = ANY_SESSION,
        order: SessionOrder = "updated",
        limit: int | None = None,
        after: SessionId | None = None,
    ) -> Sequence[SessionRecord]:
        """List sessions in an order; `after` is the last one of the page before."""
        ...

    async def count(
        self, owner: str, project: str | None, *, matching: SessionFilter = ANY_SESSION
    ) -> int:
        """Count sessions without reading their records."""
        ...

    async def rebuild(self) -> int:
        """Derive the index again from the logs; returns how many sessions it holds."""
        ...


class Leases(Protocol):
    """One writer per session, across processes.

    - `acquire` raises BUSY while another holder is alive, unless told to wait.
    - A lease whose holder died can be acquired; the new one has a higher epoch.
    - A holder that is stopped keeps its lease for a while and then loses it, wherever it stopped,
      also inside an append. What it writes when it continues is no part of the log; it is FENCED.
    - Callers that wait get the lease in the order in which they asked, across processes. While any
      of them waits, a free session is BUSY for a caller that does not wait. A waiting caller is
      passed over when it is cancelled, when its process has ended or is stopped, and when it does
      not take a lease that is free.
    - An `acquire` that is cancelled at any point holds nothing once it has raised: the session can
      be acquired at once. A `release` that is cancelled releases all the same.
    """

    async def acquire(
        self, session_id: SessionId, holder: str, *, busy: Literal["wait", "reject"] = "reject"
    ) -> Lease:
        """Become the writer of a session."""
        ...

    async def renew(self, lease: Lease) -> None:
        """Stay the writer; raises FENCED when another holder took over."""
        ...

    async def release(self, lease: Lease) -> None:
        """Let another holder become the writer; doing it twice is fine."""
        ...


class Inbox(Protocol):
    """Commands from any process to the process that holds a session.

    - `put` is durable when it returns; putting the same command id again has no effect. For a
      session that is not there, or was deleted meanwhile, it raises NOT_FOUND and leaves nothing.
    - `pending` gives commands in the order they came, until an append consumes them; a command
      that its holder could not carry out, because it was closing or its store failed, is still
      there for the next holder.
    - `wait` returns soon after a command is pending that the caller has not `seen`; one that
      arrives between looking and waiting is not missed.
    """

    async def put(self, session_id: SessionId, command: Command) -> None:
        """Leave a command for the holder; raises NOT_FOUND."""
        ...

    async def pending(self, session_id: SessionId) -> Sequence[Command]:
        """Return the commands that are not consumed yet."""
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


class Search(Protocol):
    """Finds what users and models said, in the sessions of one owner.

    - Searched are the texts of prompts, of answers whose turn has ended, and of histories that a
      session was restored with; not reasoning, tool calls, tool results or discarded turns.
    - A text is found when it holds every word of the query, in any order. A word is a run of
      letters and digits; it is found as a whole, without regard to case and accents; ß is ss. A
      query word with other characters inside, such as `don't`, is found where its pieces follow
      each other.
    - A query word that ends with `*`, or every one with `prefix`, finds words that begin with it.
    - In scripts without spaces between words, such as Chinese, Japanese and Thai, a run of
      characters is found wherever it stands.
    - A query has no other operators. One without any word finds nothing.
    - A text is found once the append that completes it has returned, through any handle, until its
      session is deleted. Sessions of other owners are never found.
    - A stored record that cannot be read is not found, and hides no other.
    - The best hits come first: of two texts with the same number of words, the one that has the
      words of the query more often.
    """

    async def find(
        self,
        query: str,
        *,
        owner: str,
        project: str | None = None,
        limit: int = 50,
        prefix: bool = False,
    ) -> Sequence[SearchHit]:
        """Find texts in the sessions of a project, or of all projects of the owner."""
        ...


class UnownedQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A session with work that no process carries on.

    Its holder has gone, and left a query unfinished, or prompts that wait, or commands. A query
    that rests on an approval is not unfinished here.
    """

    session_id: SessionId
    owner: str
    project: str
    attempt: int
    """How often it was claimed since its last query ended, this time included."""


class UnownedQueries(Protocol):
    """Finds queries that no process carries on.

    - A session is claimed by one caller at a time, and not again before a pause that doubles with
      every attempt. An attempt counts also when its caller dies.
    - A claim is no lease: the caller acquires the session as usual.
    """

    async def claim(
        self, *, limit: int, most_attempts: int, first_pause: float, longest_pause: float
    ) -> Sequence[UnownedQuery]:
        """Take some of them, and count the attempt."""
        ...


class SharedQueries(UnownedQueries, Protocol):
    """The queries of a store that many machines share, which has them as `unowned`."""

    def of_project(self, project: str) -> UnownedQueries:
        """Return those of one project alone."""
        ...


@runtime_checkable
class WatchedLeases(Protocol):
    """Leases that tell their holder when they are lost, also while it appends nothing."""

    async def lost(self, lease: Lease) -> None:
        """Return once the lease is known to be lost; wait forever for one that is released."""
        ...


def watched_leases(leases: Leases) -> WatchedLeases | None:
    """Return leases if they tell their holder when they are lost."""
    return cast("WatchedLeases", leases) if _are_watched(type(leases)) else None


@cache
def _are_watched(kind: type[Leases]) -> bool:
    # Once per kind: to look a protocol up takes as long as opening a session in memory.
    return issubclass(kind, WatchedLeases)


class Store(Protocol):
    """The six ports of one place where sessions are kept."""

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
        """The content too big for a log."""
        ...

    @property
    def search(self) -> Search:
        """The search over what was said."""
        ...

    async def close(self) -> None:
        """Close files and end threads; what was appended stays."""
        ...
