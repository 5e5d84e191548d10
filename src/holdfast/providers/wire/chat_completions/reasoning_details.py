"""Puts streamed reasoning details together, so that they can be sent back as one message's."""

from holdfast.providers.wire.failures import text_of
from holdfast.vocabulary.json_types import JsonObject

_GROWING = ("text", "summary")


def text_of_detail(detail: JsonObject) -> str:
    """Return what can be read of one detail; encrypted ones have nothing."""
    for name in _GROWING:
        found = detail.get(name)
        if isinstance(found, str):
            return found
    return ""


def merge_detail(details: list[JsonObject], new: JsonObject) -> None:
    """Add `new` to `details`; a piece of the last one is joined to it."""
    last = details[-1] if details else None
    if last is None or not _continues(last, new):
        details.append(dict(new))
        return
    for name, value in new.items():
        if name in _GROWING and isinstance(value, str):
            last[name] = text_of(last.get(name)) + value
        elif value is not None:
            last[name] = value


def _continues(last: JsonObject, new: JsonObject) -> bool:
    """Whether `new` is more of `last`: the same kind at the same place, and not sealed whole."""
    return (
        new.get("type") == last.get("type")
        and new.get("index") == last.get("index")
        and new.get("type") != "reasoning.encrypted"
    )
