"""Ids of tool calls that a protocol accepts: of the right form, and each used once.

Providers differ in the form, and some give every answer's first call the same id. What is made
here depends on what was said before and on nothing else, so that later turns make the same.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import count
from types import MappingProxyType

import msgspec

from holdfast.vocabulary.ids import CallId

_NONE: Mapping[CallId, CallId] = MappingProxyType({})


class CallIds(msgspec.Struct, frozen=True):
    """The ids that a conversation has used so far, and those that its last answer had to change."""

    used: frozenset[CallId] = frozenset()
    changed: Mapping[CallId, CallId] = _NONE

    def with_answer(self, calls: Sequence[CallId], pattern: str) -> "CallIds":
        """Return the ids after an answer that makes `calls`."""
        if not calls:
            return self if not self.changed else CallIds(self.used)
        ids = [well_formed(call_id, pattern) for call_id in calls]
        again = {call_id: self._unused(call_id, pattern) for call_id in self.used & set(ids)}
        used = self.used.union(again.get(call_id, call_id) for call_id in ids)
        return CallIds(used, again or _NONE)

    def of(self, call_id: CallId, pattern: str) -> CallId:
        """Return the id of a call of the last answer, or of its result."""
        formed = well_formed(call_id, pattern)
        return self.changed.get(formed, formed)

    def _unused(self, call_id: CallId, pattern: str) -> CallId:
        made = (made_id(f"{call_id}/{number}", pattern) for number in count(2))
        return next((each for each in made if each not in self.used), call_id)


def well_formed(call_id: CallId, pattern: str) -> CallId:
    """Return the id itself where it matches `pattern`, or one made from it."""
    return call_id if _matcher(pattern).fullmatch(call_id) else made_id(call_id, pattern)


def made_id(seed: str, pattern: str) -> CallId:
    """Make an id that matches `pattern`, always the same from the same seed."""
    digest = hashlib.sha256(seed.encode("utf-8", "replace")).hexdigest()
    for candidate in (f"call_{digest[:24]}", digest[:24], digest[:9]):
        if _matcher(pattern).fullmatch(candidate):
            return CallId(candidate)
    return CallId(seed)


@lru_cache(maxsize=64)
def _matcher(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
