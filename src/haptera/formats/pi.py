"""pi's session files, version 3: JSON lines, a tree of entries by `parentId`, in and out."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import PurePosixPath

from haptera.formats.bounded_input import ByteStream
from haptera.formats.forms import (
    iso_time,
    json_line,
    leaves_out,
    milliseconds_of,
    object_in,
    session_uuid,
    text_in,
    without_reminder_tags,
)
from haptera.formats.message_builder import FileLine, MessageBuilder, object_lines
from haptera.formats.pi_messages import (
    PiMessageWriter,
    read_message,
    texts_of,
)
from haptera.formats.values import (
    LIMITS,
    ImportedSession,
    ImportLimits,
    SessionExport,
    TimedMessage,
    WhyOpaque,
)
from haptera.model.json_types import JsonObject
from haptera.model.messages import AssistantMessage
from haptera.model.parts import CompactionPart, ReminderPart
from haptera.model.vendors import split_model

__all__ = ["FORMAT", "leaves_out", "read_pi", "suggested_path", "write_pi"]

FORMAT = "pi"
VERSION = 3
_REMINDER = "haptera.reminder"


def suggested_path(export: SessionExport) -> PurePosixPath:
    """Return where pi looks for the file, below the home folder."""
    plain = export.cwd.removeprefix("/").removeprefix("\\")
    folder = "".join("-" if each in "/\\:" or not each.isprintable() else each for each in plain)
    clock = iso_time(export.created).replace(":", "-").replace(".", "-")
    name = f"{clock}_{session_uuid(export.session_id)}.jsonl"
    return PurePosixPath(".pi", "agent", "sessions", f"--{folder}--", name)


def write_pi(export: SessionExport) -> Iterator[bytes]:
    """Write the lines of a session that `pi --session FILE` goes on with."""
    session = session_uuid(export.session_id)
    begun = {"version": VERSION, "id": session, "timestamp": iso_time(export.created)}
    yield json_line({"type": "session", **begun, "cwd": export.cwd or "/"})
    writer = _Writer(export)
    provider, model = split_model(export.model)
    if model:
        change = {"type": "model_change", "provider": provider, "modelId": model}
        yield json_line(writer.entry(change, export.created))
    for each in export.messages:
        yield from map(json_line, writer.entries(each))
    if export.title:
        named = {"type": "session_info", "name": export.title}
        yield json_line(writer.entry(named, export.updated))


class _Writer:
    """Writes messages as entries, each the child of the one before."""

    def __init__(self, export: SessionExport) -> None:
        self._export = export
        self._messages = PiMessageWriter(export)
        self._parent: str | None = None
        self._count = 0

    def entries(self, each: TimedMessage) -> Iterator[JsonObject]:
        time = each.time or self._export.created
        is_answer = isinstance(each.message, AssistantMessage)
        for part in each.message.parts:
            if isinstance(part, CompactionPart) and part.text and not is_answer:
                yield self._compaction(part, time)
            elif isinstance(part, ReminderPart) and part.text:
                note = {"customType": _REMINDER, "content": part.text, "display": False}
                yield self.entry({"type": "custom_message", **note}, time)
        for message in self._messages.of(each, time):
            yield self.entry({"type": "message", "message": message}, time)

    def entry(self, fields: JsonObject, time: int) -> JsonObject:
        self._count += 1
        # Derived, not random, so that a session is written as the same bytes each time.
        own = sha256(f"{self._export.session_id}/{self._count}".encode()).hexdigest()[:12]
        entry = {**fields, "id": own, "parentId": self._parent, "timestamp": iso_time(time)}
        self._parent = own
        return entry

    def _compaction(self, part: CompactionPart, time: int) -> JsonObject:
        entry = self.entry({"type": "compaction", "summary": part.text, "tokensBefore": 0}, time)
        # Nothing before it is kept: no entry before it has this id.
        return entry | {"firstKeptEntryId": entry["id"]}


def read_pi(stream: ByteStream, limits: ImportLimits = LIMITS) -> ImportedSession:
    """Read a session file: the branch that ends with its last entry.

    Raises:
        ConfigError: CONFIG_INVALID if there is no message in it, or it exceeds a limit.

    """
    builder = MessageBuilder(FORMAT)
    lines = [_EntryLine(line) for line in object_lines(stream, limits, builder)]
    _Reader(builder, lines).read()
    return builder.finish("a session of pi")


class _EntryLine:
    """A line of the file with what its place in the tree is."""

    def __init__(self, line: FileLine) -> None:
        self.number, self.raw, self.fields, self.is_object = line
        self.kind = text_in(self.fields, "type")
        self.id = text_in(self.fields, "id")
        self.parent = text_in(self.fields, "parentId")
        self.time = milliseconds_of(self.fields.get("timestamp"))

    @property
    def name(self) -> str:
        """The kind, and for a message its role."""
        role = text_in(object_in(self.fields, "message"), "role")
        return f"{self.kind}/{role}" if role else self.kind


class _Reader:
    """Reads the entries of one file."""

    def __init__(self, builder: MessageBuilder, lines: list[_EntryLine]) -> None:
        self._builder = builder
        self._lines = lines
        self._begins: dict[str, int] = {}
        """How many messages there are before an entry, for summaries that keep some of them."""
        self._by_kind: dict[str, Callable[[_EntryLine], bool]] = {
            "session": self._session,
            "message": self._message,
            "compaction": self._compaction,
            "branch_summary": self._branch_summary,
            "custom_message": self._custom_message,
            "session_info": self._session_info,
            "model_change": self._model_change,
        }

    def read(self) -> None:
        branch = self._branch()
        for line in self._lines:
            if not line.is_object:
                self._builder.unreadable(line.number, line.raw)
                continue
            self._begins[line.id] = len(self._builder)
            is_on_branch = line.number in branch
            read = self._by_kind.get(line.kind) if is_on_branch else None
            if read is None or not read(line):
                why: WhyOpaque = "not conversation" if is_on_branch else "another branch"
                self._builder.opaque(
                    line.name, why, place=line.number, raw=line.raw, time=line.time
                )

    def _branch(self) -> set[int]:
        """Return the numbers of the lines that lead to the last entry, and of the header."""
        entries = [line for line in self._lines if line.is_object and line.kind != "session"]
        headers = {line.number for line in self._lines if line.kind == "session"}
        if not entries or not all(line.id for line in entries):
            return {line.number for line in self._lines}  # version 1 had no tree
        by_id = {line.id: line for line in entries}
        way: dict[str, int] = {}
        name = entries[-1].id
        while name in by_id and name not in way:
            way[name] = by_id[name].number
            name = by_id[name].parent
        if name in way:
            self._builder.warn("entries name each other as parents in a circle; it was cut")
        elif name:
            self._builder.warn("the beginning of this session is not in this file")
        return headers | set(way.values())

    def _session(self, line: _EntryLine) -> bool:
        facts = self._builder.facts
        facts.source_id, facts.cwd, facts.created = line.id, text_in(line.fields, "cwd"), line.time
        version = line.fields.get("version", 1)
        if not isinstance(version, int) or version > VERSION:
            self._builder.warn(f"this file has version {version}; versions up to 3 are known")
        return True

    def _message(self, line: _EntryLine) -> bool:
        return read_message(object_in(line.fields, "message"), self._builder, time=line.time)

    def _compaction(self, line: _EntryLine) -> bool:
        summary = text_in(line.fields, "summary")
        if not summary:
            return False
        first_kept = self._begins.get(text_in(line.fields, "firstKeptEntryId"))
        # pi keeps the messages from `firstKeptEntryId` on beside the summary, so it goes before
        # these.
        self._builder.compaction(summary, time=line.time, before=first_kept)
        return True

    def _branch_summary(self, line: _EntryLine) -> bool:
        note = ReminderPart(text=text_in(line.fields, "summary"), persisted=True)
        self._builder.user([note] if note.text else [], time=line.time)
        return bool(note.text)

    def _custom_message(self, line: _EntryLine) -> bool:
        text = "\n".join(texts_of(line.fields.get("content")))
        note = ReminderPart(text=without_reminder_tags(text), persisted=True)
        self._builder.user([note] if text else [], time=line.time)
        return bool(text)

    def _session_info(self, line: _EntryLine) -> bool:
        self._builder.facts.title = text_in(line.fields, "name") or None
        return True

    def _model_change(self, line: _EntryLine) -> bool:
        provider, model = text_in(line.fields, "provider"), text_in(line.fields, "modelId")
        self._builder.facts.model = f"{provider}/{model}"
        return bool(model)
