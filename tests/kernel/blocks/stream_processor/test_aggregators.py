"""Aggregators put pieces together, each on its own and for any number of parts side by side."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera.kernel.blocks.stream_processor.aggregators import (
    GrowingText,
    ReasoningAggregator,
    TextAggregator,
    ToolCallAggregator,
    finish_call,
)
from tests.strategies_values import JSON_OBJECT, TEXT


@given(st.lists(TEXT), st.data())
def test_text_grows_and_knows_what_was_saved(pieces: list[str], data: st.DataObject) -> None:
    growing, whole, saved = GrowingText(), "", ""
    for piece in pieces:
        assert growing.add(piece) == len(whole)
        whole += piece
        if data.draw(st.booleans()):
            saved += growing.unsaved()
            growing.mark_saved()
            assert saved == whole
    assert (growing.whole(), growing.length) == (whole, len(whole))
    assert saved + growing.unsaved() == whole
    assert growing.saved == len(saved)


@pytest.mark.parametrize("kind", [TextAggregator, ReasoningAggregator])
def test_parts_grow_side_by_side(kind: type[TextAggregator]) -> None:
    texts = kind()
    texts.start("a")
    texts.start("b")
    assert [texts.add("a", "one "), texts.add("b", "uno "), texts.add("a", "two")] == [0, 0, 4]
    assert texts.get("b") == "uno "
    assert texts.all() == {"a": "one two", "b": "uno "}
    assert texts.complete("a") == "one two"
    assert texts.all() == {"b": "uno "}


def test_a_part_begun_twice_keeps_what_it_has() -> None:
    texts = ReasoningAggregator()
    texts.start("a")
    texts.add("a", "thought")
    texts.start("a")
    assert texts.get("a") == "thought"


def test_pieces_of_a_part_that_was_never_begun_are_dropped() -> None:
    texts, tools = TextAggregator(), ToolCallAggregator()
    assert texts.add("a", "orphan") is None
    assert texts.get("a") is None
    assert texts.complete("a") is None
    assert tools.add("1", "{}") is None
    assert tools.complete("1") is None


@given(JSON_OBJECT, st.integers(1, 5))
def test_arguments_are_the_same_however_they_are_cut(value: dict[str, Any], size: int) -> None:
    text = json.dumps(value)
    tools = ToolCallAggregator()
    tools.start("1", "look")
    for start in range(0, len(text), size):
        tools.add("1", text[start : start + size])
    call = tools.complete("1")
    assert call is not None
    assert (call.arguments, call.invalid, call.name) == (value, None, "look")


def test_a_call_is_forgotten_once_it_is_complete() -> None:
    tools = ToolCallAggregator()
    tools.start("1", "look")
    tools.start("2", "taste")
    assert tools.pending() == ("1", "2")
    assert tools.complete("1") is not None
    assert tools.pending() == ("2",)
    assert tools.complete("1") is None


@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_no_text_means_no_arguments(text: str) -> None:
    call = finish_call("look", text)
    assert (call.arguments, call.invalid) == ({}, None)


@pytest.mark.parametrize(
    "text",
    ["{", '{"a": }', "[1]", '"text"', "7", "null", "{} {}", "\ud800", "[" * 9999],
    ids=range(9),
)
def test_text_that_is_not_an_object_is_kept_and_marked(text: str) -> None:
    call = finish_call("look", text)
    assert (call.arguments, call.invalid) == ({}, text)


def test_a_call_without_an_id_gets_one() -> None:
    first, second = finish_call("look", ""), finish_call("look", "")
    assert first.call_id != second.call_id
