"""Plans of compactions: what a model can hold, what is kept as it is, and what can be pruned."""

from collections.abc import Sequence

import msgspec

from haptera.kernel.blocks.token_estimate import estimate_message
from haptera.kernel.session.session import estimate_all
from haptera.model.ids import MessageId
from haptera.model.log.compactions import is_large
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import (
    CompactionPart,
    ReminderPart,
    TextPart,
    ToolResultPart,
)
from haptera.model.settings import Settings

MOST_RESERVED = 20_000
_TAIL_SHARE = 4
"""A quarter of what is usable is kept as it is."""
_SHORTEST_TAIL, _LONGEST_TAIL = 2_000, 15_000
_LONGEST_SUMMARY, _SHORTEST_SUMMARY = 4_096, 128
_PRUNED_BEHIND = 40_000
"""So many tokens of the newest results are not pruned."""
_PRUNED_TURNS = 2
"""Results of so many of the newest answers are not pruned."""
# In tokens. Pruning changes what is sent, which the provider has cached: less is not worth that.
_WORTH_PRUNING = 20_000


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """What fits into a model, in tokens."""

    size: int
    reserve: int
    """What is left for the answer."""
    usable: int
    """What a request may hold before it is made shorter."""

    @property
    def tail(self) -> int:
        """How much is kept as it is."""
        wanted = min(max(self.usable // _TAIL_SHARE, _SHORTEST_TAIL), _LONGEST_TAIL)
        return min(wanted, self.usable // 2)

    @property
    def summary(self) -> int:
        """How long a summary may be."""
        return max(_SHORTEST_SUMMARY, min(_LONGEST_SUMMARY, self.usable // 4))

    @property
    def fits(self) -> int:
        """What a request may hold if it has to, with a shorter answer."""
        return self.size - self.reserve // 4


def window_of(size: int, settings: Settings) -> Window:
    """Return the window of a model of this size, under these settings."""
    output = settings.max_tokens or size // 4
    # No more than half: the answers of some models may be as long as their windows.
    reserve = min(MOST_RESERVED, output, size // 2)
    usable = min(size - reserve, settings.compaction.input_tokens or size)
    return Window(size=size, reserve=reserve, usable=usable)


def first_kept(view: Sequence[Message], most: int) -> int | None:
    """Return the place of the first message that is kept; None when nothing can be left out.

    What is kept are whole turns at the end of a view, of no more tokens than `most`: from a prompt
    on if one is near enough, otherwise from an answer with its tool calls on. A prompt without an
    answer is always kept. `len(view)` means that nothing is kept.
    """
    first = 1 if view and is_summary(view[0]) else 0
    is_asked = bool(view) and is_prompt(view[-1])
    kept = len(view) - 1 if is_asked else len(view)
    if kept <= first:
        return None
    tokens = estimate_all(view[kept:])
    prompt = answer = kept
    # Not down to `first`: at least one message must be left out.
    for index in range(kept - 1, first, -1):
        tokens += estimate_message(view[index])
        if tokens > most:
            break
        if is_prompt(view[index]):
            prompt = index
        # What is kept may begin with an answer that calls tools, but not with results: no provider
        # takes results without their calls.
        elif _calls_tools(view[index]):
            answer = index
    return prompt if prompt < kept else answer


def _calls_tools(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and bool(message.tool_calls)


def prunable_before(view: Sequence[Message]) -> tuple[int, int] | None:
    """Return before which place results can be pruned, and how many tokens that saves.

    None when it is not worth it.
    """
    turns = newest = 0
    index = len(view)
    while index and (turns < _PRUNED_TURNS or newest < _PRUNED_BEHIND):
        index -= 1
        turns += isinstance(view[index], AssistantMessage)
        newest += _tokens_of_results(view[index])
    saved = sum(map(_tokens_of_results, view[:index]))
    return (index, saved) if saved >= _WORTH_PRUNING else None


def _tokens_of_results(message: Message) -> int:
    results = tuple(part for part in message.parts if is_large(part))
    return estimate_message(UserMessage(id=message.id, parts=results)) if results else 0


def is_prompt(message: Message) -> bool:
    """Whether a message is something that was asked, and holds no results of tools."""
    return isinstance(message, UserMessage) and not any(
        isinstance(part, ToolResultPart) for part in message.parts
    )


def is_summary(message: Message) -> bool:
    """Whether a message holds a summary of earlier ones."""
    return any(isinstance(part, CompactionPart) and part.text for part in message.parts)


def holds_reminders(messages: Sequence[Message]) -> bool:
    """Whether the cached reminders are among the messages."""
    return any(
        isinstance(part, ReminderPart) and part.persisted
        for message in messages
        for part in message.parts
    )


def last_prompt(messages: Sequence[Message]) -> str:
    """Return the text of the last prompt."""
    for message in reversed(messages):
        texts = [part.text for part in message.parts if isinstance(part, TextPart)]
        if isinstance(message, UserMessage) and any(texts):
            return "\n\n".join(texts)
    return ""


def id_at(view: Sequence[Message], index: int) -> MessageId | None:
    """Return the id of the message at an index; None at the end."""
    return view[index].id if index < len(view) else None
