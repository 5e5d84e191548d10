"""FileHistory: what a session did to the files of its workspace, and taking that back.

The log says which snapshots were taken and when. What changed between `before` and `after` was done
by the session, what changed between an `after` and the next `before` by others.
"""

from collections.abc import Sequence

import msgspec

from haptera.kernel.session.branching import Branches
from haptera.kernel.session.log_reading import seq_of_message
from haptera.kernel.session.recorder import SessionRecorder
from haptera.model.errors import ErrorCode, SessionError, StoreError
from haptera.model.file_snapshots import FileDiff, FileLeft, RewindReport
from haptera.model.ids import MessageId, SessionId
from haptera.model.json_types import writable
from haptera.model.log.entry import Entry
from haptera.model.log.history import Rewound
from haptera.model.log.paths import last_rewind
from haptera.model.log.turns import TurnStarted
from haptera.model.log.workspace import Snapshot
from haptera.ports.snapshots import PlannedChanges, Snapshotter
from haptera.system.clock import Stamp

_SHOWN = 10
"""Files that the error of a conflict names."""
_SKIPPED = "it was too large, or a repository of its own, and not recorded then"
# What changes after these was changed by tools, or by the rewind itself.
_OWN = frozenset({"before", "before_rewind"})


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How files are to be brought back."""

    now: str
    changes: PlannedChanges
    conflicts: tuple[str, ...] = ()
    left: tuple[FileLeft, ...] = ()

    def report(self) -> RewindReport:
        """Return what is to be done."""
        return RewindReport(
            changes=self.changes.changes,
            left=(*self.left, *self.changes.left),
            refused=self.changes.refused,
            conflicts=self.conflicts,
        )


class FileHistory:
    """The files of one session's workspace, through its snapshots.

    Owns nothing: the log has the snapshots, the snapshotter the files. Only files that the session
    changed are ever brought back; what others changed meanwhile is a conflict, or is left alone.
    What a process that died had begun to bring back is taken back before anything else is done.
    """

    def __init__(
        self,
        branches: Branches,
        snapshotter: Snapshotter,
        *,
        session: SessionId,
        recorder: SessionRecorder,
        stamp: Stamp,
    ) -> None:
        self._session = session
        self._branches = branches
        self._snapshotter = snapshotter
        self._recorder = recorder
        self._stamp = stamp

    async def diff(self, turn: str | None) -> FileDiff:
        """Return what a turn or a query changed; without one, the last query that could write.

        Raises:
            SessionError: NOT_FOUND when the session has no such turn, query or answer.
            StoreError: UNAVAILABLE when no snapshot could be taken, or it is kept no longer.

        """
        entries = await self._branches.entries()
        wanted = _last_query(entries) if turn is None else _turn_named(entries, turn)
        own = [item for item in _snapshots(entries) if wanted in {item.turn_id, item.query_id}]
        if not own:
            return FileDiff()
        first, last = own[0], own[-1]
        for item in own:
            _refuse_failed(item)
        tree, is_complete = last.tree, last.moment == "after"
        if not is_complete:
            # It was cut off while its tools ran. The next known state stands for its end, and may
            # hold changes of others.
            later = [item for item in _snapshots(entries) if item.seq > last.seq and item.tree]
            tree = later[0].tree if later else (await self._snapshotter.take()).tree
        return FileDiff(
            changes=(await self._snapshotter.difference(first.tree, tree)).changes,
            patch=await self._snapshotter.patch(first.tree, tree),
            is_complete=is_complete,
        )

    async def preview(self, to: str) -> RewindReport:
        """Say what a rewind to a message would do to files; nothing is changed."""
        entries = await self._branches.entries()
        seq = await self._branches.seq_after(entries, to)
        plan = await self._plan(await self._since(entries, seq, to))
        return msgspec.structs.replace(plan.report(), is_done=False) if plan else RewindReport()

    async def bring_back(
        self, entries: Sequence[Entry], seq: int, to: str, *, force: bool
    ) -> tuple[RewindReport, Sequence[Entry]]:
        """Make the files what they were after a message; returns what to record of that.

        Raises:
            StoreError: CONFLICT when others changed files that would be overwritten, unless forced;
                UNAVAILABLE when the files of that time are not known. Nothing is changed then.

        """
        await self._take_back(entries)
        since = await self._since(entries, seq, to)
        return await self._carried_out(await self._plan(since, force=force))

    async def bring_forward(
        self, entries: Sequence[Entry], *, force: bool
    ) -> tuple[RewindReport, Sequence[Entry]]:
        """Make the files what they were before the last rewind; returns what to record of that.

        Raises:
            StoreError: CONFLICT when files that it brought back were changed since, unless forced.

        """
        return await self._carried_out(await self._plan_of_undo(entries, force=force))

    async def take_back(self, entries: Sequence[Entry]) -> tuple[RewindReport, Snapshot] | None:
        """Take back what a rewind that was cut off did to files; None when none was.

        The conversation was not moved by it. Returns what to record of that.
        """
        left = await self._take_back(entries)
        if left is None:
            return None
        return RewindReport(left=left), await self._after_rewind()

    async def _take_back(self, entries: Sequence[Entry]) -> tuple[FileLeft, ...] | None:
        cut_off = _cut_off(entries)
        if cut_off is None:
            return None
        return await self._snapshotter.take_back(cut_off.kept, session=self._session)

    async def _carried_out(self, plan: _Plan | None) -> tuple[RewindReport, Sequence[Entry]]:
        """Bring files back; the state before is in the log before any of them is touched."""
        if plan is None:
            return RewindReport(), ()
        kept, report = plan.changes.kept, plan.report()
        # Without the pair of snapshots an undo of this rewind leaves the files alone, too.
        if not kept:
            return report, ()
        before = Snapshot(**self._stamp(), tree=plan.now, moment="before_rewind", kept=kept)
        await self._recorder.commit([before])
        try:
            await self._snapshotter.carry_out(kept, session=self._session)
        except StoreError:
            # Nothing is left of it, and the log says so: it is not one that was cut off.
            await self._snapshotter.take_back(kept, session=self._session)
            await self._recorder.commit([await self._after_rewind()])
            raise
        restored = tuple(change.path for change in report.changes)
        return msgspec.structs.replace(report, restored=restored), [await self._after_rewind()]

    async def _after_rewind(self) -> Snapshot:
        """Record what the files are now. The rewind is done, whether or not that is possible."""
        stamp = self._stamp
        try:
            tree = (await self._snapshotter.take()).tree
        except StoreError as error:
            told = writable(error.message)
            return Snapshot(**stamp(), tree="", moment="after_rewind", error=told)
        return Snapshot(**stamp(), tree=tree, moment="after_rewind")

    async def _plan(self, since: Sequence[Snapshot], *, force: bool | None = None) -> _Plan | None:
        """Find out which files the session changed since a point, and which of them others did.

        Unless it is only a preview (`force=None`), it can be carried out.
        """
        if not since:
            return None
        # Only the first is needed as it was: the files are made like it. A later one that failed
        # only joins two intervals.
        _refuse_failed(since[0])
        now = (await self._snapshotter.take()).tree
        own, foreign = await self._changed_since(since, now)
        skipped = {item.rpartition(": ")[0] for item in since[0].skipped}
        unknown = {path: name for path in own if (name := _among(path, skipped)) is not None}
        left = tuple(FileLeft(path=name, reason=_SKIPPED) for name in sorted({*unknown.values()}))
        plan = await self._plan_by_trees(
            (now, since[0].tree), own - unknown.keys(), foreign, force=force
        )
        return msgspec.structs.replace(plan, left=left)

    async def _changed_since(
        self, since: Sequence[Snapshot], now: str
    ) -> tuple[set[str], set[str]]:
        """Return the paths that the session changed since a point, and those that others did."""
        own, foreign, unsure = set[str](), set[str](), set[str]()
        for items, new in _intervals(since, now):
            found = await self._snapshotter.difference(items[0].tree, new)
            changed = {*(change.path for change in found.changes), *found.unseen}
            # The moment of a snapshot says who made the changes after it. In intervals that are
            # joined the changes of tools cannot be told from those of others: they are both.
            if any(item.moment in _OWN for item in items):
                own |= changed - set(found.uncovered)
                unsure |= set(found.uncovered)
            if any(item.moment not in _OWN for item in items):
                foreign |= changed
        # A file of others that is only not ignored any more was not changed by the session.
        return own | {path for path in unsure if not _among(path, foreign)}, foreign

    async def _plan_by_trees(
        self, trees: tuple[str, str], own: set[str], foreign: set[str], *, force: bool | None
    ) -> _Plan:
        """Plan how files become what they are in the second tree, which now are as in the first."""
        now, target = trees
        # Copies are only made of what will be changed: not for a preview, and not before it is
        # known that nothing is refused because of others.
        session = self._session if force or (force is not None and not foreign) else None
        changes = await self._snapshotter.plan(now, target, own, session=session)
        conflicts = tuple(change.path for change in changes.changes if _among(change.path, foreign))
        if conflicts and force is False:
            raise _conflict(conflicts)
        if force is False and session is None:
            changes = await self._snapshotter.plan(now, target, own, session=self._session)
        return _Plan(now=now, changes=changes, conflicts=conflicts)

    async def _plan_of_undo(self, entries: Sequence[Entry], *, force: bool) -> _Plan | None:
        last = last_rewind(entries)
        before = _snapshot_before(entries, last) if last is not None else None
        if before is None:
            return None
        now = (await self._snapshotter.take()).tree
        if not before.kept:
            return await self._plan_of_old_undo(entries, before, now, force=force)
        changes = await self._snapshotter.plan_undo(before.kept, session=self._session, force=force)
        if changes.conflicts and not force:
            raise _conflict(changes.conflicts)
        return _Plan(now=now, changes=changes, conflicts=changes.conflicts)

    async def _plan_of_old_undo(
        self, entries: Sequence[Entry], before: Snapshot, now: str, *, force: bool
    ) -> _Plan | None:
        """Plan the undo of a rewind that made no copies: by the trees around it."""
        after = next(entry for entry in entries if entry.seq == before.seq + 2)
        if not isinstance(after, Snapshot) or after.moment != "after_rewind":
            return None
        own = await self._snapshotter.difference(after.tree, before.tree)
        since = await self._snapshotter.difference(after.tree, now)
        foreign = {*(change.path for change in since.changes), *since.unseen}
        paths = {change.path for change in own.changes}
        return await self._plan_by_trees((now, before.tree), paths, foreign, force=force)

    async def _since(self, entries: Sequence[Entry], seq: int, to: str) -> list[Snapshot]:
        """Return the snapshots that were taken after a `seq`, those that a fork inherits first."""
        own = [item for item in _snapshots(entries) if item.seq > seq]
        # Only behind a message that the session began with can there be snapshots of its parents.
        if seq != entries[0].seq:
            return own
        inherited = await self._branches.inherited(entries)
        # The entries of all generations are one list, in which a `seq` says nothing.
        numbered = [
            msgspec.structs.replace(entry, seq=seq) for seq, entry in enumerate(inherited, 1)
        ]
        found = seq_of_message(numbered, MessageId(to)) if numbered else None
        earlier = [item for item in _snapshots(numbered) if found and item.seq > found]
        return [*earlier, *own]


def _among(path: str, names: set[str]) -> str | None:
    """Return the name that is a path or, ending with a `/`, a folder above it."""
    if path in names:
        return path
    ends = (end for end, letter in enumerate(path, 1) if letter == "/")
    return next((path[:end] for end in ends if path[:end] in names), None)


def _cut_off(entries: Sequence[Entry]) -> Snapshot | None:
    """Return the snapshot before a rewind that was begun last and did not end."""
    for entry in reversed(entries):
        if isinstance(entry, Rewound):
            return None
        if isinstance(entry, Snapshot) and entry.moment in {"before_rewind", "after_rewind"}:
            return entry if entry.moment == "before_rewind" and entry.kept else None
    return None


def _intervals(since: Sequence[Snapshot], now: str) -> list[tuple[list[Snapshot], str]]:
    """Return each snapshot with those after it that failed, and the tree at their end."""
    begun: list[list[Snapshot]] = []
    for item in since:
        if item.tree:
            begun.append([item])
        else:
            begun[-1].append(item)
    ends = [*(items[0].tree for items in begun[1:]), now]
    return list(zip(begun, ends, strict=True))


def _snapshots(entries: Sequence[Entry]) -> list[Snapshot]:
    return [entry for entry in entries if isinstance(entry, Snapshot)]


def _snapshot_before(entries: Sequence[Entry], rewound: Rewound) -> Snapshot | None:
    """Return the snapshot before a rewind that changed files."""
    # `before_rewind` is the append before the move; `after_rewind` follows `rewound` in one append.
    near = {entry.seq: entry for entry in entries if abs(entry.seq - rewound.seq) == 1}
    before, after = near.get(rewound.seq - 1), near.get(rewound.seq + 1)
    if not isinstance(before, Snapshot) or before.moment != "before_rewind":
        return None
    return before if isinstance(after, Snapshot) and after.moment == "after_rewind" else None


def _last_query(entries: Sequence[Entry]) -> str:
    for entry in reversed(_snapshots(entries)):
        if entry.query_id is not None:
            return entry.query_id
    # No snapshot has an empty id, so none is found by it.
    return ""


def _turn_named(entries: Sequence[Entry], name: str) -> str:
    """Return the turn or query that is meant: by its own id, or by that of its answer."""
    for entry in entries:
        if isinstance(entry, TurnStarted) and entry.message_id == name and entry.turn_id:
            return entry.turn_id
        if name in {entry.turn_id, entry.query_id}:
            return name
    told = f"this session has no turn, query or answer {name!r}"
    raise SessionError(ErrorCode.NOT_FOUND, told)


def _refuse_failed(snapshot: Snapshot) -> None:
    if not snapshot.tree:
        told = f"the files of that time were not recorded: {snapshot.error}"
        raise StoreError(ErrorCode.UNAVAILABLE, told)


def _conflict(paths: Sequence[str]) -> StoreError:
    named = ", ".join(paths[:_SHOWN]) + (" …" if len(paths) > _SHOWN else "")
    return StoreError(
        ErrorCode.CONFLICT,
        f"{len(paths)} files were changed by others since then and would be overwritten: {named}; "
        "`force=True` overwrites them",
    )
