"""FileSnapshots: records what the files of the workspace are before and after tools change them."""

from haptera.kernel.query.query import Query
from haptera.model.errors import StoreError
from haptera.model.file_snapshots import SnapshotMoment
from haptera.model.json_types import writable
from haptera.model.log.workspace import Snapshot
from haptera.model.tools import Effect
from haptera.ports.snapshots import Snapshotter, TakenTree
from haptera.system.logs import scrubbed_logger

_SHOWN = 20
"""Skipped files that an entry names."""
_logger = scrubbed_logger(__name__)


class FileSnapshots:
    """Takes a snapshot before the first tool of a turn that can write, and one after its tools.

    A turn without such a call costs nothing. Snapshots are best effort: the query goes on without
    one that cannot be taken. The log says so of every such turn, or it would seem to have changed
    nothing. Without a snapshotter nothing is done.
    """

    def __init__(self, snapshotter: Snapshotter | None = None) -> None:
        self._snapshotter = snapshotter

    async def before_tool(self, query: Query, effect: Effect) -> None:
        """Take the snapshot of the turn, unless the tool only reads or it was taken already.

        It is in the log before the tool starts. Tools that run side by side wait for it.
        """
        if self._snapshotter is None or effect == "read":
            return
        async with query.progress.files.one_takes:
            if not query.progress.files.is_taken:
                await self._take(query, self._snapshotter, "before")
                # Only after the wait, and under the lock: a call beside this one must find the
                # snapshot in the log.
                query.progress.files.is_taken = True

    async def after_tools(self, query: Query) -> None:
        """Take the snapshot after the tools of a turn, if one was taken before them."""
        if self._snapshotter is None or not query.progress.files.is_taken:
            return
        query.progress.files.is_taken = False
        if query.progress.files.error is None:
            await self._take(query, self._snapshotter, "after")

    async def _take(self, query: Query, snapshotter: Snapshotter, moment: SnapshotMoment) -> None:
        stamp, taken = query.turn_stamp, await self._tree(query, snapshotter)
        if taken is None:
            snapshot = Snapshot(**stamp(), tree="", moment=moment, error=query.progress.files.error)
        else:
            snapshot = Snapshot(
                **stamp(),
                tree=taken.tree,
                moment=moment,
                skipped=tuple(writable(item) for item in taken.skipped[:_SHOWN]),
                skipped_count=len(taken.skipped),
            )
        await query.recorder.record([snapshot])

    async def _tree(self, query: Query, snapshotter: Snapshotter) -> TakenTree | None:
        """Record the files; None once that has failed in this query, and `error` says why."""
        if query.progress.files.error is not None:
            return None
        try:
            return await snapshotter.take()
        except StoreError as error:
            query.progress.files.error = told = writable(error.message)
            # The log keeps the last failure, so the same one is not warned of in every query.
            if query.fold.snapshot_error != told:
                _logger.warning("no snapshot of the workspace is taken: %s", told)
            return None


NO_SNAPSHOTS = FileSnapshots()
