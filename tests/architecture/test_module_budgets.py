"""No module or function outgrows its room, and every file says first what it is for."""

import ast
from pathlib import Path

import pytest

from tests.architecture.source_tree import PACKAGE, ROOT, modules_under, name_of

MODULE_LINES, FUNCTION_LINES = 400, 60
FEWEST_WORDS = 3

SOURCE = modules_under(PACKAGE)
BESIDES = modules_under(*(ROOT / name for name in ("tests", "examples", "benchmarks", "scripts")))


def functions_longer_than(limit: int, text: str) -> list[str]:
    """Return the functions that have more lines than the limit, each with its length."""
    lengths = [
        (node.name, node.end_lineno - node.lineno + 1)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    ]
    return [f"{name} has {length} lines" for name, length in lengths if length > limit]


@pytest.mark.parametrize("path", SOURCE, ids=name_of)
def test_a_module_keeps_its_budgets(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert functions_longer_than(FUNCTION_LINES, text) == []
    assert text.count("\n") <= MODULE_LINES, "split by the sentence that needs an 'and'"


@pytest.mark.parametrize("path", SOURCE + BESIDES, ids=name_of)
def test_the_first_line_of_a_file_says_what_it_is_for(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith('"""'), "the first line is not a docstring"
    summary = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    assert len(summary.split()) >= FEWEST_WORDS, "too short to say anything"


def test_the_budget_test_notices_a_long_function() -> None:
    long = "def sprawl():\n" + "    pass\n" * FUNCTION_LINES
    assert functions_longer_than(FUNCTION_LINES, long) == ["sprawl has 61 lines"]
