"""The fold: everything a session is, derived from its entries one by one.

The same code runs live and on reopening. The fold is total: any prefix of any log leaves a
conversation in which every tool call is answered when it is sent. Results that were not recorded
are made here, and never written to the log.
"""

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import ClassVar

import msgspec

from haptera.kernel.blocks.conversation.conversation import end_last, merged_answers
from haptera.kernel.blocks.conversation.fold_points import FoldPoint, copied_fold
from haptera.kernel.blocks.conversation.folded_session import FoldedSession
from haptera.kernel.blocks.conversation.open_turn import OpenTurn
from haptera.kernel.blocks.conversation.paths import current_path
from haptera.kernel.blocks.conversation.tool_calls import (
    CallRecord,
    edited_history,
    heal_history,
    open_calls,
    said_at,
    with_distinct_calls,
)
from haptera.model.approvals import ChildApproval
from haptera.model.commands import CommandEnded
from haptera.model.compactions import Compaction
from haptera.model.context_files import ContextLoaded
from haptera.model.entries import (
    FOLDED,
    ApprovalRequested,
    ApprovalSettled,
    ContextNoted,
    Entry,
    HistoryEdited,
    HookMessage,
    InputDrained,
    InputPromoted,
    InputQueued,
    PartCheckpoint,
    PartEnded,
    PartStarted,
    QueryEnded,
    QueryStarted,
    RetryScheduled,
    Rewound,
    SessionChanged,
    SessionImported,
    SessionOpened,
    ToolEnded,
    ToolStarted,
    TranscriptMirrored,
    TurnDiscarded,
    TurnEnded,
    TurnStarted,
    UnknownEntry,
    UsageReported,
)
from haptera.model.file_snapshots import Snapshot
from haptera.model.ids import MessageId, QueryId
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import CompactionPart, Part, ReminderPart, TextPart
from haptera.model.settings import believed_settings
from haptera.model.usage import Usage, add_costs

_CHILD_LEFT = (
    "This call was cancelled: it waited for an answer, and the conversation went on without one."
)

_FIRST = 1
"""The `seq` of the opening: whatever needs it needs all entries, also those that are inherited."""


class SessionFold(FoldedSession):
    """The state of one session, changed by each entry that is applied."""

    def become(self, other: "SessionFold") -> None:
        """Take over everything from another fold.

        In place, because queries and sessions hold on to this object.
        """
        vars(self).update(vars(other))

    def apply(self, entry: Entry) -> None:
        """Apply one entry."""
        # 0: what became of a call on another path (`current_path`).
        if entry.seq:
            self.head = entry.seq
        self._steps[type(entry)](self, entry)

    def apply_all(self, entries: Iterable[Entry]) -> None:
        """Apply the entries of a log, which leaves `head` to the caller."""
        steps = self._steps
        for entry in entries:
            steps[type(entry)](self, entry)

    def compose(self, entry: Entry) -> Entry:
        """Return an entry as consumers see it: an ended part is whole. Call before `apply`."""
        if isinstance(entry, PartEnded) and self.open_turn is not None:
            return self.open_turn.compose(entry)
        return entry

    def _settle(self) -> None:
        """Make what is unfinished part of the conversation, as it is."""
        if self.open_turn is not None or self.calls:
            started = self.open_turn.started if self.open_turn is not None else None
            # The same messages that a request would have shown: what was sent does not change.
            for message in self._unsettled():
                is_of_turn = started is not None and message.id == started.message_id
                self._push(message, started.seq if started is not None and is_of_turn else None)
            self.open_turn = None
            self.calls.clear()
        self.approvals.clear()
        self.child_answers.clear()

    def _end_all(self) -> None:
        """Carry nothing on that was begun elsewhere; it stays in the conversation as it is."""
        self._settle()
        self.open_query = self.last_query = None
        self.unended.clear()
        # What waits there starts there, and what was permitted there was not permitted here.
        self.inputs.clear()
        self.standing.clear()

    def _inherit(self) -> None:
        """Take over a conversation from another session: what was unfinished there, rests here."""
        self._end_all()
        # Untold notes come from entries of the parent: to have them, all entries must be read.
        if self.notes.untold:
            self.notes.since = _FIRST
        self.rewound_at = None  # a rewind of the parent cannot be taken back here
        self.folded_at = 0
        # The parent has paid for it.
        self.usage, self.cost = Usage(), Decimal(0)

    def _keep_through(self, message_id: MessageId | None) -> None:
        """Go back to a message that the session began with; its calls keep their results."""
        messages = self.messages()
        indexes = [index for index, item in enumerate(messages) if item.id == message_id]
        if indexes:
            kept, dropped = messages[: indexes[0] + 1], messages[indexes[0] + 1 :]
            self.points.clear()
            self.conversation.set_history(kept)
            tip = self._tip_assistant()
            # The message after an answer holds the results of its calls, if it has any.
            self._open_calls(open_calls(tip, dropped[0] if dropped else None) if tip else ())

    def _push(self, message: Message, seq: int | None) -> None:
        """Add a message and note its first entry; without a `seq`, that of the message before."""
        before, self._before_merge = self.conversation.tip, None
        # No provider takes two answers in a row: the second goes on with the first.
        if isinstance(message, AssistantMessage) and isinstance(before, AssistantMessage):
            self._before_merge = before
            self.conversation.remove_last()
            message = merged_answers(before, message)
        self.conversation.push(message)
        tip = self.conversation.tip
        # The conversation joins prompts, so that the message may begin with an earlier one.
        is_joined = before is not None and tip is not None and tip.id == before.id
        after = before if is_joined or seq is None else self._before_merge
        self.compacted.note_first_entry(tip, seq, after=after)

    def _open_calls(self, records: Iterable[CallRecord]) -> None:
        self.calls = {record.part.call_id: record for record in records}

    def _push_prompt(self, message: UserMessage, *, time: int, seq: int) -> None:
        """Let a prompt in; what waited for something is settled by it."""
        self._settle()
        start = min(seq, self.notes.since or seq)
        self._push(said_at(self.notes.tell(message), time), start)

    # One step per kind; `_steps` names every kind there is.

    def _on_session_opened(self, entry: SessionOpened) -> None:
        self.opened = entry
        self.title = entry.title
        self.settings = entry.settings
        self.configured = frozenset(entry.configured)
        self.points.clear()
        if entry.parent is None:
            self.conversation.set_history(heal_history(entry.history))
        else:
            self._inherit()
            if entry.forked_after is not None:
                self._keep_through(entry.forked_after)
        # Last, because what comes from another session is in no entry of this one.
        self.compacted.start(entry.seq if entry.parent is None else 0)
        self.native = self.native.opened(entry, self.conversation.tip)

    def _on_session_changed(self, entry: SessionChanged) -> None:
        changes = entry.changes
        if FOLDED in changes:
            self.folded_at = entry.seq
        title = changes.get("title", self.title)
        self.title = title if title is None or isinstance(title, str) else self.title
        self.native = self.native.changed(entry)
        if "settings" in changes:
            self.settings, names = believed_settings(self.settings, changes["settings"])
            # What an opening has named is not set by `configure` any more.
            is_configured = entry.origin == "configure"
            self.configured = self.configured | names if is_configured else self.configured - names

    def _on_session_imported(self, entry: SessionImported) -> None:
        del entry
        self._end_all()

    def _on_input_queued(self, entry: InputQueued) -> None:
        self.inputs[entry.input_id] = entry

    def _on_input_promoted(self, entry: InputPromoted) -> None:
        if (queued := self.inputs.pop(entry.input_id, None)) is not None:
            self._push_prompt(queued.message, time=queued.time, seq=queued.seq)

    def _on_input_drained(self, entry: InputDrained) -> None:
        self.inputs.pop(entry.input_id, None)

    def _on_query_started(self, entry: QueryStarted) -> None:
        if entry.message is not None and entry.seq:
            self.points.offer(vars(self), entry.seq - 1)
        self.open_query = entry
        note_queries(self.unended, entry)
        self.query_options = entry.options
        # The entry names the sender once, in its message; a query that resumes this one has no
        # message.
        if entry.message is not None and entry.message.sender is not None:
            sender = entry.message.sender
            self.query_options = msgspec.structs.replace(entry.options, sender=sender)
        self.standing.start_query(entry)
        if entry.message is not None:
            self._push_prompt(entry.message, time=entry.time, seq=entry.seq)

    def _on_query_ended(self, entry: QueryEnded) -> None:
        note_queries(self.unended, entry)
        if self.open_query is not None and self.open_query.query_id != entry.query_id:
            return  # the late end of a query that was rewound says nothing of this conversation
        self.open_query = None
        self.last_query = entry
        end_last(self.conversation, entry.stop_reason)

    def _on_turn_started(self, entry: TurnStarted) -> None:
        self._settle()
        self.last_finish = None
        self.open_turn = OpenTurn(entry)

    def _on_part(self, entry: PartStarted | PartCheckpoint | PartEnded) -> None:
        if self.open_turn is not None:
            self.open_turn.apply(entry)

    def _on_turn_ended(self, entry: TurnEnded) -> None:
        self.usage += entry.usage
        self.cost = add_costs(self.cost, entry.cost)
        turn, self.open_turn = self.open_turn, None
        self.last_finish = entry.finish
        # It is for the first turn: a query that is resumed later must not require it again.
        if self.query_options.require_tool is not None and not entry.interrupted:
            self.query_options = msgspec.structs.replace(self.query_options, require_tool=None)
        if turn is not None and (message := turn.message(entry)) is not None:
            calls = message.tool_calls
            self._push(with_distinct_calls(message) if calls else message, turn.started.seq)
            self._open_calls(open_calls(message) if calls else ())

    def _on_turn_discarded(self, entry: TurnDiscarded) -> None:
        tip = self._tip_assistant()
        # A turn can be void after its end, too: one that promised tool calls and made none.
        if self.open_turn is None and tip is not None and tip.id == entry.message_id:
            self.conversation.remove_last()
            if self._before_merge is not None:
                self.conversation.push(self._before_merge)
            self.calls.clear()
        self.open_turn = None

    def _on_approval_requested(self, entry: ApprovalRequested) -> None:
        self.approvals[entry.approval_id] = entry

    def _on_approval_settled(self, entry: ApprovalSettled) -> None:
        requested = self.approvals.pop(entry.approval_id, None)
        if requested is not None and requested.child is not None:
            self._settle_child(requested.child, entry)
        elif requested is not None:
            self.standing.settle(requested, entry)
        if (call := self.calls.get(entry.call_id)) is not None:
            call.settle(requested, entry)

    def _settle_child(self, asked: ChildApproval, answer: ApprovalSettled) -> None:
        """Keep an answer for the sub-agent that asked; without one, a call that rests is over."""
        if answer.decision != "cancelled":
            self.child_answers[asked.approval_id] = answer
        elif self.open_query is None and (call := self.calls.get(asked.call_id)) is not None:
            call.end("cancelled", (TextPart(text=_CHILD_LEFT),), time=answer.time)

    def _on_tool_started(self, entry: ToolStarted) -> None:
        if (call := self.calls.get(entry.call_id)) is not None:
            call.start(idempotent=entry.idempotent)

    def _on_tool_ended(self, entry: ToolEnded) -> None:
        if (call := self.calls.get(entry.call_id)) is not None:
            call.end(entry.outcome, entry.content, time=entry.time)

    def _on_usage_reported(self, entry: UsageReported) -> None:
        self.native = self.native.reported(entry)

    def _on_compaction(self, entry: Compaction) -> None:
        self.compacted.last = entry
        self.usage += entry.usage
        self.cost = add_costs(self.cost, entry.cost)
        if entry.strategy in {"native", "server", "none"}:
            return  # what is sent is shorter without us, or was not made shorter
        self._settle()
        self.points.clear()
        if entry.strategy == "prune":
            self.compacted.prune(entry, self.conversation.wire_view())
            return
        parts: tuple[Part, ...] = (CompactionPart(text=entry.summary),)
        parts += tuple(ReminderPart(text=text, persisted=True) for text in entry.reminders)
        message_id = MessageId(f"{entry.id}_summary")
        self.conversation.push(
            UserMessage(id=message_id, parts=parts, time=entry.time), kept_from=entry.kept_from
        )
        self.compacted.summarise(entry)
        # An entry that carries nothing does not say which notes there were.
        self.notes.tell_again(entry.seq if entry.carried is not None else _FIRST)

    def _on_rewound(self, entry: Rewound) -> None:
        for call in self.calls.values():
            call.withdraw_approval()  # it was given for what would have come next then
        self.child_answers.clear()
        if entry.to_seq < self.folded_at:
            self.folded_at = 0
        if entry.message_id is not None:  # taking one back names none
            self.rewound_at = entry.seq
        if self.opened is not None and entry.to_seq == self.opened.seq:
            self._keep_through(entry.message_id)

    def _on_history_edited(self, entry: HistoryEdited) -> None:
        self._settle()
        tip = self.conversation.tip
        self.points.clear()
        self.folded_at = 0
        self.conversation.set_history(edited_history(self.conversation.messages, entry))
        # How the former last message finished says nothing about the new one.
        if self.conversation.tip is not tip:
            self.last_finish = None
        self._before_merge = None
        self.compacted.forget_first_entries()
        self.native = self.native.left_behind()

    def _on_snapshot(self, entry: Snapshot) -> None:
        self.snapshot_error = entry.error

    def _on_context_loaded(self, entry: ContextLoaded) -> None:
        self.context = entry

    def _change_nothing(self, entry: Entry) -> None:
        """Pass over what is for people, or for a later version."""

    # A table by type: long logs are folded when a session is opened, and a `match` would compare
    # each entry with one kind after the other.
    _steps: ClassVar[dict[type[Entry], Callable[..., None]]] = {
        SessionOpened: _on_session_opened,
        SessionChanged: _on_session_changed,
        SessionImported: _on_session_imported,
        InputQueued: _on_input_queued,
        InputPromoted: _on_input_promoted,
        InputDrained: _on_input_drained,
        QueryStarted: _on_query_started,
        QueryEnded: _on_query_ended,
        TurnStarted: _on_turn_started,
        PartStarted: _on_part,
        PartCheckpoint: _on_part,
        PartEnded: _on_part,
        TurnEnded: _on_turn_ended,
        TurnDiscarded: _on_turn_discarded,
        ApprovalRequested: _on_approval_requested,
        ApprovalSettled: _on_approval_settled,
        ToolStarted: _on_tool_started,
        ToolEnded: _on_tool_ended,
        Compaction: _on_compaction,
        Rewound: _on_rewound,
        HistoryEdited: _on_history_edited,
        ContextNoted: lambda fold, entry: fold.notes.take(entry),
        UsageReported: _on_usage_reported,
        Snapshot: _on_snapshot,
        ContextLoaded: _on_context_loaded,
        **dict.fromkeys(
            (RetryScheduled, HookMessage, TranscriptMirrored, CommandEnded, UnknownEntry),
            _change_nothing,
        ),
    }


def fold_entries(entries: Sequence[Entry], *, inherited: Sequence[Entry] = ()) -> SessionFold:
    """Fold a log into a session, on top of what it inherits from the one it was forked from."""
    fold = SessionFold()
    for path in (inherited, current_path(entries)):
        fold.apply_all(path)
    fold.head = entries[-1].seq if entries else 0
    # Not from the path alone: a query that was rewound may have ended, or still be without an end.
    fold.unended.clear()
    for entry in entries:
        note_queries(fold.unended, entry)
    return fold


def copy_fold(fold: SessionFold) -> SessionFold:
    """Return a session as it is at this moment, with no points to go back to."""
    copied = SessionFold()
    vars(copied).update(copied_fold(vars(fold)))
    return copied


def fold_of_fork(parent: SessionFold, opened: SessionOpened) -> SessionFold:
    """Let a copy of another session become the fork of that."""
    parent.apply(opened)
    parent.unended.clear()
    return parent


def fold_at(fold: SessionFold, point: FoldPoint) -> SessionFold:
    """Return a session as it was at one of its points."""
    earlier = SessionFold()
    vars(earlier).update(fold.points.restored(point, vars(fold)))
    return earlier


def fold_through(
    fold: SessionFold, point: FoldPoint, entries: Sequence[Entry], *, through: int | None = None
) -> SessionFold:
    """Fold a session from one of its points up to an entry; `entries` are all after the point."""
    again = fold_at(fold, point)
    again.apply_all(current_path(entries, through=through))
    return again


def fold_from_point(fold: SessionFold, point: FoldPoint, entries: Sequence[Entry]) -> SessionFold:
    """Fold a session anew from one of its points; `entries` are all that follow the point.

    `fold` is the session as it is: the same entries were applied to it, one by one.
    """
    again = fold_through(fold, point, entries)
    again.head = fold.head
    again.unended = dict(fold.unended)
    return again


def note_queries(unended: dict[QueryId, None], entry: Entry) -> None:
    """Note the start or the end of a query; one that is resumed ends with its resumption."""
    if isinstance(entry, SessionImported):
        unended.clear()
    if entry.query_id is None:
        return
    if isinstance(entry, QueryStarted):
        if entry.resumes is not None:
            unended.pop(entry.resumes, None)
        unended[entry.query_id] = None
    elif isinstance(entry, QueryEnded):
        unended.pop(entry.query_id, None)
