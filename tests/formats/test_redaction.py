"""Redaction: secrets, paths and media do not leave, wherever in a session they stand."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from haptera.formats.archive import ArchivedLog, ArchiveExport, write_archive
from haptera.formats.redaction import Redactor, redacted, redacted_entries
from haptera.model.entry_bytes import decode_entry, encode_entry
from haptera.model.ids import EntryId, MessageId, PartId, SessionId
from haptera.model.log.entry import Entry
from haptera.model.log.fold import fold_entries
from haptera.model.log.sessions import SessionOpened
from haptera.model.log.turns import (
    PartCheckpoint,
    PartEnded,
    PartStarted,
    TurnEnded,
    TurnStarted,
)
from haptera.model.parts import MediaPart, Part, ReasoningPart, TextPart
from haptera.model.secrets import Secret
from tests.formats.conversations import (
    A_CONVERSATION,
    assistant,
    call,
    exported,
    heard_of,
    result,
    user,
)
from tests.formats.test_archive import read
from tests.strategies_logs import logs

CANARY = "canary-9f31-of-the-mine"
KEY = "sk-ant-REDACTMEREDACTME0123456789"


@pytest.mark.parametrize(
    "path",
    [
        "/home/ana/work/secret.txt",
        "/etc/ssl/private/",
        "~/notes.md",
        "~/work/notes.md",
        "file:///home/ana/a.txt",
        "C:\\Users\\ana\\a.txt",
        "d:/work/a.txt",
        "\\\\server\\share\\a.txt",
        "/Users/ana",
    ],
)
@pytest.mark.parametrize(
    "around", ["{}", "cat {}", "'{}'", "({})", "PATH=/usr/bin:{}", "see {}, too"]
)
def test_an_absolute_path_is_masked_wherever_it_stands(path: str, around: str) -> None:
    masked = Redactor().text(around.format(path))
    assert path.rstrip("/\\") not in masked
    assert "[path-" in masked


@pytest.mark.parametrize(
    "text",
    [
        "and/or",
        "https://example.com/a/b",
        "./src/main.py",
        "../a/b",
        "3/4",
        "s/a/b/",
        "image/png",
        "/",
    ],
)
def test_what_is_no_absolute_path_stays(text: str) -> None:
    assert Redactor().text(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("![x](data:image/png;base64,iVBORw0KGgo=) here", "![x]([image/png: left out]) here"),
        (
            '<img src="data:image/svg+xml;charset=utf-8,%3Csvg/%3E">',
            '<img src="[image/svg+xml: left out]">',
        ),
        ("data:;base64,AAAA", "[data: left out]"),
        ("the data: 1/2, or 3", "the data: 1/2, or 3"),
        ("data:" + "a" * 100_000 + "/" + "b" * 100_000, None),
        ("data:a/b;" * 100_000, None),
    ],
)
def test_a_url_that_holds_its_content_is_left_out(text: str, expected: str | None) -> None:
    shown = Redactor().text(text)
    assert shown == expected if expected is not None else shown


def test_the_same_path_has_the_same_number_in_all_of_an_export() -> None:
    redactor = Redactor()
    assert redactor.text("mv /tmp/a/b /tmp/a/c") == "mv [path-1] [path-2]"
    assert redactor.text("rm /tmp/a/c/") == "rm [path-2]"


def test_known_folders_are_masked_inside_other_words() -> None:
    redactor = Redactor(["/srv/acme"])
    assert "acme" not in redactor.text("gcc -I/srv/acme/include x.c")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the shop sells", "the shop sells"),
        ("a workshop in /work", "a workshop in [path-1]"),
        ("/srv/shop/a.txt", "[path-1]"),
        ("/srv/shop/shop/gone.txt", "[path-1]"),
        ("/srv/shop", "[path-1]"),
        ("It is in /work.", "It is in [path-1]."),
        ("/srv/shop.old/a.txt", "[path-1]"),
        ("/srv/shopping/a.txt", "[path-1]"),
        ("/mnt/backup/srv/shop/a.txt", "[path-1]"),
        ("gcc -I/work/include -I/srv/shop/x", "gcc -I[path-1] -I[path-2]"),
        ("-L/work", "-L[path-1]"),
        ('{"said": "one\\n/work/a.txt"}', '{"said": "one\\n[path-1]"}'),
        ("and/work/or/play", "and/work/or/play"),
        ("/workshop and https://example.com/work/x", "/workshop and https://example.com/work/x"),
        ("cat '/home/ana/My Files/a.txt'", "cat '[path-1]'"),
        ("C:\\Data\\a.txt and C:\\Data", "[path-1] and [path-2]"),
    ],
)
def test_roots_mask_whole_paths_and_no_words(text: str, expected: str) -> None:
    roots = ["shop", "", "/", "./work", "/srv/shop/", "/work", "/home/ana/My Files", "C:\\Data"]
    assert Redactor(roots).text(text) == expected


def test_nothing_that_is_secret_is_left_in_any_part() -> None:
    Secret(CANARY)
    nasty = f"{CANARY} {KEY} /home/ana/x"
    media = MediaPart(mime="image/png", data="iVBORw0KGgo=", filename="/home/ana/x")
    export = exported(
        user(1, nasty, media),
        assistant(
            2,
            ReasoningPart(text=nasty, signature=KEY, native={"x": nasty}),
            nasty,
            call("look", "c1", **{"path": nasty, nasty: [nasty, {"deep": nasty}]}),
        ),
        user(3, result("look", "c1", nasty)),
        title=nasty,
        cwd="/home/ana/x",
        system_prompts=(nasty,),
        contents={"b": nasty.encode()},
    )
    shown = str(redacted(export, Redactor()))
    for hidden in (CANARY, KEY, "/home/ana", "iVBORw0KGgo"):
        assert hidden not in shown
    assert "[image/png: left out]" in shown


def test_a_session_without_anything_to_hide_is_told_as_it_was() -> None:
    export = exported(*A_CONVERSATION)
    assert heard_of(redacted(export, Redactor())) == heard_of(export)


def streamed(pieces: list[str], *, ended: bool) -> list[Entry]:
    """Write the log of one answer whose text came in pieces."""
    stamp: dict[str, Any] = {"time": 1}
    part_id, message_id = PartId("prt_1"), MessageId("msg_1")
    entries: list[Entry] = [
        SessionOpened(id=EntryId("e"), seq=1, session_id=SessionId("s"), **stamp),
        TurnStarted(id=EntryId("e"), message_id=message_id, provider="p", model="m", **stamp),
        PartStarted(id=EntryId("e"), part_id=part_id, part_kind="text", **stamp),
    ]
    offset = 0
    for piece in pieces[:-1]:
        entries.append(
            PartCheckpoint(id=EntryId("e"), part_id=part_id, offset=offset, text=piece, **stamp)
        )
        offset += len(piece)
    if ended:
        rest: Part = TextPart(id=part_id, text=pieces[-1])
        entries += [
            PartEnded(id=EntryId("e"), part_id=part_id, offset=offset, part=rest, **stamp),
            TurnEnded(id=EntryId("e"), message_id=message_id, finish="stop", **stamp),
        ]
    return entries


@given(st.data(), st.booleans())
def test_a_secret_that_was_stored_in_pieces_is_masked_as_one(
    data: st.DataObject, ended: bool
) -> None:
    said = f"The key is {KEY} and the file is /home/ana/work/x.txt, all right?"
    cuts = data.draw(st.lists(st.integers(0, len(said)), min_size=1, max_size=6).map(sorted))
    places = [0, *cuts, len(said)]
    pieces = [said[start:stop] for start, stop in pairwise(places)]
    pieces += [] if ended else [""]
    new = list(redacted_entries(streamed(pieces, ended=ended), Redactor()))
    (message,) = fold_entries(new).messages()
    assert message.text == "The key is **** and the file is [path-1], all right?"
    assert KEY[10:] not in b"".join(map(encode_entry, new)).decode()


@pytest.mark.slow
@given(logs())
def test_a_redacted_log_is_a_log_and_tells_the_same_where_nothing_was_hidden(
    entries: list[Entry],
) -> None:
    entries = [decode_entry(encode_entry(entry)) for entry in entries]
    new = list(redacted_entries(entries, Redactor()))
    assert [(entry.seq, entry.kind, entry.id) for entry in new] == [
        (entry.seq, entry.kind, entry.id) for entry in entries
    ]
    texts = [message.text for message in fold_entries(entries).messages()]
    assert len(fold_entries(new).messages()) == len(texts)


def test_a_redacted_archive_says_so_and_reads_like_any_other() -> None:
    entries = [
        replace(entry, seq=place)
        for place, entry in enumerate(streamed([f"/home/ana/{CANARY}", ""], ended=True), start=1)
    ]
    masked = list(redacted_entries(entries, Redactor()))
    log = ArchivedLog(session_id=SessionId("s"), entries=masked)
    export = ArchiveExport(session_id=SessionId("s"), logs=[log], redacted=True)
    raw = b"".join(write_archive(export))
    assert b"/home/ana" not in raw
    archive = read(raw)
    assert archive.summary.redacted
    (message,) = fold_entries(list(archive.logs[0].entries)).messages()
    assert message.text == "[path-1]"
