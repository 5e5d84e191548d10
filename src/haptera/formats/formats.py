"""The formats of other programs by name: how each is read, written, recognised; what it loses."""

import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import msgspec

from haptera.formats import (
    claude_code,
    codex,
    html_page,
    markdown,
    opencode,
    pi,
)
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
from haptera.model.messages import Message
from haptera.model.option_declarations import unknown_name
from haptera.model.own_name import FORMER_NAME
from haptera.model.parts import Part

ARCHIVE = "archive"
_HEAD = 64 * 1024
"""How much of a file is looked at to recognise it."""


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """One format."""

    name: str
    suffix: str
    media_type: str
    write: Callable[[SessionExport], Iterator[bytes]]
    read: Callable[[ByteStream, ImportLimits], ImportedSession] | None = None
    """None for formats that are for people only."""
    leaves_out: Callable[[Message, Part], bool]


def _known(*formats: Format) -> Mapping[str, Format]:
    return {each.name: each for each in formats}


FORMATS = _known(
    Format(
        name=claude_code.FORMAT,
        suffix=".jsonl",
        media_type="application/x-ndjson",
        write=claude_code.write_claude_code,
        read=claude_code.read_claude_code,
        leaves_out=claude_code.leaves_out,
    ),
    Format(
        name=codex.FORMAT,
        suffix=".jsonl",
        media_type="application/x-ndjson",
        write=codex.write_codex,
        read=codex.read_codex,
        leaves_out=codex.leaves_out,
    ),
    Format(
        name=opencode.FORMAT,
        suffix=".json",
        media_type="application/json",
        write=opencode.write_opencode,
        read=opencode.read_opencode,
        leaves_out=opencode.leaves_out,
    ),
    Format(
        name=pi.FORMAT,
        suffix=".jsonl",
        media_type="application/x-ndjson",
        write=pi.write_pi,
        read=pi.read_pi,
        leaves_out=pi.leaves_out,
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


def format_named(name: str) -> Format:
    """Return a format; raises CONFIG_INVALID naming those that there are."""
    if name not in FORMATS:
        told = f"the format {name!r} is {unknown_name(name, FORMATS)}"
        known = f"there are {', '.join(FORMATS)}"
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"{told}; {known}")
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
    raw: ByteStream, format_name: str | None = None, limits: ImportLimits = LIMITS
) -> ImportedSession:
    """Read a file of another program, of the format named, or of the one that it looks like.

    Raises:
        ConfigError: CONFIG_INVALID if it cannot be read, or is none that is known.

    """
    stream = PeekedStream(raw)
    name = format_name or recognised(stream.head)
    if name is None:
        known = ", ".join(each.name for each in FORMATS.values() if each.read is not None)
        told = f"the format of this file is not recognised; formats that can be read are {known}"
        raise ConfigError(ErrorCode.CONFIG_INVALID, told)
    if name == ARCHIVE:
        told = "this is an archive of Haptera, not a session of another program"
        raise ConfigError(ErrorCode.CONFIG_INVALID, told)
    read = format_named(name).read
    if read is None:
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"{name} can be written, but not read")
    return read(stream, limits)


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
        return pi.FORMAT
    # The first versions of Codex began with an object that has no type.
    if kind in {"session_meta", "response_item", "event_msg"} or "instructions" in fields:
        return codex.FORMAT
    if "sessionId" in fields or "leafUuid" in fields:
        return claude_code.FORMAT
    return None


def _of_document(text: bytes) -> str | None:
    # How a document is indented must not matter.
    plain = text.replace(b" ", b"").replace(b"\n", b"")
    if plain.startswith(b'{"info":{'):
        return opencode.FORMAT
    if not plain.startswith((b"[", b"{")) or b'"role"' not in plain:
        return None
    only_there = (b'"tool_use"', b'"tool_result"', b'"thinking"', b'"system":', b'"source"')
    return (
        anthropic_messages.FORMAT
        if any(mark in plain for mark in only_there)
        else (openai_messages.FORMAT)
    )
