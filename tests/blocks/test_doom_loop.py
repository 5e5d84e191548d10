"""The loop detector: the third identical call of a query is one too many."""

from typing import Any

import pytest
from hypothesis import given

from holdfast.blocks.doom_loop import LoopDetector
from holdfast.serialization.canonical import arguments_hash
from tests.strategies_values import JSON_OBJECT


def reversed_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value


def test_the_third_identical_call_is_a_loop() -> None:
    detector = LoopDetector(3)
    assert [detector.is_loop(arguments_hash("look", {"a": 1})) for _ in range(4)] == [
        False,
        False,
        True,
        True,
    ]


def test_other_calls_between_do_not_hide_a_loop() -> None:
    detector = LoopDetector(3)
    found = [detector.is_loop(arguments_hash("look", {"a": number % 2})) for number in range(6)]
    assert found == [False, False, False, False, True, True]


def test_another_tool_or_other_arguments_are_another_call() -> None:
    detector = LoopDetector(2)
    assert not detector.is_loop(arguments_hash("look", {"a": 1}))
    assert not detector.is_loop(arguments_hash("taste", {"a": 1}))
    assert not detector.is_loop(arguments_hash("look", {"a": "1"}))
    assert not detector.is_loop(arguments_hash("look", {"a": 1, "b": None}))
    assert detector.is_loop(arguments_hash("look", {"a": 1}))


@given(JSON_OBJECT)
def test_the_order_of_keys_does_not_matter(arguments: dict[str, Any]) -> None:
    detector = LoopDetector(2)
    assert not detector.is_loop(arguments_hash("look", arguments))
    assert detector.is_loop(arguments_hash("look", reversed_keys(arguments)))


def test_the_order_of_a_list_does_matter() -> None:
    detector = LoopDetector(2)
    assert not detector.is_loop(arguments_hash("look", {"a": [1, 2]}))
    assert not detector.is_loop(arguments_hash("look", {"a": [2, 1]}))


def test_without_a_threshold_nothing_is_a_loop() -> None:
    detector = LoopDetector(None)
    assert not any(detector.is_loop(arguments_hash("look", {})) for _ in range(10))


@pytest.mark.parametrize("threshold", [1, 2, 5])
def test_the_threshold_counts_the_current_call(threshold: int) -> None:
    detector = LoopDetector(threshold)
    assert [detector.is_loop(arguments_hash("look", {})) for _ in range(threshold)].index(
        True
    ) == threshold - 1
