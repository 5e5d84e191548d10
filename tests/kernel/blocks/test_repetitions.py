"""The loop detector: the third identical call in a row, with the same results, is one too many."""

from itertools import count
from typing import Any

import pytest
from hypothesis import given

from haptera.kernel.blocks.repetitions import LoopDetector
from haptera.model.canonical import arguments_hash
from haptera.model.ids import CallId
from tests.strategies_values import JSON_OBJECT


class Watched:
    """A detector whose calls end as soon as they were judged."""

    def __init__(self, threshold: int | None) -> None:
        self.detector = LoopDetector(threshold)
        self._ids = count()

    def call(self, arguments: Any, *, tool: str = "look", result: str = "same") -> str:
        """Make a call and let it end; returns the verdict on it."""
        call_id = CallId(f"call_{next(self._ids)}")
        verdict = self.detector.judge(call_id, arguments_hash(tool, arguments))
        if verdict == "repeated":
            self.detector.refuse(call_id)
        self.detector.end(call_id, result)
        return verdict


def reversed_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value


def test_the_third_identical_call_is_repeated_and_the_next_one_insists() -> None:
    watched = Watched(3)
    verdicts = [watched.call({"a": 1}) for _ in range(5)]
    assert verdicts == ["fresh", "fresh", "repeated", "insisting", "insisting"]


def test_another_call_between_breaks_the_row() -> None:
    watched = Watched(3)
    assert {watched.call({"a": number % 2}) for number in range(8)} == {"fresh"}


def test_another_result_breaks_the_row() -> None:
    watched = Watched(3)
    results = ["1 failed", "2 failed", "2 failed", "2 failed"]
    verdicts = [watched.call({}, result=result) for result in results]
    assert verdicts == ["fresh", "fresh", "fresh", "repeated"]


def test_another_tool_or_other_arguments_are_another_call() -> None:
    watched = Watched(2)
    others = [("look", {"a": 1}), ("taste", {"a": 1}), ("look", {"a": "1"}), ("look", {"b": None})]
    assert [watched.call(arguments, tool=tool) for tool, arguments in others] == ["fresh"] * 4
    assert watched.call({"b": None}) == "repeated"


def test_calls_side_by_side_count_once_they_have_results() -> None:
    detector, digest = LoopDetector(3), arguments_hash("look", {})
    ids = [CallId(name) for name in "abc"]
    assert [detector.judge(call_id, digest) for call_id in ids] == ["fresh"] * 3
    for call_id in ids:
        detector.end(call_id, "same")
    assert detector.judge(CallId("d"), digest) == "repeated"


@given(JSON_OBJECT)
def test_the_order_of_keys_does_not_matter(arguments: dict[str, Any]) -> None:
    watched = Watched(2)
    assert watched.call(arguments) == "fresh"
    assert watched.call(reversed_keys(arguments)) == "repeated"


def test_the_order_of_a_list_does_matter() -> None:
    watched = Watched(2)
    assert [watched.call({"a": [1, 2]}), watched.call({"a": [2, 1]})] == ["fresh", "fresh"]


def test_without_a_threshold_nothing_is_a_loop() -> None:
    watched = Watched(None)
    assert {watched.call({}) for _ in range(10)} == {"fresh"}


@pytest.mark.parametrize("threshold", [2, 5])
def test_the_threshold_counts_the_current_call(threshold: int) -> None:
    watched = Watched(threshold)
    verdicts = [watched.call({}) for _ in range(threshold)]
    assert verdicts.index("repeated") == threshold - 1
