"""Writes the blocking faces (`haptera.sync`) from the async ones; `--check` only compares them.

A method of a blocking face is its async twin, waited for: same name, parameters and docstring. What
it returns says how: a face is put into its blocking face, an async generator becomes an iterator.
By hand are `sync/query_stream.py` (streams by batches) and `sync/background_loop.py`.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, TypeAlias, cast

import haptera
from haptera.agent import agent, remote, session, sessions
from scripts.python_source import formatted, places_of, tree_of

FOLDER = Path(__file__).parents[1] / "src" / "haptera" / "sync"
# The faces that methods return, and their modules here.
FACES = {"AgentSession": "session", "AgentRemote": "remote", "AgentSessions": "sessions"}
FACES |= {"QueryStream": "query_stream"}
LEFT_OUT = {
    "AgentSession": {"attach"},  # a buffer belongs to one event loop
    "AgentSessions": {"announce", "folded", "record", "unowned"},  # for surfaces, which await
}
ENTERING = """\
def __enter__(self) -> Self:
    self._access.call(self._inner.__aenter__())
    return self

def __exit__(self, *exc: object) -> None:
    self.close()
"""
_ACCESS = "self._access"
MADE_BY = "Made by scripts/write_sync_faces.py, never edited by hand."
Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


CALLS = ("run_agent", "run_agent_result", "run_agent_stream", "create_agent_session")
MODELS = ("pull_model", "list_local_models", "remove_local_model")
MODULES: dict[str, tuple[type, tuple[str, ...]]] = {
    "session": (session.AgentSession, ()),
    "remote": (remote.AgentRemote, ()),
    "sessions": (sessions.AgentSessions, ()),
    "agent": (agent.Agent, (*CALLS, *MODELS)),
}
"""What is written: of each module its name, its face, and its functions."""


class Writer:
    """Writes one module. Owns what it has to import."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._imports = {"from haptera.sync.background_loop import LoopAccess"}

    def text(self) -> str:
        """Return the text of the module, before it is formatted."""
        face, functions = MODULES[self._name]
        body = [self._face(face)]
        body += [self._function(getattr(haptera, name)) for name in functions]
        head = f'"""{face.__name__}, blocking: generated from its async twin, and waits for it.'
        return "\n\n".join([f'{head}\n\n{MADE_BY}\n"""', *sorted(self._imports), *body]) + "\n"

    def _face(self, face: type) -> str:
        name, methods = face.__name__, dict(_methods_of(face))
        body = tree_of(face.__module__).body
        node: Any = next(each for each in body if getattr(each, "name", None) == name)
        self._imports.add(f"from {face.__module__} import {name} as Async{name}")
        lines = [f"@{self._known(each, face.__module__)}" for each in node.decorator_list]
        lines += [f"class {name}:", f'    """The blocking face of `haptera.{name}`."""\n']
        made = [self._init(methods.pop("__init__")[0], face)]
        if methods.pop("__aenter__", None) is not None:
            self._imports.add("from typing import Self")
            made.append(ENTERING)
        for method, (twin, module) in methods.items():
            is_property = any(ast.unparse(each) == "property" for each in twin.decorator_list)
            call = f"self._inner.{method}" + ("" if is_property else f"({_passed_on(twin.args)})")
            made.append(self._written(twin, module, call))
        return "\n".join([*lines, *(textwrap.indent(each, "    ") for each in made)])

    def _init(self, twin: Definition, face: type) -> str:
        given, made = f"inner: Async{face.__name__}, access: LoopAccess", "inner, access"
        if face is agent.Agent:  # the one that a program makes itself
            given = self._known(twin.args, face.__module__).removeprefix("self, ")
            made = f"Async{face.__name__}({_passed_on(twin.args)}), LoopAccess()"
        return f"def __init__(self, {given}) -> None:\n    self._inner, self._access = {made}\n"

    def _function(self, function: FunctionType) -> str:
        node, module, twin = _parsed(function), function.__module__, f"async_{function.__name__}"
        self._imports.add(f"from {module} import {node.name} as {twin}")
        twin += f"({_passed_on(node.args)})"
        return self._written(node, module, twin, access="LoopAccess()")

    def _written(self, node: Definition, module: str, call: str, *, access: str = _ACCESS) -> str:
        """Return a function that has the head of its twin and waits for it."""
        returned, steps = self._known(node.returns, module).strip("'"), []
        bare, _, rest = returned.partition(" | ")
        face = bare.partition("[")[0]
        if face in FACES and access == "LoopAccess()":
            steps, access = [f"access = {access}"], "access"
        if returned.startswith("AsyncGenerator["):
            returned = returned.replace("AsyncGenerator", "Iterator").removesuffix(", None]") + "]"
            self._imports.add("from collections.abc import Iterator")
            call = f"{access}.iterate({call})"
        elif node.name == "close":
            call = f"{access}.close({call[:-2] if call.endswith('()') else f'lambda: {call}'})"
        elif isinstance(node, ast.AsyncFunctionDef):
            call = f"{access}.call({call})"
        if face in FACES:
            if FACES[face] != self._name:
                self._imports.add(f"from haptera.sync.{FACES[face]} import {face}")
            steps += [f"inner = {call}"] if rest else []
            call = f"{face}({'inner' if rest else call}, {access})"
            call = f"None if inner is None else {call}" if rest else call
            returned = f'"{returned}"' if FACES[face] == self._name else returned
        last = [call, "return self"] if returned == "Self" else [f"return {call}"]
        told = f'"""{inspect.cleandoc(ast.get_docstring(node) or "")}\n"""'
        body = "\n".join([told, *steps, *([call] if returned == "None" else last)])
        heads = [f"@{self._known(each, module)}" for each in node.decorator_list]
        heads.append(f"def {node.name}({self._known(node.args, module)}) -> {returned}:")
        return "\n".join([*heads, textwrap.indent(body, "    ")]) + "\n"

    def _known(self, node: ast.AST | None, module: str) -> str:
        """Return the text of a piece of a head, whose names this module then has."""
        text = "" if node is None else re.sub(r"\bSessionT\b", "AgentSession", ast.unparse(node))
        for name in re.findall(r"[A-Za-z_]\w*", text):
            place = places_of(module).get(name)
            if name not in FACES and place is not None:
                self._imports.add(f"from {place} import {name}")
        return text


def _parsed(function: FunctionType) -> Definition:
    return cast("Definition", ast.parse(textwrap.dedent(inspect.getsource(function))).body[0])


def _methods_of(face: type) -> Iterator[tuple[str, tuple[Definition, str]]]:
    """Return the methods of a class and of those that it extends, with the module of each."""
    for name in dict.fromkeys(name for kind in face.__mro__[-2::-1] for name in vars(kind)):
        value = inspect.getattr_static(face, name)
        function = value.fget if isinstance(value, property) else value
        is_meant = not name.startswith("_") or name in {"__init__", "__aenter__"}
        is_left_out = name in LEFT_OUT.get(face.__name__, ())
        if isinstance(function, FunctionType) and is_meant and not is_left_out:
            yield name, (_parsed(function), function.__module__)


def _passed_on(given: ast.arguments) -> str:
    """Return the arguments of a call that hands on what a function was given."""
    found = [each.arg for each in (*given.posonlyargs, *given.args) if each.arg != "self"]
    found += [f"*{given.vararg.arg}"] if given.vararg else []
    found += [f"{each.arg}={each.arg}" for each in given.kwonlyargs]
    return ", ".join([*found, *([f"**{given.kwarg.arg}"] if given.kwarg else [])])


def main() -> None:
    """Write the modules, or say which are not what would be written."""
    paths = {FOLDER / f"{name}.py": name for name in MODULES}
    found = {path: formatted(Writer(name).text(), path) for path, name in paths.items()}
    if "--check" in sys.argv[1:]:
        wrong = [path.name for path, text in found.items() if path.read_text("utf-8") != text]
        sys.exit(f"run `make sync`: it would write {', '.join(wrong)} anew" if wrong else 0)
    for path, text in found.items():
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
