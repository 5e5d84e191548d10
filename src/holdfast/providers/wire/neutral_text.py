"""Words that protocols without a field for them put into text: reminders, failed tool results."""

from holdfast.vocabulary.parts import ToolResultPart


def reminder_text(text: str) -> str:
    """Return a reminder as a model reads it."""
    return f"<system-reminder>\n{text}\n</system-reminder>"


def result_text(part: ToolResultPart) -> str:
    """Return a tool result's text; one that is not a success says so, as there is no flag."""
    if not part.is_error:
        return part.text
    return f"[{part.outcome}] {part.text}".rstrip()
