"""What is known of an MCP server: how it is, and the resources and prompts that it offers."""

from typing import Literal, TypeAlias

import msgspec

from haptera.model.parts import ResultContent, text_of

McpServerState: TypeAlias = Literal["stopped", "running", "failed"]


class McpStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a server is."""

    name: str
    state: McpServerState = "stopped"
    """`stopped`: not started yet, or closed; `failed`: it ended by itself or did not start."""
    tools: tuple[str, ...] = ()
    """The names of its tools, as a model calls them."""
    server: str | None = None
    """What the server calls itself, with its version."""
    protocol: str | None = None
    """The version of the protocol that is spoken."""
    instructions: str | None = None
    """What the server says of its use."""
    failures: int = 0
    """How often in a row it ended by itself, or did not start."""
    error: str | None = None
    """Why it failed the last time."""


class McpResource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that a server lets read."""

    uri: str
    """With placeholders in braces, if it is a template."""
    name: str
    description: str = ""
    mime: str | None = None
    size: int | None = None
    is_template: bool = False


class McpPromptArgument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a prompt of a server can be told."""

    name: str
    description: str = ""
    is_required: bool = False


class McpPrompt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A prompt that a server has ready."""

    name: str
    description: str = ""
    arguments: tuple[McpPromptArgument, ...] = ()


class McpPromptMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a prompt that was filled in."""

    role: Literal["user", "assistant"]
    content: tuple[ResultContent, ...] = ()

    @property
    def text(self) -> str:
        """The text of the message, media left out."""
        return text_of(self.content)
