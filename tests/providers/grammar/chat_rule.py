"""The words in which Chat Completions rules are written: a rule, its source, and who it is for."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Body = dict[str, Any]
Check = Callable[[Body], Iterator[str]]

OPENAI_REFERENCE = "https://platform.openai.com/docs/api-reference/chat/create"
OPENAI_SCHEMAS = "https://platform.openai.com/docs/guides/structured-outputs"
OPENAI_LIKE = ("openai", "azure")
LOCAL = ("vllm", "lmstudio", "llamacpp", "ollama", "compatible")
HOSTED = ("openrouter", "groq", "deepseek", "mistral", "xai", "together", "fireworks")


@dataclass(frozen=True)
class Rule:
    """One thing that is refused."""

    name: str
    source: str
    """Documentation, a recorded refusal, or a public report of one."""
    check: Check
    dialects: frozenset[str] | None = None
    """The dialects whose servers refuse it; None means all of them."""


RULES: list[Rule] = []


def rule(name: str, source: str, *dialects: str) -> Callable[[Check], Check]:
    """Add a function to the rules."""

    def add(check: Check) -> Check:
        RULES.append(Rule(name, source, check, frozenset(dialects) or None))
        return check

    return add


def messages_of(body: Body, *roles: str) -> Iterator[Body]:
    """Yield the messages of some roles."""
    return (message for message in body["messages"] if message.get("role") in roles)


def calls_of(body: Body) -> Iterator[Body]:
    """Yield every tool call."""
    for message in messages_of(body, "assistant"):
        yield from message.get("tool_calls") or ()


def pieces_of(message: Body) -> list[Body]:
    """Return the content as a list, whichever way it was written."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def user_pieces_of(body: Body) -> Iterator[Body]:
    """Yield the content of all user messages."""
    for message in messages_of(body, "user"):
        yield from pieces_of(message)


def functions_of(body: Body) -> list[Body]:
    """Return the functions among the tools; servers have other tools of their own."""
    return [tool["function"] for tool in body.get("tools") or () if "function" in tool]
