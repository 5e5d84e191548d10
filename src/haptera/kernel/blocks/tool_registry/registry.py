"""ToolRegistry: the tools that are offered now. Finds one, parses its input once, and runs it."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Protocol, TypeAlias, cast

import msgspec

from haptera.kernel.blocks.tool_registry.running import to_content
from haptera.kernel.blocks.tool_registry.tool import AnyTool, Tool, as_tool
from haptera.model.approvals import NO_FACTS, CallFacts
from haptera.model.canonical import tool_digest
from haptera.model.errors import ConfigError, ErrorCode, ToolError
from haptera.model.json_types import Json, JsonObject
from haptera.model.parts import ResultContent, ToolCallPart
from haptera.model.secrets import error_text
from haptera.model.tools import ToolRules, ToolSpec
from haptera.ports.permissions import InspectedTool
from haptera.ports.tools import (
    Later,
    OfferedTool,
    OutputTransform,
    PreparedCall,
    Resting,
    RunningToolSource,
    ToolContext,
    ToolSource,
)
from haptera.system.logs import scrubbed_logger

ToolInput: TypeAlias = AnyTool | Callable[..., object] | ToolSource
"""What a user may put in a list of tools."""

_logger = scrubbed_logger(__name__)
_PACKAGE = __name__.partition(".")[0] + "."
"""What the names of all modules of this package begin with."""


class Succeeded(msgspec.Struct, frozen=True):
    """The tool gave a result."""

    content: tuple[ResultContent, ...]


class FunctionFailed(msgspec.Struct, frozen=True):
    """The tool raised."""

    message: str
    error: Exception
    is_meant: bool = False
    """Whether the error is the tool's word to the model, and not a mistake in a program."""


class Ready(msgspec.Struct, frozen=True):
    """A call whose tool exists and whose input has been parsed; it can only be run.

    `arguments` are what the input was parsed from: a tool may change what it is given, so each
    repeat is `afresh`.
    """

    tool: OfferedTool
    arguments: JsonObject
    prepared: PreparedCall
    is_unconfined: bool = False
    """Whether it may run a command without a sandbox."""

    def afresh(self) -> "Ready":
        """Return the same call with its input as it was before the tool ran on it."""
        return msgspec.structs.replace(self, prepared=self.tool.prepare(self.arguments))

    async def facts(self) -> CallFacts:
        """Say what the call would really do, as far as its tool can; may raise what the tool does.

        Raises:
            TypeError: when the tool says something that is no `CallFacts`.

        """
        if not _implements(type(self.tool), InspectedTool):
            return NO_FACTS
        tool = cast("InspectedTool", self.tool)
        # A copy: the tool may change what it is given.
        facts: object = await tool.facts(msgspec.to_builtins(self.arguments))
        if not isinstance(facts, CallFacts):
            raise TypeError(f"{type(facts).__name__} is not a CallFacts")
        return msgspec.convert(msgspec.to_builtins(facts), CallFacts)

    @property
    def rules(self) -> ToolRules:
        """How the runtime treats the tool."""
        return self.tool.rules

    async def run(
        self, context: ToolContext, *, transform: OutputTransform | None = None
    ) -> Succeeded | FunctionFailed | Resting | Later:
        """Run the tool on the input that was parsed. A cancelled run raises CancelledError."""
        is_meant = _is_built_in(self.tool)
        try:
            value = await self.prepared(context)
            if isinstance(value, Resting):
                return value
            if self.rules.deferred:
                return _begun(value)
            # From here on it is a transform of the program that fails, or a value that has no JSON
            # form.
            is_meant = False
            if transform is not None:
                value = transform(self.tool.spec.name, value)
            return Succeeded(to_content(value))
        except Later as later:
            return later
        except Exception as error:  # noqa: BLE001 - a tool may raise anything; the model hears of it
            told = f"{type(error).__name__}: {error_text(error)}"
            return FunctionFailed(told, error, is_meant or isinstance(error, ToolError))


def _begun(value: object) -> Later:
    """Return what a deferred tool says of the work that it began."""
    if value is None or isinstance(value, str):
        return Later(ref=value)
    raise TypeError(
        f"a deferred tool returns the ref of its call, or None, and not {type(value).__name__}"
    )


class NotFound(msgspec.Struct, frozen=True):
    """No tool of that name may be used."""

    name: str


class InvalidInput(msgspec.Struct, frozen=True):
    """The model's arguments do not fit the tool."""

    name: str
    message: str


Resolution: TypeAlias = Ready | NotFound | InvalidInput


class ToolSet:
    """The tools that are offered in one turn, by name. Does not change.

    Owns finding and parsing. Does not own approval, the conversation or call ids: the dispatcher
    stands between `resolve` and `run`.
    """

    def __init__(self, tools: Iterable[OfferedTool] = ()) -> None:
        self._tools = {item.spec.name: item for item in tools}
        self._digests: dict[str, str] = {}
        self.offered: tuple[OfferedTool, ...] = tuple(self._tools.values())
        self.wire_tools: tuple[ToolSpec, ...] = tuple(item.spec for item in self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def find(self, name: str) -> OfferedTool | None:
        """Return the tool of a name; None where none is offered."""
        return self._tools.get(name)

    def digest(self, name: str) -> str | None:
        """Return what approvals of the calls of a tool go by; None where none is offered."""
        item = self.find(name)
        if item is not None and name not in self._digests:
            self._digests[name] = tool_digest(item.spec, item.rules.effect)
        return self._digests.get(name)

    def view(self, allowed: Iterable[str] | None = None, denied: Iterable[str] = ()) -> "ToolSet":
        """Return the set without what is not allowed; a denial wins over an allowance."""
        if allowed is None and not denied:
            return self
        kept = set(self._tools if allowed is None else allowed) - set(denied)
        return ToolSet(item for name, item in self._tools.items() if name in kept)

    def resolve(self, call: ToolCallPart, *, arguments: Json = None) -> Resolution:
        """Find the tool of a call and parse its input, or the arguments given instead."""
        item = self.find(call.name)
        if item is None:
            return NotFound(call.name)
        if call.invalid is not None and arguments is None:
            return InvalidInput(call.name, "the arguments are not a JSON object")
        given = call.arguments if arguments is None else arguments
        try:
            return Ready(item, given, item.prepare(given))
        except (msgspec.ValidationError, ValueError, TypeError) as error:
            return InvalidInput(call.name, str(error))


class ToolRegistryInterface(Protocol):
    """Says which tools are offered; a substitute for `ToolRegistry` has this method.

    - `current` returns at once, and the same set as long as nothing changed.
    - Every name is in the set once, and each tool's specification was made before.
    - The set that was returned does not change: the calls of a turn run on the tools of that turn.
    """

    def current(self) -> ToolSet:
        """Return what is offered now."""
        ...


class ToolRegistry:
    """Holds the sources of an agent's tools. Functions and tools that are given are one source.

    Owns which tool has a name: of two sources that offer the same name, the one that was given
    first. Does not own the lists: each source does, and may change its own at any time.
    """

    def __init__(self, tools: Iterable[ToolInput] = ()) -> None:
        static: dict[str, AnyTool] = {}
        self._sources: list[ToolSource] = []
        for value in tools:
            if isinstance(value, ToolSource) and not isinstance(value, Tool):
                self._sources.append(value)
                continue
            item = as_tool(value)
            if item.name in static:
                raise ConfigError(ErrorCode.CONFIG_INVALID, f"two tools are called {item.name!r}")
            static[item.name] = item
        self._static = tuple(static.values())
        self._running = [item for item in self._sources if isinstance(item, RunningToolSource)]
        self._lists: list[Sequence[OfferedTool]] = []
        self._current = ToolSet(self._static)

    def current(self) -> ToolSet:
        """Return what the sources offer now; the same set as long as nothing changed."""
        lists = [source.tools() for source in self._sources]
        known = self._lists
        # By identity: a source returns the same list until something changes.
        if len(lists) != len(known) or any(map(_is_other, lists, known)):
            self._lists, self._current = lists, self._join(lists)
        return self._current

    def tools(self) -> Sequence[OfferedTool]:
        """Return what can be called now: a registry is a source of tools itself."""
        return self.current().offered

    async def ready(self) -> None:
        """Let the sources that run something start it, all at the same time."""
        if self._running:
            await asyncio.gather(*(source.ready() for source in self._running))

    async def close(self) -> None:
        """End what runs behind the sources; it starts again when it is needed."""
        if self._running:
            await asyncio.gather(*(source.close() for source in self._running))

    def _join(self, lists: Iterable[Sequence[OfferedTool]]) -> ToolSet:
        joined: dict[str, OfferedTool] = {item.name: item for item in self._static}
        for item in (item for offered in lists for item in offered):
            name = item.spec.name
            if joined.setdefault(name, item) is not item:
                _logger.warning("a tool is left out: an earlier source has one called %r", name)
        return ToolSet(joined.values())


async def ready_tools(
    registry: ToolRegistryInterface, allowed: Iterable[str] | None = None
) -> ToolSet:
    """Return what a registry offers once the sources that run something have started it.

    Nothing is started where no tool is allowed.
    """
    if _implements(type(registry), RunningToolSource) and (allowed is None or tuple(allowed)):
        await cast("RunningToolSource", registry).ready()
    return registry.current()


def registry_of(own: ToolSource | None, inherited: ToolRegistryInterface) -> ToolRegistryInterface:
    """Return the registry of a session or a query: of its own tools, if it was given any."""
    return inherited if own is None else ToolRegistry([own])


@cache
def _implements(kind: type, protocol: type) -> bool:
    # Once per type: `isinstance` with a protocol takes as long as finding the tool of a call.
    return issubclass(kind, protocol)


def _is_built_in(tool: OfferedTool) -> bool:
    """Whether a tool is of this package: what such a tool raises is written for the model."""
    made_by = tool.function if isinstance(tool, Tool) else type(tool)
    return str(getattr(made_by, "__module__", "")).startswith(_PACKAGE)


def _is_other(first: object, second: object) -> bool:
    return first is not second
