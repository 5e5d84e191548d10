"""Marks up to where a prompt stays the same, for models whose cache has to be told."""

import re

from holdfast.providers.wire.chat_completions.dialects import Dialect
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.parts import ReminderPart
from holdfast.vocabulary.requests import ModelRequest


def cache_mark(dialect: Dialect, request: ModelRequest) -> JsonObject | None:
    """Return the mark, or None where none is wanted or understood."""
    pattern = dialect.cache_mark_models
    if request.cache_ttl is None or not pattern or not re.search(pattern, request.model.lower()):
        return None
    mark: JsonObject = {"type": "ephemeral"}
    return {**mark, "ttl": "1h"} if request.cache_ttl == "1h" else mark


def mark_last_message(item: JsonObject, request: ModelRequest, mark: JsonObject) -> JsonObject:
    """Mark the last piece of a lowered message that the next request will hold, too.

    Reminders of one request only are at the end of a user's, and will not be there again.
    """
    content = item["content"]
    if isinstance(content, str):
        return {**item, "content": [{"type": "text", "text": content, "cache_control": mark}]}
    place = len(content) - _passing_reminders(request) - 1
    if place < 0:
        return item
    marked = {**content[place], "cache_control": mark}
    return {**item, "content": [*content[:place], marked, *content[place + 1 :]]}


def _passing_reminders(request: ModelRequest) -> int:
    count = 0
    for part in reversed(request.messages[-1].parts):
        if not isinstance(part, ReminderPart) or part.persisted:
            break
        count += bool(part.text)
    return count
