"""A transcript has what was said and done, and bounds what is long where it is asked to."""

from haptera.formats.transcript import part_text, transcript_of, without_middle
from haptera.model.ids import CallId, new_message_id
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    Part,
    ReasoningPart,
    ReminderPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

PAY = CallId("c")
CALL = ToolCallPart(call_id=PAY, name="pay", arguments={"to": "é", "amount": 1})


def result(text: str) -> ToolResultPart:
    return ToolResultPart(
        call_id=PAY, name="pay", outcome="unknown", content=(TextPart(text=text),)
    )


def said(*parts: Part) -> Message:
    return UserMessage(id=new_message_id(), parts=parts)


def answered(*parts: Part) -> Message:
    return AssistantMessage(id=new_message_id(), parts=parts, provider="p", model="m")


def test_a_transcript_has_words_calls_outcomes_and_names_of_files() -> None:
    picture = MediaPart(mime="image/png", data="eA==", filename="cat.png")
    texts = transcript_of(
        [
            said(CompactionPart(text="Before."), TextPart(text="Pay it"), picture),
            answered(TextPart(text="I do."), CALL),
            said(result("no answer")),
        ]
    )
    assert texts == [
        "User: Before.\nPay it\n[cat.png]",
        'Assistant: I do.\n[called pay: {"to":"é","amount":1}]',
        "User: [pay: unknown: no answer]",
    ]


def test_reasoning_reminders_and_messages_that_say_nothing_are_left_out() -> None:
    messages = [
        said(ReminderPart(text="be brief"), TextPart(text=" ")),
        answered(ReasoningPart(text="hm")),
    ]
    assert transcript_of(messages) == []


def test_calls_and_results_have_a_bound_where_one_is_given() -> None:
    assert "a" * 9_000 in part_text(result("a" * 9_000))
    shown = part_text(result("a" * 9_000 + "end"), most=100)
    assert len(shown) < 200
    assert shown.endswith("aend]")
    assert transcript_of([said(result("a" * 9_000))], most=100)[0].count("a") < 200


def test_a_text_that_is_cut_keeps_more_of_its_end() -> None:
    assert without_middle("abc", 3) == without_middle("abc", None) == "abc"
    assert without_middle("a" * 4 + "b" * 4, 4) == "a\n[… 4 characters left out …]\nbbb"
