"""The contract of conversations: order, merging, compaction and stable views."""

from collections.abc import Callable

from haptera.model.ids import MessageId
from haptera.model.log.conversation import ConversationInterface
from haptera.model.messages import Message
from haptera.testing.contracts.samples import assistant, compaction, run_contract, user
from haptera.testing.promises import Report, require, require_same


def _words(messages: tuple[Message, ...]) -> list[list[str]]:
    return [[getattr(part, "text", "") for part in message.parts] for message in messages]


async def check_messages_stay_in_order(subject: ConversationInterface) -> None:
    """What was pushed comes back in the same order."""
    require_same(subject.messages, (), "a new conversation is empty")
    require(subject.tip is None, "an empty conversation has no tip")
    messages = (user("1"), assistant("2"), user("3"))
    for message in messages:
        subject.push(message)
    require_same(subject.messages, messages, "messages come back in order")
    require_same(subject.wire_view(), messages, "without a compaction everything is sent")
    require_same(subject.tip, messages[-1], "the tip is the last message")
    require_same(len(subject), 3, "the length is the number of messages")


async def check_user_messages_that_follow_each_other_are_merged(
    subject: ConversationInterface,
) -> None:
    """Roles alternate in what is sent, and the first message keeps its id."""
    for text in ("1", "2", "3"):
        subject.push(user(text))
    require_same(_words(subject.messages), [["1", "2", "3"]], "user messages are merged")
    require_same(subject.messages[0].id, MessageId("1"), "the first message keeps its id")


async def check_assistant_messages_are_not_merged(subject: ConversationInterface) -> None:
    """Each answer stays a message of its own."""
    subject.push(assistant("1"))
    subject.push(assistant("2"))
    require_same(_words(subject.messages), [["1"], ["2"]], "assistant messages stay apart")


async def check_a_compaction_drops_nothing_and_begins_the_view(
    subject: ConversationInterface,
) -> None:
    """The history is whole; what is sent begins with the last compaction."""
    messages = (user("1"), assistant("2"), compaction("3"), assistant("4"), compaction("5"))
    for message in messages:
        subject.push(message)
    require_same(subject.messages, messages, "the history keeps everything")
    require_same(subject.wire_view(), messages[-1:], "the view begins with the last compaction")


async def check_a_compaction_keeps_what_it_is_told_to(subject: ConversationInterface) -> None:
    """With `kept_from` it goes before that message, and what follows is still sent."""
    for message in (user("1"), assistant("2"), user("3"), assistant("4")):
        subject.push(message)
    subject.push(compaction("c"), kept_from=MessageId("3"))
    sent = _words(subject.wire_view())
    require_same(sent, [["c", "3"], ["4"]], "what is kept follows the compaction")


async def check_a_view_does_not_change(subject: ConversationInterface) -> None:
    """A request holds on to its view while the conversation goes on."""
    subject.push(user("1"))
    messages, view = subject.messages, subject.wire_view()
    subject.push(user("2"))
    subject.push(assistant("3"))
    require_same(_words(messages), [["1"]], "messages that were returned do not change")
    require_same(_words(view), [["1"]], "a view that was returned does not change")


async def check_the_last_message_can_be_removed(subject: ConversationInterface) -> None:
    """An answer that turned out to be void leaves no trace."""
    require(subject.remove_last() is None, "nothing can be removed from nothing")
    for message in (user("1"), compaction("2")):
        subject.push(message)
    require_same(subject.remove_last(), compaction("2"), "the removed message is returned")
    require_same(_words(subject.wire_view()), [["1"]], "the view is as it was before")


async def check_a_history_replaces_everything(subject: ConversationInterface) -> None:
    """It is taken as given; a later push merges as usual."""
    subject.push(user("old"))
    subject.set_history([compaction("0"), user("1"), user("2")])
    require_same(_words(subject.messages), [["0"], ["1"], ["2"]], "nothing of it is merged")
    require_same(len(subject.wire_view()), 3, "its compaction begins the view")
    subject.push(user("3"))
    require_same(_words(subject.messages)[-1], ["2", "3"], "a push merges with its last message")


async def conversation_contract(make: Callable[[], ConversationInterface]) -> Report:
    """Check a conversation; `make` returns an empty one."""
    return await run_contract(__name__, make)
