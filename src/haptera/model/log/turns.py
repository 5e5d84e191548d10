"""Entries about turns: a request to a model, the parts of its answer as they grow, its end."""

from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar

import msgspec

from haptera.model.errors import ErrorReport
from haptera.model.ids import CallId, MessageId, PartId
from haptera.model.log.entry import KEPT, Entry, ImportRule
from haptera.model.log.tools import open_calls, with_distinct_calls
from haptera.model.messages import AnswerStop, AssistantMessage
from haptera.model.parts import CompactionPart, Part, PartKind, ReasoningPart, TextPart
from haptera.model.stream_parts import FinishKind
from haptera.model.usage import Usage, add_costs

if TYPE_CHECKING:
    from haptera.model.log.session_fold import SessionFold

_STOPS: dict[FinishKind, AnswerStop] = {
    "stop": "complete",
    "tool_calls": "tool_calls",
    "length": "max_tokens",
    "context_window": "max_tokens",
    "refusal": "refusal",
    "pause": "pause",
    "compaction": "compaction",
    "other": "complete",
}


class TurnStarted(Entry, frozen=True, kw_only=True, tag="turn.started"):
    """A request to a model begins."""

    survives_rewind: ClassVar[bool] = False
    imported: ClassVar[ImportRule] = ImportRule(
        "ended", ("message_id", "provider", "model", "attempt")
    )
    is_checked: ClassVar[bool] = True
    ends_calls: ClassVar[bool] = True
    message_id: MessageId
    provider: str
    model: str
    attempt: int = 1

    def apply(self, fold: "SessionFold") -> None:
        """Open an answer."""
        fold.settle()
        fold.last_finish = None
        fold.open_turn = OpenTurn(self)


class TurnEnded(Entry, frozen=True, kw_only=True, tag="turn.ended"):
    """A model has answered, or was cut off."""

    survives_rewind: ClassVar[bool] = False
    imported: ClassVar[ImportRule] = KEPT
    is_checked: ClassVar[bool] = True
    message_id: MessageId
    finish: FinishKind | None = None
    """None when the answer was cut off."""
    finish_reason: str | None = None
    usage: Usage = Usage()
    cost: Decimal | None = None
    context_window: int | None = None
    context_tokens: int | None = None
    """How much of the window is in use, where that is not the sum in `usage`; 0 if not known."""
    interrupted: bool = False

    def apply(self, fold: "SessionFold") -> None:
        """Make the answer a message, whose calls wait for their results."""
        fold.usage += self.usage
        fold.cost = add_costs(fold.cost, self.cost)
        turn, fold.open_turn = fold.open_turn, None
        fold.last_finish = self.finish
        # It is for the first turn: a query that is resumed later must not require it again.
        if fold.query_options.require_tool is not None and not self.interrupted:
            fold.query_options = msgspec.structs.replace(fold.query_options, require_tool=None)
        if turn is not None and (message := turn.message(self)) is not None:
            calls = message.tool_calls
            fold.push(with_distinct_calls(message) if calls else message, turn.started.seq)
            fold.take_calls(open_calls(message) if calls else ())

    def answer_after(self, before: int) -> int:
        """Return its own `seq`: the calls of its answer are open now."""
        del before
        return self.seq


class TurnDiscarded(Entry, frozen=True, kw_only=True, tag="turn.discarded"):
    """What this turn has streamed is discarded; consumers remove it."""

    survives_rewind: ClassVar[bool] = False
    imported: ClassVar[ImportRule] = KEPT
    is_checked: ClassVar[bool] = True
    ends_calls: ClassVar[bool] = True
    message_id: MessageId
    reason: str
    error: ErrorReport | None = None

    def apply(self, fold: "SessionFold") -> None:
        """Drop the answer."""
        tip = fold.tip_answer()
        # A turn can be void after its end, too: one that promised tool calls and made none.
        if fold.open_turn is None and tip is not None and tip.id == self.message_id:
            fold.conversation.remove_last()
            if fold.before_merge is not None:
                fold.conversation.push(fold.before_merge)
            fold.calls.clear()
        fold.open_turn = None


class RetryScheduled(Entry, frozen=True, kw_only=True, tag="retry.scheduled"):
    """A failed model call, or with `tool` a failed run of that tool, will be repeated."""

    survives_rewind: ClassVar[bool] = False
    imported: ClassVar[ImportRule] = KEPT
    is_checked: ClassVar[bool] = True
    attempt: int
    """The number of the call that failed; 1 is the first."""
    delay: float
    next_at: int
    error: ErrorReport
    account_limited: bool = False
    call_id: CallId | None = None
    tool: str | None = None

    def apply(self, fold: "SessionFold") -> None:
        """Change nothing: it is for people."""

    def transcript_line(self) -> str:
        """Say what failed, and when it is tried again."""
        return f"{self.error.code}: {self.error.message}; trying again in {self.delay:.0f} s"


class PartStarted(Entry, frozen=True, kw_only=True, tag="part.started"):
    """A part of an answer begins."""

    survives_rewind: ClassVar[bool] = False
    imported: ClassVar[ImportRule] = KEPT
    is_checked: ClassVar[bool] = True
    part_id: PartId
    part_kind: PartKind
    call_id: CallId | None = None
    name: str | None = None

    def apply(self, fold: "SessionFold") -> None:
        """Begin the part in the open answer."""
        if fold.open_turn is not None:
            fold.open_turn.begin(self)


class PartCheckpoint(Entry, frozen=True, kw_only=True, tag="part.checkpoint"):
    """More of a part's text, as an increment from `offset` on (in characters)."""

    survives_rewind: ClassVar[bool] = False
    imported: ClassVar[ImportRule] = KEPT
    is_checked: ClassVar[bool] = True
    part_id: PartId
    offset: int
    text: str

    def apply(self, fold: "SessionFold") -> None:
        """Add the increment in the open answer."""
        if fold.open_turn is not None:
            fold.open_turn.add(self)


class PartEnded(Entry, frozen=True, kw_only=True, tag="part.ended"):
    """A part is complete.

    In a log, `part` holds only what comes after `offset`, so that text is stored once. As an event
    it holds the whole part and `offset` is 0.
    """

    survives_rewind: ClassVar[bool] = False
    imported: ClassVar[ImportRule] = KEPT
    is_checked: ClassVar[bool] = True
    part_id: PartId
    part: Part
    offset: int = 0

    def apply(self, fold: "SessionFold") -> None:
        """Complete the part in the open answer."""
        if fold.open_turn is not None:
            fold.open_turn.complete(self)


GrowingPart = TextPart | ReasoningPart | CompactionPart
"""Parts whose text a log holds in increments."""


class PartTexts:
    """The text so far of the parts that are still growing.

    Owns composition only: does not know the order or the kind of parts.
    """

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: dict[PartId, list[str]] = {}

    def add(self, entry: PartCheckpoint) -> None:
        """Add an increment."""
        # Joined when it is asked for: to join at each increment would copy all text before it each
        # time.
        self._pieces.setdefault(entry.part_id, []).append(entry.text)

    def __contains__(self, part_id: PartId) -> bool:
        return part_id in self._pieces

    def text_of(self, part_id: PartId) -> str:
        """Return the text of a part so far."""
        return "".join(self._pieces.get(part_id, ()))

    def compose(self, entry: PartEnded) -> PartEnded:
        """Return the entry of an ended part with the whole part, as consumers see it."""
        if not entry.offset or not isinstance(entry.part, GrowingPart):
            return entry
        text = "".join((*self._pieces.get(entry.part_id, ()), entry.part.text))
        part = msgspec.structs.replace(entry.part, text=text)
        raw = None if entry.raw is None else _whole(entry.raw, text)
        return msgspec.structs.replace(entry, offset=0, part=part, raw=raw)

    def drop(self, part_id: PartId) -> None:
        """Forget a part that has ended."""
        self._pieces.pop(part_id, None)


def _whole(raw: msgspec.Raw, text: str) -> msgspec.Raw:
    """Put the whole text into a stored entry, and keep what else it holds."""
    fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    part: dict[str, object] = {**msgspec.json.decode(fields["part"], type=dict[str, msgspec.Raw])}
    fields.pop("offset", None)
    return msgspec.Raw(msgspec.json.encode({**fields, "part": {**part, "text": text}}))


class OpenTurn:
    """Collects the parts of one answer from part entries.

    Owns the order and the kinds of the parts; `PartTexts` puts their text together.
    """

    __slots__ = ("_composed", "_parts", "_texts", "started")

    def __init__(self, started: TurnStarted) -> None:
        self.started = started
        self._parts: dict[PartId, Part | PartStarted] = {}
        """In their order; a part that has not ended is the entry that began it."""
        self._texts = PartTexts()
        self._composed: tuple[PartEnded, PartEnded] | None = None
        """The last entry that was composed: it is shown first and applied next."""

    def begin(self, entry: PartStarted) -> None:
        """Begin a part."""
        self._parts[entry.part_id] = entry

    def add(self, entry: PartCheckpoint) -> None:
        """Add an increment to a part."""
        self._texts.add(entry)

    def complete(self, entry: PartEnded) -> None:
        """Complete a part."""
        self._parts[entry.part_id] = self.compose(entry).part
        self._texts.drop(entry.part_id)
        self._composed = None

    def compose(self, entry: PartEnded) -> PartEnded:
        """Return the entry with the whole part, as consumers see it."""
        if not entry.offset:
            return entry
        if self._composed is None or self._composed[0] is not entry:
            self._composed = entry, self._texts.compose(entry)
        return self._composed[1]

    def message(self, ended: TurnEnded | None = None) -> AssistantMessage | None:
        """Return the answer so far, or None when there is nothing worth keeping.

        Without the entry that ends it, the answer was cut off.

        A tool call counts only when it is complete. An interrupted answer that holds nothing but
        reasoning is nothing: no provider takes it back.
        """
        parts = self._kept_parts()
        interrupted = ended is None or ended.interrupted
        if not parts or (interrupted and all(isinstance(part, ReasoningPart) for part in parts)):
            return None
        return AssistantMessage(
            id=self.started.message_id,
            parts=parts,
            query_id=self.started.query_id,
            turn_id=self.started.turn_id,
            provider=self.started.provider,
            model=self.started.model,
            time=self.started.time if ended is None else ended.time,
            usage=None if ended is None else ended.usage,
            cost=None if ended is None else ended.cost,
            stop_reason=_stop_of(ended),
            finish_reason=None if ended is None else ended.finish_reason,
            interrupted=interrupted,
        )

    def _kept_parts(self) -> tuple[Part, ...]:
        parts: list[Part] = []
        for item in self._parts.values():
            part = self._unfinished(item) if isinstance(item, PartStarted) else item
            if part is not None and not _is_empty(part):
                parts.append(part)
        return tuple(parts)

    def _unfinished(self, started: PartStarted) -> Part | None:
        text = self._texts.text_of(started.part_id)
        match started.part_kind:
            case "text":
                return TextPart(id=started.part_id, text=text)
            case "reasoning":
                return ReasoningPart(id=started.part_id, text=text)
            # Half a summary would be sent instead of all that came before it, and half a call is
            # none.
            case _:
                return None


def _stop_of(ended: TurnEnded | None) -> AnswerStop:
    if ended is None or ended.finish is None:
        return "interrupted"
    return _STOPS[ended.finish]


def _is_empty(part: Part) -> bool:
    if isinstance(part, ReasoningPart):
        # Providers that hide their reasoning send no text, but want the signature or their own form
        # back.
        return not part.text and part.signature is None and part.native is None
    return isinstance(part, (TextPart, CompactionPart)) and not part.text
