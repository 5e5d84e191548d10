"""Accepted forms: call ids, tool names and media, as a protocol accepts them.

Providers restrict the form of ids and names, and the types of media. What is made here depends only
on the conversation so far, so that later turns make the same, and prompt caches still match.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.ids import CallId
from haptera.model.parts import MediaPart, TextPart
from haptera.model.tools import ToolSpec
from haptera.providers.wire.protocol import HistoryRules

_NO_NUMBERS: Mapping[CallId, int] = MappingProxyType({})
_NO_CHANGES: Mapping[CallId, CallId] = MappingProxyType({})
# The smallest limit of the patterns in use: a name that is made is accepted everywhere.
_NAME_LIMIT = 64


# Ids of tool calls


class CallIds(msgspec.Struct, frozen=True):
    """The call ids that a conversation has used so far, and those changed in its last answer.

    Ids get a form that the protocol accepts. An id that was used before is changed: some providers
    give the first call of every answer the same id.
    """

    used: frozenset[CallId] = frozenset()
    changed: Mapping[CallId, CallId] = _NO_CHANGES
    numbers: Mapping[CallId, int] = _NO_NUMBERS
    """The last number that was tried for an id: those before it are used."""

    def with_answer(self, calls: Sequence[CallId], pattern: str) -> "CallIds":
        """Return the ids after an answer that makes `calls`."""
        if not calls:
            return self if not self.changed else CallIds(self.used, numbers=self.numbers)
        ids = [well_formed(call_id, pattern) for call_id in calls]
        twice = self.used.intersection(ids)
        numbers = {call_id: self._number(call_id, pattern) for call_id in twice}
        again = {
            call_id: made_id(f"{call_id}/{number}", pattern) for call_id, number in numbers.items()
        }
        used = self.used.union(again.get(call_id, call_id) for call_id in ids)
        all_numbers = {**self.numbers, **numbers} if numbers else self.numbers
        return CallIds(used, again or _NO_CHANGES, all_numbers)

    def of(self, call_id: CallId, pattern: str) -> CallId:
        """Return the id to send for a call of the last answer, or for its result."""
        formed = well_formed(call_id, pattern)
        return self.changed.get(formed, formed)

    def _number(self, call_id: CallId, pattern: str) -> int:
        """Return the first number that makes an unused id of one that is used."""
        number = self.numbers.get(call_id, 1) + 1
        while made_id(f"{call_id}/{number}", pattern) in self.used:
            number += 1
        return number


def well_formed(call_id: CallId, pattern: str) -> CallId:
    """Return the id itself if it matches `pattern`, else one made from it."""
    return call_id if _matcher(pattern).fullmatch(call_id) else made_id(call_id, pattern)


def made_id(seed: str, pattern: str) -> CallId:
    """Return an id that matches `pattern`, always the same for the same seed."""
    # A history that a program made may have ids with lone surrogates, which UTF-8 cannot encode.
    digest = hashlib.sha256(seed.encode("utf-8", "replace")).hexdigest()
    # The last form is for Mistral, whose ids have exactly nine letters and digits.
    for candidate in (f"call_{digest[:24]}", digest[:24], digest[:9]):
        if _matcher(pattern).fullmatch(candidate):
            return CallId(candidate)
    return CallId(seed)


@lru_cache(maxsize=64)
def _matcher(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


# Names of tools


class ToolNames:
    """Gives every tool of one request a name that the protocol accepts, no two the same."""

    def __init__(self, pattern: str, tools: Iterable[str]) -> None:
        self.changed: dict[str, str] = {}
        """From the names that are sent to the tools' own, where they differ."""
        self._matches = re.compile(pattern).fullmatch
        self._given: dict[str, str] = {}
        # Names that are accepted as they are have precedence over names that are made.
        self._taken = {name for name in tools if self._matches(name)}

    def of_tool(self, tool: ToolSpec) -> ToolSpec:
        """Return the tool with an accepted name; the same object if its own is accepted."""
        name = self.of(tool.name)
        return tool if name is tool.name else replace(tool, name=name)

    def of(self, name: str) -> str:
        """Return the name to send for a tool."""
        form = self._given.get(name)
        if form is None:
            form = self._given[name] = name if self._matches(name) else self._make(name)
            self._taken.add(form)
        # The very string that was given, so that callers can compare by identity.
        return name if form == name else form

    def _make(self, name: str) -> str:
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:_NAME_LIMIT] or "tool"
        if plain in self._taken or not self._matches(plain):
            digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
            # 11 characters are for `t_`, `_` and the digest. The letter in front is for protocols
            # that want one.
            plain = f"t_{plain[: _NAME_LIMIT - 11]}_{digest}"
        self.changed[plain] = name
        return plain


# Media


def refuse_unaccepted_media(
    media: Iterable[MediaPart], *, rules: HistoryRules, provider: str, model: str
) -> None:
    """Refuse media of the current prompt that the model does not accept.

    An answer that ignores what the user has just attached would be worse than an error. Media of
    older messages are replaced by text instead (`accepted_media`).

    Raises:
        ConfigError: CONFIG_INVALID naming the attachment, and what the model accepts.

    """
    for part in media:
        fault = _fault(part, accepted=rules.media, linked=rules.linked_media)
        if fault is not None and not _is_text(part):
            name = part.filename or part.url or "an attachment"
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                f"attachment {name!r}: {provider}/{model} {fault}",
                provider=provider,
            )


def accepted_media(
    part: MediaPart, accepted: tuple[str, ...], linked: tuple[str, ...]
) -> MediaPart | TextPart:
    """Return a medium if it is accepted, else its text, else a line that says what was there."""
    if _fault(part, accepted=accepted, linked=linked) is None:
        return part
    name = part.url or part.filename
    if _is_text(part):
        return TextPart(text=f"{name}:\n{part.decoded_text}" if name else part.decoded_text)
    return TextPart(
        text=f"[{part.mime}{f' {name}' if name else ''}: not shown, this model cannot read it]"
    )


def _fault(part: MediaPart, *, accepted: tuple[str, ...], linked: tuple[str, ...]) -> str | None:
    """Return why a medium cannot be sent; None if it can."""
    if not part.mime.startswith(accepted):
        return f"does not take {part.mime}; it takes {_listed(accepted)}"
    if part.data is not None:
        return None
    if part.url is None:
        return f"cannot be sent {part.mime} without content"
    if not part.mime.startswith(linked):
        return f"does not take {part.mime} by its address; attach the content"
    return None


def _is_text(part: MediaPart) -> bool:
    """Whether the content can be sent as text, to any model."""
    return part.mime.startswith("text/") and part.data is not None


def _listed(accepted: tuple[str, ...]) -> str:
    """Return the accepted types for a message; a prefix stands for all types that begin with it."""
    names = [f"{each}*" if each.endswith("/") else each for each in accepted if each != "text/"]
    return ", ".join(["text", *names])
