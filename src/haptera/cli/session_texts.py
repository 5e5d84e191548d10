"""Sessions, parts of messages and figures as text: what lists and `sessions show` print.

A session without a title is shown with its first prompt.
"""

from collections.abc import Sequence

import msgspec

from haptera import Agent, AgentError, SessionDescription, UserMessage
from haptera.access.descriptions import is_default_title
from haptera.cli.terminal import safe, safe_line
from haptera.model.believed_values import moment_of
from haptera.model.parts import (
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    lines_of,
)

_LONGEST = 100


async def shown_titles(agent: Agent, sessions: Sequence[SessionDescription]) -> dict[str, str]:
    """Return a line for each session, by its id. Reads the logs of those without a title."""
    return {each.id: await shown_title(agent, each) for each in sessions}


async def shown_title(agent: Agent, session: SessionDescription) -> str:
    """Return one line that tells a session from others."""
    title = session.title
    if is_default_title(title):
        title = await _first_prompt(agent, session.id) or title
        title = f"copy of: {title}" if session.parent is not None else title
    return safe_line(f"{session.name}: {title}" if session.name else title)


async def _first_prompt(agent: Agent, session_id: str) -> str:
    try:
        messages = await agent.sessions.messages(session_id, limit=1)
    except AgentError:  # a damaged session must not keep the others out of a list
        return ""
    for each in messages:
        if isinstance(each.message, UserMessage):
            texts = [part.text for part in each.message.parts if isinstance(part, TextPart)]
            return safe_line(" ".join(texts)[: 4 * _LONGEST], width=_LONGEST)
    return ""


def shown_part(part: object) -> str:
    """Return a part of a message as harmless text."""
    match part:
        case TextPart(text=text):
            return safe(text)
        case ReasoningPart(text=text):
            return safe(f"(thinks) {text}")
        case ToolCallPart(name=tool, arguments=arguments):
            return safe(f"→ {tool} {msgspec.json.encode(arguments).decode()}")
        case ToolResultPart(outcome=outcome, content=content):
            return safe(f"← {outcome}: {lines_of(content)}")
        case _:
            return f"({type(part).__name__})"


def shown_value(value: object) -> str:
    """Return a value as text; what has parts, such as a usage, as `12 input, 9 output`."""
    if isinstance(value, dict):
        return ", ".join(f"{count} {name}" for name, count in value.items()) or "none"
    return str(value)


def short_time(time_ms: int) -> str:
    """Return a time of the log in the user's time zone."""
    moment = moment_of(time_ms).astimezone()
    return moment.strftime("%Y-%m-%d %H:%M")


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with what is counted: `1 turn`, `2 turns`."""
    return f"{number} {one if number == 1 else many or one + 's'}"
