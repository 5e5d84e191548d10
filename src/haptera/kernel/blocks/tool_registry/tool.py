"""Tools: plain typed functions with rules, as values. `@tool` makes them."""

import inspect
import re
from collections.abc import Awaitable, Callable
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Protocol,
    TypeAlias,
    TypeVar,
    Unpack,
    overload,
)

import msgspec

from haptera.kernel.blocks.tool_registry.keywords import ToolKeywords
from haptera.kernel.blocks.tool_registry.running import call_function
from haptera.kernel.blocks.tool_registry.signature import Signature, name_of, read_signature
from haptera.model.approvals import NO_FACTS, CallFacts
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.json_types import JsonObject, is_too_deep
from haptera.model.option import Option
from haptera.model.tools import ApprovalMode, Effect, ToolRules, ToolSpec
from haptera.options.checks import check
from haptera.options.declarations import ELSEWHERE, options_of
from haptera.options.signatures import takes
from haptera.ports.tools import PreparedCall, ToolContext

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
FunctionT_co = TypeVar("FunctionT_co", covariant=True)
"""The function of a tool. Without a bound, so that a list of several tools has a common type."""

_NAME = r"[A-Za-z0-9_-]{1,128}"


_SPEC, _RULE = Option(of=ToolSpec), Option(of=ToolRules)


class ToolOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `@tool` may be told: fields of `ToolSpec` and `ToolRules`, which declare them."""

    name: Annotated[str | None, Option(of=ToolSpec, shown="<the function's name>")] = ELSEWHERE
    description: Annotated[str | None, Option(of=ToolSpec, shown="<the function's docstring>")] = (
        ELSEWHERE
    )
    approval: Annotated[ApprovalMode, _RULE] = ELSEWHERE
    timeout: Annotated[float | None, _RULE] = ELSEWHERE
    idempotent: Annotated[bool, _RULE] = ELSEWHERE
    retry: Annotated[int, Option(of=ToolRules, field="retries")] = ELSEWHERE
    effect: Annotated[Effect, _RULE] = ELSEWHERE
    deferred: Annotated[bool, _RULE] = ELSEWHERE
    input_examples: Annotated[tuple[JsonObject, ...], _SPEC] = ELSEWHERE


class Tool(msgspec.Struct, Generic[FunctionT_co], frozen=True, kw_only=True):
    """A function that a model may call. Calling the tool itself calls the function."""

    function: FunctionT_co
    spec: ToolSpec
    rules: ToolRules
    signature: Signature
    inspector: Callable[[JsonObject], Awaitable[CallFacts]] | None = None
    """Says what a call would really do."""

    @property
    def name(self) -> str:
        """The name that a model calls it by."""
        return self.spec.name

    def prepare(self, arguments: JsonObject) -> PreparedCall:
        """Parse the arguments of a call; see `OfferedTool` for what this promises."""
        parsed = self.signature.parse(arguments)

        def run(context: ToolContext) -> Awaitable[object]:
            given = {name: getattr(parsed, name) for name in parsed.__struct_fields__}
            if self.signature.context_parameter is not None:
                given[self.signature.context_parameter] = context
            function: Any = self.function
            return call_function(function, given, context)

        return run

    async def facts(self, arguments: JsonObject) -> CallFacts:
        """Say what a call would really do; see `InspectedTool` for what this promises."""
        return NO_FACTS if self.inspector is None else await self.inspector(arguments)

    if TYPE_CHECKING:  # a tool is called as its function is

        @property
        def __call__(self) -> FunctionT_co:
            """The function."""
    else:

        def __call__(self, *args: object, **kwargs: object) -> object:
            """Call the function, as if it were no tool."""
            return self.function(*args, **kwargs)


AnyTool: TypeAlias = Tool[Any]
"""A tool of any function."""


class ToolMaker(Protocol):
    """What `tool(...)` with options returns: it makes a tool of a function."""

    def __call__(self, function: FunctionT, /) -> Tool[FunctionT]:
        """Make the tool."""
        ...


@overload
def tool(function: FunctionT, /) -> Tool[FunctionT]: ...
@overload
def tool(**options: Unpack[ToolKeywords]) -> ToolMaker: ...


@takes(ToolOptions)
def tool(
    function: Callable[..., Any] | None = None, /, **options: Unpack[ToolKeywords]
) -> AnyTool | ToolMaker:
    """Make a tool of a plain typed function; its docstring tells the model what it does."""
    if function is not None:
        return make_tool(function, options)

    def make(decorated: FunctionT, /) -> Tool[FunctionT]:
        return make_tool(decorated, options)

    return make


def make_tool(function: FunctionT, options: ToolKeywords) -> Tool[FunctionT]:
    """Read a function once and check what it was told.

    Raises:
        ConfigError: CONFIG_INVALID naming the tool and what is wrong with it.

    """
    if isinstance(function, Tool):
        function = function.function
    given = options.get("name")
    name = name_of(function) if given is None else str(given)
    # When the tool is made: a rule that is misspelt or makes no sense must not be ignored.
    check(options, ToolOptions, function=f"tool {name!r}")
    if options.get("retry") and not options.get("idempotent"):
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"tool {name!r} asks for retries; only a tool with idempotent=True may have them",
        )
    if not re.fullmatch(_NAME, name):
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"tool name {name!r} must be 1 to 128 letters, digits, '_' or '-'; "
            "write a named function, or tool(name=...)",
        )
    signature = read_signature(function, tool=name)
    face = {
        **_fields_of(options, ToolSpec),
        "name": name,
        "description": options.get("description") or signature.description,
        "input_schema": signature.schema,
    }
    return Tool(
        function=function,
        spec=msgspec.convert(face, ToolSpec),
        rules=msgspec.convert(_fields_of(options, ToolRules), ToolRules),
        signature=signature,
    )


def _fields_of(options: ToolKeywords, kind: type[msgspec.Struct]) -> JsonObject:
    """Return what options say of the fields of a struct, as plain values."""
    declared = {name: options_of(ToolOptions)[name].option for name in options}
    return {
        declared[name].field: msgspec.to_builtins(value)
        for name, value in options.items()
        if declared[name].of is kind
    }


def as_tool(value: AnyTool | Callable[..., object]) -> AnyTool:
    """Return a tool for whatever a user put in a list of tools."""
    if isinstance(value, Tool):
        return value
    if inspect.isroutine(value) or callable(value):
        return make_tool(value, {})
    shown = "a value that is nested too deeply" if is_too_deep(value) else repr(value)
    raise ConfigError(ErrorCode.CONFIG_INVALID, f"{shown} is not a tool")
