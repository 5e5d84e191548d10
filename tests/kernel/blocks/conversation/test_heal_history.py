"""Healing: a history that a program hands in becomes one that can be sent, changed least."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera import AssistantMessage, Message, ToolResultPart, UserMessage
from haptera.model.log.history import heal_history
from haptera.model.parts import Part
from tests.messages_by_hand import answer, assistant, call, compaction, user

CALL_IDS = st.sampled_from(["1", "2", "3"])
USER_PARTS = st.lists(st.sampled_from(["hi", "there"]) | CALL_IDS.map(answer), max_size=3)
ASSISTANT_PARTS = st.lists(
    st.sampled_from(["yes", "no"]) | CALL_IDS.map(call), max_size=3, unique_by=str
)
HISTORIES = st.lists(
    USER_PARTS.map(lambda parts: user(*parts))
    | ASSISTANT_PARTS.map(lambda parts: assistant(*parts)),
    max_size=6,
)


def outcomes(message: Message) -> list[tuple[str, str]]:
    results = [part for part in message.parts if isinstance(part, ToolResultPart)]
    return [(part.call_id, part.outcome) for part in results]


@given(HISTORIES)
def test_a_healed_history_begins_with_a_prompt_alternates_and_answers_every_call(
    history: list[Message],
) -> None:
    healed = heal_history(history)
    assert not healed or isinstance(healed[0], UserMessage)
    assert all(type(one) is not type(other) for one, other in pairwise(healed))
    for one, other in pairwise([*healed, user("end")]):
        asked = (
            {part.call_id for part in one.tool_calls}
            if isinstance(one, AssistantMessage)
            else set()
        )
        answered = [call_id for call_id, _ in outcomes(other)]
        assert (set(answered), len(answered)) == (asked, len(asked))


@given(HISTORIES)
def test_healing_twice_changes_nothing_more(history: list[Message]) -> None:
    healed = heal_history(history)
    assert heal_history(healed) == healed


def test_a_sound_history_is_left_as_it_is() -> None:
    sound: list[Message] = [
        user("hi"),
        assistant("let me see", call("1")),
        user(answer("1")),
        assistant("done"),
    ]
    assert heal_history(sound) == sound


def test_a_call_at_the_end_gets_an_answer_that_admits_not_to_know() -> None:
    healed = heal_history([user("hi"), assistant(call("1"), call("2"))])
    assert outcomes(healed[-1]) == [("1", "unknown"), ("2", "unknown")]


def test_a_half_answered_turn_gets_the_missing_results_before_the_prompt() -> None:
    history: list[Message] = [
        user("hi"),
        assistant(call("1"), call("2")),
        user("go on", answer("2")),
    ]
    healed = heal_history(history)
    assert outcomes(healed[-1]) == [("2", "ok"), ("1", "unknown")]
    assert healed[-1].text == "go on"
    assert [isinstance(part, ToolResultPart) for part in healed[-1].parts] == [True, True, False]


def test_a_result_that_answers_nothing_is_dropped() -> None:
    healed = heal_history([user("hi"), assistant("no calls"), user(answer("9"), "go on")])
    assert healed[-1] == user("go on")


def test_a_message_of_stray_results_only_disappears() -> None:
    assert heal_history([user("hi"), assistant("hello"), user(answer("9"))]) == [
        user("hi"),
        assistant("hello"),
    ]


def test_an_answer_before_the_first_prompt_is_dropped() -> None:
    assert heal_history([assistant("hello?"), user("hi")]) == [user("hi")]


def test_two_answers_in_a_row_become_one() -> None:
    healed = heal_history([user("hi"), assistant("one"), assistant("two")])
    assert [message.text for message in healed] == ["hi", "onetwo"]


def test_an_answer_without_anything_in_it_is_dropped() -> None:
    assert heal_history([user("hi"), assistant(), user("again")]) == [user("hi", "again")]


def test_a_compaction_stays_a_message_of_its_own() -> None:
    history: list[Message] = [user("hi"), compaction(), assistant("yes")]
    assert heal_history(history) == history


@pytest.mark.parametrize("parts", [(), ("hi",)])
def test_an_empty_or_unanswered_history_is_fine(parts: tuple[Part | str, ...]) -> None:
    history: list[Message] = [user(*parts)] if parts else []
    assert heal_history(history) == history
