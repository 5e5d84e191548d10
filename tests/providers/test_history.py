"""Histories of other providers and models: what is sent, what is left out, what stays the same."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from haptera.model.compaction_settings import CompactionSettings
from haptera.model.ids import CallId, MessageId
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    Part,
    ProviderPart,
    ReasoningPart,
    ReminderPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from haptera.model.requests import ModelRequest
from haptera.model.tools import ToolSpec
from haptera.providers.history import HistoryAdapter, adapt_history, is_same_model
from haptera.providers.wire.prefix_cache import PrefixCache, append_joined, stable_length
from haptera.providers.wire.protocol import HistoryRules

RULES = HistoryRules(media=("image/png", "application/pdf"), result_media=("image/png",))
HI = TextPart(text="hi")


def user(*parts: Part) -> UserMessage:
    return UserMessage(id=MessageId("u"), parts=parts)


def by(provider: str, model: str, *parts: Part) -> AssistantMessage:
    return AssistantMessage(id=MessageId("a"), parts=parts, provider=provider, model=model)


def adapt(*messages: Message, rules: HistoryRules = RULES) -> tuple[Message, ...]:
    request = ModelRequest(model="m", messages=messages)
    return adapt_history(request, provider="p", rules=rules).request.messages


FULL = (
    ReasoningPart(text="hm", signature="s"),
    TextPart(text="a", native={"citations": [1]}),
    ToolCallPart(call_id=CallId("c1"), name="t", native={"caller": 1}),
    ProviderPart(provider="p", model="m", payload={"type": "x"}),
)
RESULT = user(ToolResultPart(call_id=CallId("c1"), name="t", content=(HI,)))


def test_a_request_that_fits_is_the_same_object() -> None:
    tools = (ToolSpec(name="t"),)
    request = ModelRequest(
        model="m",
        messages=(user(HI), by("p", "m", *FULL), RESULT),
        tools=tools,
        require_tool="t",
    )
    adapted = adapt_history(request, provider="p", rules=RULES)
    assert adapted.request is request
    assert adapted.tool_names == {}


@pytest.mark.parametrize(
    ("provider", "model", "rule", "kept"),
    [
        ("p", "m", "same_model", "reasoning text tool_call provider"),
        ("p", "m-20250101", "same_model", "reasoning text tool_call provider"),
        ("p", "other", "same_model", "text tool_call provider"),
        ("p", "other", "same_provider", "reasoning text tool_call provider"),
        ("q", "m", "same_provider", "text tool_call provider"),
        ("p", "m", "never", "text tool_call provider"),
    ],
)
def test_reasoning_goes_back_to_whom_the_rule_says(
    provider: str, model: str, rule: str, kept: str
) -> None:
    rules = msgspec.convert({"reasoning": rule}, HistoryRules)
    message = adapt(user(HI), by(provider, model, *FULL), RESULT, rules=rules)[1]
    assert " ".join(str(part.__struct_config__.tag) for part in message.parts) == kept


def test_what_another_provider_attached_is_left_out() -> None:
    foreign = ProviderPart(provider="q", model="n", payload={})
    message = adapt(user(HI), by("q", "n", *FULL[1:3], foreign), RESULT)[1]
    text, call = message.parts
    assert isinstance(text, TextPart)
    assert isinstance(call, ToolCallPart)
    assert (text.text, text.native, call.native) == ("a", None, None)


def test_call_ids_change_the_same_way_for_call_and_result() -> None:
    call = ToolCallPart(call_id=CallId("functions.t:0"), name="t")
    result = ToolResultPart(call_id=CallId("functions.t:0"), name="t")
    for pattern in (RULES.call_id_pattern, r"^[A-Za-z0-9]{9}$"):
        rules = replace(RULES, call_id_pattern=pattern)
        _, asked, answered = adapt(user(HI), by("p", "m", call), user(result), rules=rules)
        (sent,), (got,) = asked.parts, answered.parts
        assert isinstance(sent, ToolCallPart)
        assert isinstance(got, ToolResultPart)
        assert sent.call_id == got.call_id != "functions.t:0"


def test_tool_names_are_made_acceptable_and_stay_apart() -> None:
    names = ["a.b", "a_b", "a/b", "x" * 80, "ü", ""]
    request = ModelRequest(
        model="m",
        messages=(user(HI),),
        tools=tuple(ToolSpec(name=name) for name in names),
        require_tool="a.b",
    )
    adapted = adapt_history(request, provider="p", rules=RULES)
    sent = [tool.name for tool in adapted.request.tools]
    assert len(set(sent)) == len(names)
    assert all(len(name) <= 64 and name.isascii() for name in sent)
    assert [adapted.tool_names.get(name, name) for name in sent] == names
    assert adapted.request.require_tool == sent[0]
    again = adapt_history(request, provider="p", rules=RULES)
    assert [tool.name for tool in again.request.tools] == sent


def test_media_that_is_not_accepted_becomes_a_line() -> None:
    sound = MediaPart(mime="audio/wav", data="AAAA", filename="a.wav")
    stored = MediaPart(mime="image/png", blob="0" * 64)
    image = MediaPart(mime="image/png", data="AAAA")
    paper = MediaPart(mime="application/pdf", data="AAAA")
    result = ToolResultPart(call_id=CallId("c"), name="t", content=(image, paper))
    (message,) = adapt(user(sound, stored, image, paper, result))
    kinds = [str(part.__struct_config__.tag) for part in message.parts]
    assert kinds == ["text", "text", "media", "media", "tool_result"]
    inner = message.parts[4]
    assert isinstance(inner, ToolResultPart)
    assert inner.content[0] is image
    assert isinstance(inner.content[1], TextPart)
    first = message.parts[0]
    assert isinstance(first, TextPart)
    assert "audio/wav a.wav" in first.text


def test_empty_messages_go_and_neighbours_of_the_user_join() -> None:
    result = ToolResultPart(call_id=CallId("c"), name="t")
    first, second = adapt(
        by("p", "m", HI),
        user(TextPart(text="")),
        user(HI),
        by("q", "m", ReasoningPart(text="only thought")),
        user(TextPart(text="and")),
        by("p", "m", TextPart(text="answer")),
        user(),
    )
    assert [part.text for part in first.parts if isinstance(part, TextPart)] == ["hi", "and"]
    assert second.text == "answer"
    (joined,) = adapt(user(HI), user(result))
    assert [str(part.__struct_config__.tag) for part in joined.parts] == ["tool_result", "text"]


def test_a_summary_opens_the_conversation_as_a_user_message_for_every_other_provider() -> None:
    summary = CompactionPart(text="They greeted.", native={"signature": "s"})
    messages = (by("p", "m", summary, TextPart(text="Hello!")), user(HI))
    own = ModelRequest(model="m", messages=messages, compaction=CompactionSettings(enabled=True))
    assert adapt_history(own, provider="p", rules=RULES).request is own
    for provider, request in (("p", ModelRequest(model="m", messages=messages)), ("q", own)):
        begin, answer, last = adapt_history(
            request, provider=provider, rules=RULES
        ).request.messages
        assert isinstance(begin, UserMessage)
        assert (begin.text, answer.text, last.text) == ("They greeted.", "Hello!", "hi")


def test_a_summary_in_the_middle_is_text_for_another_provider() -> None:
    summary = CompactionPart(text="They greeted.", native={"signature": "s"})
    _, message, _ = adapt(user(HI), by("q", "m", summary), user(HI))
    assert message.parts == (TextPart(text="They greeted."),)


def test_empty_notes_go() -> None:
    (message,) = adapt(user(HI, ReminderPart(text=""), ReminderPart(text="b")))
    assert len(message.parts) == 2


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929", True),
        ("gpt-5", "gpt-5-2025-08-07", True),
        ("claude-3-5-haiku-latest", "claude-3-5-haiku-20241022", True),
        ("claude-sonnet-4", "claude-sonnet-4-5", False),
    ],
)
def test_an_alias_and_its_snapshots_are_one_model(first: str, second: str, same: bool) -> None:
    assert is_same_model(first, second) is same


PARTS = st.sampled_from(
    [
        HI,
        TextPart(text=""),
        ReminderPart(text="note"),
        ToolCallPart(call_id=CallId("x:1"), name="a.b"),
        ToolResultPart(call_id=CallId("x:1"), name="a.b"),
        CompactionPart(text="sum", native={"signature": "s"}),
        *FULL,
    ]
)
MESSAGES = st.one_of(
    st.builds(lambda parts: user(*parts), st.lists(PARTS, max_size=3)),
    st.builds(
        lambda provider, parts: by(provider, "m", *parts),
        st.sampled_from(["p", "q"]),
        st.lists(PARTS, max_size=3),
    ),
)


@given(st.lists(MESSAGES, max_size=8), st.booleans())
def test_what_is_sent_begins_with_the_user_and_is_never_empty(
    messages: list[Message], compacts: bool
) -> None:
    request = ModelRequest(
        model="m",
        messages=tuple(messages),
        compaction=CompactionSettings(enabled=compacts),
    )
    before = msgspec.json.encode(request)
    sent = adapt_history(request, provider="p", rules=RULES).request.messages
    assert msgspec.json.encode(request) == before
    assert all(message.parts for message in sent)
    pairs = itertools.pairwise(sent)
    assert not any(isinstance(a, UserMessage) and isinstance(b, UserMessage) for a, b in pairs)
    if sent and not compacts:
        assert isinstance(sent[0], UserMessage)


@given(st.lists(MESSAGES, max_size=8))
def test_adapting_turn_by_turn_gives_what_adapting_at_once_does(messages: list[Message]) -> None:
    adapter = HistoryAdapter(provider="p", rules=RULES)
    for end in [*range(len(messages) + 1), len(messages) // 2]:
        request = ModelRequest(model="m", messages=tuple(messages[:end]))
        at_once = adapt_history(request, provider="p", rules=RULES)
        turn_by_turn = adapter.adapt(request)
        assert turn_by_turn.request == at_once.request
        assert (turn_by_turn.request is request) == (at_once.request is request)


def test_a_memory_knows_a_conversation_by_its_beginning() -> None:
    memo = PrefixCache[str]()
    a, b, c = user(HI), by("p", "m", HI), user(TextPart(text="c"))
    memo.put((a, b), "made", weight=4)
    assert memo.get((a, b, c)) == (2, "made")
    assert memo.get((a, by("p", "m"), c)) == (0, None)
    assert memo.get((a,)) == (0, None)
    assert memo.get((c, b)) == (0, None)
    assert memo.get(()) == (0, None)


def test_a_cache_of_prefixes_forgets_what_was_not_used_for_longest() -> None:
    memo = PrefixCache[int]()
    conversations = [(user(TextPart(text=str(number))),) for number in range(5)]
    for number, seen in enumerate(conversations):
        memo.put(seen, number, weight=7 << 20)  # of the 16 MiB that are kept
    known = [memo.get(seen)[1] for seen in conversations]
    assert known[-1] == 4
    assert known[0] is None
    memo.put(conversations[4], 40, weight=1)
    assert memo.get(conversations[4]) == (1, 40)


def test_a_cache_of_prefixes_keeps_what_is_read_again_and_again() -> None:
    memo = PrefixCache[int]()
    read = (user(HI),)
    memo.put(read, -1, weight=1)
    for number in range(9):
        memo.put((user(TextPart(text=str(number))),), number, weight=7 << 20)
        assert memo.get(read) == (1, -1)


@given(st.lists(st.lists(st.binary(max_size=40), max_size=9), max_size=40))
def test_encoded_messages_are_few_pieces_however_they_came(turns: list[list[bytes]]) -> None:
    pieces: tuple[bytes, ...] = ()
    for turn in turns:
        pieces = append_joined(pieces, turn)
    whole = b",".join(item for turn in turns for item in turn if item)
    assert b",".join(pieces) == whole
    assert len(pieces) <= len(whole).bit_length()


def test_what_comes_before_the_last_user_message_is_settled() -> None:
    answer = by("p", "m", HI)
    assert stable_length((user(HI), answer, user(HI))) == 2
    assert stable_length((user(HI), answer)) == 0
    assert stable_length((answer,)) == 1
    assert stable_length(()) == 0


def test_an_id_that_a_provider_uses_again_is_changed_for_the_later_call_and_its_result() -> None:
    def turn() -> tuple[Message, ...]:
        call = ToolCallPart(call_id=CallId("call_0"), name="look", arguments={})
        answer = ToolResultPart(call_id=CallId("call_0"), name="look", outcome="ok")
        return (
            AssistantMessage(id=MessageId("a"), parts=(call,), provider="xai", model="m"),
            UserMessage(id=MessageId("u"), parts=(answer,)),
        )

    first = UserMessage(id=MessageId("u"), parts=(TextPart(text="Hi"),))
    adapter = HistoryAdapter(provider="anthropic", rules=HistoryRules())
    seen: list[list[CallId]] = []
    messages: tuple[Message, ...] = (first,)
    for _ in range(3):
        messages = (*messages, *turn())
        sent = adapter.adapt(ModelRequest(model="m", messages=messages)).request.messages
        calls = [
            part.call_id for each in sent for part in each.parts if isinstance(part, ToolCallPart)
        ]
        results = [
            part.call_id for each in sent for part in each.parts if isinstance(part, ToolResultPart)
        ]
        assert calls == results
        assert len(set(calls)) == len(calls)
        seen.append(calls)
    # What was sent once is sent the same again, so that prompt caches match.
    assert seen[2][:2] == seen[1]
    assert seen[0] == ["call_0"]
