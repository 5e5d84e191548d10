"""The error watch: notices a tool or a provider that fails with the same error again and again."""

from typing import Literal, Self, TypeAlias

from holdfast.vocabulary.settings import Settings

ErrorVerdict: TypeAlias = Literal["fresh", "repeated", "insisting"]
"""`repeated`: the same error came as often as is allowed. `insisting`: and then once more."""


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

    def end_tool(self, tool: str, error: str | None) -> ErrorVerdict:
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
        if failure != self._failure or turn > self._turn + 1:
            self._turns_failed = 1
        elif turn == self._turn + 1:
            self._turns_failed += 1
        self._failure, self._turn = failure, turn
        return self._threshold is not None and self._turns_failed >= self._threshold
