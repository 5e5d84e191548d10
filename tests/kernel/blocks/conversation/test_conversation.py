"""The conversation as a bare block: order, merging, tags, compaction and the view that is sent."""

from typing import Any

import pytest

from haptera import ConfigError, ErrorCode, Message, TextPart
from haptera.model.log.conversation import Conversation
from haptera.model.parts import CompactionPart
from tests.messages_by_hand import answer, assistant, call, compaction, user


def texts(messages: tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages]


# Pushing.


def test_messages_keep_their_order() -> None:
    conversation = Conversation()
    for message in (user("one"), assistant("two"), user("three")):
        conversation.push(message)
    assert texts(conversation.messages) == ["one", "two", "three"]


def test_consecutive_user_messages_become_one_with_all_their_parts() -> None:
    conversation = Conversation()
    conversation.push(user("one", name="first"))
    conversation.push(user("two", "three", name="second"))
    (merged,) = conversation.messages
    assert [part.text for part in merged.parts if isinstance(part, TextPart)] == [
        "one",
        "two",
        "three",
    ]


def test_the_earlier_user_message_gives_the_merged_one_its_name() -> None:
    conversation = Conversation()
    conversation.push(user("one", name="first"))
    conversation.push(user("two", name="second"))
    assert [message.id for message in conversation.messages] == ["first"]


def test_three_user_messages_in_a_row_become_one() -> None:
    conversation = Conversation()
    for text in "abc":
        conversation.push(user(text))
    assert texts(conversation.messages) == ["abc"]


def test_the_tag_of_a_message_that_was_merged_is_dropped() -> None:
    conversation = Conversation()
    conversation.push(user("one"))
    conversation.push(user("two"), tag="second")
    assert not conversation.remove("second")
    assert texts(conversation.messages) == ["onetwo"]


def test_consecutive_assistant_messages_stay_apart() -> None:
    conversation = Conversation()
    conversation.push(assistant("one"))
    conversation.push(assistant("two"))
    assert texts(conversation.messages) == ["one", "two"]


def test_tool_results_and_a_prompt_share_a_message() -> None:
    conversation = Conversation()
    conversation.push(assistant(call("1")))
    conversation.push(user(answer("1")))
    conversation.push(user("and then?"))
    assert len(conversation) == 2
    assert conversation.messages[-1].parts == (answer("1"), TextPart(text="and then?"))


def test_what_is_not_a_message_is_refused() -> None:
    conversation = Conversation()
    nonsense: Any = {"role": "user", "content": "hi"}
    with pytest.raises(ConfigError) as caught:
        conversation.push(nonsense)
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert len(conversation) == 0


def test_a_merged_message_leaves_the_one_that_was_pushed_alone() -> None:
    first, second = user("one"), user("two")
    conversation = Conversation()
    conversation.push(first)
    conversation.push(second)
    assert (first.text, second.text) == ("one", "two")


# Tags.


def test_a_tagged_message_can_be_taken_out() -> None:
    conversation = Conversation()
    conversation.push(user("one"))
    conversation.push(assistant("two"), tag="t")
    assert conversation.remove("t")
    assert texts(conversation.messages) == ["one"]


def test_taking_out_an_unknown_tag_changes_nothing() -> None:
    conversation = Conversation()
    conversation.push(user("one"), tag="t")
    assert not conversation.remove("other")
    assert texts(conversation.messages) == ["one"]


def test_of_two_messages_with_a_tag_the_last_is_taken_out() -> None:
    conversation = Conversation()
    conversation.push(assistant("one"), tag="t")
    conversation.push(assistant("two"), tag="t")
    assert conversation.remove("t")
    assert texts(conversation.messages) == ["one"]
    assert conversation.remove("t")
    assert not conversation.remove("t")


def test_messages_without_a_tag_are_never_taken_out() -> None:
    conversation = Conversation()
    conversation.push(user("one"))
    assert not conversation.remove("")


def test_tags_survive_a_compaction() -> None:
    conversation = Conversation()
    conversation.push(user("one"), tag="early")
    conversation.push(assistant("two"))
    conversation.push(compaction())
    assert conversation.remove("early")
    assert texts(conversation.messages) == ["two", ""]


def test_taking_out_a_message_before_a_compaction_keeps_the_view() -> None:
    conversation = Conversation()
    conversation.push(user("one"), tag="early")
    conversation.push(compaction())
    conversation.push(assistant("after"))
    before = conversation.wire_view()
    conversation.remove("early")
    assert conversation.wire_view() == before


def test_messages_that_become_neighbours_stay_apart() -> None:
    conversation = Conversation()
    conversation.push(user("one"))
    conversation.push(assistant("two"), tag="t")
    conversation.push(user("three"))
    conversation.remove("t")
    assert texts(conversation.messages) == ["one", "three"]


def test_a_tagged_message_can_be_replaced() -> None:
    conversation = Conversation()
    conversation.push(assistant("draft"), tag="t")
    assert conversation.replace("t", assistant("final"))
    assert not conversation.replace("other", assistant("no"))
    assert texts(conversation.messages) == ["final"]


# Compaction and the view.


def test_a_compaction_is_appended_and_nothing_is_dropped() -> None:
    conversation = Conversation()
    conversation.push(user("one"))
    conversation.push(assistant("two"))
    conversation.push(compaction())
    assert len(conversation.messages) == 3


def test_a_compaction_does_not_join_the_message_before_it() -> None:
    conversation = Conversation()
    conversation.push(user("one"))
    conversation.push(compaction())
    assert len(conversation) == 2


def test_a_prompt_joins_the_compaction_before_it() -> None:
    conversation = Conversation()
    conversation.push(compaction())
    conversation.push(user("next"))
    assert conversation.wire_view()[0].parts == (
        CompactionPart(text="summary"),
        TextPart(text="next"),
    )


def test_without_a_compaction_everything_is_sent() -> None:
    conversation = Conversation([user("one"), assistant("two")])
    assert conversation.wire_view() == conversation.messages


def test_the_view_begins_with_the_last_compaction() -> None:
    conversation = Conversation()
    for message in (
        user("one"),
        compaction("first"),
        assistant("two"),
        compaction("last"),
        assistant("three"),
    ):
        conversation.push(message)
    assert conversation.wire_view() == (compaction("last"), assistant("three"))


def test_a_compaction_inside_an_answer_begins_the_view_too() -> None:
    conversation = Conversation()
    conversation.push(user("one"))
    conversation.push(assistant(CompactionPart(text="summary"), "two"))
    assert conversation.wire_view() == conversation.messages[1:]


def test_a_compaction_without_text_is_none() -> None:
    conversation = Conversation()
    conversation.push(user("one"))
    conversation.push(assistant(CompactionPart(text=""), "two"))
    assert len(conversation.wire_view()) == 2


def test_a_view_is_a_moment_that_later_messages_do_not_change() -> None:
    conversation = Conversation([user("one")])
    view = conversation.wire_view()
    conversation.push(assistant("two"))
    conversation.push(compaction())
    assert texts(view) == ["one"]


def test_a_view_shares_the_messages_instead_of_copying_them() -> None:
    first = user("one")
    conversation = Conversation([first])
    assert conversation.wire_view()[0] is first


def test_a_view_of_nothing_is_empty() -> None:
    assert Conversation().wire_view() == ()
    assert Conversation().tip is None


# The whole history.


def test_setting_the_history_replaces_everything() -> None:
    conversation = Conversation([user("old")])
    conversation.set_history([user("new"), assistant("er")])
    assert texts(conversation.messages) == ["new", "er"]


def test_setting_the_history_merges_nothing() -> None:
    conversation = Conversation()
    conversation.set_history([user("one"), user("two")])
    assert texts(conversation.messages) == ["one", "two"]


def test_setting_the_history_drops_all_tags() -> None:
    conversation = Conversation()
    conversation.push(user("one"), tag="t")
    conversation.set_history(conversation.messages)
    assert not conversation.remove("t")


def test_a_push_after_setting_the_history_merges_as_ever() -> None:
    conversation = Conversation()
    conversation.set_history([assistant("one"), user("two")])
    conversation.push(user("three"))
    assert texts(conversation.messages) == ["one", "twothree"]


def test_setting_a_history_with_a_compaction_finds_the_view() -> None:
    conversation = Conversation()
    conversation.set_history([user("one"), compaction(), assistant("two")])
    assert len(conversation.wire_view()) == 2


def test_setting_an_empty_history_or_clearing_leaves_nothing() -> None:
    conversation = Conversation([user("one"), compaction()])
    conversation.set_history([])
    assert (len(conversation), conversation.wire_view()) == (0, ())
    conversation.push(user("again"))
    conversation.clear()
    assert conversation.messages == ()


def test_the_list_that_was_handed_in_stays_the_callers() -> None:
    given: list[Message] = [user("one")]
    conversation = Conversation(given)
    given.append(assistant("two"))
    conversation.push(user("three"))
    assert texts(conversation.messages) == ["onethree"]
    assert len(given) == 2


def test_a_message_can_be_put_anywhere() -> None:
    conversation = Conversation([user("one"), assistant("three")])
    conversation.insert(1, assistant("two"), tag="t")
    assert texts(conversation.messages) == ["one", "two", "three"]
    assert conversation.remove("t")


def test_a_compaction_put_in_the_middle_moves_the_view() -> None:
    conversation = Conversation([user("one"), assistant("two")])
    conversation.insert(1, compaction())
    assert len(conversation.wire_view()) == 2


def test_the_last_message_can_be_rolled_back() -> None:
    conversation = Conversation([user("one"), assistant("void")])
    removed = conversation.remove_last()
    assert removed == assistant("void")
    assert texts(conversation.messages) == ["one"]
    conversation.remove_last()
    assert conversation.remove_last() is None


def test_rolling_back_a_compaction_brings_the_older_view_back() -> None:
    conversation = Conversation([user("one"), assistant("two")])
    conversation.push(compaction())
    conversation.remove_last()
    assert texts(conversation.wire_view()) == ["one", "two"]
