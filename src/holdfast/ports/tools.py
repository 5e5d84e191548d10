"""The ports around tools: what a tool can do and know, who is asked before it runs, and hooks."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from holdfast.ports.abort import AbortSignal
from holdfast.ports.permissions import NO_SURROUNDINGS, ToolSurroundings
from holdfast.vocabulary.approvals import ApprovalRequest, Decision
from holdfast.vocabulary.ids import CallId, SessionId
from holdfast.vocabulary.json_types import Json, JsonObject
from holdfast.vocabulary.parts import ResultContent, ToolCallPart
from holdfast.vocabulary.tools import ToolRules, ToolSpec


class ToolContext:
    """Handed to a tool that asks for it: who calls, whether to stop, and how to report progress."""

    def __init__(
        self,
        *,
        session_id: SessionId,
        call_id: CallId,
        signal: AbortSignal,
        report: Callable[[Json], None],
        surroundings: ToolSurroundings = NO_SURROUNDINGS,
    ) -> None:
        self.surroundings = surroundings
        self.session_id = session_id
        self.call_id = call_id
        self.signal = signal
        self._report = report

    def progress(self, value: Json) -> None:
        """Show consumers how far the tool is; safe from a tool's own thread."""
        self._report(value)


PreparedCall: TypeAlias = Callable[[ToolContext], Awaitable[object]]
"""Runs a tool on the input that was parsed for it, and returns its raw output."""


class OfferedTool(Protocol):
    """A tool that a model may call.

    - `prepare` checks and parses the arguments of a call. It raises ValueError, TypeError or
      `msgspec.ValidationError` with a message for the model when they do not fit, and has no
      effect otherwise.
    - What a prepared call gets is its own: it may change it without changing the arguments.
    - A prepared call has no effect before it runs. It may raise anything; the model is told.
    """

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model sees it."""
        ...

    @property
    def rules(self) -> ToolRules:
        """How the runtime treats the tool."""
        ...

    def prepare(self, arguments: JsonObject) -> PreparedCall:
        """Check and parse the arguments of one call."""
        ...


@runtime_checkable
class ToolSource(Protocol):
    """Offers tools.

    - `tools` returns at once and does not raise: a source that asks another program for its list
      keeps the last one it got.
    - It returns the same object as long as nothing changed.
    - A changed list takes effect with the next turn of each query. The calls of a turn run on the
      tools that were offered in it.
    """

    def tools(self) -> Sequence[OfferedTool]:
        """Return what can be called now."""
        ...


class Proceed(msgspec.Struct, frozen=True):
    """A hook lets a call go on, with other arguments if given."""

    arguments: Json | None = None
    message: str | None = None
    """What the hook has to say to people, as a `hook.message`."""


class Block(msgspec.Struct, frozen=True):
    """A hook refuses a call; the model is told why."""

    reason: str
    message: str | None = None


class Answer(msgspec.Struct, frozen=True):
    """A hook answers a call itself; the tool is not run."""

    content: tuple[ResultContent, ...]
    message: str | None = None


Verdict: TypeAlias = Proceed | Block | Answer
BeforeTool: TypeAlias = Callable[[ToolCallPart], Awaitable[Verdict]]
"""Asked about each call before its input is parsed. An exception ends the query."""

OutputTransform: TypeAlias = Callable[[str, object], object]
"""Changes a tool's raw output before it is encoded; gets the tool's name and the output."""


Approver: TypeAlias = Callable[[ApprovalRequest], Awaitable[Decision]]
"""Asked once per tool call that needs approval; calls of one turn are asked at the same time.

Cancelled when the query is aborted. An exception counts as a denial.
"""

Unanswered: TypeAlias = Literal["stop", "deny"]
"""What happens to an approval without an approver: the query rests, or the call is denied."""
