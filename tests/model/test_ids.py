"""Ids ascend whatever the clock does, and session ids are UUIDs that others understand."""

import re
import threading
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from haptera.model import ids
from haptera.model.ids import IdFactory, parse_session_id

SHAPE = re.compile(r"^[a-z]+_[0-9a-f]{16}[0-9A-Za-z]{10}$")
A_MILLISECOND = 1_700_000_000_000


class SteppingClock:
    """Gives out the times of a list, then stays at the last one."""

    def __init__(self, times: list[int]) -> None:
        self._times = list(times)

    def __call__(self) -> int:
        return self._times.pop(0) if len(self._times) > 1 else self._times[0]


def test_ten_thousand_ids_of_one_millisecond_ascend() -> None:
    factory = IdFactory(now_ms=lambda: A_MILLISECOND)
    minted = [factory.ascending("msg") for _ in range(10_000)]
    assert minted == sorted(minted)
    assert len(set(minted)) == len(minted)


def test_more_ids_than_a_millisecond_can_count_still_ascend() -> None:
    factory = IdFactory(now_ms=lambda: A_MILLISECOND)
    minted = [factory.ascending("msg") for _ in range(70_000)]
    assert minted == sorted(minted)
    assert len(set(minted)) == len(minted)


@given(st.lists(st.integers(min_value=0, max_value=2**47), min_size=1, max_size=50))
def test_ids_ascend_however_the_clock_jumps(times: list[int]) -> None:
    factory = IdFactory(now_ms=SteppingClock(times))
    minted = [factory.ascending("evt") for _ in range(len(times) * 2)]
    assert minted == sorted(minted)
    assert len(set(minted)) == len(minted)


@given(st.lists(st.integers(min_value=0, max_value=2**47), min_size=1, max_size=50))
def test_descending_ids_sort_before_every_earlier_one(times: list[int]) -> None:
    factory = IdFactory(now_ms=SteppingClock(times))
    minted = [factory.descending("evt") for _ in range(len(times) * 2)]
    assert minted == sorted(minted, reverse=True)


def test_ids_of_several_threads_never_repeat_and_ascend_in_each() -> None:
    factory = IdFactory(now_ms=lambda: A_MILLISECOND)
    minted: dict[int, list[str]] = {}

    def mint(place: int) -> None:
        minted[place] = [factory.ascending("prt") for _ in range(2_000)]

    threads = [threading.Thread(target=mint, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(own == sorted(own) for own in minted.values())
    assert len({item for own in minted.values() for item in own}) == 16_000


@given(st.lists(st.integers(min_value=0, max_value=2**47), min_size=1, max_size=30))
def test_session_ids_are_ordered_uuids_of_version_seven(times: list[int]) -> None:
    factory = IdFactory(now_ms=SteppingClock(times))
    minted = [factory.session() for _ in range(len(times) * 2)]
    assert minted == sorted(minted)
    assert len(set(minted)) == len(minted)
    for text in minted:
        parsed = UUID(text)
        assert (parsed.version, parsed.variant) == (7, "specified in RFC 4122")


def test_a_session_id_begins_with_its_time() -> None:
    factory = IdFactory(now_ms=lambda: A_MILLISECOND)
    assert UUID(factory.session()).int >> 80 == A_MILLISECOND


def test_ten_thousand_session_ids_of_one_millisecond_ascend() -> None:
    factory = IdFactory(now_ms=lambda: A_MILLISECOND)
    minted = [factory.session() for _ in range(10_000)]
    assert minted == sorted(minted)


def test_ids_do_not_wrap_in_any_foreseeable_time() -> None:
    year_ten_thousand = 253_402_300_800_000
    factory = IdFactory(now_ms=SteppingClock([A_MILLISECOND, year_ten_thousand]))
    assert factory.ascending("msg") < factory.ascending("msg")


def test_every_kind_of_id_has_its_prefix_and_shape() -> None:
    minted = {
        "qry": ids.new_query_id(),
        "trn": ids.new_turn_id(),
        "msg": ids.new_message_id(),
        "prt": ids.new_part_id(),
        "evt": ids.new_entry_id(),
        "apr": ids.new_approval_id(),
        "inp": ids.new_input_id(),
        "snp": ids.new_id("snp"),
    }
    for prefix, text in minted.items():
        assert text.startswith(f"{prefix}_")
        assert SHAPE.match(text), text


def test_a_new_session_id_is_recognised_as_one() -> None:
    minted = ids.new_session_id()
    assert parse_session_id(minted) == minted


@given(st.uuids())
def test_any_canonical_uuid_is_a_session_id(value: UUID) -> None:
    assert parse_session_id(str(value)) == str(value)


@given(st.uuids())
def test_a_uuid_in_another_form_is_a_name(value: UUID) -> None:
    for text in (value.hex, f"{{{value}}}", f"urn:uuid:{value}"):
        assert parse_session_id(text) is None


@given(st.text(max_size=40))
def test_other_text_is_a_name(text: str) -> None:
    parsed = parse_session_id(text)
    assert parsed is None or str(UUID(parsed)) == text
