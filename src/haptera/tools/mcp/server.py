"""McpServer: an MCP server as a source of tools, with its resources and prompts."""

from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

import msgspec

from haptera.model.errors import AgentError, ConfigError, ErrorCode
from haptera.model.json_types import JsonObject
from haptera.model.parts import ResultContent
from haptera.model.tools import ToolSpec
from haptera.options.signatures import takes
from haptera.ports.tools import OfferedTool, ToolContext
from haptera.system.logs import scrubbed_logger
from haptera.tools.mcp.keywords import McpKeywords
from haptera.tools.mcp.offered_tools import (
    OUTPUTS,
    READ_OUTPUT,
    READER,
    ListedTool,
    McpTool,
    clean,
    failing_as_tool,
    offered_tools,
    rules_for,
)
from haptera.tools.mcp.server_facts import McpPrompt, McpPromptMessage, McpResource, McpStatus
from haptera.tools.mcp.server_settings import (
    McpOptions,
    ResolvedServer,
    check_settings,
    mcp_options_of,
)
from haptera.tools.mcp.supervision import Supervisor

_MOST_INSTRUCTIONS = 4_000
_LIST_RESOURCES = "list_resources"
_READ_RESOURCE = "read_resource"

_logger = scrubbed_logger(__name__)


@takes(McpOptions)
class McpServer:
    """An MCP server whose tools an agent offers: `Agent(tools=[McpServer("time", command=…)])`.

    It is started when a query first needs its tools, and ended with the agent that has it among its
    tools; given to a session or a query, or used by itself, it is ended by `close` or by leaving
    `async with`. What was ended starts again when it is needed. One server can serve any number of
    sessions and agents of one event loop.

    Raises:
        ConfigError: CONFIG_INVALID naming the option that is wrong.

    """

    def __init__(self, name: str, **options: Unpack[McpKeywords]) -> None:
        self._settings = check_settings(name, options)
        self._supervisor = Supervisor(self._settings, self._take_list)
        self._tools: tuple[OfferedTool, ...] = ()

    def __repr__(self) -> str:
        return f"McpServer({self.name!r})"

    async def __aenter__(self) -> Self:
        await self.check()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def name(self) -> str:
        """The name in front of its tools."""
        return self._settings.name

    @property
    def status(self) -> McpStatus:
        """How the server is now; nothing is started or asked for it."""
        supervisor = self._supervisor
        running, error = supervisor.running, supervisor.error
        status = McpStatus(
            name=self.name,
            tools=tuple(item.spec.name for item in self._tools if isinstance(item, McpTool)),
            failures=supervisor.failures,
            error=None if error is None else error.message,
        )
        if running is None:
            state = "failed" if error is not None or supervisor.has_ended else "stopped"
            return msgspec.structs.replace(status, state=state)
        client = running.connection.client
        info, instructions = client.server_info, client.instructions
        return msgspec.structs.replace(
            status,
            state="running",
            server=None if info is None else clean(f"{info.name} {info.version}"),
            protocol=client.protocol_version,
            instructions=clean(instructions)[:_MOST_INSTRUCTIONS] if instructions else None,
        )

    @property
    def stderr(self) -> str:
        """The end of what the server wrote to its standard error; bounded."""
        return self._supervisor.stderr

    def tools(self) -> Sequence[OfferedTool]:
        """Return the tools of the last list that the server gave; see `ToolSource`."""
        return self._tools

    async def ready(self) -> None:
        """Start the server unless it runs; see `RunningToolSource`."""
        try:
            await self._supervisor.requests()
        except ConfigError:
            raise
        except AgentError as error:
            _logger.warning("the tools of MCP server %r are not offered: %s", self.name, error)

    async def check(self) -> McpStatus:
        """Start the server unless it runs and gives a sign of life, and say how it is.

        Raises:
            ToolError: TOOL_FAILED or TOOL_TIMEOUT with the end of its standard error.
            ConfigError: CONFIG_MISSING when the package `mcp` is not installed.

        """
        await self._supervisor.check()
        await self._supervisor.requests()
        return self.status

    # Each of these starts the server if need be.

    async def resources(self) -> tuple[McpResource, ...]:
        """List what the server lets read, templates included."""
        return await (await self._supervisor.requests()).resources()

    async def read_resource(self, uri: str) -> tuple[ResultContent, ...]:
        """Read a resource.

        Raises:
            ToolError: TOOL_FAILED with what the server says.

        """
        return await (await self._supervisor.requests()).read_resource(uri)

    async def prompts(self) -> tuple[McpPrompt, ...]:
        """List the prompts that the server has ready."""
        return await (await self._supervisor.requests()).prompts()

    async def prompt(
        self, name: str, arguments: Mapping[str, str] | None = None
    ) -> tuple[McpPromptMessage, ...]:
        """Fill in a prompt.

        Raises:
            ToolError: TOOL_FAILED with what the server says.

        """
        return await (await self._supervisor.requests()).prompt(name, dict(arguments or {}))

    async def close(self) -> None:
        """End the server. Closing twice is fine; the next need starts it again."""
        await self._supervisor.close()

    def _take_list(self, listed: Sequence[ListedTool], resources: int) -> None:
        """Offer what the server lists now."""
        offered = offered_tools(self._settings, listed, self._call)
        for tool in _resource_tools(self._settings, self._supervisor) if resources else ():
            offered.setdefault(tool.spec.name, tool)
        tools = tuple(offered.values())
        # A tool that did not change stays the same object, and an unchanged list the same list.
        if [item.spec for item in tools] == [item.spec for item in self._tools[:-1]] and [
            item.rules for item in tools
        ] == [item.rules for item in self._tools[:-1]]:
            return
        self._tools = (*tools, READ_OUTPUT) if tools else ()

    async def _call(self, tool: str, arguments: JsonObject, context: ToolContext[Any]) -> object:
        with failing_as_tool():
            requests = await self._supervisor.requests()
            content = await requests.call(tool, arguments, context)
        self._supervisor.succeeded()
        return content or ""


def _resource_tools(settings: ResolvedServer, supervisor: Supervisor) -> list[McpTool]:
    """Return the tools by which a model finds and reads resources."""
    reading = ListedTool(name="", description="", schema={}, reads_only=True)
    rules = rules_for(settings, reading)

    async def list_all(_: str, __: JsonObject, context: ToolContext[Any]) -> object:
        with failing_as_tool():
            listed = await (await supervisor.requests()).resources()
        written = msgspec.json.encode(listed).decode()
        return await OUTPUTS.shown(context, written, reader=READER)

    async def read_one(_: str, arguments: JsonObject, context: ToolContext[Any]) -> object:
        with failing_as_tool():
            requests = await supervisor.requests()
            return list(await requests.read_resource(str(arguments.get("uri")), context))

    return [
        McpTool(
            spec=ToolSpec(
                name=f"{settings.name}__{_LIST_RESOURCES}",
                description=f"List the resources of the MCP server {settings.name}.",
            ),
            rules=rules,
            remote_name=_LIST_RESOURCES,
            call=list_all,
        ),
        McpTool(
            spec=ToolSpec(
                name=f"{settings.name}__{_READ_RESOURCE}",
                description=f"Read a resource of the MCP server {settings.name}.",
                input_schema={
                    "type": "object",
                    "properties": {"uri": {"type": "string", "description": "Its URI."}},
                    "required": ["uri"],
                },
            ),
            rules=rules,
            remote_name=_READ_RESOURCE,
            call=read_one,
        ),
    ]


def mcp_servers(shape: Mapping[str, Any]) -> list[McpServer]:
    """Make the servers of the shape `{"mcpServers": {name: {"command": …}}}`.

    Raises:
        ConfigError: CONFIG_INVALID naming the server and the field that is wrong.

    """
    servers = shape.get("mcpServers")
    if not isinstance(servers, Mapping):
        raise ConfigError(ErrorCode.CONFIG_INVALID, "mcpServers must be an object")
    return [McpServer(name, **mcp_options_of(name, table)) for name, table in servers.items()]
