"""Every function that takes options shows, explains and checks them as they are declared.

The functions are found in the source, by `**options: Unpack[...]`, so a new one is checked, too.
"""

import ast
import importlib
import inspect
import pydoc
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import haptera.sync
from haptera import Agent, Err
from haptera.building_blocks import make_blocks
from haptera.kernel.blocks.tool_registry.tool import ToolOptions
from haptera.options.checks import UnknownOptionError
from haptera.options.declarations import as_given, declared_fields, options_of
from haptera.testing import FakeClock, ScriptedProvider
from scripts.write_keywords import FILES
from scripts.write_option_tables import PAGES
from tests.architecture.source_tree import PACKAGE, modules_under

NO_OPTIONS = {"ErrorFacts"}
"""What is known of an error: the fields of `ErrorReport`, which declare themselves."""


class TakesOptions:
    """A function, method or class that takes options."""

    def __init__(self, module: str, path: str, kind: str, shown: str | None) -> None:
        self.name = f"{module}.{path}"
        self.shown = shown
        """What `takes` is given, by its name."""
        self._module, self._path, self._kind = importlib.import_module(module), path, kind

    @property
    def options(self) -> Any:
        return options_of(self.taken)

    @property
    def taken(self) -> Any:
        return getattr(self._module, str(self.shown))

    @property
    def kind(self) -> str:
        return self._kind

    @property
    def value(self) -> Any:
        found: Any = self._module
        for step in self._path.split("."):
            found = getattr(found, step)
        return found

    def attempts(self, receivers: Iterable[object]) -> Iterator[Callable[..., Any]]:
        """Return the function as it is called: of each receiver, where it is a method."""
        owner, _, name = self._path.rpartition(".")
        if not owner:
            yield self.value
            return
        kind = getattr(self._module, owner)
        found = [getattr(each, name) for each in receivers if isinstance(each, kind)]
        assert found, f"no receiver for {self.name}"
        yield from found


def functions_in(text: str) -> Iterator[tuple[str, str, str | None]]:
    """Return what takes options in a file: its path in the module, its options, those shown."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                if (found := _options_of(each)) is not None:
                    name, kind, shown = found
                    if name == "__init__":
                        yield node.name, kind, _shown_by(node)
                    else:
                        yield f"{node.name}.{name}", kind, shown
        elif (found := _options_of(node)) is not None:
            yield found


def _options_of(node: ast.stmt) -> tuple[str, str, str | None] | None:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.args.kwarg is None:
        return None
    if any(ast.unparse(each) == "overload" for each in node.decorator_list):
        return None
    annotation = node.args.kwarg.annotation
    if not isinstance(annotation, ast.Subscript) or ast.unparse(annotation.value) != "Unpack":
        return None
    kind = ast.unparse(annotation.slice).partition("[")[0]
    return None if kind in NO_OPTIONS else (node.name, kind, _shown_by(node))


def _shown_by(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str | None:
    for each in node.decorator_list:
        if isinstance(each, ast.Call) and ast.unparse(each.func) == "takes":
            return ast.unparse(each.args[0])
    return None


def _module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


FUNCTIONS = [
    TakesOptions(_module_of(path), *found)
    for path in modules_under(PACKAGE)
    for found in functions_in(path.read_text(encoding="utf-8"))
]
KEYWORDS = {name: taken for classes in FILES.values() for name, taken in classes.items()}
EACH = pytest.mark.parametrize("taker", FUNCTIONS, ids=lambda taker: taker.name)


def test_the_functions_that_take_options_are_found() -> None:
    names = {taker.name for taker in FUNCTIONS}
    assert {
        "haptera.agent.agent.Agent",
        "haptera.agent.agent.Agent.as_tool",
        "haptera.agent.verbs.SessionVerbs.send",
        "haptera.agent.sessions.AgentSessions.create",
        "haptera.agent.sessions.AgentSessions.list",
        "haptera.kernel.blocks.hook_dispatch.registration.Hooks",
        "haptera.kernel.blocks.tool_registry.tool.tool",
        "haptera.building_blocks.make_blocks",
        "haptera.sync.agent.run_agent",
        "haptera.sync.sessions.AgentSessions.list",
        "haptera.tools.coding.coding_tools",
        "haptera.tools.mcp.server.McpServer",
    } <= names
    new = "class Pot:\n    def paint(self, **options: Unpack[PaintOptions[T]]) -> None: ...\n"
    assert list(functions_in(new)) == [("Pot.paint", "PaintOptions", None)]


@EACH
def test_a_function_shows_the_options_that_it_is_typed_with(taker: TakesOptions) -> None:
    assert KEYWORDS[taker.kind] is taker.taken


@EACH
def test_a_signature_has_each_option_with_its_type_and_default(taker: TakesOptions) -> None:
    parameters = inspect.signature(taker.value).parameters
    assert not any(item.kind is item.VAR_KEYWORD for item in parameters.values())
    for option in taker.options.values():
        shown = parameters[option.name]
        assert (shown.annotation, shown.default) == (option.kind, option.default)
        assert option.name == "model" or shown.kind is shown.KEYWORD_ONLY


@EACH
def test_help_has_each_option_with_its_type_default_and_sentence(taker: TakesOptions) -> None:
    text = pydoc.plain(pydoc.render_doc(taker.value))
    for item in taker.options.values():
        line = f"{item.name} ({item.shown_type}): {item.option.sentence} "
        assert f"{line}Default: {item.shown_default}." in text, item.name


@EACH
def test_the_documentation_has_a_row_for_each_option(taker: TakesOptions) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    missing = [
        item.name
        for item in taker.options.values()
        if not re.search(
            rf"\| `{item.name}` \| .* \| {re.escape(item.option.sentence)} \|\n", pages
        )
    ]
    assert missing == []


def _call(function: Callable[..., Any]) -> Any:
    """Call a function with an option that it does not have, and with what it needs besides."""
    parameters = inspect.signature(function).parameters.values()
    needed = [item for item in parameters if item.default is item.empty]
    by_place = ["x" for item in needed if item.kind is not item.KEYWORD_ONLY]
    by_name: dict[str, Any] = {item.name: "x" for item in needed if item.kind is item.KEYWORD_ONLY}
    made = function(*by_place, **by_name, no_such_option=1)
    # `tool(...)` makes a tool of the function that follows.
    return made(lambda: None) if function is haptera.tool else made


def _check(error: UnknownOptionError) -> None:
    assert isinstance(error, haptera.ConfigError)
    assert isinstance(error, TypeError)
    assert error.message.endswith(": no_such_option is unknown")


OPTIONS: dict[str, Any] = {"clock": FakeClock(), "environment": {}}
BLOCKING = [taker for taker in FUNCTIONS if taker.name.startswith("haptera.sync.")]


async def test_an_option_that_a_function_does_not_have_is_refused_in_the_same_way() -> None:
    agent = Agent("scripted/one", providers=[ScriptedProvider()], **OPTIONS)
    async with agent, agent.session("one") as session:
        blocks = make_blocks(ScriptedProvider())
        receivers = [agent, session, await agent.remote("one"), agent.sessions, blocks]
        for taker in FUNCTIONS:
            for function in taker.attempts(receivers) if taker not in BLOCKING else ():
                with pytest.raises(UnknownOptionError) as caught:
                    made = _call(function)
                    made = await made if inspect.isawaitable(made) else made
                    if isinstance(made, Err):
                        raise made.error
                _check(caught.value)


def test_so_is_one_that_a_blocking_function_does_not_have() -> None:
    agent = haptera.sync.Agent("scripted/one", providers=[ScriptedProvider()], **OPTIONS)
    with agent, agent.session("one") as session:
        receivers = [agent, session, agent.remote("one"), agent.sessions]
        for taker in BLOCKING:
            for function in taker.attempts(receivers):
                with pytest.raises(UnknownOptionError) as caught:
                    made = _call(function)
                    if isinstance(made, Err):
                        raise made.error
                _check(caught.value)


@EACH
def test_an_option_that_is_a_field_is_declared_by_the_field(taker: TakesOptions) -> None:
    for name, declared in taker.options.items():
        said = declared.option
        if said.of is not None:
            field = declared_fields(said.of)[said.field]
            bounds = (field.option.least, field.option.most)
            assert (said.sentence, said.least, said.most) == (field.option.sentence, *bounds), name
            assert said.shown or declared.default == field.default, name


def test_the_rules_of_a_tool_have_the_types_of_their_fields() -> None:
    for name, declared in options_of(ToolOptions).items():
        said = declared.option
        assert said.of is not None
        field = declared_fields(said.of)[said.field].kind
        assert declared.kind == (field | None if said.shown else as_given(field)), name
