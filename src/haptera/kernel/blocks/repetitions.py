"""Repetitions: notices calls of a tool, and errors, that come again and again in one query."""

from collections.abc import Hashable
from typing import Literal, Self, TypeAlias

from haptera.model.ids import CallId
from haptera.model.settings import Settings

Repetition: TypeAlias = Literal["fresh", "repeated", "insisting"]
"""`repeated`: the same came as often as is allowed; a call is not run then. `insisting`: and then
once more."""


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

    def judge(self, call_id: CallId, arguments_hash: str) -> Repetition:
        """Say what a call is in the row of calls so far; asking again changes nothing."""
        if arguments_hash != self._row:
            self._row, self._call_ids = arguments_hash, set()
            self._result, self._same_results, self._is_refused = None, 0, False
        self._call_ids.add(call_id)
        # One less: this call would be the one that reaches it.
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


class RepeatedErrors:
    """Watches the errors of one query. Made anew for each query.

    Unlike the loop detector it does not look at arguments: a model that varies its call and gets
    the same error each time gets nowhere, either. Errors of a tool are counted for themselves: what
    other tools do in between does not matter, a success of the same tool does.
    """

    def __init__(self, threshold: int | None = None, *, counts_tools: bool = True) -> None:
        self._threshold = threshold
        self._counts_tools = counts_tools
        self._tools: dict[str, tuple[str, int]] = {}
        """By tool: its last error, and how often it came in a row."""
        self._turn = -1
        self._failure: str | None = None
        self._turns_failed = 0

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the watch that a session's settings ask for."""
        return cls(settings.watchdogs.repeated_errors, counts_tools=settings.on_loop != "allow")

    def end_tool(self, tool: str, error: str | None) -> Repetition:
        """Take note of how a call ended, None for well."""
        if error is None or self._threshold is None or not self._counts_tools:
            self._tools.pop(tool, None)
            return "fresh"
        last, count = self._tools.get(tool, ("", 0))
        count = count + 1 if last == error else 1
        self._tools[tool] = error, count
        if count < self._threshold:
            return "fresh"
        return "repeated" if count == self._threshold else "insisting"

    def fail_turn(self, turn: int, failure: str) -> bool:
        """Take note of a failed model call; True when it came in too many turns in a row.

        Attempts of one turn count once: how often they are repeated is the retry policy's.
        """
        # A number that was left out belongs to a turn that was answered.
        if failure != self._failure or turn > self._turn + 1:
            self._turns_failed = 1
        elif turn == self._turn + 1:
            self._turns_failed += 1
        self._failure, self._turn = failure, turn
        return self._threshold is not None and self._turns_failed >= self._threshold
