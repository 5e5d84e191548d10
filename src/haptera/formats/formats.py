"""The formats of other programs by name: how each is read, written, recognised; what it loses."""

import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from haptera.formats import html_page, markdown
from haptera.formats.anthropic_messages import document as anthropic_messages
from haptera.formats.bounded_input import ByteStream, refuse_compressed
from haptera.formats.chat_completions import document as openai_messages
from haptera.formats.forms import text_in
from haptera.formats.values import (
    LIMITS,
    ImportedSession,
    ImportLimits,
    SessionExport,
)
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.json_types import JsonObject
from haptera.model.late_names import on_first_use
from haptera.model.messages import Message
from haptera.model.own_name import FORMER_NAME
from haptera.model.parts import Part
from haptera.options.wording import unknown_name

if TYPE_CHECKING:
    from haptera.formats import (
        ai_sdk,
        claude_code,
        codex,
        langchain,
        opencode,
        pi,
        pydantic_ai,
    )
else:  # a format of another program is imported when a file of it is read or written
    ai_sdk = on_first_use("haptera.formats.ai_sdk")
    claude_code = on_first_use("haptera.formats.claude_code")
    codex = on_first_use("haptera.formats.codex")
    langchain = on_first_use("haptera.formats.langchain")
    opencode = on_first_use("haptera.formats.opencode")
    pi = on_first_use("haptera.formats.pi")
    pydantic_ai = on_first_use("haptera.formats.pydantic_ai")

ARCHIVE = "archive"
_CLAUDE_CODE, _CODEX, _OPENCODE, _PI = "claude-code", "codex", "opencode", "pi"
_PYDANTIC_AI, _LANGCHAIN, _AI_SDK = "pydantic-ai", "langchain", "ai-sdk"
_SQLITE = b"SQLite format 3\0"
_MARKS = {
    _PYDANTIC_AI: (b'"part_kind":"',),
    _LANGCHAIN: (b'{"lc":1,', b'"type":"human"', b'"type":"ai"', b'"type":"system","data"'),
    _AI_SDK: (b'"parts":[{"type":"',),
}
"""What documents of some libraries hold, and no others."""
_HEAD = 64 * 1024
"""How much of a file is looked at to recognise it."""


def _refuse_to_write(_export: SessionExport) -> Iterator[bytes]:
    told = f"this format can be read, but not written; a file can be {', '.join(WRITTEN_FORMATS)}"
    raise ConfigError(ErrorCode.CONFIG_INVALID, told)


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """One format; what a plugin of the group `haptera.formats` is."""

    name: str
    suffix: str
    media_type: str
    write: Callable[[SessionExport], Iterator[bytes]] = _refuse_to_write
    """Raises CONFIG_INVALID for formats of libraries, which are read only."""
    read: Callable[[ByteStream, ImportLimits], ImportedSession] | None = None
    """None for formats that are for people only."""
    leaves_out: Callable[[Message, Part], bool] = lambda _message, _part: False


def _late(module: ModuleType, name: str) -> Callable[..., Any]:
    """Return a function of a module, which is imported when the function is called first."""

    def call(*arguments: object) -> object:
        return getattr(module, name)(*arguments)

    return call


def _known(*formats: Format) -> Mapping[str, Format]:
    return {each.name: each for each in formats}


FORMATS = _known(
    Format(
        name=_CLAUDE_CODE,
        suffix=".jsonl",
        media_type="application/x-ndjson",
        write=_late(claude_code, "write_claude_code"),
        read=_late(claude_code, "read_claude_code"),
        leaves_out=_late(claude_code, "leaves_out"),
    ),
    Format(
        name=_CODEX,
        suffix=".jsonl",
        media_type="application/x-ndjson",
        write=_late(codex, "write_codex"),
        read=_late(codex, "read_codex"),
        leaves_out=_late(codex, "leaves_out"),
    ),
    Format(
        name=_OPENCODE,
        suffix=".json",
        media_type="application/json",
        write=_late(opencode, "write_opencode"),
        read=_late(opencode, "read_opencode"),
        leaves_out=_late(opencode, "leaves_out"),
    ),
    Format(
        name=_PI,
        suffix=".jsonl",
        media_type="application/x-ndjson",
        write=_late(pi, "write_pi"),
        read=_late(pi, "read_pi"),
        leaves_out=_late(pi, "leaves_out"),
    ),
    Format(
        name=openai_messages.FORMAT,
        suffix=".json",
        media_type="application/json",
        write=openai_messages.write_openai_messages,
        read=openai_messages.read_openai_messages,
        leaves_out=openai_messages.leaves_out,
    ),
    Format(
        name=anthropic_messages.FORMAT,
        suffix=".json",
        media_type="application/json",
        write=anthropic_messages.write_anthropic_messages,
        read=anthropic_messages.read_anthropic_messages,
        leaves_out=anthropic_messages.leaves_out,
    ),
    *(
        Format(name=name, suffix=".json", media_type="application/json", read=read)
        for name, read in (
            (_PYDANTIC_AI, _late(pydantic_ai, "read_pydantic_ai")),
            (_LANGCHAIN, _late(langchain, "read_langchain")),
            (_AI_SDK, _late(ai_sdk, "read_ai_sdk")),
        )
    ),
    Format(
        name=markdown.FORMAT,
        suffix=".md",
        media_type="text/markdown",
        write=markdown.write_markdown,
        leaves_out=markdown.leaves_out,
    ),
    Format(
        name=html_page.FORMAT,
        suffix=".html",
        media_type="text/html",
        write=html_page.write_html,
        leaves_out=html_page.leaves_out,
    ),
)

WRITTEN_FORMATS = tuple(
    name for name, each in FORMATS.items() if each.write is not _refuse_to_write
)
READ_FORMATS = tuple(name for name, each in FORMATS.items() if each.read is not None)


def format_named(name: str) -> Format:
    """Return a format; raises CONFIG_INVALID naming those that there are."""
    if name not in FORMATS:
        fault = f"the format {name!r} is {unknown_name(name, FORMATS)}"
        choices = f"there are {', '.join(FORMATS)}"
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"{fault}; {choices}")
    return FORMATS[name]


def losses_of(export: SessionExport, format_name: str) -> dict[str, int]:
    """Return how many parts of each kind a format has no place for: what an export leaves out."""
    leaves_out = format_named(format_name).leaves_out
    return dict(
        Counter(
            str(part.__struct_config__.tag)
            for each in export.messages
            for part in each.message.parts
            if leaves_out(each.message, part)
        )
    )


def read_session(
    raw: ByteStream, format_name: "str | Format | None" = None, limits: ImportLimits = LIMITS
) -> ImportedSession:
    """Read a file of another program, of the format given, or of the one that it looks like.

    Raises:
        ConfigError: CONFIG_INVALID if it cannot be read, or is none that is known.

    """
    stream = PeekedStream(raw)
    name = format_name or recognised(stream.head)
    if name is None:
        if stream.head.startswith(_SQLITE):
            fault = "this is a database; of openai-agents, `openai_agents_sessions(path)` reads it"
            raise ConfigError(ErrorCode.CONFIG_INVALID, fault)
        choices = ", ".join(READ_FORMATS)
        fault = f"the format of this file is not recognised; formats that can be read are {choices}"
        raise ConfigError(ErrorCode.CONFIG_INVALID, fault)
    if name == ARCHIVE:
        fault = "this is an archive of Haptera, not a session of another program"
        raise ConfigError(ErrorCode.CONFIG_INVALID, fault)
    form = name if isinstance(name, Format) else format_named(name)
    if form.read is None:
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"{form.name} can be written, but not read")
    return form.read(stream, limits)


class PeekedStream:
    """A stream whose beginning was looked at, and is read again."""

    def __init__(self, stream: ByteStream) -> None:
        self.head = stream.read(_HEAD)
        self._begin = io.BytesIO(self.head)
        self._rest = stream

    def read(self, size: int = -1, /) -> bytes:
        """Return at most `size` bytes."""
        return self._begin.read(size) or self._rest.read(size)

    def readline(self, size: int = -1, /) -> bytes:
        """Return one line, or at most `size` bytes of it."""
        # The beginning ends anywhere, so a line of it may go on in the rest.
        line = self._begin.readline(size)
        if line.endswith(b"\n") or len(line) == size:
            return line
        return line + self._rest.readline(size - len(line) if size >= 0 else -1)


def recognised(head: bytes) -> str | None:
    """Return the name of the format that a file begins like, also `archive`; None if of none.

    A document of messages whose content is blocks may be of OpenAI or Anthropic: it is taken for
    Anthropic's where it holds a block that only that API has.
    """
    refuse_compressed(head)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    # Some files begin with lines that do not tell which program wrote them. The last line of the
    # head is cut off, and ends the loop as text that is no JSON does.
    for line in text.splitlines()[:20]:
        try:
            fields = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            break
        if isinstance(fields, dict) and (name := _of_line(fields)):
            return name
    return _of_document(text)


def _of_line(fields: JsonObject) -> str | None:
    kind = text_in(fields, "type")
    if kind == "archive" and ("haptera" in fields or FORMER_NAME in fields):
        return ARCHIVE
    if kind == "session" and "cwd" in fields:
        return _PI
    # The first versions of Codex began with an object that has no type.
    if kind in {"session_meta", "response_item", "event_msg"} or "instructions" in fields:
        return _CODEX
    if "sessionId" in fields or "leafUuid" in fields:
        return _CLAUDE_CODE
    return None


def _of_document(text: bytes) -> str | None:
    # How a document is indented must not matter.
    plain = text.replace(b" ", b"").replace(b"\n", b"")
    if plain.startswith(b'{"info":{'):
        return _OPENCODE
    if not plain.startswith((b"[", b"{")):
        return None
    # A quote inside of a text has a backslash, so no mark is part of one.
    for name, marks in _MARKS.items():
        if any(mark in plain for mark in marks):
            return name
    if b'"role"' not in plain:
        return None
    only_there = (b'"tool_use"', b'"tool_result"', b'"thinking"', b'"system":', b'"source"')
    return (
        anthropic_messages.FORMAT
        if any(mark in plain for mark in only_there)
        else (openai_messages.FORMAT)
    )
