"""The set of tools for working in a folder of files."""

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias, Unpack

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from haptera.kernel.blocks.permission_rules.rules import EDITS_FILES
from haptera.kernel.blocks.tool_registry.tool import AnyTool, tool
from haptera.model.approvals import CallFacts
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.ids import SessionId
from haptera.model.json_types import JsonObject
from haptera.model.option import Option
from haptera.options.checks import checked
from haptera.options.declarations import function_option
from haptera.options.signatures import takes
from haptera.ports.permissions import PathGuard
from haptera.ports.session_store import Blobs
from haptera.ports.tools import ToolContext
from haptera.system.threads import run_in_thread
from haptera.tools.command_runner import CommandRunner
from haptera.tools.contained_paths import PathRefusedError, Root, guarded
from haptera.tools.file_contents import SeenFiles
from haptera.tools.files import FileTools
from haptera.tools.finding import FindingTools
from haptera.tools.keywords import CodingKeywords
from haptera.tools.output import Outputs, read_output_tool
from haptera.tools.sandbox.policy import Sandbox
from haptera.tools.sandbox.private_paths import stores_in
from haptera.tools.shell import CommandVariables, command_words, shell_tool

_OF_FOLDERS = frozenset({"list", "glob", "grep"})
_OF_PATHS = EDITS_FILES | _OF_FOLDERS | {"read"}
_MOST_ITEMS = 200
_MOST_SESSIONS = 1000
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}

TodoStatus: TypeAlias = Literal["pending", "in_progress", "done"]


def _is_variables(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and isinstance(text, str) for name, text in value.items()
    )


class CodingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `coding_tools` may be told."""

    environment: Annotated[
        Mapping[str, str] | None,
        Option(
            "Where the variables on the allow-list are taken from; None: the environment of the "
            "agent.",
            fits=lambda value: value is None or _is_variables(value),
            wanted="a mapping of texts",
        ),
    ] = None
    variables: Annotated[
        Mapping[str, str],
        Option(
            "More variables for commands, with their values.",
            fits=_is_variables,
            wanted="a mapping of texts",
        ),
    ] = msgspec.field(default_factory=dict)
    sandbox: Annotated[
        Sandbox | None,
        Option(
            "How commands are confined; None: not at all.",
            shown="Sandbox()",
            fits=lambda value: value is None or isinstance(value, Sandbox),
            wanted="a Sandbox of haptera.tools",
        ),
    ] = Sandbox()
    protected: Annotated[
        Sequence[str],
        Option("Names that no tool can write, only read."),
    ] = Sandbox().protected
    guard: Annotated[
        PathGuard | None,
        function_option(
            "A function that is called with `read` or `write` and the real path of every file that "
            "is accessed; it returns why that is refused, or None. The agent's rules that deny "
            "files are checked in any case."
        ),
    ] = None
    blobs: Annotated[
        Blobs | None,
        Option(
            "Where long output is kept; None: in the store of the agent.",
            fits=lambda value: value is None or callable(getattr(value, "put", None)),
            wanted="a Blobs, such as the `blobs` of a store",
        ),
    ] = None


@takes(CodingOptions)
class CodingToolkit:
    """The tools for one root folder, and what can be said of their calls before they are made.

    Owns the root's descriptor and what sessions have read. Does not own who may call what.
    """

    def __init__(self, root: str | os.PathLike[str], **options: Unpack[CodingKeywords]) -> None:
        settings = checked(options, CodingOptions, function="coding_tools()")
        protected = tuple(settings.protected)
        try:
            self._root = Root(root, protected=protected, guard=settings.guard)
        except OSError as error:
            message = (
                f"coding_tools(): the root {os.fspath(root)!r} is not a folder that can be opened: "
                f"{error.strerror or error}"
            )
            raise ConfigError(ErrorCode.CONFIG_INVALID, message) from error
        outputs = Outputs(settings.blobs)
        variables = CommandVariables(settings.environment, settings.variables)
        # A None that was given means not confined, so the default is only for what was not given.
        self.runner = CommandRunner(
            self._root, sandbox=options.get("sandbox", Sandbox(protected=protected))
        )
        self._files = FileTools(self._root, outputs, SeenFiles())
        tools = (
            *self._files.tools(),
            *FindingTools(self._root, outputs).tools(),
            shell_tool(self.runner, outputs, variables),
            todo_tool(),
            read_output_tool(outputs),
        )
        self.tools: tuple[AnyTool, ...] = tuple(
            replace(item, function=_guarded(item), inspector=partial(self.facts, item.name))
            for item in tools
        )

    async def check_stores(self) -> None:
        """Refuse a root with a store in it where commands cannot be kept from it.

        Raises:
            ConfigError: CONFIG_INVALID saying what to do.

        """
        stores = stores_in(self._root.path)
        if not stores:
            return
        report = await self.runner.report()
        # Landlock cannot deny what is beneath a folder that it allows.
        if "namespaces" not in report.layers:
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                f"the store {stores[0]} is in the workspace {self._root.path}, and this machine "
                f"cannot keep commands from it ({'; '.join(report.missing)}). Keep the store "
                "elsewhere, such as 'sqlite:~/sessions.db', or work in another folder",
            )

    async def facts(self, name: str, arguments: JsonObject) -> CallFacts:
        """Say what a call would really do now; what cannot be said is left out."""
        if name == "shell":
            return await self._facts_of_command(arguments)
        # The same default as in the signatures of these tools.
        path = arguments.get("path", "." if name in _OF_FOLDERS else None)
        if name not in _OF_PATHS or not isinstance(path, str):
            return CallFacts()
        return await run_in_thread(lambda: self._facts_of_path(name, path, arguments))

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
        difference = self._files.preview(name, arguments) if name in EDITS_FILES else None
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


@takes(CodingOptions)
def coding_tools(root: str | os.PathLike[str], **options: Unpack[CodingKeywords]) -> list[AnyTool]:
    """Make tools that read, write, search and run commands beneath `root`.

    Writing, editing and running ask for approval. No other folder is written. The tools are made
    once and serve any number of sessions at the same time.

    Raises:
        ConfigError: CONFIG_INVALID when the root is not a folder, or naming the option that is
            wrong.

    """
    return list(CodingToolkit(root, **options).tools)


class TodoItem(msgspec.Struct, frozen=True):
    """One thing to do."""

    text: Annotated[str, Meta(min_length=1, max_length=500)]
    status: TodoStatus = "pending"


def todo_tool() -> AnyTool:
    """Make the to-do list; it keeps one list per session, in memory.

    Every list is in the log as well, with the call that wrote it.
    """
    lists: OrderedDict[SessionId, list[TodoItem]] = OrderedDict()

    @tool(effect="read", idempotent=True)
    async def todo(
        context: ToolContext,
        items: Annotated[list[TodoItem], Meta(max_length=_MOST_ITEMS)] | None = None,
    ) -> str:
        """Keep a list of what is to be done in a task of several steps.

        Args:
            items: The whole list, which replaces the one before; without it the list is shown.

        """
        if items is not None:
            lists[context.session_id] = items
            # The tools outlive their sessions, so the lists that were written longest ago are
            # dropped.
            lists.move_to_end(context.session_id)
            if len(lists) > _MOST_SESSIONS:
                lists.popitem(last=False)
        todos = lists.get(context.session_id, [])
        shown = [f"{_MARKS[item.status]} {item.text}" for item in todos]
        return "\n".join(shown) or "[the list is empty]"

    return todo
