"""SessionRecorder: whatever happens in a session is appended, folded and shown here, in one order.

Entries get their `seq` here, are appended to the log, folded, and only then shown. A caller that
is cancelled while it waits loses nothing: what was staged is appended and shown by the next call,
and appending the same entries twice has no effect.

A command from another process leaves the inbox in the append that holds its effect, and in no
other: `commit` takes both together. What is staged counts as happened for the next decision: it is
appended before anything that is staged later. So an approval is answered once, and a prompt leaves
the queue once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Protocol, get_args

import msgspec

from haptera.kernel.blocks.control_channel import ControlChannelInterface
from haptera.kernel.session.log_reading import beside_the_loop
from haptera.model.entry_bytes import refuse_unreadable
from haptera.model.errors import AgentError, ErrorCode, RequestError, StoreError
from haptera.model.events import Event, LiveEvent
from haptera.model.ids import ApprovalId, InputId, QueryId, SessionId
from haptera.model.known_events import KnownEntry
from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.log.entry import Entry, UnknownEntry
from haptera.model.log.queries import InputDrained, InputPromoted, InputQueued, QueryEnded
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import SessionChanged
from haptera.model.log.tools import ToolEnded, ToolWaiting, waits_in
from haptera.model.operations.operation import CommandId
from haptera.model.secrets import without_secrets
from haptera.ports.session_store import Lease
from haptera.system.abort import AbortSignal, query_stopped
from haptera.system.clock import Clock, Stamp
from haptera.system.owned_tasks import OwnedTasks

_ENTRIES = frozenset({*get_args(KnownEntry), UnknownEntry})
"""The types of all entries: to look a type up here is faster than `isinstance` of a struct."""
STORE_SECONDS = 45.0
"""How long an append is waited for. The stores give up before that, unless a disk hangs."""
_STOPPED_SECONDS = 0.8
"""How long an append is waited for when its query was stopped: its caller has waited enough."""
_STAGED_SECONDS = 0.005
"""How long staged events wait for others to be appended with."""
_CUT_OFF = "the query was cut off before its end, and a new prompt came instead of a resume"


class StoreSilentError(StoreError):
    """UNAVAILABLE: the store did not answer in time. What it was asked for may still happen."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.UNAVAILABLE, "the store does not answer")


class StoreTime:
    """Waits for a store no longer than so many seconds, or a moment after a query was stopped.

    Raises:
        StoreSilentError: the block has not ended by then; it was cancelled.

    """

    def __init__(
        self, stopped: "asyncio.Future[None] | None", *, within: float | None = None
    ) -> None:
        self._stopped = stopped
        self._limit = asyncio.timeout(within)
        self._is_over = False

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()
        if self._stopped is not None:
            if self._stopped.done():
                self._hurry(self._stopped)
            else:
                self._stopped.add_done_callback(self._hurry)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over = True
        if self._stopped is not None:
            self._stopped.remove_done_callback(self._hurry)
        try:
            await self._limit.__aexit__(kind, error, traceback)
        except TimeoutError as late:
            raise StoreSilentError from late
        if isinstance(error, TimeoutError):
            raise StoreSilentError from error

    def _hurry(self, _: object) -> None:
        # It may be called although it was removed, in the turn in which the block ended.
        if not self._is_over and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + _STOPPED_SECONDS)


class AppendedLog(Protocol):
    """Where a session's entries go: the log of a store, or nowhere (`SessionLog` says how)."""

    async def append(
        self, lease: Lease, entries: Sequence[Entry], *, consumed: Sequence[CommandId] = ()
    ) -> None:
        """Append entries that already have their `seq`."""
        ...

    async def read(
        self, session_id: SessionId, *, after: int = 0, limit: int | None = None
    ) -> list[Entry]:
        """Read entries in order."""
        ...


class SessionRecorder:
    """Writes and shows the events of one session, in one order.

    Owns the order, `seq` and the fold. Does not own the subscribers: the channel does. `appended`
    is called with what was shown after each append.
    """

    def __init__(
        self,
        *,
        log: AppendedLog,
        lease: Lease,
        fold: SessionFold,
        channel: ControlChannelInterface,
        tasks: OwnedTasks,
        appended: Callable[[Sequence[Event]], None],
    ) -> None:
        self._log = log
        self._tasks = tasks
        self._lease = lease
        self._channel = channel
        self._appended = appended
        self._staged: list[Event] = []
        self._consumed: list[CommandId] = []
        self._late_flush: asyncio.TimerHandle | None = None
        self._lock = asyncio.Lock()
        self._failure: AgentError | None = None
        self._refusal: Callable[[], AgentError] | None = None
        self._seq = fold.head
        self.stopped: asyncio.Future[None] | None = None
        """Done when the running query is stopped: no append makes it wait then."""
        self._is_abandoned = False
        """Whether an append was not waited for."""
        self._unstored_ends: dict[QueryId | None, QueryEnded] = {}
        """Ends that were shown although the store did not take them."""
        self.fold = fold

    async def commit(self, events: Sequence[Event], *, consumed: Sequence[CommandId] = ()) -> None:
        """Make events durable, then visible, without waiting for any consumer.

        The commands whose effect the events are leave the inbox in the same append. Everything is
        staged before the first wait, so a decision and what it rests on cannot come apart.
        """
        if self._refusal is not None or self._failure is not None:
            self._refuse_when_over()  # not called otherwise: this is the way of every delta
        has_entries = not _ENTRIES.isdisjoint(map(type, events))
        if not (self._staged or self._consumed or consumed):
            # Live events before the first entry do not wait for the log. As in `show`, without the
            # call: this is the way of every delta.
            live = events
            if has_entries:
                first = next(at for at, each in enumerate(events) if type(each) in _ENTRIES)
                live = events[:first]
            if live and not self._channel.closed:
                self._channel.publish(live)
            if not has_entries:
                return
            events = events[len(live) :]
        self._stage(events)
        self._consumed.extend(consumed)
        # What this call staged ends here; others may stage more while it waits for the lock.
        last = self._seq
        # The time of the store is that of the appends before this one, too.
        try:
            async with StoreTime(self.stopped, within=STORE_SECONDS), self._lock:
                if has_entries and self.fold.head >= last:
                    return  # another call's append held them, perhaps the last one of a session
                # The store may have failed, or the session been given up, while the lock was
                # another's.
                if self._refusal is not None or self._failure is not None:
                    self._refuse_when_over()
                await self._flush()
        except StoreSilentError as error:
            self._give_up(error)
            raise

    def stage(self, events: Sequence[Event]) -> None:
        """Take events in, to be appended with the next ones, or by themselves after a moment."""
        if self._refusal is not None or self._failure is not None:
            self._refuse_when_over()
        self._stage(events)
        if self._late_flush is None:
            loop = asyncio.get_running_loop()
            self._late_flush = loop.call_later(_STAGED_SECONDS, self._flush_late)

    def _flush_late(self) -> None:
        self._late_flush = None
        if self._staged:
            self._tasks.start(self._commit_staged(), name="haptera-flush")

    async def _commit_staged(self) -> None:
        with suppress(AgentError):  # the next caller gets it
            await self.commit(())

    def unanswered(self) -> dict[ApprovalId, ApprovalRequested]:
        """Return the approvals without an answer in the log or on its way there."""
        answered = {item.approval_id for item in self._staged if isinstance(item, ApprovalSettled)}
        asked = self.fold.approvals
        return {key: entry for key, entry in asked.items() if key not in answered}

    def waits(self) -> list[ToolWaiting]:
        """Return the calls whose answer comes later and is not in the log or on its way there."""
        items = () if self._failure else self._staged
        ended = {item.call_id for item in items if isinstance(item, ToolEnded)}
        waits = [*waits_in(self.fold), *(item for item in items if isinstance(item, ToolWaiting))]
        return [each for each in waits if each.call_id not in ended]

    def waiting(self) -> dict[InputId, InputQueued]:
        """Return the prompts that wait, by the log and by what is on its way there."""
        inputs = self.fold.inputs.copy()
        # After a failure what is staged will not reach the log: `resynchronise` drops it.
        for item in () if self._failure else self._staged:
            if isinstance(item, InputQueued):
                inputs[item.input_id] = item
            elif isinstance(item, InputPromoted | InputDrained):
                inputs.pop(item.input_id, None)
        return inputs

    def is_titled(self) -> bool:
        """Whether the session has a title, in the log or on its way there."""
        given = self.fold.title
        for item in self._staged:
            if isinstance(item, SessionChanged):
                given = item.changes.get("title", given)
        return given is not None

    def show(self, events: Sequence[Event]) -> None:
        """Show live-only events at once."""
        # A closing session ends its channel before its last append.
        if not self._channel.closed:
            self._channel.publish(events)

    def show_unstored_end(self, events: Sequence[Event], ended: QueryEnded) -> None:
        """Show an end that no store would take. It is stored by `end_cut_off`, not shown again."""
        self.stopped = None
        self._unstored_ends[ended.query_id] = ended
        self.show([*events, ended])

    async def end_cut_off(self, clock: Clock) -> None:
        """Store the ends of queries that have none, while no query runs.

        Raises:
            StoreError: they cannot be stored.

        """
        await self.resynchronise()
        ends = ends_of_cut_off(self.fold, clock)
        # An end that was shown is stored as it was shown: consumers have its id and its reason.
        await self.commit([self._unstored_ends.get(end.query_id, end) for end in ends])

    async def resynchronise(self) -> None:
        """Go on after a failed append: what the log holds is what happened."""
        if self._failure is None:
            return
        try:
            async with StoreTime(self.stopped, within=STORE_SECONDS), self._lock:
                # Another caller may have gone on meanwhile, and what is staged now is its own.
                if self._failure is not None:
                    await self._read_back()
        except StoreSilentError as error:
            self._give_up(error)
            raise
        except StoreError:
            # A session that was closed meanwhile may be another holder's by now.
            if self._refusal is not None:
                raise self._refusal() from None
            raise

    async def _read_back(self) -> None:
        # The callers of what is staged were told that it failed, so it must not happen later. It
        # may be stored all the same: the log says so.
        self._staged.clear()
        self._consumed.clear()
        if self._is_abandoned:
            # Stores do the appends of a session in order: behind this one, an append that was not
            # waited for has been stored or refused.
            await self._log.append(self._lease, ())
            self._is_abandoned = False
        entries = await self._log.read(self._lease.session_id, after=self.fold.head)
        for entry in entries:
            self.fold.apply(entry)
        self._seq = self.fold.head
        self._failure = None

    def close(self, refusal: Callable[[], AgentError]) -> None:
        """Refuse whatever is still to be recorded, with errors of `refusal`: it is given up."""
        self._refusal = refusal

    def _give_up(self, silent: StoreSilentError) -> None:
        """Take note that a store did not answer in time.

        What it was asked for may happen all the same: as after any failed append, nothing may
        follow before the log is read.
        """
        self._is_abandoned = True
        self._failure = self._failure or silent

    def _refuse_when_over(self) -> None:
        """Raise why nothing is recorded any more: the session was given up, or the store failed."""
        if self._refusal is not None:
            raise self._refusal()
        if self._failure is not None:
            raise self._failure

    async def refold(self, derive: Callable[[], Awaitable[SessionFold]]) -> None:
        """Derive the session anew from its log, while nothing is appended to it."""
        async with self._lock:
            derived = await derive()

            # The next request counts what it sends: on the loop, unless that is done by then.
            def count() -> None:
                derived.conversation.counts.update()

            await beside_the_loop(len(derived.conversation), count)
            self.fold.become(derived)

    def _stage(self, events: Sequence[Event]) -> None:
        """Queue events with their `seq`: all of them, or none if one could not be read back."""
        # The lookup decides; `isinstance` is there for the type checker.
        for event in events:
            if type(event) in _ENTRIES and isinstance(event, Entry) and not event.is_checked:
                refuse_unreadable(event)
        for event in events:
            if type(event) in _ENTRIES and isinstance(event, Entry):
                self._seq += 1
                self._staged.append(msgspec.structs.replace(event, seq=self._seq))
            else:
                self._staged.append(event)

    async def _flush(self) -> None:
        """Append and show everything that is staged. Called under the lock."""
        if self._late_flush is not None:
            self._late_flush.cancel()
            self._late_flush = None
        # More may be staged during the append, and stays for the next. Nothing is removed before
        # the append returns, so a cancelled one is repeated with the same entries.
        batch = self._staged.copy()
        entries = [each for each in batch if type(each) in _ENTRIES and isinstance(each, Entry)]
        consumed = tuple(self._consumed)
        if entries or consumed:
            try:
                await self._log.append(self._lease, entries, consumed=consumed)
            # Kept: the append may have been stored all the same, so nothing may follow before the
            # log is read.
            except AgentError as error:
                self._failure = error
                raise
            except Exception as error:  # noqa: BLE001 - a store of the user's may raise anything
                self._failure = failure = StoreError(
                    ErrorCode.UNAVAILABLE, f"the store failed: {type(error).__name__}: {error}"
                )
                raise failure from without_secrets(error)
            del self._consumed[: len(consumed)]
        del self._staged[: len(batch)]
        self._fold_and_show(batch)

    def _fold_and_show(self, batch: Sequence[Event]) -> None:
        """Fold and show what is in the log now, but not what a hook said to the log alone."""
        shown: list[Event] = []
        groups = [shown]
        for event in batch:
            if type(event) in _ENTRIES and isinstance(event, Entry):
                # Before `apply`, which drops the text that makes an ended part whole.
                if event.is_public:
                    shown.append(self.fold.compose(event))
                self.fold.apply(event)
            else:
                shown.append(event)
            if type(event) is QueryEnded:
                self.stopped = None
                if self._unstored_ends.pop(event.query_id, None) is not None:
                    shown.pop()  # it was shown when it happened
                # What was staged after it is shown apart: it is no business of the query's.
                groups.append(shown := [])
        for events in groups:
            if events:
                self.show(events)
                self._appended(events)


def ends_of_cut_off(fold: SessionFold, clock: Clock) -> list[QueryEnded]:
    """Return the ends of queries that have none, because their process stopped or its store failed.

    For a moment in which no query runs and a prompt comes. The open turn and its tool calls get no
    end here: what became of them is not known, and the conversation says so.
    """
    error = RequestError(ErrorCode.ABORTED, _CUT_OFF).report
    # A query whose prompt still waits, because the append of its start was torn, starts again.
    waiting = {item.message.query_id for item in fold.inputs.values()}
    return [
        QueryEnded(**Stamp(clock, query_id=query_id)(), stop_reason="aborted", error=error)
        for query_id in fold.unended
        if query_id not in waiting
    ]


class Recorder:
    """Writes the entries of one query to the log and shows its events, in one order.

    - Entries among `events` are durable, and folded into the conversation, before any of the
      events is shown.
    - Events of all callers are shown in the order in which they were recorded.
    - `record` returns once no consumer is too far behind; cancelling that wait loses nothing.
    - What was recorded first is in the log first, also when two callers record at the same time: a
      decision that is made before the first wait rests on everything recorded before it.
    - A store that fails raises a `StoreError`; nothing of the batch is shown.
    - What is staged is recorded with the next events, in one append, or by itself after a moment.
      Until then it may be neither folded nor shown, and nothing may be done that rests on it.
    - From the moment the query is stopped nothing comes through. What works for it may be the
      user's and not let itself be cancelled (a hook, a provider): it is left behind, and can
      neither append nor start anything, since every effect is recorded first.
    """

    def __init__(
        self,
        recorder: SessionRecorder,
        channel: ControlChannelInterface,
        *,
        signal: AbortSignal,
        stopped: "asyncio.Future[None]",
    ) -> None:
        self._recorder = recorder
        recorder.stopped = stopped
        self._channel = channel
        self._signal = signal
        # A tuple that is made once, because it is handed over whenever a consumer is waited for.
        self._stopped = (stopped,)

    async def record(self, events: Sequence[Event]) -> None:
        """Make `events` durable, then visible; wait until no consumer is too far behind.

        Raises:
            RequestError: ABORTED once the query was stopped.

        """
        if self._signal.aborted:
            raise query_stopped()
        await self._recorder.commit(events)
        # Looked at here, to save a call for every delta.
        if not self._channel.has_space:
            await self._channel.wait_for_space(unless=self._stopped)

    def stage(self, events: Sequence[Event]) -> None:
        """Take `events` in, to be recorded with what comes next.

        Raises:
            RequestError: ABORTED once the query was stopped.

        """
        if self._signal.aborted:
            raise query_stopped()
        self._recorder.stage(events)

    def show(self, events: Sequence[LiveEvent]) -> None:
        """Show live-only events, unless the query was stopped."""
        if not self._signal.aborted:
            self._recorder.show(events)
