"""Adoption: an imported session has ids of its own and brings no permission along."""

import io
import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from haptera.formats.archive import ArchivedLog
from haptera.formats.archive_adoption import Adoption
from haptera.formats.archive_reading import ArchiveSummary
from haptera.formats.values import ImportReport
from haptera.model.entry_bytes import decode_entry, encode_entry
from haptera.model.ids import (
    ApprovalId,
    CallId,
    EntryId,
    MessageId,
    PartId,
    QueryId,
    SessionId,
    new_entry_id,
    new_message_id,
    new_part_id,
    new_query_id,
    new_session_id,
)
from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.log.compactions import Compaction
from haptera.model.log.entry import Entry
from haptera.model.log.fold import fold_entries
from haptera.model.log.history import Rewound
from haptera.model.log.notes import ContextNoted
from haptera.model.log.paths import current_path
from haptera.model.log.queries import QueryStarted
from haptera.model.log.sessions import SessionChanged, SessionImported, SessionOpened
from haptera.model.log.turns import PartEnded, PartStarted, TurnEnded, TurnStarted
from haptera.model.messages import KeptOptions, UserMessage
from haptera.model.parts import TextPart, ToolCallPart
from haptera.model.settings import Settings
from tests.formats.test_archive import archived, read
from tests.strategies_branches import fork, go_back
from tests.strategies_logs import LogWriter, logs, write_session

OURS = re.compile(r"(?:evt|msg|prt|qry|trn|apr|inp)_[0-9a-f]{16}[0-9A-Za-z]{10}")


def adopt(entries: Sequence[Entry], **options: Any) -> tuple[Adoption, list[Entry]]:
    archive = read(archived(entries))
    adoption = Adoption(archive.summary, **{"owner": "ana", "project": "/p", **options})
    return adoption, list(adoption.entries(archive.logs[0].session_id, archive.logs[0].entries))


def ids_in(entries: Sequence[Entry]) -> set[str]:
    return set(OURS.findall(b"\n".join(map(encode_entry, entries)).decode()))


def told(entries: Sequence[Entry], *, inherited: Sequence[Entry] = ()) -> list[Any]:
    """Return the conversation of a log without the ids that are ours.

    Why an answer was cut off is left out: the import ends its query, which nothing else had ended.
    """
    messages = fold_entries(entries, inherited=inherited).messages()
    plain: list[Any] = json.loads(OURS.sub("id", msgspec.json.encode(messages).decode()))
    for message in plain:
        if message.get("interrupted"):
            message.pop("stop_reason")
    return plain


def without_ends(entries: Sequence[Entry]) -> list[Entry]:
    """Return an imported log without what ends it."""
    sealed = [place for place, entry in enumerate(entries) if isinstance(entry, SessionImported)]
    return list(entries[: sealed[-1]])


@given(logs())
def test_an_imported_log_tells_the_same_under_ids_of_its_own(entries: list[Entry]) -> None:
    adoption, new = adopt(entries)
    assert told(new) == told(entries)
    assert not ids_in(new) & ids_in(entries)
    assert isinstance(new[0], SessionOpened)
    assert new[0].session_id == adoption.session_id != entries[0].session_id  # type: ignore[attr-defined]


@given(logs())
def test_an_archive_imported_twice_makes_two_sessions_with_nothing_in_common(
    entries: list[Entry],
) -> None:
    (first, one), (second, two) = adopt(entries), adopt(entries)
    assert first.session_id != second.session_id
    assert not ids_in(one) & ids_in(two)
    assert told(one) == told(two)


CHOICES = st.binary(min_size=30, max_size=200)


@given(CHOICES)
def test_rewinds_lead_to_the_same_places(choices: bytes) -> None:
    entries = write_session(choices, go_back=go_back).entries
    _, new = adopt(entries)
    kept = {entry.seq for entry in entries if entry.imported.fate != "dropped"}
    before = [entry.seq for entry in current_path(entries) if entry.seq in kept]
    after = [entry.seq for entry in current_path(new) if entry.seq in kept]
    assert after == before
    assert told(new) == told(entries)


def whole_fork(parent: LogWriter, child: LogWriter) -> list[Entry]:
    """Return the fork's log with the id of its real parent."""
    opened, above = child.entries[0], parent.entries[0]
    assert isinstance(opened, SessionOpened)
    assert isinstance(above, SessionOpened)
    return [msgspec.structs.replace(opened, parent=above.session_id), *child.entries[1:]]


def told_of_fork(parent: Sequence[Entry], child: Sequence[Entry]) -> Any:
    opened = child[0]
    assert isinstance(opened, SessionOpened)
    by_then = [entry for entry in parent if entry.seq <= (opened.parent_head or 0)]
    inherited = current_path(by_then, through=opened.forked_at)
    return told(child, inherited=inherited)


@given(CHOICES, CHOICES)
def test_a_fork_comes_with_its_parent_and_inherits_the_same(first: bytes, second: bytes) -> None:
    parent = write_session(first, go_back=go_back)
    child = whole_fork(parent, fork(parent, second))
    above = parent.entries[0]
    assert isinstance(above, SessionOpened)
    log = ArchivedLog(session_id=above.session_id, entries=parent.entries)
    archive = read(archived(child, parents=[log]))
    adoption = Adoption(archive.summary, owner="ana", project="/p")
    new_parent, new_child = (
        list(adoption.entries(each.session_id, each.entries)) for each in archive.logs
    )
    assert told_of_fork(new_parent, new_child) == told_of_fork(parent.entries, child)
    opened, other = new_child[0], new_parent[0]
    assert isinstance(opened, SessionOpened)
    assert isinstance(other, SessionOpened)
    assert opened.parent == other.session_id != above.session_id


def test_places_are_taken_over_as_they_are() -> None:
    opened = SessionOpened(id=EntryId("evt_a"), time=1, seq=1, session_id=new_session_id())
    summary_of = new_entry_id()
    derived = MessageId(f"{summary_of}_summary")
    entries = [
        opened,
        Compaction(id=summary_of, time=1, seq=2, trigger="auto", strategy="s", summary="x"),
        Rewound(id=new_entry_id(), time=1, seq=3, to_seq=1, message_id=derived),
    ]
    _, new = adopt(entries)
    assert isinstance(new[2], Rewound)
    assert new[2].message_id == f"{new[1].id}_summary"
    assert new[2].to_seq == 1


def test_text_that_looks_like_an_id_is_left_alone() -> None:
    message_id, part_id, query_id = new_message_id(), new_part_id(), new_query_id()
    said = TextPart(text=message_id, id=part_id)
    call = ToolCallPart(call_id=CallId(message_id), name="look", arguments={"id": message_id})
    entries: list[Entry] = [
        SessionOpened(id=new_entry_id(), time=1, seq=1, session_id=new_session_id()),
        QueryStarted(
            id=new_entry_id(),
            time=1,
            seq=2,
            query_id=query_id,
            message=UserMessage(id=message_id, parts=(said, call), query_id=query_id),
        ),
    ]
    _, new = adopt(entries)
    started = new[1]
    assert isinstance(started, QueryStarted)
    assert started.message is not None
    assert started.query_id == started.message.query_id != query_id
    text, again = started.message.parts
    assert isinstance(text, TextPart)
    assert isinstance(again, ToolCallPart)
    assert (text.text, str(again.call_id)) == (str(message_id), str(message_id))
    assert again.arguments == call.arguments
    assert text.id not in {None, part_id}


def test_fields_and_kinds_of_a_later_version_are_kept_and_follow_their_ids() -> None:
    entry_id, message_id = new_entry_id(), new_message_id()
    stored = json.dumps(
        {"kind": "later.x", "id": entry_id, "time": 1, "seq": 3, "of": [message_id], "text": "hi"}
    ).encode()
    rewound = Rewound(id=new_entry_id(), time=1, seq=2, to_seq=1, message_id=message_id)
    with_more = decode_entry(encode_entry(rewound)[:-1] + b',"later":{"deep":[1.5]}}')
    opened = SessionOpened(id=new_entry_id(), time=1, seq=1, session_id=new_session_id())
    _, new = adopt([opened, with_more, decode_entry(stored)])
    second, third = (json.loads(encode_entry(entry)) for entry in new[1:3])
    assert second["later"] == {"deep": [1.5]}
    assert third["of"] == [second["message_id"]] != [message_id]
    assert (third["text"], third["seq"]) == ("hi", 3)
    assert third["id"] == new[2].id != entry_id


def test_nothing_that_permits_something_is_taken_over() -> None:
    session_id = new_session_id()
    stamp: dict[str, Any] = {"time": 1, "query_id": QueryId("qry_1"), "turn_id": None}
    message_id, part_id = MessageId("msg_1"), PartId("prt_1")
    call = ToolCallPart(call_id=CallId("c1"), name="shell", arguments={"command": "ls"})
    asked: dict[str, Any] = {"approval_id": ApprovalId("apr_1"), "call_id": CallId("c1")}
    entries: list[Entry] = [
        SessionOpened(
            id=EntryId("e1"),
            time=1,
            seq=1,
            session_id=session_id,
            owner="mallory",
            project="/theirs",
            name="taken",
            native_session_id="native-1",
            settings=Settings(permission_mode="accept_edits"),
        ),
        SessionChanged(
            id=EntryId("e2"),
            time=1,
            seq=2,
            changes={
                "native_session_id": "native-2",
                "owner": "root",
                "title": "kept",
                "settings": {"permission_mode": "accept_edits", "seed": 7},
            },
        ),
        QueryStarted(
            id=EntryId("e3"),
            seq=3,
            message=UserMessage(id=MessageId("msg_0"), parts=(TextPart(text="go"),)),
            options=KeptOptions(settings={"permission_mode": "accept_edits", "seed": 8}),
            **stamp,
        ),
        TurnStarted(
            id=EntryId("e4"), seq=4, message_id=message_id, provider="p", model="m", **stamp
        ),
        PartStarted(id=EntryId("e5"), seq=5, part_id=part_id, part_kind="tool_call", **stamp),
        PartEnded(id=EntryId("e6"), seq=6, part_id=part_id, part=call, **stamp),
        TurnEnded(id=EntryId("e7"), seq=7, message_id=message_id, finish="stop", **stamp),
        ApprovalRequested(
            id=EntryId("e8"),
            seq=8,
            tool="shell",
            arguments=call.arguments,
            arguments_hash="",
            tool_digest="t",
            folder="/theirs",
            **asked,
            **stamp,
        ),
        ApprovalSettled(
            id=EntryId("e9"), seq=9, decision="approved", scope="session", **asked, **stamp
        ),
    ]
    before = fold_entries(entries)
    assert [grant.scope for grant in before.standing.grants] == ["session"]
    assert before.settings.permission_mode == "accept_edits"
    assert before.calls[CallId("c1")].state == "approved"

    _, new = adopt(entries, owner="ana", project="/ours")
    fold = fold_entries(new)
    assert list(fold.standing.grants) == []
    assert (fold.settings.permission_mode, fold.settings.seed) == ("default", 7)
    assert fold.query_options.settings == {"seed": 8}
    assert fold.configured == frozenset()
    assert not fold.calls
    assert fold.unfinished_query() is None
    assert not fold.unended
    assert fold.native.session_id is None
    assert fold.title == "kept"
    assert fold.opened is not None
    assert (fold.opened.owner, fold.opened.project, fold.opened.name) == ("ana", "/ours", None)
    assert b"native" not in b"".join(map(encode_entry, new))


def test_a_permission_that_only_a_later_version_understands_is_left_out() -> None:
    opened = SessionOpened(id=EntryId("e1"), time=1, seq=1, session_id=new_session_id())
    head = {"id": "e2", "time": 1, "approval_id": "a", "call_id": "c", "decision": "approved"}
    settled = {"kind": "approval.settled", **head, "seq": 2, "scope": "for ever"}
    changed = {"kind": "session.changed", **head, "seq": 3, "changes": ["later"]}
    entries = [opened, *(decode_entry(json.dumps(each).encode()) for each in (settled, changed))]
    _, new = adopt(entries)
    assert [entry.kind for entry in without_ends(new)[1:]] == ["imported.missing"] * 2
    assert b"for ever" not in b"".join(map(encode_entry, new))


def test_a_gap_in_an_exported_log_is_filled_so_that_a_store_takes_it() -> None:
    session_id = new_session_id()
    entries = [
        ContextNoted(id=EntryId("e2"), time=4, seq=3, text="what is left"),
        Rewound(id=EntryId("e4"), time=5, seq=5, to_seq=3),
    ]
    summary = ArchiveSummary(
        session_id=session_id,
        logs=(session_id,),
        entries=2,
        blobs=0,
        created=1,
        redacted=False,
        report=ImportReport(),
    )
    new = list(Adoption(summary, owner="ana", project="/p").entries(session_id, entries))
    assert [entry.seq for entry in new] == [1, 2, 3, 4, 5, 6]
    assert isinstance(new[0], SessionOpened)
    assert new[0].owner == "ana"
    assert [entry.kind for entry in new[1:4:2]] == ["imported.missing", "imported.missing"]


def test_a_note_from_a_session_outside_of_the_archive_keeps_its_source() -> None:
    elsewhere = SessionId(new_session_id())
    opened = SessionOpened(id=new_entry_id(), time=1, seq=1, session_id=new_session_id())
    noted = ContextNoted(id=new_entry_id(), time=1, seq=2, text="n", source=elsewhere)
    _, new = adopt([opened, noted])
    assert isinstance(new[1], ContextNoted)
    assert new[1].source == elsewhere


def test_a_new_name_is_given_to_the_session_and_not_to_its_parents() -> None:
    archive = read(
        archived([SessionOpened(id=EntryId("e"), time=1, seq=1, session_id=new_session_id())])
    )
    adoption = Adoption(archive.summary, owner="ana", project="/p", name="again")
    (opened,) = without_ends(
        list(adoption.entries(archive.summary.session_id, archive.logs[0].entries))
    )
    assert isinstance(opened, SessionOpened)
    assert opened.name == "again"
    assert adoption.session_of(archive.summary.session_id) == opened.session_id
    assert io.BytesIO(encode_entry(opened)).read().count(b"again") == 1
