"""The set of tools for working in a folder of files."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypedDict, Unpack

from msgspec.structs import replace

from holdfast.blocks.tool_registry.tool import AnyTool
from holdfast.ports.permissions import PathGuard
from holdfast.ports.session_store import Blobs
from holdfast.ports.tools import ToolContext
from holdfast.tools.command_runner import CommandRunner
from holdfast.tools.contained_paths import PathRefusedError, Root, guarded
from holdfast.tools.file_contents import SeenFiles
from holdfast.tools.files import FileTools
from holdfast.tools.finding import FindingTools
from holdfast.tools.output import Outputs, read_output_tool
from holdfast.tools.sandbox.policy import Sandbox
from holdfast.tools.shell import CommandVariables, command_words, shell_tool
from holdfast.tools.threads import in_thread
from holdfast.tools.todo import todo_tool
from holdfast.vocabulary.approvals import CallFacts
from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.json_types import JsonObject

_PROTECTED = (".git", ".holdfast")
_OF_CHANGES = frozenset({"write", "edit"})
_OF_FOLDERS = frozenset({"list", "glob", "grep"})
_OF_PATHS = _OF_CHANGES | _OF_FOLDERS | {"read"}


class CodingOptions(TypedDict, total=False):
    """What `coding_tools` may be told."""

    environment: Mapping[str, str]
    """Where the variables on the allow-list are taken from; without it, from the environment of the
    agent."""
    variables: Mapping[str, str]
    """Variables that commands get besides, by value."""
    sandbox: Sandbox | None
    """How commands are confined; None for not at all."""
    protected: tuple[str, ...]
    """Names that can be read and not written, by any tool."""
    guard: PathGuard | None
    """Asked about the real path of every file that is touched; returns why it is refused. The
    rules of the agent that deny files are asked in any case."""
    blobs: Blobs
    """Where long output is kept; without it, in the store of the agent."""


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
        outputs = Outputs(options.get("blobs"))
        variables = CommandVariables(options.get("environment"), options.get("variables", {}))
        self.runner = CommandRunner(
            self._root, sandbox=options.get("sandbox", Sandbox(protected=protected))
        )
        self._files = FileTools(self._root, outputs, SeenFiles())
        made = (
            *self._files.tools(),
            *FindingTools(self._root, outputs).tools(),
            shell_tool(self.runner, outputs, variables),
            todo_tool(),
            read_output_tool(outputs),
        )
        self.tools: tuple[AnyTool, ...] = tuple(
            replace(item, function=_guarded(item), inspector=partial(self.facts, item.name))
            for item in made
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
            root=self._root.path,
            folder=self._real_path(str(arguments.get("folder", "."))),
            is_confined=report.is_available,
        )

    def _facts_of_path(self, name: str, path: str, arguments: JsonObject) -> CallFacts:
        difference = self._files.preview(name, arguments) if name in _OF_CHANGES else None
        real = self._real_path(path)
        return CallFacts(root=self._root.path, path=real, difference=difference)

    def _real_path(self, path: str) -> str | None:
        try:
            return self._root.real_path(path)
        except (OSError, PathRefusedError):
            return None


def _guarded(item: AnyTool) -> Callable[..., object]:
    """Let the rules of the agent that makes a call be asked about every file that it touches."""
    function: Callable[..., Any] = item.function

    async def run(context: ToolContext, **arguments: object) -> object:
        with guarded(context.surroundings.refuses_path):
            return await function(context=context, **arguments)

    return run


def coding_tools(root: str | os.PathLike[str], **options: Unpack[CodingOptions]) -> list[AnyTool]:
    """Make tools that read, write, search and run commands beneath `root`.

    Writing, editing and running ask for approval. No other folder is written. The tools are made
    once and serve any number of sessions at the same time.

    Raises:
        ConfigError: CONFIG_INVALID when the root is not a folder.

    """
    return list(CodingToolkit(root, **options).tools)
