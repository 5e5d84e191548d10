"""Agents that speak to a local server the way each kind of recording was spoken."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from haptera import Agent
from haptera.kernel.blocks.tool_registry.signature import Signature
from haptera.kernel.blocks.tool_registry.tool import AnyTool, Tool
from haptera.model.json_types import JsonObject
from haptera.model.tools import ToolRules, ToolSpec
from haptera.ports.model_client import ModelClient
from haptera.providers.transport.http import AiohttpTransport
from haptera.providers.vendor_clients import VendorAccess, make_client
from haptera.providers.vendors import VENDORS
from haptera.system.token_sources import StaticTokenSource
from haptera.testing.clocks import AutoClock

PROVIDER_OF = {
    "anthropic-messages": "anthropic",
    "gemini-generatecontent": "gemini",
    "vertex-generatecontent": "vertex",
    "openai-chat": "openai-chat",
    "openai-responses": "openai",
    "compat-responses": "compatible-responses",
    "ollama-native": "ollama",
}
"""The provider that speaks as a kind of recording does, where it has another name."""


def provider_of(api: str) -> str:
    """Return the provider that speaks as a kind of recording does."""
    return PROVIDER_OF.get(api, api.removesuffix("-chat"))


def clients_for(api: str, url: str) -> list[ModelClient]:
    """Return clients for what no name of a provider stands for."""
    tokens, transport = StaticTokenSource("x"), AiohttpTransport()
    if api == "ollama-chat":
        vendor = msgspec.structs.replace(VENDORS["compatible"], name="ollama", dialect="ollama")
        return [make_client(vendor, VendorAccess(tokens=tokens, transport=transport, base_url=url))]
    return []


@asynccontextmanager
async def agent_for(
    api: str, url: str, *, model: str, tools: Iterable[AnyTool] = ()
) -> AsyncIterator[Agent]:
    """Make an agent whose model speaks as a kind of recording does, at `url`."""
    clients = clients_for(api, url)
    async with Agent(
        f"{provider_of(api)}/{model}",
        api_key="x",
        base_url=url,
        providers=clients,
        tools=tools,
        environment={"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "global"},
        clock=AutoClock(),
    ) as agent:
        yield agent
    for client in clients:
        await client.close()


class CalledTools:
    """Tools with any schema, which answer `done` and remember their calls."""

    def __init__(self, meanwhile: Callable[[], Awaitable[None]] | None = None) -> None:
        self.calls: list[tuple[str, JsonObject]] = []
        self._meanwhile = meanwhile
        """What happens while a tool runs."""

    def tool(self, spec: ToolSpec) -> AnyTool:
        """Make the tool of a specification."""
        names = list(spec.input_schema.get("properties") or {})
        fields: list[tuple[str, Any, Any]] = [
            (name, Any | msgspec.UnsetType, msgspec.UNSET) for name in names
        ]

        async def run(**arguments: object) -> str:
            given = {n: value for n, value in arguments.items() if value is not msgspec.UNSET}
            self.calls.append((spec.name, given))
            if self._meanwhile is not None:
                await self._meanwhile()
            return "done"

        return Tool(
            function=run,
            spec=spec,
            rules=ToolRules(),
            signature=Signature(
                parameters=msgspec.defstruct("Arguments", fields, kw_only=True),
                schema=spec.input_schema,
                description=spec.description,
            ),
        )


def specs_of(request: JsonObject) -> list[ToolSpec]:
    """Return the tools that a recorded request offers, whichever protocol it is in."""
    found = [
        each
        for tool in request.get("tools") or ()
        for each in tool.get("functionDeclarations") or [tool.get("function", tool)]
        if not str(each.get("type", "function")).startswith("tool_search")
    ]
    return [
        ToolSpec(
            name=each["name"],
            description=each.get("description") or "",
            input_schema=each.get("input_schema") or each.get("parameters") or {"type": "object"},
        )
        for each in found
    ]
