"""What is asked of an MCP server: lists, calls, resources and prompts, in our own types."""

import contextlib
from collections.abc import Awaitable
from typing import Any

import mcp_types as types
from mcp import MCPError

from haptera.model.errors import ErrorCode, ToolError
from haptera.model.json_types import JsonObject
from haptera.model.parts import ResultContent, lines_of
from haptera.ports.tools import ToolContext
from haptera.system.logs import scrubbed_logger
from haptera.tools.mcp.connection import McpConnection
from haptera.tools.mcp.offered_tools import MOST_TOOLS, ListedTool, OnTools, clean
from haptera.tools.mcp.results import bounded, content_of, resource_content
from haptera.tools.mcp.server_facts import (
    McpPrompt,
    McpPromptArgument,
    McpPromptMessage,
    McpResource,
)
from haptera.tools.mcp.server_settings import ResolvedServer

MOST_PAGES = 50
"""Pages of a list that are asked for: a list may have no end."""

_logger = scrubbed_logger(__name__)


class ServerRequests:
    """Makes requests on one connection. `on_tools` gets the tools whenever they were listed."""

    def __init__(self, settings: ResolvedServer, on_tools: OnTools) -> None:
        self._on_tools = on_tools
        self.connection = McpConnection(settings, self.list_tools)

    async def list_tools(self) -> None:
        """Get the list of tools and hand it on.

        Raises:
            ToolError: TOOL_FAILED when the server does not give it.

        """
        client = self.connection.client
        resources = len(await self._if_any("resources", self.resources()))
        if client.server_capabilities.tools is None:
            self._on_tools((), resources)
            return
        listed: list[types.Tool] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            async with self.connection.reported():
                page = await client.list_tools(cursor=cursor, cache_mode="refresh")
            listed += page.tools
            cursor = page.next_cursor
            if cursor is None or len(listed) > MOST_TOOLS:
                break
        else:
            _logger.warning("MCP server %r: its list of tools does not end", self.connection.name)
        self._on_tools([_listed(item) for item in listed], resources)

    async def call(
        self, tool: str, arguments: JsonObject, context: ToolContext[Any]
    ) -> list[ResultContent]:
        """Call a tool. A cancelled call is cancelled at the server, too.

        Raises:
            ToolError: TOOL_FAILED with what the server says.

        """

        async def show(progress: float, total: float | None, message: str | None) -> None:
            shown = {"progress": progress, "total": total, "message": clean(message or "") or None}
            context.progress({key: value for key, value in shown.items() if value is not None})

        client = self.connection.client
        # While the call is under way, the server may ask a person on behalf of it.
        self.connection.calls.append(context)
        try:
            async with self.connection.reported():
                result = await client.call_tool(tool, arguments, progress_callback=show)
        finally:
            self.connection.calls.remove(context)
        content = await bounded(context, content_of(result.content, result.structured_content))
        if result.is_error:
            text = lines_of(content)
            raise ToolError(ErrorCode.TOOL_FAILED, text or "the tool failed")
        return content

    async def resources(self) -> tuple[McpResource, ...]:
        """List what can be read, templates included."""
        client = self.connection.client
        if client.server_capabilities.resources is None:
            return ()
        listed: list[McpResource] = []
        async with self.connection.reported():
            cursor: str | None = None
            for _ in range(MOST_PAGES):
                page = await client.list_resources(cursor=cursor, cache_mode="refresh")
                listed += [_resource(item, item.uri) for item in page.resources]
                if (cursor := page.next_cursor) is None:
                    break
        listed += await self._if_any("templates", self._templates())
        return tuple(listed)

    async def _templates(self) -> tuple[McpResource, ...]:
        # An error that the server answers with is none: not every server knows templates.
        async with self.connection.reported():
            with contextlib.suppress(MCPError):
                page = await self.connection.client.list_resource_templates(cache_mode="refresh")
                return tuple(
                    _resource(item, item.uri_template, is_template=True)
                    for item in page.resource_templates
                )
        return ()

    async def _if_any(
        self, what: str, listing: Awaitable[tuple[McpResource, ...]]
    ) -> tuple[McpResource, ...]:
        """List without failing: many servers say that they have resources, and have none."""
        try:
            return await listing
        except ToolError as error:
            if not self.connection.is_alive:
                raise
            _logger.warning(
                "MCP server %r: its %s cannot be listed: %s", self.connection.name, what, error
            )
            return ()

    async def read_resource(
        self, uri: str, context: ToolContext[Any] | None = None
    ) -> tuple[ResultContent, ...]:
        """Read one; for a call of a model, as much as it is shown at once."""
        async with self.connection.reported():
            result = await self.connection.client.read_resource(uri, cache_mode="refresh")
        content = resource_content(result.contents)
        return tuple(content if context is None else await bounded(context, content))

    async def prompts(self) -> tuple[McpPrompt, ...]:
        """List the prompts."""
        client = self.connection.client
        if client.server_capabilities.prompts is None:
            return ()
        listed: list[McpPrompt] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            async with self.connection.reported():
                page = await client.list_prompts(cursor=cursor, cache_mode="refresh")
            listed += map(_prompt, page.prompts)
            if (cursor := page.next_cursor) is None:
                break
        return tuple(listed)

    async def prompt(self, name: str, arguments: dict[str, str]) -> tuple[McpPromptMessage, ...]:
        """Fill in a prompt."""
        async with self.connection.reported():
            result = await self.connection.client.get_prompt(name, arguments)
        return tuple(
            McpPromptMessage(role=item.role, content=tuple(content_of([item.content])))
            for item in result.messages
        )


def _listed(item: types.Tool) -> ListedTool:
    hints = item.annotations
    return ListedTool(
        name=item.name,
        description=item.description or item.title or "",
        schema=item.input_schema,
        reads_only=hints is not None and hints.read_only_hint is True,
        is_idempotent=hints is not None and hints.idempotent_hint is True,
        is_local=hints is not None and hints.open_world_hint is False,
    )


def _resource(
    item: types.Resource | types.ResourceTemplate, uri: str, *, is_template: bool = False
) -> McpResource:
    return McpResource(
        uri=uri,
        name=clean(item.name),
        description=clean(item.description or ""),
        mime=item.mime_type,
        size=getattr(item, "size", None),
        is_template=is_template,
    )


def _prompt(item: types.Prompt) -> McpPrompt:
    return McpPrompt(
        name=item.name,
        description=clean(item.description or ""),
        arguments=tuple(
            McpPromptArgument(
                name=each.name,
                description=clean(each.description or ""),
                is_required=bool(each.required),
            )
            for each in item.arguments or ()
        ),
    )
