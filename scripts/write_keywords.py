"""Writes the keywords that functions take for type checkers and editors, from the declarations.

A file `keywords.py` has a TypedDict for each function with options, for `**options: Unpack[...]`.
Run it with `make keywords`; `make check` fails when a file is not what it would write.
"""

import ast
import builtins
import copy
import importlib
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from haptera.access.assembly.block_options import BlockChoices, HoldChoices
from haptera.access.descriptions import (
    ExportOptions,
    ListOptions,
    SessionChanges,
)
from haptera.agent.agent_options import AGENT, CONFIGURE, SubAgentOptions
from haptera.agent.query_options import (
    CREATE_SESSION,
    ONE_CALL,
    QUERY,
    RESUME,
    SESSION,
    SINGLE_QUERY,
    AdmissionOptions,
)
from haptera.kernel.blocks.hook_dispatch.registration import HookFunctions
from haptera.kernel.blocks.tool_registry.tool import ToolOptions
from haptera.options.declarations import Keywords, Taken, options_of
from haptera.tools.coding import CodingOptions
from haptera.tools.mcp.server_settings import McpOptions

SOURCE = Path(__file__).parents[1] / "src"
FILES: dict[str, dict[str, Taken]] = {
    "haptera/access/keywords.py": {
        "ListKeywords": ListOptions,
        "SessionChangeKeywords": SessionChanges,
        "ExportKeywords": ExportOptions,
    },
    "haptera/agent/keywords.py": {
        "SettingsKeywords": CONFIGURE,
        "AgentKeywords": AGENT,
        "SessionKeywords": SESSION,
        "CreateSessionKeywords": CREATE_SESSION,
        "ResumeKeywords": RESUME,
        "SingleQueryKeywords": SINGLE_QUERY,
        "QueryKeywords": QUERY,
        "OneCallKeywords": ONE_CALL,
        "AdmissionKeywords": AdmissionOptions,
        "SubAgentKeywords": SubAgentOptions,
    },
    "haptera/access/assembly/keywords.py": {
        "BlockOptions": BlockChoices,
        "HoldOptions": HoldChoices,
    },
    "haptera/kernel/blocks/hook_dispatch/keywords.py": {"HookKeywords": HookFunctions},
    "haptera/kernel/blocks/tool_registry/keywords.py": {"ToolKeywords": ToolOptions},
    "haptera/tools/keywords.py": {"CodingKeywords": CodingOptions},
    "haptera/tools/mcp/keywords.py": {"McpKeywords": McpOptions},
}
HEAD = '''"""Keywords of functions with options, by `scripts/write_keywords.py`: not by hand.

A module of its own because it is data that a script writes.
"""

'''


class Module:
    """The source of a module: what its names are, and where it has them from."""

    def __init__(self, name: str) -> None:
        self.name = name
        found = importlib.import_module(name)
        self.tree = ast.parse(Path(str(found.__file__)).read_text(encoding="utf-8"))
        self.imported: dict[str, str] = {}
        self.values: dict[str, ast.expr] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                self.imported |= {each.asname or each.name: str(node.module) for each in node.names}
            elif isinstance(node, ast.Import):
                self.imported |= {each.asname or each.name: "" for each in node.names}
        for node in self.tree.body:
            if isinstance(node, ast.AnnAssign) and node.value is not None:
                self.values[ast.unparse(node.target)] = node.value

    def field(self, kind: str, name: str) -> ast.expr | None:
        """Return the annotation of a field of a class."""
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef) and node.name == kind:
                for item in node.body:
                    if isinstance(item, ast.AnnAssign) and ast.unparse(item.target) == name:
                        return item.annotation
        return None


@cache
def module(name: str) -> Module:
    """Return a module, read once."""
    return Module(name)


def typed(struct: type, name: str) -> tuple[ast.expr, Module]:
    """Return the type of a field without its declaration, and the module that its names are of."""
    for kind in struct.__mro__:
        place = module(kind.__module__)
        annotation = place.field(kind.__name__, name)
        if annotation is None:
            continue
        if isinstance(annotation, ast.Name):  # an alias with a declaration
            place = module(place.imported.get(annotation.id, place.name))
            annotation = place.values[annotation.id]
        if isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple):
            return annotation.slice.elts[0], place
    raise LookupError(f"{struct.__name__} has no field {name}")


class AsGiven(ast.NodeTransformer):
    """Writes a type as a program gives it: any sequence where a tuple is kept."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Replace `tuple[X, ...]`."""
        self.generic_visit(node)
        if ast.unparse(node.value) == "tuple" and ast.unparse(node.slice).endswith(", ...)"):
            item = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
            return ast.Subscript(ast.Name("Sequence"), item)
        return node


class Written:
    """One TypedDict: its text, and the types of its keys."""

    def __init__(self, text: str, types: dict[str, str], *, is_generic: bool) -> None:
        self.text, self.types, self.is_generic = text, types, is_generic


def source(taken: Taken, name: str) -> tuple[ast.expr, Module]:
    """Return the type of an option, and the module that its names are of."""
    structs = taken.structs if isinstance(taken, Keywords) else (taken,)
    # A later struct may write in its own way what an earlier one declares.
    own = next((kind for kind in reversed(structs) if name in options_of(kind)), None)
    said: Any = options_of(taken)[name].option
    kind, place = typed(*((own, name) if own is not None else (said.of, said.field)))
    return ast.fix_missing_locations(AsGiven().visit(copy.deepcopy(kind))), place


def typed_text(taken: Taken, name: str) -> str:
    """Return the type of an option, as source text."""
    return ast.unparse(source(taken, name)[0])


def imports_of(taken: Taken) -> Iterator[tuple[str, str]]:
    """Yield what the types of options need, as module and name."""
    for option in options_of(taken):
        kind, place = source(taken, option)
        for node in ast.walk(kind):
            if isinstance(node, ast.Name) and not hasattr(builtins, node.id):
                own = place.imported.get(node.id, place.name)
                yield ("collections.abc" if node.id == "Sequence" else own), node.id


def written(name: str, taken: Taken, known: dict[str, "Written"]) -> "Written":
    """Write one TypedDict, over those of `known` whose keywords it has, too."""
    options = options_of(taken)
    bases: list[str] = []
    inherited: set[str] = set()
    for other, found in sorted(known.items(), key=lambda item: -len(item[1].types)):
        is_part = found.types.items() <= {key: typed_text(taken, key) for key in options}.items()
        if is_part and not found.types.keys() <= inherited:
            bases.append(f"{other}[OutputT]" if found.is_generic else other)
            inherited |= found.types.keys()
    lines: list[str] = []
    for key in options:
        if key not in inherited:
            sentence = options[key].option.sentence.replace("\\", "\\\\")
            said = textwrap.wrap(f'"""{sentence}"""', 96, break_on_hyphens=False)
            lines += [f"    {key}: {typed_text(taken, key)}", *(f"    {line}" for line in said)]
    types = {key: typed_text(taken, key) for key in options}
    is_generic = any("OutputT" in text for text in types.values())
    heads = [*(bases or ["TypedDict"]), *(["Generic[OutputT]"] if is_generic else [])]
    about = taken.__doc__ if isinstance(taken, type) else "What the functions take that unpack it."
    head = [f"class {name}({', '.join(heads)}, total=False):", f'    """{about}"""', ""]
    return Written("\n".join([*head, *lines]), types, is_generic=is_generic)


def text_of(classes: Mapping[str, Taken]) -> str:
    """Return the text of one file; ruff takes out what of its imports is not needed."""
    imports: dict[str, set[str]] = {"typing": {"Generic", "TypedDict"}}
    known: dict[str, Written] = {}
    for name, taken in classes.items():
        known[name] = written(name, taken, known)
        for place, needed in imports_of(taken):
            imports.setdefault(place, set()).add(needed)
    plain = sorted(imports.pop("", ()))
    lines = [f"import {each}" for each in plain]
    lines += [f"from {place} import {', '.join(sorted(names))}" for place, names in imports.items()]
    bodies = [each.text for each in known.values()]
    return HEAD + "\n".join(lines) + "\n\n\n" + "\n\n\n".join(bodies) + "\n"


def formatted(text: str) -> str:
    """Return a text as ruff writes it."""
    for command in (("check", "--select=I,UP,F401", "--fix", "--quiet"), ("format",)):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename=src/keywords.py", "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            cwd=SOURCE.parent,
        ).stdout
    return text


def main() -> int:
    """Write the files; with `--check`, only say which are not as they would be written."""
    wrong = []
    for name, classes in FILES.items():
        path, text = SOURCE / name, formatted(text_of(classes))
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            wrong.append(name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    if wrong and "--check" in sys.argv:
        print(f"run `make keywords`: {', '.join(wrong)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
