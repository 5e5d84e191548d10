"""The shape of the code: how much there is, how far a call goes, how often the same is said.

`python -m benchmarks shape` prints it for the tree that this file stands in. Nothing is timed. The
package is the folder in `src`; its rooms are the folders in it.

- Code lines have no blank lines, comments and docstrings. A file whose first line says that it is
  generated counts as generated lines and nowhere else; so do the lines of code between the comments
  `Made by scripts/…` and `End.`. Docstrings include those of fields and constants. The length of a
  line is that of its text without indentation.
- Functions, files, calls and changes of room: `CallTrace`, without comprehensions; `ways.py`.
- A Protocol has an implementation in each class outside `testing` that has all its methods and
  attributes, inherited ones included, by name, and methods that take the same parameters; or that
  names it as its base. Protocols of which only `__call__` is promised are types of functions: they
  are counted as Protocols only.
- A bag is a class of the inner rooms (`INNER_ROOMS`) without methods and with more than 12 fields
  of its own. What is stored (it has a tag, or bytes are decoded as it), rows of a table (a module
  holds several values of it) and public values are no bags.
- A wide class is one of these rooms with methods and more than 16 attributes: its fields, and what
  it sets on `self`. The same three are none.
- A public value is frozen and in the `__all__` of a module from which the documentation imports.
- A lone base is a class with a single subclass, of which no values are made (a TypedDict: that
  nothing but its subclass names). Protocols and public names are none.
- Locals by name are the places that give a value to one of `VAGUE_NAMES`.
"""

import ast
import re
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.call_trace import CallTrace
from benchmarks.source_facts import Class, Function, Module, Source, of_kind

ROOT = Path(__file__).resolve().parent.parent
INNER_ROOMS = {
    *("kernel", "agent", "access"),
}
VAGUE_NAMES = ("told", "found", "given", "known", "said", "kept", "made")
BAG_FIELDS, ATTRIBUTES = 12, 16
"""A class with more is a bag, or a wide class."""
_TEST = re.compile(r"^\s*(?:async )?def test_", re.MULTILINE)


def package_of(root: Path = ROOT) -> Path:
    """Return the folder of the package of a tree."""
    (package,) = (each.parent for each in (root / "src").glob("*/__init__.py"))
    return package


@dataclass(frozen=True)
class Protocols:
    """The Protocols of the package."""

    all: list[Class]
    implementations: Mapping[Class, list[Class]]
    """In production, of each that is no type of functions."""

    @property
    def single(self) -> dict[Class, Class]:
        """Those with exactly one production implementation, with it."""
        return {one: by[0] for one, by in self.implementations.items() if len(by) == 1}


class Shape:
    """The shape of one tree, without its calls."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.source = Source(package_of(root))
        self.public = _public_classes(self.source, root)

    @property
    def written(self) -> list[Module]:
        """The modules that are written by hand."""
        return [module for module in self.source.modules if not module.is_generated]

    @property
    def test_functions(self) -> int:
        """How many tests there are, those with parameters counted once."""
        texts = (path.read_text(encoding="utf-8") for path in (self.root / "tests").rglob("*.py"))
        return sum(len(_TEST.findall(text)) for text in texts)

    @cached_property
    def protocols(self) -> Protocols:
        """The Protocols, and the classes in production that keep them."""
        source = self.source
        found = [one for one in source.written if one.is_protocol]
        members = {
            one: source.members_of(one)
            for one in source.classes
            if not one.is_protocol and one.module.room != "testing"
        }
        implementations: dict[Class, list[Class]] = {}
        for one in found:
            wanted = source.members_of(one)
            if wanted.keys() <= {"__call__"}:
                continue
            implementations[one] = [
                other
                for other, has in members.items()
                if one in source.family_of(other)
                or all(name in has and has[name].fits(need) for name, need in wanted.items())
            ]
        return Protocols(found, implementations)

    def bags(self) -> list[Class]:
        """Return the classes that only carry many fields."""
        return [one for one in self._carriers() if not one.methods and len(one.fields) > BAG_FIELDS]

    def wide_classes(self) -> list[Class]:
        """Return the classes with methods that have many attributes."""
        return [one for one in self._carriers() if one.methods and len(one.attributes) > ATTRIBUTES]

    def lone_bases(self) -> dict[Class, Class]:
        """Return the classes that are there for a single subclass, with it."""
        subclasses: dict[Class, list[Class]] = {}
        for one in self.source.written:
            for base in self.source.bases_of(one):
                subclasses.setdefault(base, []).append(one)
        made = self.source.uses.made | self.public
        return {
            base: below[0]
            for base, below in subclasses.items()
            if len(below) == 1 and base not in made and not base.is_protocol
        }

    def definitions_with(self, word: str) -> list[str]:
        """Return the functions, methods and classes with a word in their names."""
        return [
            f"{module.path}:{node.lineno}:{node.name}"
            for module in self.written
            for node in module.nodes
            if isinstance(node, Function | ast.ClassDef) and word in node.name.lower()
        ]

    def vague_locals(self) -> dict[str, list[str]]:
        """Return the places that give a value to a local with a name that says little."""
        places: dict[str, list[str]] = {name: [] for name in VAGUE_NAMES}
        for module in self.written:
            for node in of_kind(ast.Name, module.nodes):
                if node.id in places and isinstance(node.ctx, ast.Store):
                    places[node.id].append(f"{module.path}:{node.lineno}")
        return places

    def _carriers(self) -> list[Class]:
        """Return the classes of the inner rooms that are no values of the log, tables or users."""
        source = self.source
        return [
            one
            for one in source.written
            if one.module.room in INNER_ROOMS
            and not source.is_stored(one)
            and one not in source.uses.rows
            and not (one in self.public and (source.is_frozen(one) or source.is_typed_dict(one)))
        ]


def _public_classes(source: Source, root: Path) -> set[Class]:
    """Return the classes in the `__all__` of modules from which the documentation imports."""
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    name = re.escape(source.package.name)
    imported = re.compile(rf"(?:\bfrom|\bimport|:::) ({name}(?:\.[a-z_]+)*)")
    texts = (page.read_text(encoding="utf-8") for page in pages)
    shown = {module for text in texts for module in imported.findall(text)}
    modules = (source.by_name[each] for each in shown if each in source.by_name)
    found = (source.find(module, one) for module in modules for one in module.exported)
    return {one for one in found if one is not None}


def shape_table(shape: Shape, ways: Mapping[str, CallTrace]) -> str:
    """Return the shape of a tree as tables, and below them the names of what is counted."""
    lines = ["| what | count |", "|---|---|"]
    lines += [f"| {what} | {count} |" for what, count in _counts(shape)]
    lines += ["", *_ways_table(ways)]
    for title, names in _lists(shape):
        lines += ["", f"{title}:", *(f"- {name}" for name in names)]
    return "\n".join(lines)


def _counts(shape: Shape) -> Iterable[tuple[str, str]]:
    modules, protocols = shape.written, shape.protocols
    code = [line for module in modules for line in module.code_lines]
    lengths = [module.text.count("\n") for module in modules]
    documented = sum(len(module.docstring_lines) for module in modules)
    generated = [
        line
        for module in shape.source.modules
        for line in (module.code_lines if module.is_generated else module.made_lines)
    ]
    vague = shape.vague_locals()
    public = sum(one in shape.public for one in protocols.single)
    yield "code lines of src", f"{len(code):,}"
    yield "generated code lines", f"{len(generated):,}"
    yield "share of docstring lines", f"{documented / sum(lengths):.1%}"
    yield "mean length of a code line", f"{statistics.mean(map(len, code)):.1f}"
    yield "modules", f"{len(modules)}"
    yield "lines of the median module", f"{statistics.median(lengths):g}"
    yield "test functions", f"{shape.test_functions:,}"
    yield "Protocols", f"{len(protocols.all)}"
    yield (
        "Protocols with one production implementation (public ones among them)",
        f"{len(protocols.single)} ({public})",
    )
    yield "bags", f"{len(shape.bags())}"
    yield "wide classes", f"{len(shape.wide_classes())}"
    yield "lone bases", f"{len(shape.lone_bases())}"
    yield "definitions that mention rewind", f"{len(shape.definitions_with('rewind'))}"
    yield "locals by name", ", ".join(f"`{name}` {len(places)}" for name, places in vague.items())


def _ways_table(ways: Mapping[str, CallTrace]) -> Iterable[str]:
    yield "| way | functions | files | calls | changes of room |"
    yield "|---|---|---|---|---|"
    for name, trace in ways.items():
        counts = (len(trace.named), len(trace.files), trace.named.total(), trace.changes_of_room)
        yield f"| {name} | {' | '.join(f'{count:,}' for count in counts)} |"


def _lists(shape: Shape) -> Iterable[tuple[str, Iterable[str]]]:
    single = shape.protocols.single.items()
    yield "Protocols with one production implementation", [f"{one} ← {by}" for one, by in single]
    yield "Bags", [f"{one}, {len(one.fields)} fields" for one in shape.bags()]
    yield (
        "Wide classes",
        [f"{one}, {len(one.attributes)} attributes" for one in shape.wide_classes()],
    )
    yield "Lone bases", [f"{one} ← {by}" for one, by in shape.lone_bases().items()]
    yield "Definitions that mention rewind", shape.definitions_with("rewind")
