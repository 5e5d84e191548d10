"""Writes the methods of faces from the structs of operations; `--check` only compares them.

They stand between two lines of a class (`# Made by scripts/write_verbs.py.` and `# End.`). Each
makes its struct and hands it to its handler, which it names.
"""

import ast
import inspect
import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast, get_args

import msgspec

from haptera.access import changing, finding, maintenance, sharing
from haptera.kernel.session import command_effects, conversation_effects
from haptera.model.operations import held as held_operations
from haptera.model.operations import session as session_operations
from haptera.model.operations import sessions as sessions_operations
from haptera.model.operations.operation import HANDLERS, Operation, SessionCommand
from haptera.options.operations import given_fields
from scripts.python_source import formatted, places_of, tree_of

FOLDER = Path(__file__).parents[1] / "src" / "haptera" / "agent"
REGION = re.compile(r"( +# Made by scripts/write_verbs\.py\.\n).*?( +# End\.\n)", re.DOTALL)


class Face(NamedTuple):
    """A face whose methods are written: where it is, what it is called, and of what it is made."""

    path: Path
    name: str
    operations: ModuleType
    handlers: tuple[ModuleType, ...]


FACES = (
    Face(FOLDER / "verbs.py", "session", session_operations, (command_effects,)),
    Face(FOLDER / "session.py", "session", held_operations, (conversation_effects,)),
    Face(
        FOLDER / "sessions.py",
        "sessions",
        sessions_operations,
        (finding, changing, maintenance, sharing),
    ),
)


class Writer:
    """Writes the methods of one face. Owns what they import."""

    def __init__(self, face: Face) -> None:
        self._face = face
        body = tree_of(face.operations.__name__).body
        self._nodes = {each.name: each for each in body if isinstance(each, ast.ClassDef)}
        self._imports: set[str] = set()

    def text(self) -> str:
        """Return the text of the module of the face, as the formatter leaves it."""
        kinds = [getattr(self._face.operations, name) for name in self._nodes]
        wanted = [kind for kind in kinds if hasattr(kind, "facts") and not kind.facts.by_hand]
        body = textwrap.indent("\n".join(map(self._method, wanted)), "    ")
        text = self._face.path.read_text("utf-8")
        text = REGION.sub(lambda found: f"{found[1]}\n{body}\n{found[2]}", text)
        first = text.index("\nfrom ")
        # What is imported already is merged with it.
        text = text[:first] + "".join(sorted(self._imports)) + text[first:]
        return formatted(text, self._face.path)

    def _method(self, kind: type[Operation]) -> str:
        facts, handler = kind.facts, HANDLERS[kind]
        module = next(each for each in self._face.handlers if each.__name__ == handler.__module__)
        returned = _returned_by(module, handler.__name__)
        self._import(module, returned)
        self._import(self._face.operations, kind.__name__)
        values = [f"{name}={_value(name, each.kind)}" for name, each in given_fields(kind).items()]
        if issubclass(kind, SessionCommand):
            values.insert(0, "id=new_command_id()")
        called = f"{module.__name__.rpartition('.')[2]}.{handler.__name__}"
        lines = [
            f"async def {facts.face}(self, {self._parameters(kind)}) -> {returned}:",
            textwrap.indent(f'"""{_docstring(kind)}"""', "    "),
            f"    order = {kind.__name__}({', '.join(values)})",
            f'    check_order(order, function="{self._face.name}.{facts.face}()")',
            f"    {'' if returned == 'None' else 'return '}await self._carry_out({called}, order)",
        ]
        return "\n".join(lines) + "\n"

    def _parameters(self, kind: type[Operation]) -> str:
        given: list[str] = []
        types = self._types(kind)
        for place, (name, declared) in enumerate(given_fields(kind).items()):
            plain = _plain(types[name], declared.kind)
            ids = " ".join(each.__name__ for each in _ids_in(declared.kind))
            self._import(self._face.operations, f"{plain} {ids}")
            if name == kind.facts.rest:
                given.append(f"*{name}: str")
                continue
            if place == kind.facts.by_place:
                given.append("*")
            default = "" if declared.default is msgspec.UNSET else f" = {declared.default!r}"
            given.append(f"{name}: {plain}{default}")
        return ", ".join(given)

    def _types(self, kind: type[Operation]) -> dict[str, ast.expr]:
        """Return the types of the fields, also of those that are inherited, as written."""
        nodes = [
            self._nodes[each.__name__] for each in kind.__mro__ if each.__name__ in self._nodes
        ]
        found = [each for node in nodes for each in node.body if isinstance(each, ast.AnnAssign)]
        return {ast.unparse(each.target): each.annotation for each in found}

    def _import(self, module: ModuleType, text: str) -> None:
        """Import the types in a text, as a module knows them."""
        for name in re.findall(r"[A-Za-z_]\w*", text):
            if (place := places_of(module.__name__).get(name)) is not None:
                self._imports.add(f"\nfrom {place} import {name}")


def _docstring(kind: type[Operation]) -> str:
    """Return what is said of an operation, with the sentences of its fields."""
    told = inspect.cleandoc(kind.__doc__ or "")
    said = {name: each.option.sentence for name, each in given_fields(kind).items()}
    # The sentence of one parameter alone would only repeat its name.
    is_said = all(said.values()) and len(said) > ("reference" in said)
    rows = [f"    {name}: {sentence}" for name, sentence in said.items() if is_said]
    wrapped = [textwrap.fill(row, 92, subsequent_indent=" " * 8) for row in rows]
    first, raises, last = told.partition("\nRaises:\n")
    arguments = "\nArgs:\n" + "\n".join(wrapped) + "\n" if rows else ""
    return f"{first.rstrip()}\n{arguments}{raises}{last.rstrip()}\n\n" if rows or raises else told


def _plain(annotation: ast.expr, kind: object) -> str:
    """Return the type of a parameter: that of the field, without what is said of it."""
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
        annotation = cast("ast.Tuple", annotation.slice).elts[0]
    text = ast.unparse(annotation)
    for each in _ids_in(kind):  # an id is a text for who gives it
        text = re.sub(rf"\b{each.__name__}\b", each.__supertype__.__name__, text)
    return text


def _value(name: str, kind: object) -> str:
    """Return how a field is made of what a parameter was given."""
    found = _ids_in(kind)
    made = f"{found[0].__name__}({name})" if found else name
    return made if not found or kind is found[0] else f"None if {name} is None else {made}"


def _ids_in(kind: object) -> list[Any]:
    return [each for each in (kind, *get_args(kind)) if hasattr(each, "__supertype__")]


def _returned_by(module: ModuleType, name: str) -> str:
    body = tree_of(module.__name__).body
    node = next(each for each in body if getattr(each, "name", None) == name)
    return ast.unparse(cast("ast.AsyncFunctionDef", node).returns or ast.Constant(None))


def main() -> None:
    """Write the methods, or say which are not what would be written."""
    texts = {face.path: Writer(face).text() for face in FACES}
    if "--check" in sys.argv[1:]:
        wrong = [path.name for path, text in texts.items() if path.read_text("utf-8") != text]
        sys.exit(f"run `make sync`: it would write {', '.join(wrong)} anew" if wrong else 0)
    for path, text in texts.items():
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
