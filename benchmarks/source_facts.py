"""What stands in the source of a package: its modules, lines, classes and public names."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import UnionType
from typing import TypeVar

NodeT = TypeVar("NodeT", bound=ast.AST)
Function = ast.FunctionDef | ast.AsyncFunctionDef

_BEGIN, _END = "# Made by scripts/", "# End."
"""Between such comments a script writes into a module (`scripts/write_verbs.py`)."""
_READS = {"convert", "Decoder", "decode"}
"""Functions that make a value of stored bytes, and get its class."""


class Module:
    """One file of the package."""

    def __init__(self, package: Path, path: Path) -> None:
        self.path = path.relative_to(package).as_posix()
        self.room = self.path.partition("/")[0]
        self.name = ".".join((package.name, *path.relative_to(package).with_suffix("").parts))
        self.name = self.name.removesuffix(".__init__")
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)

    @cached_property
    def is_generated(self) -> bool:
        """Whether the first line says that a script wrote it."""
        return bool(re.search(r"\bgenerated\b", self.text.partition("\n")[0], re.IGNORECASE))

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All that is in it."""
        return list(ast.walk(self.tree))

    @cached_property
    def nodes_of_tables(self) -> list[ast.AST]:
        """What is computed when it is loaded, outside of functions and classes."""
        tables = (each for each in self.tree.body if isinstance(each, ast.Assign | ast.AnnAssign))
        return [node for each in tables for node in ast.walk(each)]

    @cached_property
    def docstring_lines(self) -> set[int]:
        """The numbers of lines of docstrings, those of fields and constants included."""
        numbers: set[int] = set()
        for node in self.nodes:
            match node:
                case ast.Expr(value=ast.Constant(value=str())):
                    numbers |= set(range(node.lineno, (node.end_lineno or 0) + 1))
        return numbers

    @property
    def code_lines(self) -> list[str]:
        """Its lines of code, without blank lines, docstrings and lines that begin as comments."""
        return [code for code, is_made in self._code if self.is_generated or not is_made]

    @property
    def made_lines(self) -> list[str]:
        """The lines of code that a script writes into it, where the others are by hand."""
        return [code for code, is_made in self._code if is_made and not self.is_generated]

    @cached_property
    def _code(self) -> list[tuple[str, bool]]:
        """Its lines of code, and whether each stands where a script writes."""
        code, is_made = list[tuple[str, bool]](), False
        for number, line in enumerate(map(str.strip, self.text.splitlines()), start=1):
            if line.startswith("#"):
                is_made = line.startswith(_BEGIN) or (is_made and line != _END)
            elif line and number not in self.docstring_lines:
                code.append((line, is_made))
        return code

    @cached_property
    def exported(self) -> list[str]:
        """The names in its `__all__`."""
        for node in self.tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=names)):
                    return [str(ast.literal_eval(name)) for name in names]
        return []


@dataclass(frozen=True, eq=False)
class Member:
    """A method or attribute of a class."""

    function: Function | None = None

    def fits(self, wanted: "Member") -> bool:
        """Whether it can be used as the other one: a method takes its parameters, needs no more."""
        if self.function is None or wanted.function is None:
            return self.function is wanted.function
        own, other = self.function.args, wanted.function.args
        names = {one.arg for one in (*own.posonlyargs, *own.args, *own.kwonlyargs)}
        optional = (*own.kw_defaults, *own.defaults)
        needed = len(names) - sum(one is not None for one in optional)
        asked = [one.arg for one in (*other.args, *other.kwonlyargs)]
        given = len(asked) + len(other.posonlyargs)
        has_rest = own.kwarg is not None or other.kwarg is None
        return has_rest and names.issuperset(asked) and needed <= given <= len(names)


class Class:
    """A class, with what stands in its own body."""

    def __init__(self, module: Module, node: ast.ClassDef) -> None:
        self.module = module
        self.node = node
        self.name = node.name
        self.bases = [_last_name(base) for base in node.bases]
        self.methods = {each.name: each for each in node.body if isinstance(each, Function)}
        self.fields = [
            each.target.id
            for each in node.body
            if isinstance(each, ast.AnnAssign)
            and isinstance(each.target, ast.Name)
            and "ClassVar" not in ast.unparse(each.annotation)
        ]

    def __str__(self) -> str:
        """Return where it stands."""
        return f"{self.module.path}:{self.name}"

    @property
    def constants(self) -> set[str]:
        """What its body sets without an annotation."""
        plain = of_kind(ast.Assign, self.node.body)
        return {one.id for each in plain for one in of_kind(ast.Name, each.targets)}

    @cached_property
    def attributes(self) -> set[str]:
        """Its fields, and what its methods set on `self`."""
        set_on_self = (
            node.attr
            for node in of_kind(ast.Attribute, ast.walk(self.node))
            if isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
        )
        return {*self.fields, *set_on_self}

    @property
    def says_frozen(self) -> bool:
        """Whether its own declaration says that its fields are set once."""
        heads = [*self.node.keywords, *self.node.decorator_list]
        return any("frozen=True" in ast.unparse(each) for each in heads)

    @property
    def is_protocol(self) -> bool:
        """Whether it only promises what others do."""
        return "Protocol" in self.bases

    @property
    def is_tagged(self) -> bool:
        """Whether its values carry their kind, as everything in a log does."""
        return any(each.arg == "tag" for each in self.node.keywords)


class Source:
    """The source of one package."""

    def __init__(self, package: Path) -> None:
        self.package = package
        self.modules = [Module(package, path) for path in sorted(package.rglob("*.py"))]
        self.by_name = {module.name: module for module in self.modules}
        self.classes = [
            Class(module, node)
            for module in self.modules
            for node in of_kind(ast.ClassDef, module.nodes)
        ]
        self.written = [one for one in self.classes if not one.module.is_generated]
        self._places = {(each.module.name, each.name): each for each in self.classes}

    @cached_property
    def uses(self) -> "Uses":
        """For what the names of classes are used."""
        return Uses(self)

    def find(self, module: Module, name: str, *, hops: int = 4) -> Class | None:
        """Return the class that a name means in a module, through imports."""
        found = self._places.get((module.name, name))
        if found is not None or hops == 0:
            return found
        origin = self._imported[module.name].get(name)
        if origin is None or origin[0] not in self.by_name:
            return None
        return self.find(self.by_name[origin[0]], origin[1], hops=hops - 1)

    @cached_property
    def _imported(self) -> dict[str, dict[str, tuple[str, str]]]:
        return {
            module.name: {
                alias.asname or alias.name: (node.module, alias.name)
                for node in module.nodes
                if isinstance(node, ast.ImportFrom) and node.module is not None
                for alias in node.names
            }
            for module in self.modules
        }

    def bases_of(self, one: Class) -> list[Class]:
        """Return the bases of a class that stand in the package."""
        return [base for name in one.bases if (base := self.find(one.module, name)) is not None]

    def family_of(self, one: Class) -> Iterator[Class]:
        """Yield a class and all that it inherits from."""
        yield one
        for base in self.bases_of(one):
            yield from self.family_of(base)

    def is_typed_dict(self, one: Class) -> bool:
        """Whether a class lists keys of a dictionary: the parameters of a call."""
        return any("TypedDict" in each.bases for each in self.family_of(one))

    def is_frozen(self, one: Class) -> bool:
        """Whether the fields of a class are set once."""
        return any(each.says_frozen for each in self.family_of(one))

    def is_stored(self, one: Class) -> bool:
        """Whether values of a class are in logs or files: with a tag, or decoded from bytes."""
        return one in self.uses.stored or any(each.is_tagged for each in self.family_of(one))

    def members_of(self, one: Class) -> dict[str, Member]:
        """Return the methods and attributes of a class, inherited ones included."""
        members: dict[str, Member] = {}
        for each in self.family_of(one):
            for name, node in each.methods.items():
                is_value = any("property" in ast.unparse(d) for d in node.decorator_list)
                members.setdefault(name, Member(None if is_value else node))
            for name in each.attributes | each.constants:
                members.setdefault(name, Member())
        return members


class Uses:
    """For what classes are used, beside being bases."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.made: set[Class] = set()
        """Those of which values are made; of a TypedDict, which is not called, any use counts."""
        self.stored: set[Class] = set()
        """Those that bytes are decoded as."""
        self._rows: Counter[Class] = Counter()
        self._typed_dicts = {one.name for one in source.classes if source.is_typed_dict(one)}
        for module in source.modules:
            self._read(module)

    @property
    def rows(self) -> set[Class]:
        """Those of which a module holds several values: the rows of its table."""
        return {one for one, count in self._rows.items() if count > 1}

    def _read(self, module: Module) -> None:
        typed = self._typed_dicts
        bases = {id(base) for node in of_kind(ast.ClassDef, module.nodes) for base in node.bases}
        named = [node for node in of_kind(ast.Name, module.nodes) if id(node) not in bases]
        self.made |= self._classes(module, (node for node in named if node.id in typed))
        values = (value for node in of_kind(ast.Dict, module.nodes) for value in node.values)
        self.made |= self._classes(module, values)
        for node in of_kind(ast.Call, module.nodes):
            self.made |= self._classes(module, [node.func])
            if _last_name(node.func) in _READS:
                inside = (n for each in (*node.args, *node.keywords) for n in ast.walk(each))
                self.stored |= self._classes(module, of_kind(ast.Name, inside))
        for node in of_kind(ast.Call, module.nodes_of_tables):
            self._rows.update(self._classes(module, [node.func]))

    def _classes(self, module: Module, nodes: Iterable[ast.expr]) -> set[Class]:
        """Return the classes that expressions name, or a method of which they call."""
        found = {self._source.find(module, _last_name(node, is_maker=True)) for node in nodes}
        return {one for one in found if one is not None}


def of_kind(kind: type[NodeT] | UnionType, nodes: Iterable[ast.AST]) -> Iterator[NodeT]:
    """Yield the nodes of a kind."""
    return (node for node in nodes if isinstance(node, kind))


def _last_name(node: ast.expr, *, is_maker: bool = False) -> str:
    """Return `B` of an expression such as `a.B[C]`; of a maker `B.make`, too."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        is_class = isinstance(node.value, ast.Name) and node.value.id.lstrip("_")[:1].isupper()
        return _last_name(node.value) if is_maker and is_class else node.attr
    return node.id if isinstance(node, ast.Name) else ""
