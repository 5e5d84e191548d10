"""Claude Code's session files: JSON lines, a tree of messages by `parentUuid`, in and out.

Each line names its parent. An answer is several lines with one `message.id`, and the result of each
of its calls is the child of that call's line: so the way from the last line to the first misses the
calls that were made in parallel, and they have to be added to it.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath

from haptera.formats.anthropic_messages.decoding import answer_facts, read_parts
from haptera.formats.anthropic_messages.document import BlockWriter, leaves_out
from haptera.formats.bounded_input import ByteStream
from haptera.formats.forms import (
    derived_uuid,
    iso_time,
    json_line,
    milliseconds_of,
    object_in,
    session_uuid,
    text_in,
    without_reminder_tags,
)
from haptera.formats.message_builder import (
    FileLine,
    MessageBuilder,
    object_lines,
)
from haptera.formats.values import (
    LIMITS,
    ImportedSession,
    ImportLimits,
    SessionExport,
    TimedMessage,
    WhyOpaque,
)
from haptera.model.json_types import JsonObject, objects_in
from haptera.model.messages import AssistantMessage
from haptera.model.parts import (
    CompactionPart,
    Part,
    ReminderPart,
    TextPart,
    ToolResultPart,
)
from haptera.model.usage import Usage

__all__ = ["FORMAT", "leaves_out", "read_claude_code", "suggested_path", "write_claude_code"]

FORMAT = "claude-code"

_COMMANDS = ("<command-name>", "<command-message>", "<local-command-", "<bash-")
"""How lines begin that tell of commands which the program itself carried out."""
_VERSION = "2.1.0"
"""What lines say of the program that wrote them; Claude Code compares it with nothing."""


def suggested_path(export: SessionExport) -> PurePosixPath:
    """Return where Claude Code looks for the file, below the home folder."""
    folder = "".join(each if each.isascii() and each.isalnum() else "-" for each in export.cwd)
    name = f"{session_uuid(export.session_id)}.jsonl"
    return PurePosixPath(".claude", "projects", folder or "-", name)


def write_claude_code(export: SessionExport) -> Iterator[bytes]:
    """Write the lines of a session that `claude --resume` goes on with."""
    writer = _Writer(export)
    if export.title:
        title = {"type": "custom-title", "customTitle": export.title}
        yield json_line({**title, "sessionId": writer.session})
    for each in export.messages:
        yield from map(json_line, writer.lines(each))
    yield json_line(
        {
            "type": "last-prompt",
            "lastPrompt": writer.last_prompt,
            "leafUuid": writer.parent,
            "sessionId": writer.session,
        }
    )


class _Writer:
    """Writes messages as lines, each the child of the one before."""

    def __init__(self, export: SessionExport) -> None:
        self.export = export
        self.session = session_uuid(export.session_id)
        self.blocks = BlockWriter(export)
        self.parent: str | None = None
        self.last_prompt = ""
        self._lines = 0

    def lines(self, each: TimedMessage) -> Iterator[JsonObject]:
        if isinstance(each.message, AssistantMessage):
            yield from self._answer(each, each.message)
            return
        parts_said: list[Part] = []
        for part in each.message.parts:
            if isinstance(part, CompactionPart) and part.text.strip():
                yield from self._compaction(part, each.time)
            elif isinstance(part, ToolResultPart):
                yield from self._user([part], each)
            elif isinstance(part, ReminderPart):
                yield from self._user([part], each, isMeta=True)
            else:
                parts_said.append(part)
        self.last_prompt = each.message.text or self.last_prompt
        yield from self._user(parts_said, each)

    def _answer(self, each: TimedMessage, message: AssistantMessage) -> Iterator[JsonObject]:
        """Write one line for every block, as Claude Code does; what they share is the id."""
        blocks = self.blocks.blocks(message, message.parts)
        calls = any(block["type"] == "tool_use" for block in blocks)
        for block in blocks:
            written = {
                "id": message.id,
                "type": "message",
                "role": "assistant",
                "model": message.model,
                "content": [block],
                "stop_reason": "tool_use" if calls else "end_turn",
                "stop_sequence": None,
                "usage": _usage_fields(message.usage or Usage()),
            }
            yield self._line({"type": "assistant", "message": written}, each.time)

    def _user(self, parts: list[Part], each: TimedMessage, **marks: bool) -> Iterator[JsonObject]:
        blocks = self.blocks.blocks(each.message, parts)
        if not blocks:
            return
        is_plain = len(blocks) == 1 and blocks[0]["type"] == "text"
        content = blocks[0]["text"] if is_plain else blocks
        message = {"role": "user", "content": content}
        yield self._line({"type": "user", "message": message, **marks}, each.time)

    def _compaction(self, part: CompactionPart, time: int) -> Iterator[JsonObject]:
        """Write a boundary, at which the tree begins anew, and the summary behind it."""
        before, self.parent = self.parent, None
        boundary = {
            "type": "system",
            "subtype": "compact_boundary",
            "content": "Conversation compacted",
            "isMeta": False,
            "level": "info",
            "compactMetadata": {"trigger": "manual", "preTokens": 0},
            **({"logicalParentUuid": before} if before else {}),
        }
        yield self._line(boundary, time)
        message = {"role": "user", "content": part.text}
        marks = {"isCompactSummary": True, "isVisibleInTranscriptOnly": True}
        yield self._line({"type": "user", "message": message, **marks}, time)

    def _line(self, fields: JsonObject, time: int) -> JsonObject:
        self._lines += 1
        # Derived, not random, so that a session is written as the same bytes each time.
        own = derived_uuid(f"{self.session}/{self._lines}")
        line = {
            "parentUuid": self.parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": self.export.cwd or "/",
            "sessionId": self.session,
            "version": _VERSION,
            "gitBranch": "",
            **fields,
            "uuid": own,
            "timestamp": iso_time(time or self.export.created),
        }
        self.parent = own
        return line


def _usage_fields(usage: Usage) -> JsonObject:
    return {
        "input_tokens": usage.fresh_input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
    }


def read_claude_code(stream: ByteStream, limits: ImportLimits = LIMITS) -> ImportedSession:
    """Read a session file: the branch that ends with its last message.

    Lines of other branches, of sub-agents and of the program's own bookkeeping are kept as opaque
    records.

    Raises:
        ConfigError: CONFIG_INVALID if there is no message in it, or it exceeds a limit.

    """
    builder = MessageBuilder(FORMAT)
    tree = _read_tree(stream, limits, builder)
    on_branch = tree.branch()
    for line in tree.lines:
        if line.number in on_branch and _add(line, builder):
            continue
        if not line.is_object:
            builder.unreadable(line.number, line.raw)
        elif not line.is_understood:
            is_message = line.kind in {"user", "assistant"}
            why: WhyOpaque = "another branch" if is_message else "not conversation"
            builder.opaque(line.kind, why, place=line.number, raw=line.raw, time=line.time)
    _note_facts(tree, builder)
    return builder.finish("a session of Claude Code")


def _note_facts(tree: "_LineTree", builder: MessageBuilder) -> None:
    facts = builder.facts
    facts.title = tree.title
    messages = [line for line in tree.lines if line.kind in {"user", "assistant"}]
    facts.cwd = next((cwd for line in messages if (cwd := text_in(line.fields, "cwd"))), "")
    names = (text_in(line.fields, "sessionId") for line in reversed(messages))
    facts.source_id = next((name for name in names if name), "")
    models = (text_in(object_in(line.fields, "message"), "model") for line in reversed(messages))
    facts.model = next((f"anthropic/{model}" for model in models if model), "")


def _add(line: "_TreeLine", builder: MessageBuilder) -> bool:
    """Add what a line says to the conversation; False if it says nothing in it."""
    message = object_in(line.fields, "message")
    if line.kind == "attachment":
        return _add_queued(line, builder)
    if line.kind == "user" and message:
        return _add_said(line, message, builder)
    if line.kind != "assistant" or not message or _is_made_by_program(line.fields):
        return False
    parts = read_parts(message.get("content"), builder)
    builder.assistant(parts, answer_facts(message), time=line.time)
    return True


def _add_said(line: "_TreeLine", message: JsonObject, builder: MessageBuilder) -> bool:
    parts = read_parts(message.get("content"), builder)
    if line.fields.get("isCompactSummary") is True:
        texts = [part.text for part in parts if isinstance(part, TextPart)]
        builder.compaction("".join(texts), time=line.time)
        return True
    # Shown to the user, but never sent to the model.
    if line.fields.get("isVisibleInTranscriptOnly") is True:
        return False
    is_note = line.fields.get("isMeta") is True
    builder.user([_as_said(part, is_note=is_note) for part in parts], time=line.time)
    return True


def _add_queued(line: "_TreeLine", builder: MessageBuilder) -> bool:
    """Add a prompt that was typed while the model worked; such prompts are attachments."""
    attachment = object_in(line.fields, "attachment")
    prompt = attachment.get("prompt")
    if attachment.get("type") != "queued_command" or not isinstance(prompt, str | list):
        return False
    builder.user(read_parts(prompt, builder), time=line.time)
    return True


def _as_said(part: Part, *, is_note: bool) -> Part:
    """Return what the user said, and as notes what Claude Code says to the model in their name."""
    if not isinstance(part, TextPart) or not (is_note or part.text.startswith(_COMMANDS)):
        return part
    return ReminderPart(text=without_reminder_tags(part.text), persisted=True)


def _is_made_by_program(fields: JsonObject) -> bool:
    """Whether an answer is a notice of the program's, which no model said."""
    model = text_in(object_in(fields, "message"), "model")
    return fields.get("isApiErrorMessage") is True or model == "<synthetic>"


_TITLES = {"summary": "summary", "custom-title": "customTitle", "ai-title": "aiTitle"}
_MESSAGES = frozenset({"user", "assistant"})


class _TreeLine:
    """A line of the file with what its place in the tree is."""

    def __init__(self, line: FileLine) -> None:
        self.number, self.raw, self.fields, self.is_object = line
        self.kind = text_in(self.fields, "type")
        self.time = milliseconds_of(self.fields.get("timestamp"))
        self.uuid = text_in(self.fields, "uuid")
        # The line of a compaction has no parent: the logical one leads to what came before.
        self.parent = text_in(self.fields, "parentUuid", "logicalParentUuid")
        is_aside = self.fields.get("isSidechain") is True
        self.is_message = self.kind in _MESSAGES and not is_aside
        self.is_understood = self.kind in _TITLES or self.kind == "last-prompt"
        """Whether it told something of the session as a whole, so that it need not be kept."""


class _LineTree:
    """All lines of a file. Owns the choice of those that are the conversation."""

    def __init__(self, builder: MessageBuilder) -> None:
        self.lines: list[_TreeLine] = []
        self.title: str | None = None
        self._builder = builder
        self._titles: dict[str, str] = {}
        self._leaf = ""
        self._indexes: dict[str, int] = {}

    def add(self, line: _TreeLine) -> None:
        """Take in one line."""
        self.lines.append(line)
        if line.uuid:
            self._indexes[line.uuid] = len(self.lines) - 1
        if line.is_message and line.uuid:
            self._leaf = line.uuid
        elif line.kind == "last-prompt" and text_in(line.fields, "leafUuid") in self._indexes:
            # Claude Code goes on from this line, which need not be the last one of the file.
            self._leaf = text_in(line.fields, "leafUuid")
        if line.kind in _TITLES and (title := text_in(line.fields, _TITLES[line.kind])):
            self._titles[line.kind] = title
            order = ("custom-title", "ai-title", "summary")
            self.title = next(self._titles[kind] for kind in order if kind in self._titles)

    def branch(self) -> set[int]:
        """Return the numbers of the lines that lead to the last message."""
        messages = [line for line in self.lines if line.is_message]
        if not messages or any(not line.uuid for line in messages):
            return {line.number for line in self.lines}  # a file without a tree is one branch
        way = self._way_to(self._leaf)
        answers = {self._answer_of(line) for line in way} - {""}
        together = [line for line in messages if self._answer_of(line) in answers]
        calls = {name for line in together for name in _ids_of(line, "tool_use", "id")}
        results = [
            line
            for line in messages
            if calls.intersection(_ids_of(line, "tool_result", "tool_use_id"))
        ]
        return {line.number for line in (*way, *together, *results)}

    def _way_to(self, leaf: str) -> list[_TreeLine]:
        way: list[_TreeLine] = []
        seen: set[str] = set()
        name = leaf
        while name in self._indexes and name not in seen:
            seen.add(name)
            line = self.lines[self._indexes[name]]
            way.append(line)
            name = line.parent
        if name in seen:
            self._builder.warn("lines name each other as parents in a circle; it was cut")
        elif name:
            self._builder.warn("the beginning of this session is not in this file")
        return way

    @staticmethod
    def _answer_of(line: _TreeLine) -> str:
        return text_in(object_in(line.fields, "message"), "id") if line.kind == "assistant" else ""


def _ids_of(line: "_TreeLine", kind: str, name: str) -> set[str]:
    blocks = objects_in(object_in(line.fields, "message").get("content"))
    return {text_in(block, name) for block in blocks if block.get("type") == kind} - {""}


def _read_tree(stream: ByteStream, limits: ImportLimits, builder: MessageBuilder) -> _LineTree:
    """Read the lines of a file."""
    tree = _LineTree(builder)
    for line in object_lines(stream, limits, builder):
        tree.add(_TreeLine(line))
    return tree
