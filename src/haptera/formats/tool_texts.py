"""Tool texts: calls and results as text, where an API has no other field for them.

Most APIs have no field for a failed call, take arguments as JSON in a text, and give the input of a
custom tool as free text.
"""

from haptera.formats.lenient_json import encode_lenient
from haptera.model.parts import ToolCallPart, ToolResultPart, argument_object

CUSTOM_INPUT = "__input__"
"""The argument that holds the input of a custom tool call, which is free text."""


def argument_text(part: ToolCallPart) -> str:
    """Return a call's arguments as JSON."""
    return encode_lenient(argument_object(part)).decode()


def custom_input(part: ToolCallPart) -> str | None:
    """Return the input of a call of a custom tool; None if its arguments are no object."""
    arguments = part.arguments
    return str(arguments.get(CUSTOM_INPUT, "")) if isinstance(arguments, dict) else None


def marked_result(part: ToolResultPart) -> str:
    """Return a tool result's text; a failed call is marked, for protocols without a flag."""
    if not part.is_error:
        return part.text
    return f"[{part.outcome}] {part.text}".rstrip()
