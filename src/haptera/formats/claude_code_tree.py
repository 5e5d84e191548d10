"""The lines of a Claude Code session as a tree, and the branch that counts.

Each line names its parent. An answer is several lines with one `message.id`, and the result of each
of its calls is the child of that call's line: so the way from the last line to the first misses the
calls that were made in parallel, and they have to be added to it.
"""

from haptera.formats.bounded_input import ByteStream
from haptera.formats.forms import (
    milliseconds_of,
    object_in,
    text_in,
)
from haptera.formats.message_builder import (
    FileLine,
    MessageBuilder,
    object_lines,
)
from haptera.formats.values import ImportLimits
from haptera.model.json_types import objects_in

_TITLES = {"summary": "summary", "custom-title": "customTitle", "ai-title": "aiTitle"}
_MESSAGES = frozenset({"user", "assistant"})


class TreeLine:
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


class LineTree:
    """All lines of a file. Owns the choice of those that are the conversation."""

    def __init__(self, builder: MessageBuilder) -> None:
        self.lines: list[TreeLine] = []
        self.title: str | None = None
        self._builder = builder
        self._titles: dict[str, str] = {}
        self._leaf = ""
        self._indexes: dict[str, int] = {}

    def add(self, line: TreeLine) -> None:
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

    def _way_to(self, leaf: str) -> list[TreeLine]:
        way: list[TreeLine] = []
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
    def _answer_of(line: TreeLine) -> str:
        return text_in(object_in(line.fields, "message"), "id") if line.kind == "assistant" else ""


def _ids_of(line: TreeLine, kind: str, name: str) -> set[str]:
    blocks = objects_in(object_in(line.fields, "message").get("content"))
    return {text_in(block, name) for block in blocks if block.get("type") == kind} - {""}


def read_tree(stream: ByteStream, limits: ImportLimits, builder: MessageBuilder) -> LineTree:
    """Read the lines of a file."""
    tree = LineTree(builder)
    for line in object_lines(stream, limits, builder):
        tree.add(TreeLine(line))
    return tree
