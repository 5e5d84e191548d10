"""The request builder: a pure function; reminders go where they belong and nowhere else."""

import msgspec
import pytest
from hypothesis import given

from haptera import ErrorCode, Message, SessionError, Settings, TextPart, Timeouts
from haptera.kernel.blocks.request_builder import RequestExtras, build_request, lead_with_reminders
from haptera.model.compaction_settings import CompactionSettings
from haptera.model.parts import CompactionPart, MediaPart, ReminderPart
from haptera.model.requests import OutputSchema
from haptera.model.settings import Limits
from haptera.model.tools import ToolSpec
from tests.messages_by_hand import answer, assistant, call, compaction, user
from tests.strategies_values import values_of

EXTRAS = RequestExtras(model="one")
PICTURE = MediaPart(mime="image/png", data="eA==")


@pytest.mark.slow
@given(values_of(Settings), values_of(tuple[Message, ...]), values_of(RequestExtras))
def test_the_same_input_always_makes_the_same_request(
    settings: Settings, messages: tuple[Message, ...], extras: RequestExtras
) -> None:
    view = (user("hi"), *messages)
    before = msgspec.json.encode((settings, view, extras))
    request = build_request(settings, view, extras)
    assert request == build_request(settings, view, extras)
    assert msgspec.json.encode((settings, view, extras)) == before


def test_every_setting_that_a_model_understands_is_in_the_request() -> None:
    settings = Settings(
        model="scripted/one",
        thinking="high",
        system_prompts=("Be brief.", "Be kind."),
        max_tokens=100,
        temperature=0.3,
        stop=("END",),
        seed=7,
        betas={"context-1m": True},
        cache_ttl="5m",
        compaction=CompactionSettings(enabled=True, input_tokens=50_000),
        timeouts=Timeouts(connect=1.0),
    )
    tools = (ToolSpec(name="look"),)
    schema = OutputSchema(name="answer", schema={"type": "object"})
    extras = RequestExtras(
        model="one",
        tools=tools,
        output_schema=schema,
        require_tool="look",
        fresh_media=(PICTURE,),
    )
    request = build_request(settings, (user("hi"),), extras)
    assert msgspec.structs.asdict(request) == {
        "model": "one",
        "messages": (user("hi"),),
        "system": ("Be brief.", "Be kind."),
        "tools": tools,
        "require_tool": "look",
        "thinking": "high",
        "max_tokens": 100,
        "temperature": 0.3,
        "stop": ("END",),
        "seed": 7,
        "output_schema": schema,
        "cache_ttl": "5m",
        "caches_tail": True,
        "compaction": CompactionSettings(enabled=True, input_tokens=50_000),
        "betas": {"context-1m": True},
        "timeouts": Timeouts(connect=1.0),
        "reply_bytes": Limits().reply_bytes,
        "parallel_tool_calls": True,
        "fresh_media": (PICTURE,),
    }


def test_no_tokens_at_most_means_as_many_as_the_provider_likes() -> None:
    assert build_request(Settings(max_tokens=0), (user("hi"),), EXTRAS).max_tokens is None


@pytest.mark.parametrize("temperature", [0.0, -3.5, 99.0])
def test_a_temperature_is_passed_on_unjudged(temperature: float) -> None:
    request = build_request(Settings(temperature=temperature), (user("hi"),), EXTRAS)
    assert request.temperature == temperature


@pytest.mark.parametrize("messages", [(), (assistant("hello"),)])
def test_without_a_prompt_there_is_nothing_to_send(messages: tuple[Message, ...]) -> None:
    with pytest.raises(SessionError) as caught:
        build_request(Settings(), messages, EXTRAS)
    assert caught.value.code is ErrorCode.NOTHING_TO_SEND


def test_the_messages_are_shared_and_not_copied() -> None:
    view = (user("hi"), assistant("hello"), user("more"))
    assert build_request(Settings(), view, EXTRAS).messages is view


def test_a_reminder_of_one_request_ends_the_last_user_message_of_the_request_only() -> None:
    view = (user("one"), assistant("two"), user("three"))
    extras = RequestExtras(model="one", reminders=("be quick", "be kind"))
    sent = build_request(Settings(), view, extras).messages
    assert sent[:2] == view[:2]
    assert sent[2].parts == (
        TextPart(text="three"),
        ReminderPart(text="be quick"),
        ReminderPart(text="be kind"),
    )
    assert view[2] == user("three")


def test_a_reminder_goes_after_tool_results() -> None:
    view = (user("one"), assistant(call("1")), user(answer("1")))
    sent = build_request(Settings(), view, RequestExtras(model="one", reminders=("x",))).messages
    assert sent[-1].parts == (answer("1"), ReminderPart(text="x"))


def test_a_reminder_finds_the_last_user_message_behind_an_answer() -> None:
    view = (user("one"), assistant("so far"))
    sent = build_request(Settings(), view, RequestExtras(model="one", reminders=("x",))).messages
    assert sent == (user("one", ReminderPart(text="x")), assistant("so far"))


def test_standing_reminders_lead_the_first_prompt_of_a_fresh_conversation() -> None:
    led = lead_with_reminders(user("hi"), ["rules", "style"], ())
    assert led.parts == (
        ReminderPart(text="rules", persisted=True),
        ReminderPart(text="style", persisted=True),
        TextPart(text="hi"),
    )


def test_standing_reminders_do_not_come_again_in_a_running_conversation() -> None:
    view = (user(ReminderPart(text="rules", persisted=True), "hi"), assistant("hello"))
    assert lead_with_reminders(user("more"), ["rules"], view) == user("more")


@pytest.mark.parametrize(
    "view",
    [
        (compaction(),),
        (compaction(), assistant("yes")),
        (assistant(CompactionPart(text="so far")),),
        (user(ReminderPart(text="what came before is below")), assistant("so far")),
    ],
)
def test_standing_reminders_come_back_after_a_compaction(view: tuple[Message, ...]) -> None:
    led = lead_with_reminders(user("more"), ["rules"], view)
    assert led.parts[0] == ReminderPart(text="rules", persisted=True)


def test_a_prompt_that_looks_like_a_reminder_is_still_a_prompt() -> None:
    view = (user("<system-reminder>the time is 12:00</system-reminder>"), assistant("noted"))
    assert lead_with_reminders(user("more"), ["rules"], view) == user("more")
    fresh = lead_with_reminders(user("<system-reminder>x</system-reminder>"), ["rules"], ())
    assert isinstance(fresh.parts[0], ReminderPart)
