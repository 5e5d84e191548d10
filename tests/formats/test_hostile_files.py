"""Files of strangers: whatever they hold, an importer ends with a session or an AgentError."""

import copy
import gzip
import io
import json
import re
import zipfile
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from haptera.formats.archive_reading import read_archive
from haptera.formats.bounded_input import ByteStream
from haptera.formats.formats import FORMATS, read_session, recognised
from haptera.formats.values import (
    LIMITS,
    ImportedSession,
    ImportLimits,
    opaque_entry,
)
from haptera.model.entry_bytes import decode_entry, encode_entry
from haptera.model.errors import AgentError, ConfigError, ErrorCode
from haptera.model.ids import EntryId, new_session_id
from haptera.model.log.fold import fold_entries
from haptera.model.log.sessions import SessionOpened
from haptera.model.parts import CompactionPart
from tests.formats.conversations import A_CONVERSATION, exported, user
from tests.formats.library_documents import DOCUMENTS
from tests.formats.strategies import TEXT
from tests.strategies_values import JSON

pytestmark = pytest.mark.slow

READABLE = sorted(name for name, each in FORMATS.items() if each.read is not None)
LINES = ("claude-code", "codex", "pi")
_SESSION = exported(*A_CONVERSATION, user(9, CompactionPart(text="all of it")), title="t", cwd="/w")
VALID = {name: DOCUMENTS.get(name) or b"".join(FORMATS[name].write(_SESSION)) for name in READABLE}


def read(name: str, raw: bytes | ByteStream, limits: ImportLimits = LIMITS) -> ImportedSession:
    reader = FORMATS[name].read
    assert reader is not None
    return reader(io.BytesIO(raw) if isinstance(raw, bytes) else raw, limits)


def is_survived(name: str, raw: bytes) -> bool:
    """Whether reading ends as it should, and a session that comes out can be stored and sent."""
    try:
        session = read(name, raw)
    except AgentError as error:
        return error.code is ErrorCode.CONFIG_INVALID
    opened = SessionOpened(
        id=EntryId("e"),
        time=1,
        seq=1,
        session_id=new_session_id(),
        title=session.title,
        history=tuple(each.message for each in session.messages),
    )
    stored = decode_entry(encode_entry(opened))
    fold_entries([stored]).sent_view()
    for seq, record in enumerate(session.opaque, start=2):
        entry = opaque_entry(record, session.format, seq=seq, time=1)
        if decode_entry(encode_entry(entry)) != entry:
            return False
    return stored == opened


@pytest.mark.parametrize("name", READABLE)
@given(raw=st.binary(max_size=300))
def test_any_bytes_are_survived(name: str, raw: bytes) -> None:
    assert is_survived(name, raw)


@given(st.binary(max_size=300))
@example(b"\xef\xbb\xbf[]")
@example(b"{}\n" * 30)
def test_any_bytes_can_be_looked_at(raw: bytes) -> None:
    try:
        recognised(raw)
    except ConfigError as error:
        assert "compressed" in error.message


WORDS = sorted(
    {
        word
        for raw in VALID.values()
        for piece in raw.decode().split('"')
        if (word := piece) and word.isascii() and len(word) < 25 and word[0].isalpha()
    }
    | {"tool_result", "isMeta", "isSidechain", "parentId", "bashExecution", "queued_command"}
    | {"attachment", "prompt", "branch_summary", "custom_message", "firstKeptEntryId", "source"}
    | {"thread_rolled_back", "num_turns", "custom_tool_call", "input_image", "image_url", "file"}
)
LEAVES = JSON | st.sampled_from(WORDS) | TEXT | st.floats() | st.integers()
KNOWN_JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4)
    ),
    max_leaves=8,
)


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path to each value inside a value."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(found for key, item in items for found in places_in(item, (*path, key)))]


def with_value(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    changed = copy.copy(value)
    changed[path[0]] = with_value(value[path[0]], path[1:], new)
    return changed


@pytest.mark.parametrize("name", READABLE)
@given(data=st.data())
def test_a_file_with_any_value_in_any_place_is_survived(name: str, data: st.DataObject) -> None:
    if name in LINES:
        document = [json.loads(line) for line in VALID[name].splitlines()]
    else:
        document = json.loads(VALID[name])
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(places_in(document)))
        document = with_value(document, place, data.draw(KNOWN_JSON))
    if name in LINES and isinstance(document, list):
        raw = b"\n".join(json.dumps(line).encode() for line in document)
    else:
        raw = json.dumps(document).encode()
    assert is_survived(name, raw)


@pytest.mark.parametrize("name", READABLE)
@given(data=st.data())
def test_a_file_with_changed_bytes_is_survived(name: str, data: st.DataObject) -> None:
    raw = bytearray(VALID[name])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place : place + data.draw(st.integers(0, 5))] = data.draw(st.binary(max_size=5))
    assert is_survived(name, bytes(raw))


@pytest.mark.parametrize("name", LINES)
def test_a_torn_last_line_is_kept_and_reported(name: str) -> None:
    whole = read(name, VALID[name])
    torn = read(name, VALID[name] + b'{"type":"user","mess')
    assert [each.message.parts for each in torn.messages] == [
        each.message.parts for each in whole.messages
    ]
    assert torn.opaque[-1].raw == b'{"type":"user","mess'
    assert "is not a JSON object" in torn.report.warnings[0]


@pytest.mark.parametrize("name", READABLE)
def test_half_characters_are_replaced_and_cost_nothing_else(name: str) -> None:
    raw = re.sub(rb"I look (both|it) up\.", rb"I look \\ud83d up.", VALID[name])
    texts = [each.message.text for each in read(name, raw).messages]
    assert any("I look \ufffd up." in text for text in texts)


DEEP = {
    "claude-code": b'{"type":"user","uuid":"u","message":{"role":"user","content":%s}}',
    "codex": b'{"type":"response_item","payload":%s}',
    "pi": b'{"type":"message","id":"a","message":{"role":"user","content":%s}}',
    "opencode": b'{"info":{},"messages":%s}',
    "openai": b'[{"role":"user","content":%s}]',
    "anthropic": b'{"messages":[{"role":"user","content":%s}]}',
    "pydantic-ai": b'[{"kind":"request","parts":%s}]',
    "langchain": b'[{"type":"human","content":%s}]',
    "ai-sdk": b'[{"role":"user","parts":%s}]',
}


@pytest.mark.parametrize("name", READABLE)
@pytest.mark.parametrize("levels", [300, 900, 100_000])
@pytest.mark.parametrize("half", [b"", b'"\\ud800",'], ids=["plain", "half"])
def test_json_that_is_nested_too_deeply_is_refused_by_naming_it(
    name: str, levels: int, half: bytes
) -> None:
    with pytest.raises(ConfigError, match="nested deeper than 200 levels"):
        read(name, DEEP[name] % (b"[" + half + b"[" * levels + b"]" * levels + b"]"))


def test_arguments_that_are_deep_inside_a_text_are_kept_as_text() -> None:
    deep = "[" * 500 + "]" * 500
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": deep}}
    raw = json.dumps(
        [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]}]
    )
    (part,) = read("openai", raw.encode()).messages[1].message.parts
    assert part.invalid == deep  # type: ignore[union-attr]


class Endless:
    """A file that never ends: one line, or any number of them."""

    def __init__(self, piece: bytes, begin: bytes = b"") -> None:
        self.piece, self.begin, self.served = piece, begin, 0

    def read(self, size: int = -1, /) -> bytes:
        assert size > 0
        self.served += size
        begin, self.begin = self.begin, b""
        return (begin + self.piece * (size // len(self.piece) + 1))[:size]

    def readline(self, size: int = -1, /) -> bytes:
        assert size > 0
        self.served += size
        return self.piece if self.piece.endswith(b"\n") else self.piece * (size // len(self.piece))


SMALL = ImportLimits(file_bytes=100_000, document_bytes=100_000, line_bytes=10_000, records=1000)


@pytest.mark.parametrize("name", READABLE)
def test_a_file_without_end_is_read_no_further_than_the_limit(name: str) -> None:
    stream = Endless(b"x", b"[")
    with pytest.raises(ConfigError, match="more than"):
        read(name, stream, SMALL)
    assert stream.served < 1_000_000


@pytest.mark.parametrize("name", LINES)
def test_lines_without_end_are_read_no_further_than_the_limit(name: str) -> None:
    with pytest.raises(ConfigError, match="more than 1,000 lines"):
        read(name, Endless(b"{}\n"), SMALL)


@pytest.mark.parametrize("name", [name for name in READABLE if name not in LINES])
def test_a_document_of_too_many_messages_is_refused(name: str) -> None:
    messages = json.dumps([{"role": "user", "content": "x"}] * 20).encode()
    raw = messages if name == "pydantic-ai" else b'{"info":{},"messages":' + messages + b"}"
    with pytest.raises(ConfigError, match="more than 10 messages"):
        read(name, raw, ImportLimits(records=10))


def bombs() -> dict[str, bytes]:
    """Make small files that expand to big ones."""
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../../etc/cron.d/x", b"\0" * 1_000_000)
    return {"gzip": gzip.compress(b"\0" * 1_000_000), "zip": zipped.getvalue()}


@pytest.mark.parametrize("kind", ["gzip", "zip"])
@pytest.mark.parametrize("name", [*READABLE, "archive", "auto"])
def test_a_bomb_is_refused_and_never_expanded(name: str, kind: str) -> None:
    raw = io.BytesIO(bombs()[kind])
    with pytest.raises(ConfigError, match="compressed"):
        if name == "archive":
            read_archive(raw)
        elif name == "auto":
            read_session(raw)
        else:
            read(name, raw)


@pytest.mark.parametrize(
    "cwd", ["../../../../etc", "/etc\x00/passwd", "C:\\..\\..", "a\nb\x1b[31m", "x" * 100_000]
)
@pytest.mark.parametrize("name", ["claude-code", "codex", "opencode", "pi"])
def test_what_a_file_says_of_its_folder_is_text_on_one_line(name: str, cwd: str) -> None:
    raw = VALID[name].replace(b'"/w"', json.dumps(cwd).encode())
    session = read(name, raw)
    assert len(session.cwd) <= 4096
    assert session.cwd.isprintable()


@pytest.mark.parametrize("name", ["claude-code", "codex", "pi"])
@pytest.mark.parametrize("cwd", ["../../../etc", "/../../x", "\x00", "..", "/"])
def test_a_suggested_path_never_leaves_its_folder(name: str, cwd: str) -> None:
    from haptera.formats import claude_code, codex, pi

    modules = {"claude-code": claude_code, "codex": codex, "pi": pi}
    path = modules[name].suggested_path(exported(*A_CONVERSATION, cwd=cwd))
    assert not path.is_absolute()
    assert ".." not in path.parts
    assert len(path.parts) == {"claude-code": 4, "codex": 6, "pi": 5}[name]
    assert "\x00" not in str(path)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "/etc/passwd", "ftp://x/y", "javascript:1"])
def test_a_medium_that_names_a_local_file_is_not_taken_for_one(url: str) -> None:
    part = {"type": "file", "mime": "text/plain", "url": url}
    said = {"info": {"role": "user"}, "parts": [{"type": "text", "text": "x"}, part]}
    raw = json.dumps({"info": {}, "messages": [said]}).encode()
    session = read("opencode", raw)
    assert session.report.opaque_parts == {"file": 1}


@pytest.mark.parametrize("name", READABLE)
@pytest.mark.parametrize("raw", [b"", b"\n\n", b"{}", b"[]", b"null", b"\xff\xfe", b"hello"])
def test_a_file_without_a_message_is_refused_by_saying_what_it_is_not(
    name: str, raw: bytes
) -> None:
    with pytest.raises(ConfigError, match=r"no message|not JSON|this is no"):
        read(name, raw)


def test_a_file_of_no_known_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="format of this file is not recognised"):
        read_session(io.BytesIO(b"%PDF-1.7"))
    with pytest.raises(ConfigError, match="can be written, but not read"):
        read_session(io.BytesIO(b"# A session"), "markdown")
    with pytest.raises(ConfigError, match="did you mean 'codex'"):
        read_session(io.BytesIO(b""), "codecs")
    with pytest.raises(ConfigError, match="archive"):
        read_session(io.BytesIO(b'{"type":"archive","haptera":1,"session":"s"}\n'))
