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
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

import msgspec

from holdfast.blocks.tool_registry.running import call_function
from holdfast.blocks.tool_registry.signature import Signature, name_of, read_signature
from holdfast.ports.tools import PreparedCall, ToolContext
from holdfast.vocabulary.approvals import NO_FACTS, CallFacts
from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.option_declarations import (
    Option,
    declared_keys,
    help_of,
    showing,
    unknown_name,
)
from holdfast.vocabulary.tools import ApprovalMode, Effect, ToolRules, ToolSpec

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
FunctionT_co = TypeVar("FunctionT_co", covariant=True)
"""The function of a tool. Without a bound, so that a list of several tools has a common type."""

_NAME = r"[A-Za-z0-9_-]{1,128}"


class ToolOptions(TypedDict, total=False):
    """What `@tool` may be told."""

    name: Annotated[
        str, Option("The name that a model calls it by.", shown="<the function's name>")
    ]
    description: Annotated[
        str, Option("What it does, for the model.", shown="<the function's docstring>")
    ]
    approval: Annotated[
        ApprovalMode, Option("Whether a person is asked before each call.", default="never")
    ]
    timeout: Annotated[
        float | None, Option("Seconds that a call may take; 0 or None: any.", default=None)
    ]
    idempotent: Annotated[bool, Option("Whether it may be run again after a crash.", default=False)]
    retry: Annotated[
        int,
        Option("How often it is repeated when it fails; only if it is idempotent.", default=0),
    ]
    effect: Annotated[
        Effect,
        Option("What it does to the world; an approver is told.", default="external"),
    ]
    input_examples: Annotated[
        tuple[JsonObject, ...], Option("Examples of its arguments for the model.", default=())
    ]


TOOL_OPTIONS = declared_keys(ToolOptions.__annotations__)


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
def tool(**options: Unpack[ToolOptions]) -> ToolMaker: ...


@showing(TOOL_OPTIONS, help_of(TOOL_OPTIONS))
def tool(
    function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]
) -> AnyTool | ToolMaker:
    """Make a tool of a plain typed function; its docstring tells the model what it does."""
    if function is not None:
        return make_tool(function, options)

    def make(decorated: FunctionT, /) -> Tool[FunctionT]:
        return make_tool(decorated, options)

    return make


def make_tool(function: FunctionT, options: ToolOptions) -> Tool[FunctionT]:
    """Read a function once and check what it was told.

    Raises:
        ConfigError: CONFIG_INVALID naming the tool and what is wrong with it.

    """
    if isinstance(function, Tool):
        function = function.function
    name = str(options.get("name") or name_of(function))
    for unknown in sorted(set(options) - set(TOOL_OPTIONS)):
        raise TypeError(f"tool {name!r}: {unknown} is {unknown_name(unknown, TOOL_OPTIONS)}")
    if not re.fullmatch(_NAME, name):
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"tool name {name!r} must be 1 to 128 letters, digits, '_' or '-'; "
            "write a named function, or tool(name=...)",
        )
    signature = read_signature(function, tool=name)
    rules = _check_rules(name, options)
    return Tool(
        function=function,
        spec=_make_spec(name, signature, options),
        rules=rules,
        signature=signature,
    )


def _make_spec(name: str, signature: Signature, options: ToolOptions) -> ToolSpec:
    face = {
        "name": name,
        "description": options.get("description") or signature.description,
        "input_schema": signature.schema,
        "input_examples": options.get("input_examples", ()),
    }
    try:
        return msgspec.convert(face, ToolSpec)
    except msgspec.ValidationError as error:
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"tool {name!r}: {error}") from error


def _check_rules(name: str, options: ToolOptions) -> ToolRules:
    """Check the rules at the door: one that is misspelt must not quietly be none."""
    told = {name: item.default for name, item in TOOL_OPTIONS.items()} | dict(options)
    if told["retry"] and not told["idempotent"]:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"tool {name!r} asks for retries; only a tool with idempotent=True may have them",
        )
    rules = {field: told[field] for field in ("approval", "timeout", "idempotent", "effect")}
    rules["retries"] = told["retry"]
    try:
        return msgspec.convert(rules, ToolRules)
    except msgspec.ValidationError as error:
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"tool {name!r}: {error}") from error


def as_tool(value: AnyTool | Callable[..., object]) -> AnyTool:
    """Return a tool for whatever a user put in a list of tools."""
    if isinstance(value, Tool):
        return value
    if inspect.isroutine(value) or callable(value):
        return make_tool(value, {})
    raise ConfigError(ErrorCode.CONFIG_INVALID, f"{value!r} is not a tool")
