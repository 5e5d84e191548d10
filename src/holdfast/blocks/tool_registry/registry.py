"""ToolRegistry: finds a tool, parses its input once, and runs it."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from holdfast.blocks.tool_registry.running import call_function, to_content
from holdfast.blocks.tool_registry.tool import Tool, as_tool
from holdfast.ports.tool_context import ToolContext
from holdfast.ports.tool_hooks import OutputTransform
from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.json_types import Json, JsonObject
from holdfast.vocabulary.parts import ResultContent, ToolCallPart
from holdfast.vocabulary.tools import ToolRules, ToolSpec


class Succeeded(msgspec.Struct, frozen=True):
    """The tool gave a result."""

    content: tuple[ResultContent, ...]


class FunctionFailed(msgspec.Struct, frozen=True):
    """The tool's function raised."""

    message: str


class Ready(msgspec.Struct, frozen=True):
    """A call whose tool exists and whose input has been parsed; it can only be run.

    `arguments` are what the input was parsed from: a tool may change what it is given, so each
    repeat is `afresh`.
    """

    tool: Tool
    parsed: msgspec.Struct
    arguments: JsonObject

    def afresh(self) -> "Ready":
        """Return the same call with its input as it was before the tool ran on it."""
        return Ready(self.tool, self.tool.signature.parse(self.arguments), self.arguments)

    @property
    def rules(self) -> ToolRules:
        """How the runtime treats the tool."""
        return self.tool.rules

    async def run(
        self, context: ToolContext, *, transform: OutputTransform | None = None
    ) -> Succeeded | FunctionFailed:
        """Run the tool on the input that was parsed. A cancelled run raises CancelledError."""
        arguments = {name: getattr(self.parsed, name) for name in self.parsed.__struct_fields__}
        if self.tool.signature.context_parameter is not None:
            arguments[self.tool.signature.context_parameter] = context
        try:
            value = await call_function(self.tool.function, arguments, context)
            if transform is not None:
                value = transform(self.tool.name, value)
            return Succeeded(to_content(value))
        except Exception as error:  # noqa: BLE001 - a tool may raise anything; the model hears of it
            return FunctionFailed(_message_of(error))


class NotFound(msgspec.Struct, frozen=True):
    """No tool of that name may be used."""

    name: str


class InvalidInput(msgspec.Struct, frozen=True):
    """The model's arguments do not fit the tool."""

    name: str
    message: str


Resolution: TypeAlias = Ready | NotFound | InvalidInput


class ToolRegistry:
    """Holds the tools of an agent, by name.

    Owns schemas and parsing. Does not own approval, the conversation or call ids: the dispatcher
    stands between `resolve` and `run`.
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., object]] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for value in tools:
            item = as_tool(value)
            if item.name in self._tools:
                raise ConfigError(ErrorCode.CONFIG_INVALID, f"two tools are called {item.name!r}")
            self._tools[item.name] = item
        self.wire_tools: tuple[ToolSpec, ...] = tuple(item.spec for item in self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def view(
        self, allowed: Iterable[str] | None = None, denied: Iterable[str] = ()
    ) -> "ToolRegistry":
        """Return a registry without what is not allowed; a denial wins over an allowance."""
        if allowed is None and not denied:
            return self
        kept = set(self._tools if allowed is None else allowed) - set(denied)
        return ToolRegistry(item for name, item in self._tools.items() if name in kept)

    def resolve(self, call: ToolCallPart, *, arguments: Json = None) -> Resolution:
        """Find the tool of a call and parse its input, or the arguments given instead."""
        item = self._tools.get(call.name)
        if item is None:
            return NotFound(call.name)
        if call.invalid is not None and arguments is None:
            return InvalidInput(call.name, "the arguments are not a JSON object")
        given = call.arguments if arguments is None else arguments
        try:
            parsed = item.signature.parse(given)
        except (msgspec.ValidationError, ValueError, TypeError) as error:
            return InvalidInput(call.name, str(error))
        return Ready(item, parsed, given)


def _message_of(error: Exception) -> str:
    """Return what an error says, if it can say anything at all."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - an error's own text is the user's code, too
        return type(error).__name__
