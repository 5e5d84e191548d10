"""The grammar of a history that every provider accepts, as an oracle for tests."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import (
    CompactionPart,
    Part,
    ReasoningPart,
    ReminderPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)


def violations(messages: Sequence[Message]) -> list[str]:
    """Return every rule that a history breaks; none when it can be sent."""
    return [*_of_order(messages), *_of_calls(messages), *_of_parts(messages)]


def _of_order(messages: Sequence[Message]) -> Iterator[str]:
    if not messages:
        yield "there is nothing to send"
        return
    if not isinstance(messages[0], UserMessage):
        yield "the first message is not the user's"
    if not isinstance(messages[-1], UserMessage):
        yield "the last message is not the user's"
    for first, second in pairwise(messages):
        if type(first) is type(second):
            yield f"two {type(first).__name__}s follow each other"


def _of_calls(messages: Sequence[Message]) -> Iterator[str]:
    asked: list[str] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            if asked:
                yield f"calls {asked} were never answered"
            asked = [part.call_id for part in message.tool_calls]
            yield from _of_assistant(message, asked)
        else:
            yield from _of_answers(message, asked)
            yield from _of_result_order(message)
            asked = []
    if asked:
        yield f"calls {asked} were never answered"


def _of_assistant(message: AssistantMessage, asked: list[str]) -> Iterator[str]:
    if any(isinstance(part, ToolResultPart) for part in message.parts):
        yield "an assistant message holds a tool result"
    if len(set(asked)) != len(asked):
        yield f"call ids {asked} are not unique"


def _of_answers(message: UserMessage, asked: list[str]) -> Iterator[str]:
    answered: list[str] = [
        part.call_id for part in message.parts if isinstance(part, ToolResultPart)
    ]
    if any(isinstance(part, ToolCallPart) for part in message.parts):
        yield "a user message holds a tool call"
    for call_id in answered:
        if call_id not in asked:
            yield f"result {call_id} answers no call of the message before"
        if answered.count(call_id) > 1:
            yield f"call {call_id} is answered twice"
    for call_id in asked:
        if call_id not in answered:
            yield f"call {call_id} is not answered in the next message"


def _of_result_order(message: Message) -> Iterator[str]:
    kinds = [isinstance(part, ToolResultPart) for part in message.parts]
    if kinds != sorted(kinds, reverse=True):
        yield "tool results do not lead their message"


def _of_parts(messages: Sequence[Message]) -> Iterator[str]:
    for message in messages:
        if not message.parts:
            yield "a message is empty"
        for part in message.parts:
            yield from _of_part(message, part)
        if isinstance(message, AssistantMessage) and message.parts:
            reasoning_only = all(isinstance(part, ReasoningPart) for part in message.parts)
            if message.interrupted and reasoning_only:
                yield "a cut-off answer holds nothing but reasoning"


def _of_part(message: Message, part: Part) -> Iterator[str]:
    if isinstance(part, TextPart | CompactionPart | ReminderPart) and not part.text:
        yield "a text is empty"
    if isinstance(part, ReminderPart) and isinstance(message, AssistantMessage):
        yield "a reminder is in the model's mouth"
    if isinstance(part, ToolCallPart):
        if not part.name:
            yield "a tool call names no tool"
        if not part.call_id:
            yield "a tool call has no id"
        if not isinstance(part.arguments, dict):
            yield "the arguments of a call are not an object"
    if isinstance(part, ReasoningPart) and isinstance(message, UserMessage):
        yield "the user is said to have thought"
