"""Resources and prompts of an MCP server: for programs, and as tools for a model."""

from collections.abc import Mapping
from typing import Any

import msgspec

from haptera.model.json_types import JsonObject
from haptera.model.parts import ResultContent
from haptera.model.tools import ToolSpec
from haptera.ports.tools import ToolContext
from haptera.tools.mcp.offered_tools import (
    OUTPUTS,
    READER,
    ListedTool,
    McpTool,
    failing_as_tool,
    rules_for,
)
from haptera.tools.mcp.server_facts import McpPrompt, McpPromptMessage, McpResource
from haptera.tools.mcp.server_settings import ResolvedServer
from haptera.tools.mcp.supervision import Supervisor

_LIST_RESOURCES = "list_resources"
_READ_RESOURCE = "read_resource"


class ResourcesAndPrompts:
    """What a program can get of a server beside its tools. Each starts the server if need be."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

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


def resource_tools(settings: ResolvedServer, supervisor: Supervisor) -> list[McpTool]:
    """Return the tools by which a model finds and reads resources."""
    reading = ListedTool(name="", description="", schema={}, reads_only=True)
    rules = rules_for(settings, reading)

    async def list_all(_: str, __: JsonObject, context: ToolContext[Any]) -> object:
        with failing_as_tool():
            found = await (await supervisor.requests()).resources()
        written = msgspec.json.encode(found).decode()
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
