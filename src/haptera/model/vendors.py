"""Vendors, as far as other rooms name them: protocols, fields of their tables, and two names.

`providers.vendors` has the table of vendors.
"""

from typing import Annotated, Literal, TypeAlias

import msgspec

from haptera.model.option import Option

Protocol: TypeAlias = Literal[
    "messages", "responses", "chat", "generate_content", "ollama", "native", "process"
]
"""Anthropic Messages, OpenAI Responses, OpenAI Chat Completions, Gemini generateContent, and
Ollama's own; `native`: an agent that keeps its own session; `process`: a model on this machine, in
a process of its own."""

LOCAL = "local"
"""The provider of models on this machine."""
CLAUDE_AGENT = "claude-agent"
"""The provider whose models Claude Code runs."""


def split_model(model: str) -> tuple[str, str]:
    """Split `provider/model` or `local:PATH`; a half that is missing is empty."""
    if model.startswith(f"{LOCAL}:"):
        return LOCAL, model.removeprefix(f"{LOCAL}:")
    provider, _, name = model.partition("/")
    return provider, name


def names_a_file(name: str) -> bool:
    """Whether the name of a local model, without its provider, is the path of a file."""
    return "/" in name or name.endswith(".gguf")


class VendorFields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What some vendors have to be told; the row of a vendor names those that it takes.

    A field that is declared here can be set in a table of the configuration file, and by the
    variables that a row has for it. `providers.vendor_clients` puts it into the request.
    """

    api_version: Annotated[
        str | None,
        Option("The version of Azure's older API, whose path contains the deployment."),
    ] = None
    organization: Annotated[
        str | None, Option("The organization at OpenAI that requests belong to.")
    ] = None
    project: Annotated[
        str | None, Option("The project that requests belong to, at OpenAI or in Google Cloud.")
    ] = None
    location: Annotated[
        str | None, Option("The location in Google Cloud that answers; `global` if left out.")
    ] = None


VENDOR_FIELDS = VendorFields.__struct_fields__
