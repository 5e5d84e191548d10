"""The set of tools for working in a folder of files."""

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypedDict, Unpack

import msgspec

from holdfast.blocks.tool_registry.tool import AnyTool
from holdfast.ports.session_store import Blobs
from holdfast.tools.command_runner import CommandRunner
from holdfast.tools.contained_paths import Guard, PathRefusedError, Root
from holdfast.tools.file_contents import SeenFiles
from holdfast.tools.files import FileTools
from holdfast.tools.finding import FindingTools
from holdfast.tools.output import MemoryBlobs, Outputs, read_output_tool
from holdfast.tools.sandbox.policy import Sandbox
from holdfast.tools.shell import choose_variables, command_words, shell_tool
from holdfast.tools.threads import in_thread
from holdfast.tools.todo import todo_tool
from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.json_types import JsonObject

_NOTHING: Mapping[str, str] = MappingProxyType({})
_PROTECTED = (".git", ".holdfast")
_OF_CHANGES = frozenset({"write", "edit"})
_OF_FOLDERS = frozenset({"list", "glob", "grep"})
_OF_PATHS = _OF_CHANGES | _OF_FOLDERS | {"read"}


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


class CallFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a call would really do, for the decision about it."""

    path: str | None = None
    """Where the path in the arguments leads beneath the root, links followed."""
    argv: tuple[str, ...] | None = None
    """The program and its words that would be started."""
    folder: str | None = None
    """Where it would be started."""
    difference: str | None = None
    """What would change in the file, as a diff."""
    is_confined: bool | None = None
    """Whether a sandbox would be around the command."""


class CodingToolkit:
    """The tools for one root folder, and what can be said of their calls before they are made.

    Owns the root's descriptor and what sessions have read. Does not own who may call what.
    """

    def __init__(self, root: str | os.PathLike[str], **options: Unpack[CodingOptions]) -> None:
        if unknown := set(options) - set(CodingOptions.__annotations__):
            raise TypeError(f"coding_tools has no option {', '.join(sorted(unknown))}")
        protected = tuple(options.get("protected", _PROTECTED))
        try:
            self._root = Root(root, protected=protected, guard=options.get("guard"))
        except OSError as error:
            message = f"the root of the tools is not a folder that can be opened: {error}"
            raise ConfigError(ErrorCode.CONFIG_INVALID, message) from error
        outputs = Outputs(options.get("blobs") or MemoryBlobs())
        environment = choose_variables(
            options.get("environment", _NOTHING), options.get("variables", _NOTHING)
        )
        self.runner = CommandRunner(
            self._root,
            sandbox=options.get("sandbox", Sandbox(protected=protected)),
            environment=environment,
        )
        self._files = FileTools(self._root, outputs, SeenFiles())
        self.tools: tuple[AnyTool, ...] = (
            *self._files.tools(),
            *FindingTools(self._root, outputs).tools(),
            shell_tool(self.runner, outputs),
            todo_tool(),
            read_output_tool(outputs),
        )

    async def facts(self, name: str, arguments: JsonObject) -> CallFacts:
        """Say what a call would really do now; what cannot be said is left out."""
        if name == "shell":
            return await self._facts_of_command(arguments)
        path = arguments.get("path", "." if name in _OF_FOLDERS else None)
        if name not in _OF_PATHS or not isinstance(path, str):
            return CallFacts()
        return await in_thread(lambda: self._facts_of_path(name, path, arguments))

    async def _facts_of_command(self, arguments: JsonObject) -> CallFacts:
        command = arguments.get("command")
        report = await self.runner.report()
        return CallFacts(
            argv=command_words(command) if isinstance(command, str | list) else None,
            folder=self._real_path(str(arguments.get("folder", "."))),
            is_confined=report.is_available,
        )

    def _facts_of_path(self, name: str, path: str, arguments: JsonObject) -> CallFacts:
        difference = self._files.preview(name, arguments) if name in _OF_CHANGES else None
        return CallFacts(path=self._real_path(path), difference=difference)

    def _real_path(self, path: str) -> str | None:
        try:
            return self._root.real_path(path)
        except (OSError, PathRefusedError):
            return None


def coding_tools(root: str | os.PathLike[str], **options: Unpack[CodingOptions]) -> list[AnyTool]:
    """Make tools that read, write, search and run commands beneath `root`.

    Writing, editing and running ask for approval. No other folder is written. The tools are made
    once and serve any number of sessions at the same time.

    Raises:
        ConfigError: CONFIG_INVALID when the root is not a folder.

    """
    return list(CodingToolkit(root, **options).tools)
