"""Tools of an MCP server as a model sees them: names, descriptions and schemas, made safe.

What a server says of its tools is text from outside. Names are mapped to what every provider
accepts, control characters are taken out, and what is too large is cut or left out.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import msgspec

from haptera.model.errors import ToolError
from haptera.model.json_types import Json, JsonObject, is_too_deep, writable
from haptera.model.tools import Effect, ToolRules, ToolSpec
from haptera.model.visible_text import HIDDEN
from haptera.ports.tools import OfferedTool, PreparedCall, ToolContext
from haptera.system.logs import scrubbed_logger
from haptera.tools.mcp.server_settings import RESERVED, ResolvedServer
from haptera.tools.output import Outputs, read_output_tool

MOST_TOOLS = 512
"""Tools of one server that are offered."""
MOST_SCHEMA = 100_000
"""Bytes of an input schema; a tool with a larger one is left out."""
_DEEPEST_SCHEMA = 50
_MOST_DESCRIPTION = 8_000
_LONGEST_NAME = 64
"""The shortest bound among providers."""
_ESCAPES = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"  # colours and cursor movements
    "|\x1b[\\]PX^_].*?(?:\x07|\x1b\\\\|$)"  # titles, links and other strings
    "|\x1b[ -~]?",
    re.DOTALL,
)
_HIDDEN = re.compile(f"[{HIDDEN}]")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")

OUTPUTS = Outputs()
"""Where long results are kept; with the session, in an agent."""
READER = f"{RESERVED}__read_output"
READ_OUTPUT = read_output_tool(OUTPUTS, named=READER)
"""Pages through long results of all servers: one tool, however many servers there are."""

RemoteCall: TypeAlias = Callable[[str, JsonObject, ToolContext[Any]], Awaitable[object]]
"""Calls a tool by the name that its server gives it."""

OnTools: TypeAlias = "Callable[[Sequence[ListedTool], int], None]"
"""Gets the tools that a server lists, and how many resources it has."""

_logger = scrubbed_logger(__name__)


class McpError(Exception):
    """A call of a tool failed; the model is told this text."""


@contextmanager
def failing_as_tool() -> Iterator[None]:
    """Let a call fail with what a model should read, and no more."""
    try:
        yield
    except ToolError as error:
        raise McpError(error.message) from error


class ListedTool(NamedTuple):
    """A tool as its server lists it."""

    name: str
    description: str
    schema: Json
    reads_only: bool = False
    is_idempotent: bool = False
    is_local: bool = False
    """Whether it says that it reaches nothing outside."""


class McpTool(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A tool of a server; an `OfferedTool`."""

    spec: ToolSpec
    rules: ToolRules
    remote_name: str
    call: RemoteCall

    def prepare(self, arguments: JsonObject) -> PreparedCall:
        """Check the arguments: the server checks them against its schema itself."""
        if not isinstance(arguments, dict):
            raise TypeError("the arguments must be an object")
        required = self.spec.input_schema.get("required")
        for name in required if isinstance(required, list) else ():
            if isinstance(name, str) and name not in arguments:
                # In the words of msgspec, which checks the arguments of all other tools.
                raise ValueError(f"Object missing required field `{name}`")
        own = msgspec.to_builtins(arguments)
        return lambda context: self.call(self.remote_name, own, context)


def offered_tools(
    settings: ResolvedServer, listed: Iterable[ListedTool], call: RemoteCall
) -> dict[str, OfferedTool]:
    """Return the tools of a server by the names under which they are offered."""
    offered: dict[str, OfferedTool] = {}
    for item in listed:
        name = offered_name(settings.name, item.name)
        if len(offered) >= MOST_TOOLS:
            _logger.warning("MCP server %r: more than %d tools", settings.name, MOST_TOOLS)
            break
        if name in offered:
            _logger.warning("MCP server %r lists a tool twice: %s", settings.name, name)
            continue
        if (schema := _schema(item.schema)) is None:
            _logger.warning("MCP server %r: the schema of %s is not usable", settings.name, name)
            continue
        spec = ToolSpec(
            name=name,
            description=clean(item.description)[:_MOST_DESCRIPTION],
            input_schema=schema,
        )
        rules = rules_for(settings, item)
        offered[name] = McpTool(spec=spec, rules=rules, remote_name=item.name, call=call)
    return offered


def offered_name(server: str, tool: str) -> str:
    """Return the name of a tool for models: the same one whatever else the server lists."""
    name = f"{server}__{_UNFIT.sub('_', tool)}"
    if name == f"{server}__{tool}" and tool and len(name) <= _LONGEST_NAME:
        return name
    # Names that differ only in what was replaced or cut off must not become the same one.
    digest = hashlib.sha256(tool.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{name[: _LONGEST_NAME - 9]}_{digest}"


def rules_for(settings: ResolvedServer, item: ListedTool) -> ToolRules:
    """Return how a tool is treated; what a server says of it counts only if that is trusted."""
    effect: Effect = "read" if item.reads_only else "write" if item.is_local else "external"
    trusted = settings.trust_annotations
    return ToolRules(
        approval="never" if trusted and item.reads_only else settings.approval,
        timeout=settings.timeout,
        idempotent=trusted and (item.is_idempotent or item.reads_only),
        effect=effect,
    )


def clean(text: str) -> str:
    """Take out of a text what a terminal would obey and what a person would not see."""
    return writable(_HIDDEN.sub("", _ESCAPES.sub("", text)))


def _schema(schema: Json) -> JsonObject | None:
    """Return an input schema in which every text is clean, or None if it cannot be used."""
    if not isinstance(schema, dict) or is_too_deep(schema, levels=_DEEPEST_SCHEMA):
        return None
    cleaned: JsonObject = _cleaned(schema)
    if cleaned.setdefault("type", "object") != "object":
        return None
    if not isinstance(cleaned.setdefault("properties", {}), dict):
        return None
    try:
        return cleaned if len(msgspec.json.encode(cleaned)) <= MOST_SCHEMA else None
    except (TypeError, UnicodeEncodeError, OverflowError):
        return None


def _cleaned(value: Json) -> Json:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        # A key is the name of an argument, which the server must get back as it is.
        return {writable(str(key)): _cleaned(item) for key, item in value.items()}
    return value
