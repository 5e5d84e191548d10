"""The loop detector: notices a model that repeats a tool call although its result never changes."""

from collections.abc import Hashable
from typing import Literal, Self, TypeAlias

from holdfast.vocabulary.ids import CallId
from holdfast.vocabulary.settings import Settings

LoopVerdict: TypeAlias = Literal["fresh", "repeated", "insisting"]
"""`repeated`: it would be the same call with the same result once too often. `insisting`: it was
refused for that reason, and came again."""


class LoopDetector:
    """Watches the tool calls of one query. Made anew for each query.

    Calls are the same when their tool and arguments are. A row of them is broken by any other call
    and by any other result, so that running tests, editing and running them again is no loop. Does
    not decide what happens to a repeated call: the dispatcher does.
    """

    def __init__(self, threshold: int | None) -> None:
        self._threshold = threshold
        self._row: str | None = None
        """The digest of the call that is being repeated."""
        self._call_ids: set[CallId] = set()
        self._result: Hashable = None
        self._same_results = 0
        self._is_refused = False

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the detector that a session's settings ask for."""
        return cls(None if settings.on_loop == "allow" else settings.loop_threshold)

    def judge(self, call_id: CallId, arguments_hash: str) -> LoopVerdict:
        """Say what a call is in the row of calls so far; asking again changes nothing."""
        if arguments_hash != self._row:
            self._row, self._call_ids = arguments_hash, set()
            self._result, self._same_results, self._is_refused = None, 0, False
        self._call_ids.add(call_id)
        if self._threshold is None or self._same_results < self._threshold - 1:
            return "fresh"
        return "insisting" if self._is_refused else "repeated"

    def refuse(self, call_id: CallId) -> None:
        """Note that a repeated call is not run, unless another call came after it."""
        if call_id in self._call_ids:
            self._is_refused = True

    def end(self, call_id: CallId, result: Hashable) -> None:
        """Take note of what a call came to; a refusal for being repeated is no result."""
        if call_id not in self._call_ids or self._is_refused:
            return
        self._call_ids.discard(call_id)
        if result == self._result:
            self._same_results += 1
        else:
            self._result, self._same_results = result, 1
