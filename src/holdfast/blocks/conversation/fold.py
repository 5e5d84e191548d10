"""The fold: everything a session is, derived from its entries one by one.

The same code runs live and on reopening. The fold is total: any prefix of any log leaves a
conversation in which every tool call is answered when it is sent. Results that were not recorded
are made here, and never written to the log.
"""

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import ClassVar

import msgspec

from holdfast.blocks.conversation.conversation import Conversation, end_last, joined, merged
from holdfast.blocks.conversation.conversation import ConversationInterface as Messages
from holdfast.blocks.conversation.conversation import UntoldNotes as Notes
from holdfast.blocks.conversation.native_place import NativePlace
from holdfast.blocks.conversation.open_turn import OpenTurn
from holdfast.blocks.conversation.paths import current_path
from holdfast.blocks.conversation.tool_calls import (
    CallRecord,
    StandingApprovals,
    answer_message,
    approval_request,
    edited_history,
    heal_history,
    open_calls,
    said_at,
    with_distinct_calls,
)
from holdfast.vocabulary.approvals import ApprovalRequest
from holdfast.vocabulary.entries import (
    ApprovalRequested,
    ApprovalSettled,
    Compaction,
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
    SessionOpened,
    Snapshot,
    ToolEnded,
    ToolStarted,
    TranscriptMirrored,
    TurnDiscarded,
    TurnEnded,
    TurnStarted,
    UnknownEntry,
    UsageReported,
)
from holdfast.vocabulary.ids import ApprovalId, CallId, InputId, MessageId, QueryId
from holdfast.vocabulary.messages import AssistantMessage, KeptOptions, Message, UserMessage
from holdfast.vocabulary.parts import CompactionPart, ReminderPart
from holdfast.vocabulary.settings import Settings, changed_settings
from holdfast.vocabulary.stream_parts import FinishKind
from holdfast.vocabulary.usage import Usage, add_costs

_BEFORE = ReminderPart(text="What was said before is summarised in the next message.")
_CONTINUE = ReminderPart(text="The answer above was cut off. Go on from where it ends.")

_GOES_ON: frozenset[FinishKind | None] = frozenset({"pause", "compaction"})
"""Finishes after which a provider wants its own answer back, and goes on with it."""


class SessionFold:
    """The state of one session after the entries applied so far."""

    def __init__(self, conversation: Messages | None = None) -> None:
        self.head = 0
        self.opened: SessionOpened | None = None
        self.title: str | None = None
        self.native = NativePlace()
        self.settings = Settings()
        self.configured: frozenset[str] = frozenset()
        """Names of settings that were last set by `configure`, not at an opening."""
        self.query_options = KeptOptions()
        """What the last query was told, without what its first turn needed once that was over."""
        self.conversation = Conversation() if conversation is None else conversation
        self.open_query: QueryStarted | None = None
        self.last_query: QueryEnded | None = None
        self.open_turn: OpenTurn | None = None
        self.last_finish: FinishKind | None = None
        """How the last answer finished; None when it was cut off or something came after it."""
        self.calls: dict[CallId, CallRecord] = {}
        self.approvals: dict[ApprovalId, ApprovalRequested] = {}
        self._before_merge: AssistantMessage | None = None
        """The answer that the tip went on with; it stays when what was added is discarded."""
        self.standing = StandingApprovals()
        self.inputs: dict[InputId, InputQueued] = {}
        self.notes = Notes()
        self.usage = Usage()
        self.cost: Decimal | None = Decimal(0)

    def become(self, other: "SessionFold") -> None:
        """Take over everything from another fold.

        In place, because queries and sessions hold on to this object.
        """
        vars(self).update(vars(other))

    def apply(self, entry: Entry) -> None:
        """Apply one entry."""
        if entry.seq:
            self.head = entry.seq
        self._steps[type(entry)](self, entry)

    def compose(self, entry: Entry) -> Entry:
        """Return an entry as consumers see it: an ended part is whole. Call before `apply`."""
        if isinstance(entry, PartEnded) and self.open_turn is not None:
            return self.open_turn.compose(entry)
        return entry

    def sent_view(self, prompt: UserMessage | None = None) -> tuple[Message, ...]:
        """Return what a request sends: alternating, answered, ending with a user message.

        With a `prompt`, what would be sent if it were said now.
        """
        view = self.conversation.wire_view()
        for message in (*self._unsettled(), *((self.notes.lead(prompt),) if prompt else ())):
            view = joined(view, message)
        if view and isinstance(view[0], AssistantMessage):
            # A provider compacts inside its own answer, and no provider hears an answer first.
            view = (UserMessage(id=MessageId(f"{view[0].id}_before"), parts=(_BEFORE,)), *view)
        tip = view[-1] if view else None
        if isinstance(tip, AssistantMessage) and self.last_finish not in _GOES_ON:
            view = (*view, UserMessage(id=MessageId(f"{tip.id}_continue"), parts=(_CONTINUE,)))
        return view

    def is_answered(self) -> bool:
        """Whether the last thing that happened is a complete answer that asks for nothing."""
        answered = self.last_finish is not None and self.last_finish not in _GOES_ON
        return answered and not self.calls and self._tip_assistant() is not None

    def committed_messages(self) -> tuple[Message, ...]:
        """Return the whole conversation without an answer that is still being written."""
        assistant, calls = self._tip_assistant(), list(self.calls.values())
        view = self.conversation.messages
        return joined(view, answer_message(assistant, calls)) if assistant and calls else view

    def messages(self) -> tuple[Message, ...]:
        """Return the whole conversation, with what is known of an unfinished answer."""
        view = self.conversation.messages
        for message in self._unsettled():
            view = joined(view, message)
        return view

    def pending_approvals(self) -> tuple[ApprovalRequest, ...]:
        """Return the approvals that wait for an answer."""
        session_id = self.opened.session_id if self.opened else None
        return tuple(approval_request(entry, session_id) for entry in self.approvals.values())

    def unfinished_query(self) -> QueryId | None:
        """Return the query that can be carried on: one that never ended, or rests on approvals."""
        if self.open_query is not None:
            return self.open_query.query_id
        last = self.last_query
        return last.query_id if last is not None and last.stop_reason == "approval" else None

    def is_resting(self) -> bool:
        """Whether the last query rests on approvals and was not carried on."""
        return self.open_query is None and self.unfinished_query() is not None

    def _unsettled(self) -> list[Message]:
        """Return what settling would add to the conversation now."""
        added: list[Message] = []
        assistant, calls = self._tip_assistant(), list(self.calls.values())
        if assistant is not None and calls:
            added.append(answer_message(assistant, calls))
        partial = self.open_turn.message() if self.open_turn else None
        if partial is not None:
            partial = with_distinct_calls(partial)
            added.append(partial)
            if partial.tool_calls:
                records = [CallRecord(part=part) for part in partial.tool_calls]
                added.append(answer_message(partial, records))
        return added

    def _settle(self) -> None:
        """Make what is unfinished part of the conversation, as it is."""
        if self.open_turn is not None or self.calls:
            for message in self._unsettled():
                self._push(message)
            self.open_turn = None
            self.calls.clear()
        self.approvals.clear()

    def _inherit(self) -> None:
        """Take over a conversation from another session: what was unfinished there, rests here."""
        self._settle()
        self.open_query = self.last_query = None
        self.inputs.clear()
        self.standing.clear()
        self.usage, self.cost = Usage(), Decimal(0)

    def _keep_through(self, message_id: MessageId | None) -> None:
        """Go back to a message that the session began with; its calls keep their results."""
        messages = self.messages()
        places = [place for place, item in enumerate(messages) if item.id == message_id]
        if places:
            kept, dropped = messages[: places[0] + 1], messages[places[0] + 1 :]
            self.conversation.set_history(kept)
            tip = self._tip_assistant()
            self._open_calls(open_calls(tip, dropped[0] if dropped else None) if tip else ())

    def _push(self, message: Message) -> None:
        self._before_merge = None
        if isinstance(message, AssistantMessage) and (tip := self._tip_assistant()) is not None:
            self._before_merge = tip
            self.conversation.remove_last()
            message = merged(tip, message)
        self.conversation.push(message)

    def _open_calls(self, records: Iterable[CallRecord]) -> None:
        self.calls = {record.part.call_id: record for record in records}

    def _push_prompt(self, message: UserMessage, *, time: int) -> None:
        """Let a prompt in; what waited for something is settled by it."""
        self._settle()
        self._push(said_at(self.notes.tell(message), time))

    def _tip_assistant(self) -> AssistantMessage | None:
        tip = self.conversation.tip
        return tip if isinstance(tip, AssistantMessage) else None

    # One step per kind; `_steps` names every kind there is.

    def _on_session_opened(self, entry: SessionOpened) -> None:
        self.opened = entry
        self.title = entry.title
        self.settings = entry.settings
        self.configured = frozenset(entry.configured)
        if entry.parent is None:
            self.conversation.set_history(heal_history(entry.history))
        else:
            self._inherit()
            if entry.forked_after is not None:
                self._keep_through(entry.forked_after)
        self.native = self.native.opened(entry, self.conversation.tip)

    def _on_session_changed(self, entry: SessionChanged) -> None:
        changes = entry.changes
        self.title = changes.get("title", self.title)
        self.native = self.native.changed(changes)
        if "settings" in changes:
            self.settings = changed_settings(self.settings, changes["settings"])
            names = frozenset(changes["settings"])
            is_configured = entry.origin == "configure"
            self.configured = self.configured | names if is_configured else self.configured - names

    def _on_input_queued(self, entry: InputQueued) -> None:
        self.inputs[entry.input_id] = entry

    def _on_input_promoted(self, entry: InputPromoted) -> None:
        if (queued := self.inputs.pop(entry.input_id, None)) is not None:
            self._push_prompt(queued.message, time=queued.time)

    def _on_input_drained(self, entry: InputDrained) -> None:
        self.inputs.pop(entry.input_id, None)

    def _on_query_started(self, entry: QueryStarted) -> None:
        self.open_query = entry
        self.query_options = entry.options
        self.standing.start_query(entry)
        if entry.message is not None:
            self._push_prompt(entry.message, time=entry.time)

    def _on_query_ended(self, entry: QueryEnded) -> None:
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
        if self.query_options.require_tool is not None and not entry.interrupted:
            self.query_options = msgspec.structs.replace(self.query_options, require_tool=None)
        if turn is not None and (message := turn.message(entry)) is not None:
            self._push(with_distinct_calls(message))
            self._open_calls(open_calls(message) if message.tool_calls else ())

    def _on_turn_discarded(self, entry: TurnDiscarded) -> None:
        tip = self._tip_assistant()
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
        if requested is not None:
            self.standing.settle(requested, entry)
        if (call := self.calls.get(entry.call_id)) is not None:
            call.settle(requested, entry)

    def _on_tool_started(self, entry: ToolStarted) -> None:
        if (call := self.calls.get(entry.call_id)) is not None:
            call.start(idempotent=entry.idempotent)

    def _on_tool_ended(self, entry: ToolEnded) -> None:
        if (call := self.calls.get(entry.call_id)) is not None:
            call.end(entry.outcome, entry.content, time=entry.time)

    def _on_usage_reported(self, entry: UsageReported) -> None:
        self.native = self.native.reported(entry)

    def _on_compaction(self, entry: Compaction) -> None:
        if entry.strategy == "native":
            return  # the agent's own history is shorter, ours is not
        self._settle()
        summary = CompactionPart(text=entry.summary)
        message_id = MessageId(f"{entry.id}_summary")
        self.conversation.push(
            UserMessage(id=message_id, parts=(summary,), time=entry.time),
            kept_from=entry.kept_from,
        )
        self.notes.tell_again()

    def _on_rewound(self, entry: Rewound) -> None:
        for call in self.calls.values():
            call.withdraw_approval()  # it was given for what would have come next then
        if self.opened is not None and entry.to_seq == self.opened.seq:
            self._keep_through(entry.message_id)

    def _on_history_edited(self, entry: HistoryEdited) -> None:
        self._settle()
        tip = self.conversation.tip
        self.conversation.set_history(edited_history(self.conversation.messages, entry))
        if self.conversation.tip is not tip:
            self.last_finish = None
        self._before_merge = None
        self.native = self.native.left_behind()

    def _change_nothing(self, entry: Entry) -> None:
        """Pass over what is for people, or for a later version."""

    _steps: ClassVar[dict[type[Entry], Callable[..., None]]] = {
        SessionOpened: _on_session_opened,
        SessionChanged: _on_session_changed,
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
        **dict.fromkeys(
            (RetryScheduled, Snapshot, HookMessage, TranscriptMirrored, UnknownEntry),
            _change_nothing,
        ),
    }


def fold_entries(entries: Sequence[Entry], *, inherited: Sequence[Entry] = ()) -> SessionFold:
    """Fold a log into a session, on top of what it inherits from the one it was forked from."""
    fold = SessionFold()
    for entry in (*inherited, *current_path(entries)):
        fold.apply(entry)
    fold.head = entries[-1].seq if entries else 0
    return fold
