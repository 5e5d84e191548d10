"""Puts a conversation together from the records of a file, one after the other.

Every importer speaks to one builder. It joins neighbours of one role, names the results of tools
after their calls, keeps what is no message, and counts.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import NamedTuple

import msgspec

from haptera.formats.bounded_input import (
    ByteStream,
    NotJsonError,
    bounded_lines,
    parsed,
    refused,
)
from haptera.formats.values import (
    ImportedSession,
    ImportLimits,
    ImportReport,
    OpaqueRecord,
    TimedMessage,
    WhyOpaque,
)
from haptera.model.ids import CallId, new_message_id
from haptera.model.json_types import Json, JsonObject
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import (
    CompactionPart,
    Part,
    ProviderPart,
    ReminderPart,
    ToolCallPart,
    ToolResultPart,
)
from haptera.model.usage import Usage, add_costs

_LONGEST_TITLE = 500
_LONGEST_FACT = 4096
_SHOWN_WARNINGS = 100
_NO_BEGINNING = ReminderPart(
    text="This conversation was imported without its beginning.", persisted=True
)


class AnswerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says of an answer beside its parts."""

    provider: str = ""
    model: str = ""
    usage: Usage | None = None
    finish_reason: str | None = None
    interrupted: bool = False
    cost: Decimal | None = None
    key: str = ""
    """Records with the same key are one answer, whose usage is told in each."""


class SessionFacts(msgspec.Struct, kw_only=True):
    """What a file says of the session as a whole; importers fill it in as they read."""

    title: str | None = None
    cwd: str = ""
    model: str = ""
    system_prompts: tuple[str, ...] = ()
    created: int = 0
    updated: int = 0
    source_id: str = ""


class _Draft(msgspec.Struct, kw_only=True):
    """A message that may still grow."""

    parts: list[Part]
    time: int
    facts: AnswerFacts | None = None
    """None for a user message."""
    stands_alone: bool = False


class MessageBuilder:
    """Collects the messages of one file. Owns their order and what is reported of them."""

    def __init__(self, format_name: str) -> None:
        self.format_name = format_name
        self.facts = SessionFacts()
        self.records = 0
        self._drafts: list[_Draft] = []
        self._inserted: dict[int, list[_Draft]] = {}
        """Summaries that stand before a draft, by its number: many insertions into a list are slow.
        """
        self._inserted_count = 0
        self._opaque: list[OpaqueRecord] = []
        self._opaque_parts: Counter[str] = Counter()
        self._warnings: dict[str, None] = {}
        self._names: dict[CallId, str] = {}
        self._counts: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()
        self._system: list[str] = []

    def __len__(self) -> int:
        """Return how many messages there are, without summaries that were put before others."""
        return len(self._drafts)

    def user(self, parts: Iterable[Part], *, time: int = 0) -> None:
        """Add what was said to the model; results of tools come first in their message."""
        added = [self._counted(part) for part in parts]
        self._note_time(time)
        if not added:
            return
        tip = self._tip()
        # Not into a summary: it stands for what came before, and this comes after it.
        if tip is not None and tip.facts is None and not tip.stands_alone:
            tip.parts += added
        else:
            self._drafts.append(_Draft(parts=added, time=time))

    def system(self, texts: Iterable[str]) -> None:
        """Take what comes before the conversation for a prompt, and what comes later for a note."""
        said = [text for text in texts if text]
        if self._drafts:
            self.user([ReminderPart(text=text, persisted=True) for text in said])
        else:
            self._system += said

    def assistant(self, parts: Iterable[Part], facts: AnswerFacts, *, time: int = 0) -> None:
        """Add what a model said; what follows it without a user's word in between is joined."""
        added = [self._counted(part) for part in parts]
        self._note_time(time)
        tip = self._tip()
        if tip is not None and tip.facts is not None:
            tip.parts += added
            tip.facts = _joined(tip.facts, facts)
        elif added:
            self._drafts.append(_Draft(parts=added, time=time, facts=facts))

    def compaction(self, text: str, *, time: int = 0, before: int | None = None) -> None:
        """Add a summary that stands for everything before it, or before a message's number.

        The number is what `len` of the builder was before the message was added.
        """
        self._note_time(time)
        draft = _Draft(parts=[CompactionPart(text=text)], time=time, stands_alone=True)
        if before is None:
            self._drafts.append(draft)
        else:
            self._inserted.setdefault(before, []).append(draft)
            self._inserted_count += 1

    def _tip(self) -> _Draft | None:
        """Return what comes last so far."""
        number = len(self._drafts)
        if inserted := self._inserted.get(number):
            return inserted[-1]
        return self._drafts[-1] if self._drafts else None

    def usage_of_last_answer(self, usage: Usage) -> None:
        """Add usage that the file tells after the answer."""
        tip = next((draft for draft in reversed(self._drafts) if draft.facts is not None), None)
        if tip is not None and tip.facts is not None:
            counted = tip.facts.usage
            total = usage if counted is None else counted + usage
            tip.facts = msgspec.structs.replace(tip.facts, usage=total)

    def drop_prompts(self, count: int) -> None:
        """Take back the last prompts of the user with everything that followed them."""
        while count > 0 and self._drafts:
            self._inserted_count -= len(self._inserted.pop(len(self._drafts), ()))
            dropped = self._drafts.pop()
            # A message of results or a summary alone was not typed by the user.
            is_prompt = dropped.facts is None and any(
                not isinstance(part, ToolResultPart | CompactionPart) for part in dropped.parts
            )
            count -= is_prompt

    def opaque(self, kind: str, why: WhyOpaque, *, place: int, raw: bytes, time: int = 0) -> None:
        """Keep a record that is no message."""
        after = len(self._drafts) + self._inserted_count
        self._opaque.append(
            OpaqueRecord(kind=kind, why=why, place=place, raw=raw, after=after, time=time)
        )

    def unreadable(self, place: int, raw: bytes) -> None:
        """Keep a line that is not what it should be."""
        self.opaque("", "unreadable", place=place, raw=raw)
        self.warn(f"line {place} is not a JSON object")

    def opaque_part(self, payload: Json) -> ProviderPart:
        """Return a part that keeps a piece of a message which is not understood."""
        fields: JsonObject = payload if isinstance(payload, dict) else {"value": payload}
        kind = fields.get("type")
        self._opaque_parts[kind if isinstance(kind, str) else "?"] += 1
        return ProviderPart(provider=self.format_name, model="", payload=fields)

    def leave_out(self, what: str, count: int = 1) -> None:
        """Count things of the file that the session does not have; what there is one of is many."""
        self._left_out[what] += count

    def warn(self, text: str) -> None:
        """Report something that a user should know; each thing once."""
        if len(self._warnings) < _SHOWN_WARNINGS:
            self._warnings[text] = None

    def _in_order(self) -> Iterator[_Draft]:
        for number, draft in enumerate(self._drafts):
            yield from self._inserted.get(number, ())
            yield draft
        yield from self._inserted.get(len(self._drafts), ())

    def finish(self, what: str) -> ImportedSession:
        """Return the session; a file without any message is refused as not being `what`."""
        drafts = [draft for draft in self._in_order() if draft.parts]
        if not drafts:
            raise refused(f"there is no message in this file; it is not {what}, or it is empty")
        if drafts[0].facts is not None:
            # A conversation begins with the user; an answer before that would be left out of it.
            drafts.insert(0, _Draft(parts=[_NO_BEGINNING], time=drafts[0].time))
        messages = tuple(map(_message_of, drafts))
        facts, times = self.facts, [each.time for each in messages if each.time]
        return ImportedSession(
            format=self.format_name,
            messages=messages,
            title=one_line(facts.title, _LONGEST_TITLE) or None,
            cwd=one_line(facts.cwd, _LONGEST_FACT),
            model=one_line(facts.model, _LONGEST_FACT),
            system_prompts=(*facts.system_prompts, *self._system),
            created=facts.created or min(times, default=0),
            updated=max([facts.updated, *times], default=0),
            source_id=one_line(facts.source_id, _LONGEST_FACT),
            opaque=tuple(self._opaque),
            report=self._report(messages),
        )

    def _report(self, messages: tuple[TimedMessage, ...]) -> ImportReport:
        orphans = self._counts["orphans"]
        if orphans:
            self.warn(f"{orphans} results answer no tool call of this file")
        for what, count in self._left_out.items():
            self.warn(f"left out: {count} {what}")
        return ImportReport(
            records=self.records,
            messages=len(messages),
            tool_calls=self._counts["calls"],
            tool_results=self._counts["results"],
            opaque=dict(Counter(record.kind or "unreadable" for record in self._opaque)),
            opaque_parts=dict(self._opaque_parts),
            warnings=tuple(self._warnings),
        )

    def _counted(self, part: Part) -> Part:
        if isinstance(part, ToolCallPart):
            self._counts["calls"] += 1
            self._names[part.call_id] = part.name
        elif isinstance(part, ToolResultPart):
            self._counts["results"] += 1
            self._counts["orphans"] += part.call_id not in self._names
            if not part.name:
                return msgspec.structs.replace(part, name=self._names.get(part.call_id, ""))
        return part

    def _note_time(self, time: int) -> None:
        self.facts.updated = max(self.facts.updated, time)


class FileLine(NamedTuple):
    """A line of a file that is to hold a JSON object."""

    number: int
    raw: bytes
    fields: JsonObject
    is_object: bool
    """Whether it holds one; the fields are empty otherwise."""


def object_lines(
    stream: ByteStream, limits: ImportLimits, builder: MessageBuilder
) -> Iterator[FileLine]:
    """Yield the lines of a file, also those that are not what they should be."""
    for number, raw in bounded_lines(stream, limits):
        builder.records += 1
        try:
            fields = parsed(raw, limits, f"line {number}")
        except NotJsonError:
            fields = None
        is_object = isinstance(fields, dict)
        yield FileLine(number, raw, fields if is_object else {}, is_object)


def _joined(first: AnswerFacts, second: AnswerFacts) -> AnswerFacts:
    # Records of one answer repeat its usage and cost: the last one has them. Those of different
    # answers are added.
    is_same = bool(second.key) and first.key == second.key
    usage = second.usage if is_same or first.usage is None else first.usage
    if not is_same and first.usage is not None and second.usage is not None:
        usage = first.usage + second.usage
    cost = second.cost if is_same else add_costs(first.cost, second.cost)
    return msgspec.structs.replace(
        second,
        provider=second.provider or first.provider,
        model=second.model or first.model,
        usage=usage,
        cost=cost,
    )


def _message_of(draft: _Draft) -> TimedMessage:
    message: Message
    facts = draft.facts
    if facts is None:
        # Providers want the results of calls before anything else that the user says.
        results = [part for part in draft.parts if isinstance(part, ToolResultPart)]
        others = [part for part in draft.parts if not isinstance(part, ToolResultPart)]
        message = UserMessage(id=new_message_id(), parts=(*results, *others), time=draft.time)
        return TimedMessage(message=message, time=draft.time)
    message = AssistantMessage(
        id=new_message_id(),
        parts=tuple(draft.parts),
        time=draft.time,
        provider=facts.provider,
        model=facts.model,
        usage=facts.usage,
        cost=facts.cost,
        finish_reason=facts.finish_reason,
        interrupted=facts.interrupted,
    )
    return TimedMessage(message=message, time=draft.time, cost=facts.cost)


def one_line(text: str | None, longest: int) -> str:
    """Return text without control characters, cut to a length: what a file says of itself."""
    return "".join(each if each.isprintable() else " " for each in text or "")[:longest].strip()
