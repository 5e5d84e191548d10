"""The port to tools: what can be called, and a list of it that may change while sessions live."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from holdfast.ports.tool_context import ToolContext
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.tools import ToolRules, ToolSpec

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
