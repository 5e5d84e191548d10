"""The archive: the same bytes and the same session after a round trip; nothing else is accepted."""

import base64
import hashlib
import io
import json
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from haptera.formats.archive import ArchivedLog, ArchiveExport, write_archive
from haptera.formats.archive_reading import (
    MOST_UNANSWERED,
    Blob,
    ImportedArchive,
    LogBegun,
    archive_items,
    check_archive,
    read_archive,
)
from haptera.formats.values import ImportLimits
from haptera.model.entry_bytes import decode_entry, encode_entry
from haptera.model.errors import AgentError, ErrorCode, StoreError
from haptera.model.ids import EntryId, MessageId, SessionId
from haptera.model.log.entry import Entry, UnknownEntry
from haptera.model.log.fold import fold_entries
from haptera.model.log.history import HistoryEdited
from haptera.model.log.notes import ContextNoted
from haptera.model.log.queries import QueryStarted
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import SessionOpened
from haptera.model.messages import UserMessage
from haptera.model.parts import TextPart
from tests.strategies_logs import logs, write_log

SESSION = SessionId("01990a5c-0000-7000-8000-000000000001")
PARENT = SessionId("01990a5c-0000-7000-8000-000000000002")
A_LOG = write_log(bytes(range(7, 127)))


def opened(session_id: SessionId = SESSION, **facts: Any) -> SessionOpened:
    return SessionOpened(id=EntryId("evt_1"), time=1, seq=1, session_id=session_id, **facts)


def id_of(entries: Sequence[Entry]) -> SessionId:
    first = entries[0]
    assert isinstance(first, SessionOpened)
    return first.session_id


def archived(entries: Sequence[Entry], *blobs: bytes, parents: Sequence[ArchivedLog] = ()) -> bytes:
    session_id = id_of(entries)
    log = ArchivedLog(session_id=session_id, entries=entries, blobs=blobs)
    export = ArchiveExport(session_id=session_id, logs=[*parents, log], created=5)
    return b"".join(write_archive(export))


def read(raw: bytes, **limits: int) -> ImportedArchive:
    return read_archive(io.BytesIO(raw), ImportLimits(**limits))


def entries_of(archive: ImportedArchive) -> list[Entry]:
    return list(archive.logs[-1].entries)


def shape(fold: SessionFold) -> dict[str, Any]:
    """Everything that a fold has derived, as plain values."""
    return {
        "messages": msgspec.to_builtins(fold.messages()),
        "sent": msgspec.to_builtins(fold.sent_view()),
        "settings": msgspec.to_builtins(fold.settings),
        "approvals": msgspec.to_builtins(fold.pending_approvals()),
        "unfinished": fold.unfinished_query(),
        "inputs": list(fold.inputs),
        "facts": (fold.head, fold.title, fold.usage, fold.cost, fold.last_finish),
    }


@given(logs())
def test_a_log_comes_back_with_the_same_bytes_and_the_same_fold(entries: list[Entry]) -> None:
    again = entries_of(read(archived(entries)))
    assert [encode_entry(entry) for entry in again] == [encode_entry(entry) for entry in entries]
    assert shape(fold_entries(again)) == shape(fold_entries(entries))


@given(logs(), st.lists(st.binary(max_size=40), max_size=3))
def test_an_archive_of_what_an_archive_held_is_the_same_archive(
    entries: list[Entry], blobs: list[bytes]
) -> None:
    raw = archived(entries, *blobs)
    archive = read(raw)
    export = ArchiveExport(
        session_id=archive.summary.session_id, logs=archive.logs, created=archive.summary.created
    )
    assert b"".join(write_archive(export)) == raw


@pytest.mark.parametrize(
    "stored",
    [
        b'{"kind":"later.invention","id":"evt_9","time":1,"seq":2,"new":[1.50,1e3]}',
        b'{\n "kind": "later.invention",\n "id": "evt_9", "time": 1, "seq": 2\n}',
        b' {"kind":"later.invention","id":"evt_9","time":1,"seq":2} ',
        b'{"kind":"session.changed","id":"evt_9","time":1,"seq":2,"changes":{},"later":"\\u00e9"}',
        b'{"kind":"later.invention","id":"evt_9","time":1,"seq":2,"x":"' + b"y" * 900_000 + b'"}',
    ],
    ids=["numbers", "lines", "blanks", "escapes", "long"],
)
def test_bytes_of_a_later_version_survive_whatever_their_layout(stored: bytes) -> None:
    raw = archived([opened(), decode_entry(stored)])
    assert encode_entry(entries_of(read(raw))[1]) == stored
    assert max(map(len, raw.splitlines())) < 400_000


def test_an_archive_says_what_is_in_it() -> None:
    raw = archived([opened(), UnknownEntry(id=EntryId("e"), time=1, seq=2)], b"one", b"")
    summary = check_archive(io.BytesIO(raw))
    assert (summary.session_id, summary.logs, summary.entries) == (SESSION, (SESSION,), 2)
    assert (summary.blobs, summary.created, summary.redacted) == (2, 5, False)
    assert summary.report.opaque == {"unknown": 1}


def test_payloads_come_back_under_their_names_however_big() -> None:
    contents = [b"", b"\x00\xff", b"z" * 1_000_000]
    items = list(archive_items(io.BytesIO(archived([opened()], *contents))))
    assert items[0] == LogBegun(SESSION)
    assert [item for item in items if isinstance(item, Blob)] == [
        Blob(hashlib.sha256(content).hexdigest(), content) for content in contents
    ]


def test_a_fork_brings_its_parents_along() -> None:
    parent = ArchivedLog(session_id=PARENT, entries=[opened(PARENT)])
    child = opened(parent=PARENT, forked_at=1)
    archive = read(archived([child], parents=[parent]))
    assert [log.session_id for log in archive.logs] == [PARENT, SESSION]


def test_a_fork_without_its_parent_is_refused() -> None:
    with pytest.raises(StoreError, match="parent") as caught:
        read(archived([opened(parent=PARENT, forked_at=1)]))
    assert caught.value.code is ErrorCode.CORRUPT


def test_a_log_with_gaps_can_be_exported_and_read() -> None:
    """A store passes over entries that are damaged; what is left is still worth saving."""
    again = entries_of(read(archived([opened(), UnknownEntry(id=EntryId("e"), time=1, seq=9)])))
    assert [entry.seq for entry in again] == [1, 9]


@pytest.mark.parametrize(("last", "is_read"), [(1_002, True), (1_003, False)])
def test_no_more_entries_may_be_missing_than_are_filled(last: int, is_read: bool) -> None:
    raw = archived([opened(), UnknownEntry(id=EntryId("e"), time=1, seq=last)])
    if is_read:
        assert entries_of(read(raw))[-1].seq == last
        return
    with pytest.raises(AgentError, match="more than 1,000 entries are missing") as caught:
        read(raw)
    assert caught.value.code is ErrorCode.CORRUPT


def test_a_history_that_was_edited_too_often_is_refused() -> None:
    edits = [
        HistoryEdited(
            id=EntryId(f"e{seq}"), time=1, seq=seq, action="remove", target=MessageId("m")
        )
        for seq in range(2, 4_600)
    ]
    assert len(entries_of(read(archived([opened(), *edits[:4_000]])))) == 4_001
    with pytest.raises(AgentError, match="edited too often") as caught:
        read(archived([opened(), *edits]))
    assert caught.value.code is ErrorCode.CORRUPT


def test_a_log_with_too_many_prompts_without_an_answer_or_notes_is_refused() -> None:
    message = UserMessage(id=MessageId("m"), parts=(TextPart(text="a"),))

    def prompt(seq: int) -> Entry:
        return QueryStarted(id=EntryId(f"e{seq}"), time=1, seq=seq, message=message)

    def note(seq: int) -> Entry:
        return ContextNoted(id=EntryId(f"e{seq}"), time=1, seq=seq, text="a")

    for write in (prompt, note):
        entries = [opened(), *map(write, range(2, MOST_UNANSWERED + 3))]
        assert len(entries_of(read(archived(entries[:-1])))) == MOST_UNANSWERED + 1
        with pytest.raises(AgentError, match="prompts or notes") as caught:
            read(archived(entries))
        assert caught.value.code is ErrorCode.CORRUPT


@pytest.mark.parametrize(
    ("values", "text", "is_read"),
    [("1e300," * 1_001, "", False), ("1e300," * 900, "", True), ("", "1e300, " * 2_000, True)],
)
def test_numbers_that_take_long_to_read_are_refused(values: str, text: str, is_read: bool) -> None:
    fields = '{"kind":"later","id":"e","time":1,"seq":2,"text":"%s","values":[%s1]}'
    raw = archived([opened(), decode_entry((fields % (text, values)).encode())])
    if is_read:
        assert len(entries_of(read(raw))) == 2
        return
    with pytest.raises(AgentError, match="large exponents") as caught:
        read(raw)
    assert caught.value.code is ErrorCode.CONFIG_INVALID


def with_line(raw: bytes, number: int, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Change a line of an archive, and put its last checksum right again."""
    lines = [json.loads(line) for line in raw.splitlines()]
    change(lines[number])
    return sealed([json.dumps(line).encode() for line in lines[:-1]])


def sealed(lines: list[bytes]) -> bytes:
    body = b"".join(line + b"\n" for line in lines)
    ended = {
        "type": "archive.ended",
        "lines": len(lines),
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    return body + json.dumps(ended).encode() + b"\n"


def test_a_newer_major_version_is_refused_by_its_number() -> None:
    raw = with_line(archived([opened()]), 0, lambda line: line.update(haptera=2))
    with pytest.raises(StoreError, match="version 2") as caught:
        read(raw)
    assert caught.value.code is ErrorCode.VERSION_UNSUPPORTED


def test_a_log_in_a_newer_format_is_refused_by_its_number() -> None:
    with pytest.raises(StoreError, match="format 99") as caught:
        read(archived([opened(format=99)]))
    assert caught.value.code is ErrorCode.VERSION_UNSUPPORTED


def test_an_opening_that_only_a_later_version_understands_is_refused() -> None:
    later = decode_entry(
        encode_entry(opened()).replace(b'"session_id"', b'"format":"2","session_id"')
    )
    log = ArchivedLog(session_id=SESSION, entries=[later])
    raw = b"".join(write_archive(ArchiveExport(session_id=SESSION, logs=[log])))
    with pytest.raises(StoreError) as caught:
        read(raw)
    assert caught.value.code is ErrorCode.VERSION_UNSUPPORTED


def test_a_log_that_does_not_begin_with_an_opening_is_refused() -> None:
    log = ArchivedLog(session_id=SESSION, entries=[UnknownEntry(id=EntryId("e"), time=1, seq=1)])
    with pytest.raises(StoreError, match="does not begin"):
        read(b"".join(write_archive(ArchiveExport(session_id=SESSION, logs=[log]))))


def test_a_newer_minor_version_is_read_and_what_it_added_is_reported() -> None:
    lines = archived([opened()]).splitlines()[:-1]
    lines[0] = lines[0].replace(b'"minor":0', b'"minor":7')
    lines.insert(1, b'{"type":"later.invention","holds":"anything"}')
    archive = read(sealed(lines))
    assert entries_of(archive) == [opened()]
    assert "1 lines" in archive.summary.report.warnings[0]


@given(st.data())
def test_an_archive_that_was_changed_anywhere_is_refused(data: st.DataObject) -> None:
    raw = bytearray(archived(A_LOG[:12], b"payload"))
    place = data.draw(st.integers(0, len(raw) - 2))
    raw[place] ^= data.draw(st.sampled_from([1, 2, 4, 8, 16]))
    try:
        again = read(bytes(raw))
    except AgentError as error:
        assert error.code in {
            ErrorCode.CORRUPT,
            ErrorCode.CONFIG_INVALID,
            ErrorCode.VERSION_UNSUPPORTED,
        }
        return
    assert entries_of(again) == A_LOG[:12]  # line ends are no part of what is compared


@given(st.data())
def test_an_archive_that_was_cut_off_anywhere_is_refused(data: st.DataObject) -> None:
    raw = archived(A_LOG[:12], b"payload")
    cut = data.draw(st.integers(0, len(raw) - 2))
    with pytest.raises(AgentError) as caught:
        read(raw[:cut])
    assert caught.value.code in {ErrorCode.CORRUPT, ErrorCode.CONFIG_INVALID}


@given(st.binary(max_size=200))
@example(b'{"type":"archive","haptera":1,"session":"s"}\n{"type":"log.ended"}')
@example(b'{"type":"archive","haptera":1,"session":"s"}\n{"type":"archive","haptera":1}')
@example(b'{"type":"archive","haptera":1,"session":[]}')
@example(b'{"type":"archive","haptera":true}')
def test_no_bytes_raise_anything_but_an_agent_error(raw: bytes) -> None:
    with pytest.raises(AgentError):
        read(raw)


_ENTRY = '{"kind":"later.x","id":"e","time":1,"seq":2,"x":%s}'


def with_entry(text: str) -> bytes:
    """Put an entry into an archive whose checksums are right, as an attacker would."""
    opening = encode_entry(opened())
    digest = hashlib.sha256(opening + b"\n" + text.encode() + b"\n").hexdigest()
    ended = {"type": "log.ended", "session": SESSION, "entries": 2, "sha256": digest}
    return sealed(
        [
            *archived([opened()]).splitlines()[:3],
            b'{"type":"entry","entry":' + text.encode() + b"}",
            json.dumps(ended).encode(),
        ]
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (_ENTRY % ("[" * 300 + "]" * 300), "nested"),
        (_ENTRY % ("[" * 100_000 + "]" * 100_000), "nested|JSON"),
        (_ENTRY.replace('"seq":2', '"seq":1') % "1", "entry 1 after entry 1"),
        (_ENTRY.replace('"seq":2', '"seq":0') % "1", "entry 0 after entry 1"),
        (_ENTRY.replace('"seq":2', '"seq":99999999999') % "1", "entry 99999999999"),
        ('{"kind":"session.opened","id":"e","time":1,"seq":2,"session_id":"x"}', "opens session x"),
        ('{"kind":"later.x"}', "not an entry"),
        ("7", "not an entry"),
    ],
    ids=["deep", "very deep", "twice", "none", "huge gap", "second opening", "no entry", "number"],
)
def test_a_hostile_entry_is_refused_though_its_checksums_are_right(text: str, named: str) -> None:
    with pytest.raises(AgentError, match=named):
        read(with_entry(text))


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "", "0" * 64, "..\\..\\boot.ini", "a" * 100_000]
)
def test_the_name_of_a_payload_is_its_checksum_and_never_a_path(name: str) -> None:
    piece = base64.b64encode(b"root::0:0").decode()
    lines = archived([opened()]).splitlines()[:-2]
    lines.insert(2, json.dumps({"type": "content", "sha256": name, "data": piece}).encode())
    ended = {"type": "content.ended", "sha256": name, "bytes": 9, "of": "blob"}
    lines.insert(3, json.dumps(ended).encode())
    with pytest.raises(StoreError, match="checksum"):
        read(sealed(lines))


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ({"file_bytes": 500}, "500 bytes"),
        ({"line_bytes": 100}, "line 1 has more than 100 bytes"),
        ({"records": 3}, "3 lines|entry 4"),
        ({"content_bytes": 10}, "10 bytes"),
    ],
    ids=["file", "line", "records", "content"],
)
def test_an_archive_beyond_a_limit_is_refused_by_naming_it(
    limits: dict[str, int], named: str
) -> None:
    with pytest.raises(AgentError, match=named):
        read(archived(A_LOG[:20], b"x" * 2000), **limits)


class Endless(io.RawIOBase):
    """A file that never ends and never breaks a line."""

    served = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        assert size is not None
        assert size > 0
        self.served += size
        return b"x" * size


def test_a_line_without_end_is_read_no_further_than_the_limit() -> None:
    stream = Endless()
    with pytest.raises(AgentError, match="line 1 has more than 1,000 bytes"):
        read_archive(stream, ImportLimits(line_bytes=1000))
    assert stream.served < 2000


def test_an_archive_is_checked_in_the_memory_of_a_few_lines(tmp_path: Path) -> None:
    long = "x" * 100_000
    entries = (
        UnknownEntry(
            id=EntryId("e"),
            time=1,
            seq=seq,
            raw=msgspec.Raw(
                b'{"kind":"later.x","id":"e","time":1,"seq":%d,"x":"%s"}' % (seq, long.encode())
            ),
        )
        for seq in range(2, 202)
    )
    log = ArchivedLog(session_id=SESSION, entries=chain([opened()], entries), blobs=[b"y" * 10**6])
    file = tmp_path / "archive.jsonl"
    with file.open("wb") as stream:
        for piece in write_archive(ArchiveExport(session_id=SESSION, logs=[log])):
            stream.write(piece)
    tracemalloc.start()
    try:
        with file.open("rb") as stream:
            assert check_archive(stream).entries == 201
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert file.stat().st_size > 20_000_000
    assert peak < 8_000_000


@pytest.mark.parametrize("head", [b"\x1f\x8b\x08", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"BZh9"])
def test_a_compressed_file_is_refused_unopened(head: bytes) -> None:
    with pytest.raises(AgentError, match="compressed"):
        read(head + b"\x00" * 100)
