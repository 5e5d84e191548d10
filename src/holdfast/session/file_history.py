"""FileHistory: what a session did to the files of its workspace, and taking that back.

The log says which snapshots were taken and when. What changed between `before` and `after` was done
by the session, what changed between an `after` and the next `before` by others.
"""

from collections.abc import Sequence

import msgspec

from holdfast.blocks.conversation.paths import last_rewind
from holdfast.ports.clock import Stamp
from holdfast.ports.snapshots import Snapshotter
from holdfast.session.branching import Branches
from holdfast.session.log_reading import seq_of_message
from holdfast.session.recorder import SessionRecorder
from holdfast.vocabulary.entries import Entry, Rewound, TurnStarted
from holdfast.vocabulary.errors import ErrorCode, SessionError, StoreError
from holdfast.vocabulary.file_snapshots import FileChange, FileDiff, RewindReport, Snapshot
from holdfast.vocabulary.ids import MessageId

_SHOWN = 10
"""Files that the error of a conflict names."""
# What changes after these was changed by tools, or by the rewind itself.
_OWN = frozenset({"before", "before_rewind"})


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How files are to be brought back."""

    now: str
    target: str
    report: RewindReport


class FileHistory:
    """The files of one session's workspace, through its snapshots.

    Owns nothing: the log has the snapshots, the snapshotter the files. Only files that the session
    changed are ever brought back; what others changed meanwhile is a conflict, or is left alone.
    """

    def __init__(
        self,
        branches: Branches,
        snapshotter: Snapshotter,
        *,
        recorder: SessionRecorder,
        stamp: Stamp,
    ) -> None:
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
            changes=await self._snapshotter.changes(first.tree, tree),
            patch=await self._snapshotter.patch(first.tree, tree),
            is_complete=is_complete,
        )

    async def preview(self, to: str) -> RewindReport:
        """Say what a rewind to a message would do to files; nothing is changed."""
        entries = await self._branches.entries()
        seq = await self._branches.seq_after(entries, to)
        plan = await self._plan(await self._since(entries, seq, to))
        return msgspec.structs.replace(plan.report, is_done=False) if plan else RewindReport()

    async def bring_back(
        self, entries: Sequence[Entry], seq: int, to: str, *, force: bool
    ) -> tuple[RewindReport, Sequence[Entry]]:
        """Make the files what they were after a message; returns what to record of that.

        Raises:
            StoreError: CONFLICT when others changed files that would be overwritten, unless forced;
                UNAVAILABLE when the files of that time are not known. Nothing is changed then.

        """
        plan = await self._plan(await self._since(entries, seq, to))
        return await self._carried_out(plan, force=force)

    async def bring_forward(
        self, entries: Sequence[Entry], *, force: bool
    ) -> tuple[RewindReport, Sequence[Entry]]:
        """Make the files what they were before the last rewind; returns what to record of that.

        Raises:
            StoreError: CONFLICT when files that it brought back were changed since, unless forced.

        """
        return await self._carried_out(await self._plan_of_undo(entries), force=force)

    async def _carried_out(
        self, plan: _Plan | None, *, force: bool
    ) -> tuple[RewindReport, Sequence[Entry]]:
        if plan is None:
            return RewindReport(), ()
        return plan.report, await self._restore(plan, force=force)

    async def _restore(self, plan: _Plan, *, force: bool) -> Sequence[Entry]:
        """Bring files back; the state before is in the log before any of them is touched."""
        report, stamp = plan.report, self._stamp
        if report.conflicts and not force:
            raise _conflict(report.conflicts)
        # Without the pair of snapshots an undo of this rewind leaves the files alone, too.
        if not report.changes:
            return ()
        before = Snapshot(**stamp(), tree=plan.now, moment="before_rewind")
        await self._recorder.commit([before])
        paths = [change.path for change in report.changes]
        tree = await self._snapshotter.restore(plan.now, plan.target, paths)
        return [Snapshot(**stamp(), tree=tree, moment="after_rewind")]

    async def _plan(self, since: Sequence[Snapshot]) -> _Plan | None:
        """Find out which files the session changed since a point, and which of them others did."""
        if not since:
            return None
        # Only the first is needed as it was: the files are made like it. A later one that failed
        # only joins two intervals.
        _refuse_failed(since[0])
        target, now = since[0].tree, (await self._snapshotter.take()).tree
        own, foreign = set[str](), set[str]()
        for items, new in _intervals(since, now):
            old = items[0].tree
            changed = {change.path for change in await self._snapshotter.changes(old, new)}
            # The moment of a snapshot says who made the changes after it. In intervals that are
            # joined the changes of tools cannot be told from those of others: they are both.
            if any(item.moment in _OWN for item in items):
                own |= changed
            if any(item.moment not in _OWN for item in items):
                foreign |= changed
        changes = await self._snapshotter.changes(now, target)
        return _plan_of(now, target, changes, own=own, foreign=foreign)

    async def _plan_of_undo(self, entries: Sequence[Entry]) -> _Plan | None:
        last = last_rewind(entries)
        pair = _pair_around(entries, last) if last is not None else None
        if pair is None:
            return None
        before, after = pair
        now = (await self._snapshotter.take()).tree
        own = {change.path for change in await self._snapshotter.changes(after, before)}
        foreign = {change.path for change in await self._snapshotter.changes(after, now)}
        changes = await self._snapshotter.changes(now, before)
        return _plan_of(now, before, changes, own=own, foreign=foreign)

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


def _plan_of(
    now: str, target: str, changes: Sequence[FileChange], *, own: set[str], foreign: set[str]
) -> _Plan:
    wanted = tuple(change for change in changes if change.path in own)
    conflicts = tuple(change.path for change in wanted if change.path in foreign)
    return _Plan(now=now, target=target, report=RewindReport(changes=wanted, conflicts=conflicts))


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


def _pair_around(entries: Sequence[Entry], rewound: Rewound) -> tuple[str, str] | None:
    """Return the trees before and after a rewind that changed files."""
    # `before_rewind` is the append before the move; `after_rewind` follows `rewound` in one append.
    near = {entry.seq: entry for entry in entries if abs(entry.seq - rewound.seq) == 1}
    before, after = near.get(rewound.seq - 1), near.get(rewound.seq + 1)
    if not isinstance(before, Snapshot) or before.moment != "before_rewind":
        return None
    if not isinstance(after, Snapshot) or after.moment != "after_rewind":
        return None
    return before.tree, after.tree


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
