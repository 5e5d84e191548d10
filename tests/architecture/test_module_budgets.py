"""No module or function outgrows its budget, none is cut smaller than it is read, all say why."""

import ast
from collections import defaultdict
from collections.abc import Mapping
from functools import cache

import pytest

from tests.architecture.source_tree import PACKAGE, ROOT, modules_under, name_of

MODULE_LINES, FUNCTION_LINES = 400, 60
FEWEST_WORDS = 3
SMALL = 80
EXCUSE = "A module of its own because"
"""Begins the sentence in the docstring of a small module with one importer that says why."""

SOURCE = modules_under(PACKAGE)
BESIDES = modules_under(*(ROOT / name for name in ("tests", "examples", "benchmarks", "scripts")))


parsed = cache(ast.parse)


def functions_longer_than(limit: int, text: str) -> list[str]:
    """Return the functions that have more lines than the limit, each with its length."""
    lengths = [
        (node.name, node.end_lineno - node.lineno + 1)
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    ]
    return [f"{name} has {length} lines" for name, length in lengths if length > limit]


def says_what_it_is_for(text: str) -> bool:
    """Whether a file begins with a docstring whose first line is a sentence."""
    summary = text.removeprefix('"""').partition("\n")[0].strip().removesuffix('"""')
    return text.startswith('"""') and len(summary.split()) >= FEWEST_WORDS


def modules_imported_by(text: str) -> set[str]:
    """Return the dotted names that a file imports, of modules and of what is in them."""
    found: set[str] = set()
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def cut_too_small(texts: Mapping[str, str]) -> list[str]:
    """Return the modules, by dotted name, that belong into their only importer."""
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for name, text in texts.items():
        for imported in modules_imported_by(text):
            importers[imported].add(name)
    return [
        name
        for name, text in texts.items()
        if text.count("\n") < SMALL
        and len(importers[name]) == 1
        and not name.startswith("holdfast.ports.")
        and EXCUSE not in " ".join((ast.get_docstring(ast.parse(text)) or "").split())
    ]


@pytest.mark.slow
def test_no_module_and_no_function_is_longer_than_its_budget() -> None:
    texts = {name_of(path): path.read_text(encoding="utf-8") for path in SOURCE}
    long = {name: functions_longer_than(FUNCTION_LINES, text) for name, text in texts.items()}
    assert {name: found for name, found in long.items() if found} == {}
    assert [name for name, text in texts.items() if text.count("\n") > MODULE_LINES] == []


def test_the_first_line_of_every_file_says_what_it_is_for() -> None:
    silent = [
        name_of(path)
        for path in SOURCE + BESIDES
        if not says_what_it_is_for(path.read_text(encoding="utf-8"))
    ]
    assert silent == []


@pytest.mark.slow
def test_no_small_module_has_a_single_importer() -> None:
    texts = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path.read_text("utf-8")
        for path in SOURCE
        if path.stem != "__init__"
    }
    assert cut_too_small(texts) == []


def test_the_budget_tests_notice_what_breaks_a_budget() -> None:
    long = "def sprawl():\n" + "    pass\n" * FUNCTION_LINES
    assert functions_longer_than(FUNCTION_LINES, long) == ["sprawl has 61 lines"]
    assert not says_what_it_is_for('"""Too short."""\n')
    assert not says_what_it_is_for("import os\n")
    texts = {
        "holdfast.whole": '"""A whole."""\n\nfrom holdfast import splinter, excused\n',
        "holdfast.splinter": '"""A splinter."""\n',
        "holdfast.excused": f'"""A table.\n\n{EXCUSE} it is data.\n"""\n',
    }
    assert cut_too_small(texts) == ["holdfast.splinter"]
