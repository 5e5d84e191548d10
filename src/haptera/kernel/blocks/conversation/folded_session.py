"""FoldedSession: what a session is after the entries folded so far, and the views of it.

Nothing here changes it; `SessionFold` does, entry by entry.
"""

from decimal import Decimal

import msgspec

from haptera.kernel.blocks.conversation.compacted import Compacted
from haptera.kernel.blocks.conversation.conversation import (
    Conversation,
    ConversationInterface,
    UntoldNotes,
    is_compaction,
    joined,
)
from haptera.kernel.blocks.conversation.fold_points import FoldPoints
from haptera.kernel.blocks.conversation.native_session_state import NativeSessionState
from haptera.kernel.blocks.conversation.open_turn import OpenTurn
from haptera.kernel.blocks.conversation.tool_calls import (
    CallRecord,
    StandingApprovals,
    answer_message,
    with_distinct_calls,
)
from haptera.model.approvals import ApprovalRequest
from haptera.model.context_files import ContextLoaded
from haptera.model.entries import (
    ApprovalRequested,
    ApprovalSettled,
    InputQueued,
    QueryEnded,
    QueryStarted,
    SessionOpened,
)
from haptera.model.ids import ApprovalId, CallId, InputId, MessageId, QueryId, SessionId
from haptera.model.messages import AssistantMessage, KeptOptions, Message, UserMessage
from haptera.model.parts import ReminderPart
from haptera.model.settings import Settings
from haptera.model.stream_parts import FinishKind
from haptera.model.usage import Usage

_BEFORE = ReminderPart(text="What was said before is summarised in the next message.")
_CONTINUE = ReminderPart(text="The answer above was cut off. Go on from where it ends.")

_GOES_ON: frozenset[FinishKind | None] = frozenset({"pause", "compaction"})
"""Finishes after which a provider wants its own answer back, and goes on with it."""


class FoldedSession:
    """The state of one session, and what is sent, shown and carried on by it."""

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
    folded_at: int
    """The `seq` of the last entry that says what the session was; 0 when it does not hold now."""
    rewound_at: int | None
    """The `seq` of the rewind that brought the conversation where it is, if one did."""
    _before_merge: AssistantMessage | None
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
        self.open_query = None
        self.last_query = None
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
        self.folded_at = 0
        self.rewound_at = None
        self._before_merge = None

    def sent_view(self, prompt: UserMessage | None = None) -> tuple[Message, ...]:
        """Return what a request sends: alternating, answered, ending with a user message.

        With a `prompt`, what would be sent if it were said now.
        """
        view = self.settled_view()
        if prompt is not None:
            view = joined(view, self.notes.lead(prompt))
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
        for message in self._unsettled():
            view = joined(view, message)
            # As the conversation will have it: a provider may compact inside its answer.
            if is_compaction(view[-1]):
                view = view[-1:]
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
        return tuple(_approval_request(entry, session_id) for entry in self.approvals.values())

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
            # Calls of an answer that was cut off have not run, and their results say so.
            if partial.tool_calls:
                records = [CallRecord(part=part) for part in partial.tool_calls]
                added.append(answer_message(partial, records))
        return added

    def _tip_assistant(self) -> AssistantMessage | None:
        tip = self.conversation.tip
        return tip if isinstance(tip, AssistantMessage) else None


def _approval_request(asked: ApprovalRequested, session_id: SessionId | None) -> ApprovalRequest:
    """Return a recorded question as approvers and callers see it."""
    return ApprovalRequest(
        id=asked.approval_id,
        call_id=asked.call_id,
        tool=asked.tool,
        arguments=msgspec.to_builtins(asked.arguments),
        arguments_hash=asked.arguments_hash,
        tool_digest=asked.tool_digest,
        session_id=session_id,
        effect=asked.effect,
        reason=asked.reason,
        folder=asked.folder,
        facts=asked.facts,
        ruling=asked.ruling,
        child=asked.child,
    )
