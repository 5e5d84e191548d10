"""A session as Markdown, to be read by people and pasted anywhere."""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal

import msgspec

from haptera.formats.forms import (
    iso_time,
    result_as_text,
    stand_in,
)
from haptera.formats.values import SessionExport, TimedMessage
from haptera.model.ids import CallId
from haptera.model.messages import AssistantMessage, Message
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
    argument_object,
)
from haptera.model.usage import Usage
from haptera.model.visible_text import visible

FORMAT = "markdown"

_BACKTICKS = re.compile(r"`{3,}")


def leaves_out(_message: Message, part: Part) -> bool:
    """Whether a part is not shown: what providers attach, and what is empty."""
    if isinstance(part, TextPart | ReasoningPart | ReminderPart | CompactionPart):
        return not part.text.strip()
    return isinstance(part, ProviderPart)


def write_markdown(export: SessionExport) -> Iterator[bytes]:
    """Write a heading with facts, then the messages; results stand behind their calls."""
    yield f"# {plain_line(export.title) or 'Session'}\n\n".encode()
    for name, value in session_facts(export):
        yield f"- {name}: {plain_line(value)}\n".encode()
    for index, each in enumerate(export.messages):
        following = export.messages[index + 1 : index + 2]
        results = results_in(following[0].message if following else None)
        text = "\n\n".join(_blocks(each, results, is_answered=answers_calls(export, index)))
        if text:
            yield f"\n{_heading(each)}\n\n{text}\n".encode()


def session_facts(export: SessionExport) -> Iterator[tuple[str, str]]:
    """Yield what is told of a session before its messages, each with a name."""
    facts = {
        "Session": export.session_id,
        "Model": export.model,
        "Folder": export.cwd,
        "Started": shown_time(export.created),
        "Updated": shown_time(export.updated),
        "Tokens": shown_usage(export.usage),
        "Cost": shown_cost(export.cost),
    }
    yield from ((name, value) for name, value in facts.items() if value)


def shown_time(milliseconds: int) -> str:
    """Return a time for people; empty if it is unknown."""
    return f"{iso_time(milliseconds)[:16].replace('T', ' ')} UTC" if milliseconds else ""


def shown_usage(usage: Usage | None) -> str:
    """Return what was used for people; empty if it is unknown."""
    if usage is None or not usage.total:
        return ""
    return f"{usage.input:,} in, {usage.output:,} out"


def shown_cost(cost: Decimal | None) -> str:
    """Return a sum of money for people; empty if it is unknown."""
    return "" if cost is None else f"${cost:.4f}"


def answer_facts(each: TimedMessage) -> list[str]:
    """Return what is told of a message beside its role."""
    facts = [shown_time(each.time)]
    if isinstance(each.message, AssistantMessage):
        message = each.message
        facts = [message.model, *facts, shown_usage(message.usage), shown_cost(each.cost)]
        facts.append("interrupted" if message.interrupted else "")
    return [fact for fact in facts if fact]


def results_in(message: Message | None) -> dict[CallId, ToolResultPart]:
    """Return the results in a message by their calls."""
    parts = message.parts if message is not None else ()
    return {part.call_id: part for part in parts if isinstance(part, ToolResultPart)}


def answers_calls(export: SessionExport, index: int) -> set[CallId]:
    """Return the calls of the message before an index: their results are shown there."""
    before = export.messages[index - 1].message if index else None
    calls = before.tool_calls if isinstance(before, AssistantMessage) else ()
    return {part.call_id for part in calls}


def arguments_text(part: ToolCallPart) -> str:
    """Return the arguments of a call as JSON for people."""
    if part.invalid is not None:
        return part.invalid
    return msgspec.json.format(msgspec.json.encode(argument_object(part)), indent=2).decode()


def plain_line(text: str | None) -> str:
    """Return text on one line, with what is hidden in it written out: a name, or another fact."""
    return " ".join(visible(text or "").split())


def _heading(each: TimedMessage) -> str:
    role = "Assistant" if isinstance(each.message, AssistantMessage) else "User"
    return " · ".join([f"## {role}", *(plain_line(fact) for fact in answer_facts(each))])


def _blocks(
    each: TimedMessage, results: Mapping[CallId, ToolResultPart], *, is_answered: set[CallId]
) -> Iterator[str]:
    for part in each.message.parts:
        if leaves_out(each.message, part):
            continue
        match part:
            case TextPart(text=text):
                yield text.strip("\n")
            case ReasoningPart(text=text):
                yield _quoted("Reasoning", text)
            case ReminderPart(text=text):
                yield _quoted("Note from the program", text)
            case CompactionPart(text=text):
                yield _quoted("Summary of what came before", text)
            case ToolCallPart():
                yield from _call(part, results.get(part.call_id))
            case ToolResultPart() if part.call_id not in is_answered:
                yield from _result(part)
            case MediaPart():
                yield stand_in(part)
            case _:
                continue


def _call(part: ToolCallPart, result: ToolResultPart | None) -> Iterator[str]:
    yield f"**Tool call** `{plain_line(part.name).replace('`', '')}`"
    yield _fenced(arguments_text(part), "json")
    if result is not None:
        yield from _result(result)


def _result(part: ToolResultPart) -> Iterator[str]:
    yield f"**Result** ({part.outcome.replace('_', ' ')})"
    yield _fenced(result_as_text(part), "text")


def _quoted(title: str, text: str) -> str:
    lines = [f"**{title}**", "", *text.strip("\n").split("\n")]
    return "\n".join(f"> {line}".rstrip() for line in lines)


def _fenced(text: str, kind: str) -> str:
    """Put text between fences that are longer than any in it."""
    longest = max((len(ticks) for ticks in _BACKTICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{kind}\n{text}\n{fence}"
