"""What is known of a tool: its face to the model and its rules for the runtime."""

from typing import Annotated, Literal, TypeAlias

import msgspec

from haptera.model.ids import CallId, SessionId
from haptera.model.json_types import Json, JsonObject
from haptera.model.option import Option

Effect: TypeAlias = Literal["read", "write", "external"]
"""What a run does to the world: it only looks, it changes what is here, or it reaches elsewhere."""
ApprovalMode: TypeAlias = Literal["never", "ask"]
SERVER_NAME = r"(?!mcp$)(?!.*__)[A-Za-z0-9_-]{1,32}"
"""What an MCP server may be called: `mcp` is in front of the tools that all servers share."""


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as a model sees it."""

    name: Annotated[str, Option("The name that a model calls it by.")]
    description: Annotated[str, Option("What it does, for the model.")] = ""
    input_schema: JsonObject = msgspec.field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )
    input_examples: Annotated[
        tuple[JsonObject, ...], Option("Examples of its arguments for the model.")
    ] = ()


class ToolRules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the runtime treats a tool. Each field is the one declaration of an option of `@tool`."""

    approval: Annotated[ApprovalMode, Option("Whether a person is asked before each call.")] = (
        "never"
    )
    timeout: Annotated[
        float | None, Option("Seconds that a call may take; 0 or None: any.", least=0)
    ] = None
    idempotent: Annotated[
        bool,
        Option(
            "Whether running it twice is the same as once; only then may it be run again after a "
            "crash."
        ),
    ] = False
    retries: Annotated[
        int, Option("How often it is repeated when it fails; only if it is idempotent.", least=0)
    ] = 0
    effect: Annotated[Effect, Option("What it does to the world; an approver is told.")] = (
        "external"
    )
    deferred: Annotated[
        bool,
        Option(
            "Whether the function only begins the work: the call waits until `session.deliver` "
            "gives it its answer. What the function returns is the `ref` of the call, or None."
        ),
    ] = False


class WaitingCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call whose answer comes later, by `session.deliver`."""

    call_id: CallId
    tool: str
    arguments: Json = None
    ref: str | None = None
    """What the program calls it; the call can be delivered by it, too."""
    schema: JsonObject | None = None
    """What its answer must be, as a JSON Schema; None: anything."""
    until: int | None = None
    """When it is answered without a delivery, in milliseconds since 1970."""
    session_id: SessionId | None = None
