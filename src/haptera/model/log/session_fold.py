"""SessionFold: what a session is after the entries folded so far, and the views of it.

Each entry changes it by its own `apply`, with the operations here that several kinds share. The
fold is total: any prefix of any log leaves a conversation in which every tool call is answered when
it is sent. Results that were not recorded are made here, and never written to the log.
"""

from collections.abc import Iterable
from decimal import Decimal

from haptera.model.approvals import ApprovalRequest
from haptera.model.ids import ApprovalId, CallId, InputId, MessageId, QueryId
from haptera.model.log.approvals import (
    ApprovalRequested,
    ApprovalSettled,
    StandingApprovals,
)
from haptera.model.log.compactions import Compacted
from haptera.model.log.conversation import (
    Conversation,
    ConversationInterface,
    is_compaction,
    joined,
    merged_answers,
)
from haptera.model.log.entry import Entry
from haptera.model.log.fold_points import FoldPoints
from haptera.model.log.landmarks import Landmarks
from haptera.model.log.native import NativeSessionState
from haptera.model.log.notes import UntoldNotes
from haptera.model.log.queries import InputQueued, QueryEnded, QueryStarted
from haptera.model.log.sessions import SessionOpened
from haptera.model.log.tools import (
    CallRecord,
    answer_message,
    open_calls,
    said_at,
    with_distinct_calls,
)
from haptera.model.log.turns import OpenTurn, PartEnded
from haptera.model.log.workspace import ContextLoaded
from haptera.model.messages import AssistantMessage, KeptOptions, Message, UserMessage
from haptera.model.parts import ReminderPart
from haptera.model.settings import Settings
from haptera.model.stream_parts import FinishKind
from haptera.model.usage import Usage

_BEFORE = ReminderPart(text="What was said before is summarised in the next message.")
_CONTINUE = ReminderPart(text="The answer above was cut off. Go on from where it ends.")

_GOES_ON: frozenset[FinishKind | None] = frozenset({"pause", "compaction"})
"""Finishes after which a provider wants its own answer back, and goes on with it."""


class SessionFold:
    """The state of one session, changed by each entry that is applied, and the views of it."""

    # What each of them is, is said here; `__init__` gives them their first values.
    head: int
    opened: SessionOpened | None
    title: str | None
    native: NativeSessionState
    settings: Settings
    configured: frozenset[str]
    """Names of settings that were last set by `configure`, not at an opening."""
    query_options: KeptOptions
    """What the last query was told, without what its first turn needed once that was over."""
    conversation: ConversationInterface
    open_query: QueryStarted | None
    last_query: QueryEnded | None
    unended: dict[QueryId, None]
    """Queries of the whole log, also of what was rewound, that have no end and were not resumed, in
    their order. The running one is among them."""
    open_turn: OpenTurn | None
    last_finish: FinishKind | None
    """How the last answer finished; None when it was cut off or something came after it."""
    calls: dict[CallId, CallRecord]
    approvals: dict[ApprovalId, ApprovalRequested]
    child_answers: dict[ApprovalId, ApprovalSettled]
    """Answers to what sub-agents asked, by the id of the question in their sessions."""
    standing: StandingApprovals
    inputs: dict[InputId, InputQueued]
    notes: UntoldNotes
    context: ContextLoaded | None
    """The context files and skills that the model is told."""
    snapshot_error: str | None
    """Why the last snapshot of the workspace could not be taken."""
    usage: Usage
    cost: Decimal | None
    compacted: Compacted
    points: FoldPoints
    """Earlier states, to go back to without reading the whole log."""
    lacks_texts: bool
    """Whether it was folded from a stored state, without the messages from before that."""
    folded_at: int
    """The `seq` of the last entry that says what the session was; 0 when it does not hold now."""
    landmarks: Landmarks | None
    """The rewinds and stored states of the whole log; None when it was read in part only."""
    listed: MessageId | None
    """The last message that a stored state lists; None: none does."""
    rewound_at: int | None
    """The `seq` of the rewind that brought the conversation where it is, if one did."""
    before_merge: AssistantMessage | None
    """The answer that the tip went on with; it stays when what was added is discarded."""

    def __init__(self, conversation: ConversationInterface | None = None) -> None:
        self.head = 0
        self.opened = None
        self.title = None
        self.native = NativeSessionState()
        self.settings = Settings()
        self.configured = frozenset()
        self.query_options = KeptOptions()
        self.conversation = Conversation() if conversation is None else conversation
        self.open_query = self.last_query = None
        self.unended = {}
        self.open_turn = None
        self.last_finish = None
        self.calls = {}
        self.approvals = {}
        self.child_answers = {}
        self.standing = StandingApprovals()
        self.inputs = {}
        self.notes = UntoldNotes()
        self.context = None
        self.snapshot_error = None
        self.usage = Usage()
        self.cost = Decimal(0)
        self.compacted = Compacted()
        self.points = FoldPoints()
        self.lacks_texts = False
        self.folded_at = 0
        self.landmarks = Landmarks()
        self.listed = None
        self.rewound_at = None
        self.before_merge = None

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
        entry.apply(self)

    def apply_all(self, entries: Iterable[Entry]) -> None:
        """Apply the entries of a log, which leaves `head` to the caller."""
        for entry in entries:
            entry.apply(self)

    def compose(self, entry: Entry) -> Entry:
        """Return an entry as consumers see it: an ended part is whole. Call before `apply`."""
        if isinstance(entry, PartEnded) and self.open_turn is not None:
            return self.open_turn.compose(entry)
        return entry

    def settle(self) -> None:
        """Make what is unfinished part of the conversation, as it is."""
        if self.open_turn is not None or self.calls:
            started = self.open_turn.started if self.open_turn is not None else None
            # The same messages that a request would have shown: what was sent does not change.
            for message in self._unsettled():
                is_of_turn = started is not None and message.id == started.message_id
                self.push(message, started.seq if started is not None and is_of_turn else None)
            self.open_turn = None
            self.calls.clear()
        self.approvals.clear()
        self.child_answers.clear()

    def end_all(self) -> None:
        """Carry nothing on that was begun elsewhere; it stays in the conversation as it is."""
        self.settle()
        self.open_query = self.last_query = None
        self.unended.clear()
        # What waits there starts there, and what was permitted there was not permitted here.
        self.inputs.clear()
        self.standing.clear()

    def keep_through(self, message_id: MessageId | None) -> None:
        """Go back to a message that the session began with; its calls keep their results."""
        messages = self.messages()
        indexes = [index for index, item in enumerate(messages) if item.id == message_id]
        if indexes:
            kept, dropped = messages[: indexes[0] + 1], messages[indexes[0] + 1 :]
            self.points.clear()
            self.conversation.set_history(kept)
            tip = self.tip_answer()
            # The message after an answer holds the results of its calls, if it has any.
            self.take_calls(open_calls(tip, dropped[0] if dropped else None) if tip else ())

    def push(self, message: Message, seq: int | None) -> None:
        """Add a message and note its first entry; without a `seq`, that of the message before."""
        before, self.before_merge = self.conversation.tip, None
        # No provider takes two answers in a row: the second goes on with the first.
        if isinstance(message, AssistantMessage) and isinstance(before, AssistantMessage):
            self.before_merge = before
            self.conversation.remove_last()
            message = merged_answers(before, message)
        self.conversation.push(message)
        tip = self.conversation.tip
        # The conversation joins prompts, so that the message may begin with an earlier one.
        is_joined = before is not None and tip is not None and tip.id == before.id
        after = before if is_joined or seq is None else self.before_merge
        self.compacted.note_first_entry(tip, seq, after=after)

    def take_calls(self, records: Iterable[CallRecord]) -> None:
        """Let calls wait for their results, instead of those before."""
        self.calls = {record.part.call_id: record for record in records}

    def push_prompt(self, message: UserMessage, *, time: int, seq: int) -> None:
        """Let a prompt in; what waited for something is settled by it."""
        self.settle()
        start = min(seq, self.notes.since or seq)
        message = self.notes.tell(message) if self.notes.untold else message
        self.push(said_at(message, time), start)

    def sent_view(self, prompt: UserMessage | None = None) -> tuple[Message, ...]:
        """Return what a request sends: alternating, answered, ending with a user message.

        With a `prompt`, what would be sent if it were said now.
        """
        view = self.settled_view()
        if prompt is not None:
            view = joined(view, self.notes.lead(prompt) if self.notes.untold else prompt)
        if view and isinstance(view[0], AssistantMessage):
            # A provider compacts inside its own answer, and no provider hears an answer first.
            view = (UserMessage(id=MessageId(f"{view[0].id}_before"), parts=(_BEFORE,)), *view)
        tip = view[-1] if view else None
        if isinstance(tip, AssistantMessage) and self.last_finish not in _GOES_ON:
            view = (*view, UserMessage(id=MessageId(f"{tip.id}_continue"), parts=(_CONTINUE,)))
        return view

    def settled_view(self) -> tuple[Message, ...]:
        """Return the messages that are sent, with what settling would add to them now."""
        view = self.compacted.as_sent(self.conversation.wire_view())
        for message in self._unsettled() if self.calls or self.open_turn is not None else ():
            view = joined(view, message)
            # As the conversation will have it: a provider may compact inside its answer.
            if is_compaction(view[-1]):
                view = view[-1:]
        return view

    def is_answered(self) -> bool:
        """Whether the last thing that happened is a complete answer that asks for nothing."""
        answered = self.last_finish is not None and self.last_finish not in _GOES_ON
        return answered and not self.calls and self.tip_answer() is not None

    def committed_messages(self) -> tuple[Message, ...]:
        """Return the whole conversation without an answer that is still being written."""
        assistant, calls = self.tip_answer(), list(self.calls.values())
        view = self.conversation.messages
        return joined(view, answer_message(assistant, calls)) if assistant and calls else view

    def messages(self) -> tuple[Message, ...]:
        """Return the whole conversation, with what is known of an unfinished answer."""
        view = self.conversation.messages
        for message in self._unsettled() if self.calls or self.open_turn is not None else ():
            view = joined(view, message)
        return view

    def pending_approvals(self) -> tuple[ApprovalRequest, ...]:
        """Return the approvals that wait for an answer."""
        session_id = self.opened.session_id if self.opened else None
        return tuple(asked.request(session_id) for asked in self.approvals.values())

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
        assistant, calls = self.tip_answer(), list(self.calls.values())
        if assistant is not None and calls:
            added.append(answer_message(assistant, calls))
        partial = self.open_turn.message() if self.open_turn else None
        if partial is not None:
            partial = with_distinct_calls(partial)
            added.append(partial)
            # Calls of an answer that was cut off have not run, and their results say so.
            if partial.tool_calls:
                records = [CallRecord(part=part) for part in partial.tool_calls]
                added.append(answer_message(partial, records))
        return added

    def tip_answer(self) -> AssistantMessage | None:
        """Return the last message, if it is an answer."""
        tip = self.conversation.tip
        return tip if isinstance(tip, AssistantMessage) else None
