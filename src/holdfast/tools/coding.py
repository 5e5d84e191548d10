"""The set of tools for working in a folder of files."""

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypedDict, Unpack

from holdfast.blocks.tool_registry.tool import Tool
from holdfast.ports.session_store import Blobs
from holdfast.tools.command_runner import CommandRunner
from holdfast.tools.contained_paths import Guard, Root
from holdfast.tools.file_contents import SeenFiles
from holdfast.tools.files import FileTools
from holdfast.tools.finding import FindingTools
from holdfast.tools.output import MemoryBlobs, Outputs, read_output_tool
from holdfast.tools.sandbox.policy import Sandbox
from holdfast.tools.shell import choose_variables, shell_tool
from holdfast.tools.todo import todo_tool
from holdfast.vocabulary.errors import ConfigError, ErrorCode

_NOTHING: Mapping[str, str] = MappingProxyType({})
_PROTECTED = (".git", ".holdfast")


class CodingOptions(TypedDict, total=False):
    """What `coding_tools` may be told."""

    environment: Mapping[str, str]
    """Where the variables on the allow-list are taken from; without it commands get defaults."""
    variables: Mapping[str, str]
    """Variables that commands get besides, by value."""
    sandbox: Sandbox | None
    """How commands are confined; None for not at all."""
    protected: tuple[str, ...]
    """Names that can be read and not written, by any tool."""
    guard: Guard | None
    """Asked about the real path of every file that is touched; returns why it is refused."""
    blobs: Blobs
    """Where long output is kept, such as `store.blobs`; without it, in memory."""


def coding_tools(root: str | os.PathLike[str], **options: Unpack[CodingOptions]) -> list[Tool]:
    """Make tools that read, write, search and run commands beneath `root`.

    Writing, editing and running ask for approval. No other folder is written. The tools are made
    once and serve any number of sessions at the same time.

    Raises:
        ConfigError: CONFIG_INVALID when the root is not a folder.

    """
    if unknown := set(options) - set(CodingOptions.__annotations__):
        raise TypeError(f"coding_tools has no option {', '.join(sorted(unknown))}")
    protected = tuple(options.get("protected", _PROTECTED))
    try:
        place = Root(root, protected=protected, guard=options.get("guard"))
    except OSError as error:
        message = f"the root of the tools is not a folder that can be opened: {error}"
        raise ConfigError(ErrorCode.CONFIG_INVALID, message) from error
    outputs = Outputs(options.get("blobs") or MemoryBlobs())
    sandbox = options.get("sandbox", Sandbox(protected=protected))
    environment = choose_variables(
        options.get("environment", _NOTHING), options.get("variables", _NOTHING)
    )
    runner = CommandRunner(place, sandbox=sandbox, environment=environment)
    return [
        *FileTools(place, outputs, SeenFiles()).tools(),
        *FindingTools(place, outputs).tools(),
        shell_tool(runner, outputs),
        todo_tool(),
        read_output_tool(outputs),
    ]
