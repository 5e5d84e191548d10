"""Forms for what protocols have no field for: reminders, failures, odd arguments, examples."""

from holdfast.providers.wire.lenient_json import encode_lenient
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.parts import ToolCallPart, ToolResultPart
from holdfast.vocabulary.tools import ToolSpec


def described(tool: ToolSpec) -> str:
    """Return a tool's description with its examples, which only Anthropic has a field for."""
    examples = "".join(
        f"\nExample input: {encode_lenient(example).decode()}" for example in tool.input_examples
    )
    return f"{tool.description}{examples}".strip()


def reminder_text(text: str) -> str:
    """Return a reminder as a model reads it."""
    return f"<system-reminder>\n{text}\n</system-reminder>"


def result_text(part: ToolResultPart) -> str:
    """Return a tool result's text; one that is not a success says so, as there is no flag."""
    if not part.is_error:
        return part.text
    return f"[{part.outcome}] {part.text}".rstrip()


def argument_object(part: ToolCallPart) -> JsonObject:
    """Return a call's arguments as an object: servers refuse a history where they are not one."""
    if part.invalid is not None:
        return {"invalid_json": part.invalid}
    return part.arguments if isinstance(part.arguments, dict) else {"value": part.arguments}
