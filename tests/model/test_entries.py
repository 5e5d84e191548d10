"""Entries as JSON: what is written comes back, and what is not understood is kept as it is."""

import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from haptera import ErrorCode, StoreError
from haptera.model.entry_bytes import (
    decode_entries,
    decode_entry,
    encode_entry,
    encode_event,
    refuse_unreadable,
)
from haptera.model.events import Event, SubagentEvent, TextDelta
from haptera.model.ids import CallId, EntryId, PartId, SessionId
from haptera.model.known_events import KnownEntry
from haptera.model.log.entry import Entry, UnknownEntry
from haptera.model.log.notes import HookMessage
from haptera.model.log.queries import QueryEnded
from haptera.model.log.sessions import SessionChanged
from haptera.model.log.tools import ToolEnded
from tests.case_names import stable_name
from tests.strategies_values import ENTRIES, JSON, JSON_OBJECT, TEXT

HEADER = {"id": "evt_1", "time": 5, "seq": 7}


def as_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


@given(ENTRIES)
def test_an_entry_comes_back_as_it_was(entry: Entry) -> None:
    stored = encode_entry(entry)
    again = decode_entry(stored)
    assert again == entry
    assert encode_entry(again) == stored


@given(ENTRIES)
def test_an_entry_that_comes_back_is_not_refused(entry: Entry) -> None:
    refuse_unreadable(entry)


@pytest.mark.parametrize(
    "fields",
    [{"call_id": 5}, {"tool": 5}, {"outcome": "riddle"}, {"tool": "\ud800"}, {"tool": object()}],
    ids=stable_name,
)
def test_an_entry_that_would_not_come_back_is_refused(fields: dict[str, Any]) -> None:
    known: dict[str, Any] = {"id": "evt_1", "time": 5, "call_id": "call_1", "tool": "look"}
    with pytest.raises(StoreError, match=r"tool\.ended") as caught:
        refuse_unreadable(ToolEnded(**{**known, "outcome": "ok", **fields}))
    assert (caught.value.code, caught.value.retryable) == (ErrorCode.CORRUPT, False)


def test_a_kind_that_does_not_say_that_it_is_checked_is_read_back() -> None:
    unsaid = [kind for kind in get_args(KnownEntry) if "is_checked" not in vars(kind)]
    assert {*unsaid} >= {ToolEnded, HookMessage}
    assert not any(kind.is_checked for kind in unsaid)


@given(ENTRIES)
def test_an_entry_is_one_line(entry: Entry) -> None:
    assert b"\n" not in encode_entry(entry)


@given(ENTRIES, st.dictionaries(TEXT.map("new_".__add__), JSON, min_size=1, max_size=3))
def test_fields_of_a_later_version_survive_byte_for_byte(
    entry: Entry, added: dict[str, Any]
) -> None:
    stored = as_bytes(json.loads(encode_entry(entry)) | added)
    again = decode_entry(stored)
    assert type(again) is type(entry)
    assert encode_entry(again) == stored
    assert msgspec.structs.replace(again, raw=None) == entry


@given(ENTRIES)
def test_an_entry_that_was_written_in_another_layout_keeps_its_bytes(entry: Entry) -> None:
    stored = json.dumps(json.loads(encode_entry(entry)), indent=1, sort_keys=True).encode()
    assert encode_entry(decode_entry(stored)) == stored


@given(TEXT.map("later.".__add__), JSON_OBJECT)
@example("later.", {"turn_id": []})
def test_kinds_of_a_later_version_survive_byte_for_byte(kind: str, facts: dict[str, Any]) -> None:
    stored = as_bytes({**facts, **HEADER, "kind": kind})
    again = decode_entry(stored)
    assert isinstance(again, UnknownEntry)
    assert (again.kind, again.id, again.time, again.seq) == (kind, "evt_1", 5, 7)
    assert encode_entry(again) == stored


@given(JSON)
def test_a_later_field_that_bears_the_name_of_ours_is_not_mistaken_for_it(value: Any) -> None:
    stored = as_bytes({**HEADER, "kind": "session.changed", "changes": {}, "raw": value})
    assert encode_entry(decode_entry(stored)) == stored


def test_a_known_kind_with_a_value_of_a_later_version_is_kept() -> None:
    stored = as_bytes({**HEADER, "kind": "query.ended", "stop_reason": "telepathy"})
    again = decode_entry(stored)
    assert isinstance(again, UnknownEntry)
    assert again.kind == "query.ended"
    assert encode_entry(again) == stored


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\x00\x01\x02",
        b'{"kind":"query.ended"',
        b'{"kind":"query.ended"}',
        b'{"kind":"later.invention", garbage',
        b'{"kind":"later.invention","id":"evt_1","time":1,"seq":1',
        b'{"kind":"later.invention","id":"evt_1","time":1}',
        b'{"id":"evt_1","time":1,"seq":1}',
        b'{"kind":"session.changed","id":"\xff\xfe","time":1,"seq":1,"changes":{}}',
        b'{"kind":7,"id":"evt_1","time":1,"seq":1}',
        b"[" * 100_000,
        b'{"kind":"session.changed","id":"e","time":1,"seq":1,"changes":' + b'{"a":' * 100_000,
    ],
    ids=range(15),
)
def test_bytes_that_are_no_entry_are_corrupt(stored: bytes) -> None:
    with pytest.raises(StoreError) as caught:
        decode_entry(stored)
    assert caught.value.code is ErrorCode.CORRUPT


def _in_another_layout(entry: Entry) -> bytes:
    return json.dumps(json.loads(encode_entry(entry))).encode()


def _with_a_later_field(entry: Entry) -> bytes:
    return encode_entry(entry)[:-1] + b',"raw":{"later":1}}'


def _of_a_later_kind(entry: Entry) -> bytes:
    return msgspec.json.encode({"kind": "later", "id": entry.id, "time": 1, "seq": entry.seq})


WAYS = st.sampled_from([encode_entry, _in_another_layout, _with_a_later_field, _of_a_later_kind])


@given(st.lists(st.tuples(ENTRIES, WAYS), max_size=5))
def test_entries_that_are_decoded_together_are_those_decoded_one_by_one(stored: list[Any]) -> None:
    bodies = [written(entry) for entry, written in stored]
    together, apart = decode_entries(bodies), [decode_entry(body) for body in bodies]
    assert together == apart
    assert [encode_entry(entry) for entry in together] == bodies


@pytest.mark.slow
@given(st.lists(ENTRIES.map(encode_entry), min_size=1, max_size=4), st.data())
def test_one_torn_entry_among_others_is_corrupt(bodies: list[bytes], data: Any) -> None:
    place = data.draw(st.integers(0, len(bodies) - 1))
    bodies[place] = bodies[place][: data.draw(st.integers(0, len(bodies[place]) - 1))]
    with pytest.raises(StoreError) as caught:
        decode_entries(bodies)
    assert caught.value.code is ErrorCode.CORRUPT


@given(st.binary(max_size=40))
def test_no_bytes_raise_anything_but_corrupt(stored: bytes) -> None:
    try:
        again = encode_entry(decode_entry(stored))
    except StoreError as error:
        again = stored if error.code is ErrorCode.CORRUPT else b""
    assert again == stored


@given(ENTRIES, st.data())
def test_a_torn_entry_is_corrupt_and_never_a_shorter_entry(
    entry: Entry, data: st.DataObject
) -> None:
    stored = encode_entry(entry)
    cut = data.draw(st.integers(0, len(stored) - 1))
    with pytest.raises(StoreError) as caught:
        decode_entry(stored[:cut])
    assert caught.value.code is ErrorCode.CORRUPT


def test_an_event_is_an_entry_as_it_is_stored_or_a_delta_without_a_place() -> None:
    entry = SessionChanged(id=EntryId("evt_1"), time=1, seq=3, changes={"title": None})
    delta = TextDelta(part_id=PartId("prt_1"), offset=4, text="hi")
    assert encode_event(entry) == encode_entry(entry)
    assert json.loads(encode_event(delta)) == {
        "kind": "text.delta",
        "part_id": "prt_1",
        "offset": 4,
        "text": "hi",
    }


def test_the_event_inside_a_sub_agents_event_is_written_like_any_other() -> None:
    later = decode_entry(b'{"kind":"later.kind","id":"evt_1","time":1,"seq":2,"more":[1]}')
    ended = QueryEnded(
        id=EntryId("evt_1"), time=1, seq=9, stop_reason="complete", native_session_id="n1"
    )
    for event in (later, ended, TextDelta(part_id=PartId("prt_1"), offset=0, text="hi")):
        outer: Event = event
        for _ in range(2):
            outer = SubagentEvent(
                call_id=CallId("c"), agent="a", session_id=SessionId("s"), event=outer
            )
        told = json.loads(encode_event(outer))
        assert told["event"]["event"] == json.loads(encode_event(event))
        assert [told["kind"], told["event"]["kind"]] == ["subagent.event"] * 2


def test_the_bytes_of_an_entry_are_pinned() -> None:
    entry = QueryEnded(id=EntryId("evt_1"), time=1, seq=9, stop_reason="complete", turns=1)
    assert encode_entry(entry) == (
        b'{"kind":"query.ended","id":"evt_1","time":1,"seq":9,"stop_reason":"complete","turns":1}'
    )
