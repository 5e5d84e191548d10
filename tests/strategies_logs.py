"""Strategies that make plausible logs: queries with everything in them, cut off anywhere.

A log is written as the engine would write it. A crash may fall between any two entries; the next
process then starts a query, or carries on the unfinished one, in the same log. Ids of calls come
again in other answers. Every choice is one byte of a drawn string, which is quick to draw and
shrinks well.
"""

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial
from typing import (
    Any,
    Literal,
    NamedTuple,
    NewType,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from hypothesis import strategies as st

from haptera.model.approvals import CallFacts, ChildApproval, Ruling
from haptera.model.errors import ErrorCode, RequestError
from haptera.model.ids import (
    CallId,
    MessageId,
    QueryId,
    new_approval_id,
    new_input_id,
    new_message_id,
    new_part_id,
    new_query_id,
    new_session_id,
    new_turn_id,
)
from haptera.model.known_events import KnownEntry
from haptera.model.log.approvals import ApprovalDecision, ApprovalRequested, ApprovalSettled
from haptera.model.log.compactions import Compaction
from haptera.model.log.entry import Entry, UnknownEntry
from haptera.model.log.fold import fold_entries
from haptera.model.log.history import EditAction, HistoryEdited, Rewound
from haptera.model.log.queries import (
    InputDrained,
    InputPromoted,
    InputQueued,
    QueryEnded,
    QueryStarted,
)
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import (
    SessionChanged,
    SessionOpened,
)
from haptera.model.log.tools import ToolEnded, ToolStarted, ToolWaiting
from haptera.model.log.turns import (
    PartCheckpoint,
    PartEnded,
    PartStarted,
    RetryScheduled,
    TurnDiscarded,
    TurnEnded,
    TurnStarted,
)
from haptera.model.messages import AssistantMessage, KeptOptions, Message, Sender, UserMessage
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    Part,
    PartKind,
    ProviderPart,
    ReasoningPart,
    ResultContent,
    TextPart,
    ToolCallPart,
)
from haptera.model.results import StopReason
from haptera.model.settings import Settings
from haptera.model.usage import Usage
from haptera.system.clock import Stamp
from haptera.testing import FakeClock

ValueT = TypeVar("ValueT")

WORDS = ("", "a", "b ", "\nab", "  ", "ba", "é")
DECISIONS: tuple[ApprovalDecision | None, ...] = (None, "approved", "denied", "cancelled")
ASKED = Ruling(action="ask", reason="a rule asks", rule="look(*)", source="user file")
STOPS: tuple[StopReason, ...] = (*("complete", "aborted", "error", "approval", "waiting", "limit"),)
KINDS: tuple[PartKind, ...] = ("text", "tool_call", "reasoning", "compaction", "provider")
CONTENT: tuple[ResultContent, ...] = (
    TextPart(text="seen"),
    MediaPart(mime="image/png", data="iVBORw0KGgo="),
    MediaPart(mime="image/png", data="not base64!", filename="a.png"),
    MediaPart(mime="text/plain", data="never encoded"),
)
BROKEN = RequestError(ErrorCode.NETWORK, "it broke").report


class CrashError(Exception):
    """The process that wrote the log is gone."""


class Start(NamedTuple):
    """A tool that was started, as the effects outside the log show it."""

    message_id: MessageId
    call_id: CallId
    idempotent: bool
    seq: int


def a_prompt(*parts: ResultContent | str, query_id: QueryId | None = None) -> UserMessage:
    said = tuple(TextPart(text=part) if isinstance(part, str) else part for part in parts)
    return UserMessage(id=new_message_id(), parts=said, query_id=query_id)


class LogWriter:
    """Writes entries with their `seq`, until the crash that was drawn for it."""

    def __init__(
        self, choices: bytes, *, inherited: Sequence[Entry] = (), started: Iterable[Start] = ()
    ) -> None:
        self._choices = iter(choices)
        self.inherited = inherited
        self.started = list(started)
        """Every start of a tool, in order; those before a fork have no `seq` here."""
        self.rests: list[int] = [1]
        """The `seq` of entries after which nothing was written for a while."""
        self.entries: list[Entry] = []
        self.clock = FakeClock()
        self.lives = 0
        """Entries until the next crash; 0 means none comes."""

    def add(self, entry: Entry) -> None:
        self.entries.append(msgspec.structs.replace(entry, seq=len(self.entries) + 1))
        if self.lives:
            self.lives -= 1
            if not self.lives:
                raise CrashError

    def fold(self) -> SessionFold:
        """Return the session as the next holder finds it."""
        return fold_entries(self.entries, inherited=self.inherited)

    def number(self, below: int) -> int:
        """Choose a number; 0 once the choices are used up."""
        return next(self._choices, 0) % below

    def one_of(self, options: Sequence[ValueT]) -> ValueT:
        return options[self.number(len(options))]

    def chance(self, *, out_of: int = 2) -> bool:
        return self.number(out_of) == 1

    def stamp(self, query_id: QueryId | None = None) -> Stamp:
        return Stamp(self.clock, query_id=query_id)


class QueryWriter:
    """Writes one query as the engine would."""

    def __init__(self, log: LogWriter, *, resumes: QueryId | None = None) -> None:
        self.log = log
        self.query_id = new_query_id()
        self.resumes = resumes
        self.stamp = log.stamp(self.query_id)
        self.message_id = MessageId("")

    def write(self) -> None:
        self.start()
        self.carry_on()
        for _ in range(1 + self.log.number(3)):
            while self.log.chance(out_of=4):
                self.turn(fails=True)
            calls = self.turn(fails=False)
            self.tools(calls)
            if self.log.chance(out_of=4):
                self.steer()
        self.end()

    def start(self) -> None:
        if self.resumes is not None:
            options = KeptOptions(sender=Sender(user_id="ana"))
            self.log.add(QueryStarted(**self.stamp(), resumes=self.resumes, options=options))
            return
        said = self.log.one_of(WORDS) or "?"
        sent_along = (self.log.one_of(CONTENT),) if self.log.chance(out_of=4) else ()
        message = a_prompt(said, *sent_along, query_id=self.query_id)
        if self.log.chance(out_of=4):
            queued = self.queue(message)
            self.log.add(QueryStarted(**self.stamp()))
            self.log.add(InputPromoted(**self.stamp(), input_id=queued.input_id))
        else:
            self.log.add(QueryStarted(**self.stamp(), message=message))

    def carry_on(self) -> None:
        """Run what an unfinished query left to be run, as the fold knows it."""
        fold = self.log.fold()
        if self.resumes is not None and fold.calls and fold.conversation.tip is not None:
            self.message_id = fold.conversation.tip.id
            self.tools([record.part for record in fold.calls.values() if record.may_run])

    def queue(self, message: UserMessage) -> InputQueued:
        options = KeptOptions()
        if self.log.chance(out_of=4):
            options = KeptOptions(
                settings={"seed": 5}, reminders=("mind",), require_tool="note", timeout=2.5
            )
        queued = InputQueued(
            **self.stamp(),
            input_id=new_input_id(),
            message=message,
            delivery="steer",
            options=options,
        )
        self.log.add(queued)
        return queued

    def steer(self) -> None:
        queued = self.queue(a_prompt("also", query_id=self.query_id))
        if self.log.chance(out_of=4):
            self.log.add(InputDrained(**self.stamp(), input_id=queued.input_id))
        else:
            self.log.add(InputPromoted(**self.stamp(), input_id=queued.input_id))

    def turn(self, *, fails: bool) -> list[ToolCallPart]:
        stamp = self.stamp.of_turn(new_turn_id())
        self.message_id = new_message_id()
        self.log.add(
            TurnStarted(**stamp(), message_id=self.message_id, provider="scripted", model="one")
        )
        parts = []
        for place in range(self.log.number(4)):
            # Some providers give every answer's first call the same id, and a few all of them.
            call_id = CallId(f"call_{0 if self.log.chance(out_of=12) else place}")
            parts.append(self.part(stamp, self.log.one_of(KINDS), call_id))
        if fails:
            self.discard(stamp)
            return []
        cut_off = self.log.chance(out_of=6)
        self.log.add(
            TurnEnded(
                **stamp(),
                message_id=self.message_id,
                finish=None if cut_off else self.log.one_of(("stop", "pause")),
                usage=Usage(input=3, output=2),
                interrupted=cut_off,
            )
        )
        if self.log.chance(out_of=10):
            self.log.add(
                TurnDiscarded(**stamp(), message_id=self.message_id, reason="it named no tools")
            )
            return []
        return [part for part in parts if isinstance(part, ToolCallPart)]

    def discard(self, stamp: Stamp) -> None:
        self.log.add(TurnDiscarded(**stamp(), message_id=self.message_id, reason="failed"))
        self.log.add(RetryScheduled(**stamp(), attempt=1, delay=2.0, next_at=0, error=BROKEN))

    def part(self, stamp: Stamp, kind: PartKind, call_id: CallId) -> Part:
        part_id = new_part_id()
        self.log.add(PartStarted(**stamp(), part_id=part_id, part_kind=kind, call_id=call_id))
        offset = 0
        if kind in ("text", "reasoning", "compaction"):
            for _ in range(self.log.number(3)):
                text = self.log.one_of(WORDS)
                self.log.add(PartCheckpoint(**stamp(), part_id=part_id, offset=offset, text=text))
                offset += len(text)
        rest = self.log.one_of(WORDS)
        parts: dict[PartKind, Part] = {
            "text": TextPart(id=part_id, text=rest),
            "reasoning": ReasoningPart(id=part_id, text=rest),
            "compaction": CompactionPart(id=part_id, text=rest),
            "provider": ProviderPart(id=part_id, provider="scripted", model="one", payload={}),
            "tool_call": ToolCallPart(id=part_id, call_id=call_id, name="look", arguments={}),
        }
        self.log.add(PartEnded(**stamp(), part_id=part_id, offset=offset, part=parts[kind]))
        return parts[kind]

    def tools(self, calls: list[ToolCallPart]) -> None:
        each = list({call.call_id: call for call in reversed(calls)}.values())
        for call in reversed(each) if self.log.chance() else each:
            if self.log.chance(out_of=3) and not self.approved(call):
                continue
            idempotent, seq = self.log.chance(), len(self.log.entries) + 1
            self.log.started.append(Start(self.message_id, call.call_id, idempotent, seq))
            self.log.add(
                ToolStarted(
                    **self.stamp(),
                    call_id=call.call_id,
                    tool=call.name,
                    arguments_hash="",
                    idempotent=idempotent,
                    ruling=ASKED,
                )
            )
            if self.log.chance(out_of=3) and not self.child_answered(call):
                continue  # a sub-agent rests
            if self.log.chance(out_of=4) and not self.answered_later(call):
                continue
            self.log.add(
                ToolEnded(
                    **self.stamp(),
                    call_id=call.call_id,
                    tool=call.name,
                    outcome=self.log.one_of(("ok", "error", "timed_out")),
                    content=(self.log.one_of(CONTENT),),
                )
            )

    def approved(self, call: ToolCallPart) -> bool:
        approval_id = new_approval_id()
        self.log.add(
            ApprovalRequested(
                **self.stamp(),
                approval_id=approval_id,
                call_id=call.call_id,
                tool=call.name,
                arguments={},
                arguments_hash="",
                folder="/work",
                facts=CallFacts(root="/work", path="a", is_confined=True),
                ruling=ASKED,
            )
        )
        decision = self.log.one_of(DECISIONS)
        if decision is not None:
            self.log.add(
                ApprovalSettled(
                    **self.stamp(),
                    approval_id=approval_id,
                    call_id=call.call_id,
                    decision=decision,
                    scope=self.log.one_of(("once", "query", "session", "project")),
                    feedback="go on",
                )
            )
        return decision == "approved"

    def answered_later(self, call: ToolCallPart) -> bool:
        """Let a call wait for its answer; returns whether it comes."""
        self.log.add(
            ToolWaiting(
                **self.stamp(),
                call_id=call.call_id,
                tool=call.name,
                ref=self.log.one_of((None, "order 1")),
                until=self.log.one_of((None, 5)),
                otherwise=self.log.one_of((None, (CONTENT[0],))),
            )
        )
        return self.log.chance()

    def child_answered(self, call: ToolCallPart) -> bool:
        """Let a sub-agent ask something; returns whether it goes on."""
        approval_id, inner = new_approval_id(), CallId(f"{call.call_id}/call_1")
        child = ChildApproval(
            session_id=new_session_id(), approval_id=new_approval_id(), call_id=call.call_id
        )
        self.log.add(
            ApprovalRequested(
                **self.stamp(),
                approval_id=approval_id,
                call_id=inner,
                tool="inner",
                arguments={},
                arguments_hash="",
                child=child,
            )
        )
        decision = self.log.one_of(DECISIONS)
        if decision is not None:
            self.log.add(
                ApprovalSettled(
                    **self.stamp(), approval_id=approval_id, call_id=inner, decision=decision
                )
            )
        return decision is not None

    def end(self) -> None:
        self.log.add(
            QueryEnded(
                **self.stamp(),
                stop_reason=self.log.one_of(STOPS),
                message_id=self.message_id,
            )
        )


def _between_queries(log: LogWriter) -> list[Callable[[], Entry]]:
    """Return makers of the entries that belong to no query."""
    stamp = log.stamp()
    return [
        lambda: SessionChanged(**stamp(), changes={"title": None, "settings": {"seed": 4}}),
        lambda: SessionChanged(**stamp(), changes={"settings": {"seed": 6}}, origin="opening"),
        lambda: UnknownEntry(**stamp(), stored_kind="later.invention"),
        lambda: _compaction(log),
        lambda: _edit(log),
        *(partial(_entry_of, log, kind) for kind in get_args(KnownEntry) if kind not in _PLACED),
    ]


_PLACED: frozenset[type[Entry]] = frozenset(
    {
        *(SessionOpened, SessionChanged, Compaction, HistoryEdited, Rewound),
        *(InputQueued, InputPromoted, InputDrained, QueryStarted, QueryEnded),
        *(TurnStarted, TurnEnded, TurnDiscarded, RetryScheduled),
        *(PartStarted, PartCheckpoint, PartEnded),
        *(ApprovalRequested, ApprovalSettled, ToolStarted, ToolWaiting, ToolEnded),
    }
)
"""The kinds whose place and values follow from others. Any other kind is written by its fields."""


def _entry_of(log: LogWriter, kind: type[Entry]) -> Entry:
    """Return an entry of any kind that belongs to no query, its values chosen by their types."""
    made: Entry = _value_of(log, kind, log.stamp()() | {"seq": 0, "raw": None})
    return made


def _value_of(log: LogWriter, hint: Any, given: Mapping[str, Any] | None = None) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(hint, NewType):
        return _value_of(log, hint.__supertype__)
    if origin is Literal:
        return log.one_of(arguments)
    if origin in (Union, types.UnionType):
        return _value_of(log, log.one_of(arguments))
    if origin is tuple:
        return tuple(_value_of(log, arguments[0]) for _ in range(log.number(2)))
    if origin is dict:
        return {"note": log.one_of(WORDS)}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        known, hints = given or {}, get_type_hints(hint)
        names = [name for name in hint.__struct_fields__ if name not in known]
        return hint(**known, **{name: _value_of(log, hints[name]) for name in names})
    return _PLAIN[hint](log)


_PLAIN: dict[Any, Callable[[LogWriter], Any]] = {
    type(None): lambda _: None,
    bool: lambda log: log.chance(),
    int: lambda log: log.number(100),
    float: lambda log: float(log.number(100)),
    str: lambda log: log.one_of(WORDS),
    Decimal: lambda log: Decimal(log.number(100)),
    ErrorCode: lambda log: log.one_of(list(ErrorCode)),
    Any: lambda log: log.one_of(WORDS),
}


def _edit(log: LogWriter) -> HistoryEdited:
    """Remove, replace or add a message, also where there is none and with calls that never ran."""
    target = log.one_of((*(item.id for item in log.fold().messages()), None, MessageId("gone")))
    message_id = new_message_id()
    call = ToolCallPart(call_id=CallId("edited"), name="work", arguments={})
    actions: tuple[EditAction, ...] = ("remove", "replace", "add")
    messages: tuple[Message, ...] = (
        UserMessage(id=message_id, parts=(TextPart(text="said otherwise"),)),
        AssistantMessage(id=message_id, parts=(TextPart(text="answered"), call)),
    )
    message, action = log.one_of(messages), log.one_of(actions)
    return HistoryEdited(
        **log.stamp()(),
        action=action,
        target=target,
        message=None if action == "remove" else message,
    )


def _compaction(log: LogWriter) -> Compaction:
    """Compact everything, or all but what came after a message, which may be gone by then."""
    messages = (*log.fold().messages(), None)
    kept = log.one_of(messages)
    return Compaction(
        **log.stamp()(),
        trigger="auto",
        strategy="summarise",
        summary="before",
        kept_from=kept.id if kept is not None else log.one_of((None, MessageId("gone"))),
    )


def write_onto(
    log: LogWriter, opened: SessionOpened, *, go_back: Callable[[LogWriter], None] | None = None
) -> LogWriter:
    """Write a whole log: an opening, then queries, crashes and what falls between them."""
    log.add(opened)
    for _ in range(log.number(5)):
        go_on(log)
        if go_back is not None:
            for _ in range(log.number(3)):
                go_back(log)
    return log


def go_on(log: LogWriter) -> None:
    """Write a query, which may crash, and what falls between it and the next one."""
    unfinished = log.fold().unfinished_query() if log.chance() else None
    log.lives = log.number(26)
    with suppress(CrashError):
        QueryWriter(log, resumes=unfinished).write()
    log.lives = 0
    log.rests.append(len(log.entries))
    for _ in range(log.number(3)):
        log.add(log.one_of(_between_queries(log))())


def write_session(
    choices: bytes, *, go_back: Callable[[LogWriter], None] | None = None
) -> LogWriter:
    """Write the log of a session that begins with nothing."""
    log = LogWriter(choices)
    opened = SessionOpened(
        **log.stamp()(), session_id=new_session_id(), settings=Settings(model="a/b")
    )
    return write_onto(log, opened, go_back=go_back)


def write_log(choices: bytes) -> list[Entry]:
    """Write a log without rewinds."""
    return write_session(choices).entries


def logs() -> st.SearchStrategy[list[Entry]]:
    """Return a strategy for whole logs without rewinds."""
    return st.binary(min_size=40, max_size=150).map(write_log)
