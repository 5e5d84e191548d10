"""What is known of a tool: its face to the model and its rules for the runtime."""

from typing import Annotated, Literal, TypeAlias

import msgspec

from holdfast.vocabulary.json_types import JsonObject

Effect: TypeAlias = Literal["read", "write", "external"]
"""What a run does to the world: it only looks, it changes what is here, or it reaches elsewhere."""
ApprovalMode: TypeAlias = Literal["never", "ask"]
SERVER_NAME = r"(?!mcp$)(?!.*__)[A-Za-z0-9_-]{1,32}"
"""What an MCP server may be called: `mcp` is in front of the tools that all servers share."""


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as a model sees it."""

    name: str
    description: str = ""
    input_schema: JsonObject = msgspec.field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )
    input_examples: tuple[JsonObject, ...] = ()


class ToolRules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the runtime treats a tool."""

    approval: ApprovalMode = "never"
    timeout: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """Seconds one run may take; None and 0 mean no limit."""
    idempotent: bool = False
    """Whether running it twice is the same as once; only such tools are ever run again."""
    retries: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How often a failed run is repeated; only for idempotent tools."""
    effect: Effect = "external"
    """For approvers to know; it decides neither whether they are asked nor what runs again."""
