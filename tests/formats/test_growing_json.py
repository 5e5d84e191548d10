"""JSON that is read as it comes: the same value however it is cut, and each character once."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera.formats.growing_json import GrowingJson

_SCALARS = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text()
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
_WHOLE = st.lists(_VALUES, max_size=4) | st.dictionaries(st.text(), _VALUES, max_size=4)


def grown(text: str, cuts: list[int]) -> GrowingJson:
    """Read a text that comes in pieces, and look at it after each."""
    growing, begin = GrowingJson(), 0
    for end in [*sorted(cut % (len(text) + 1) for cut in cuts), len(text)]:
        growing.feed(text[begin:end])
        assert growing.text is None or isinstance(growing.text, str)
        begin = end
    return growing


@given(value=_WHOLE, is_ascii=st.booleans(), cuts=st.lists(st.integers(0, 2_000)))
def test_the_value_is_the_same_however_its_text_is_cut(
    value: object, is_ascii: bool, cuts: list[int]
) -> None:
    growing = grown(json.dumps(value, ensure_ascii=is_ascii, indent=1), cuts)
    assert growing.root == value
    assert growing.open == []


@given(cuts=st.lists(st.integers(0, 60)))
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<think>is it {1}?</think>\n", ""),
        ("Here it is:\n```json\n", "\n```\nI hope that helps {you}."),
        ("  \n", " That is all."),
        ("<thinly>", ""),
    ],
)
def test_thoughts_fences_and_sentences_around_the_value_are_skipped(
    before: str, after: str, cuts: list[int]
) -> None:
    assert grown(f'{before}{{"a": [1, "b"]}}{after}', cuts).root == {"a": [1, "b"]}


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ('{"a": 1, "b": tru', {"a": 1}),
        ('{"a": 1, "b": troo, "c": 2}', {"a": 1}),
        ('{"a": 1, "a": 2}', {"a": 1}),
        ('{"a": 1]', {"a": 1}),
        ('{"a": 1 "b": 2}', {"a": 1}),
        ('{"a" 1}', {}),
        ('{"a": "x\\q"}', {}),
        ('{"a": "\\u00zz"}', {}),
        ("{1: 2}", {}),
        ("[1, 2}", [1, 2]),
        ("12", None),
        ("no JSON at all", None),
    ],
)
def test_what_was_read_before_a_mistake_stays(text: str, root: object) -> None:
    growing = GrowingJson()
    growing.feed(text)
    growing.feed(' "more": 1}]')
    assert growing.root == root


def test_half_of_a_pair_of_surrogates_is_not_shown() -> None:
    growing = GrowingJson()
    growing.feed('{"a": "x\\ud83d')
    assert growing.text == "x"
    growing.feed('\\ude00"}')
    assert growing.root == {"a": "x\U0001f600"}


def test_an_answer_that_only_opens_lists_is_not_read_deeper_than_a_hundred_of_them() -> None:
    growing = GrowingJson()
    growing.feed("[" * 100_000)
    assert len(growing.open) == 100


@pytest.mark.parametrize("unit", ['"text",', "12345,", '{"a":[1]},', '"\\u00e9",', " "])
def test_reading_takes_time_in_proportion_to_the_text(unit: str) -> None:
    def seconds_of(count: int) -> float:
        text, growing = "[" + unit * count, GrowingJson()
        begun = time.thread_time()
        for place in range(0, len(text), 3):
            growing.feed(text[place : place + 3])
        return (time.thread_time() - begun) / count

    short = min(seconds_of(2_000) for _ in range(3))
    assert min(seconds_of(16_000) for _ in range(3)) < 2 * short
