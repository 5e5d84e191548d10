"""No module or function outgrows its budget, none is cut smaller than it is read, all say why."""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Mapping
from functools import cache

import pytest

from tests.architecture.source_tree import PACKAGE, ROOT, modules_under, name_of

MODULE_LINES, FUNCTION_LINES = 600, 60
FEWEST_WORDS = 3
SMALL = 80
EXCUSE = "A module of its own because"
"""Begins the sentence in the docstring of a small module with one importer that says why."""
MOST_NOQA = 29
"""How many there may be in the package."""
NOQA = re.compile(r"# noqa: [A-Z]+[0-9]+(?:, [A-Z]+[0-9]+)* - [`\w]")
"""One that says which rule it is about, and why."""
REASONS = ("it is data", "import cycle", "import contract", "no space")
"""One of these is the reason; the last one counts if it is true."""

SOURCE = modules_under(PACKAGE)
BESIDES = modules_under(*(ROOT / name for name in ("tests", "examples", "benchmarks", "scripts")))


parsed = cache(ast.parse)


WRITTEN_BY_A_SCRIPT = re.compile(r"^ *# Made by scripts/.*?^ *# End\.$", re.DOTALL | re.MULTILINE)
"""Lines of a module that are made, and read where they are made from."""


def lines_by_hand(text: str) -> int:
    """Return how many lines of a file are written by hand."""
    return WRITTEN_BY_A_SCRIPT.sub("", text).count("\n")


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
    """Return the dotted names that a file imports or names in a string, as late imports do."""
    found: set[str] = set()
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def importers_in(texts: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the modules that import each module, itself left out."""
    found: dict[str, set[str]] = {name: set() for name in texts}
    for name, text in texts.items():
        for imported in modules_imported_by(text) & found.keys() - {name}:
            found[imported].add(name)
    return found


def says_why_it_is_apart(text: str, importer: str) -> bool:
    """Whether the docstring of a module has one of the reasons to be a module of its own."""
    said = " ".join((ast.get_docstring(parsed(text)) or "").split()).partition(EXCUSE)[2]
    has_space = text.count("\n") + importer.count("\n") <= MODULE_LINES
    return any(reason in said for reason in (REASONS[:-1] if has_space else REASONS))


def cut_too_small(texts: Mapping[str, str]) -> list[str]:
    """Return the modules, by dotted name, that belong into their only importer."""
    return [
        name
        for name, importers in importers_in(texts).items()
        if len(importers) == 1
        and texts[name].count("\n") < SMALL
        and not name.endswith(".__init__")
        and not name.startswith("haptera.ports.")
        and not says_why_it_is_apart(texts[name], texts[next(iter(importers))])
    ]


def imported_by_none(texts: Mapping[str, str], entry_points: str) -> list[str]:
    """Return the modules that no other imports, and that no page offers to users."""
    return [
        name
        for name, importers in importers_in(texts).items()
        if not importers
        and not name.endswith((".__init__", ".__main__"))
        and not re.search(rf"\b{re.escape(name)}\b", entry_points)
    ]


def source_texts() -> dict[str, str]:
    """Return the text of every module of the package by its dotted name."""
    return {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path.read_text("utf-8")
        for path in SOURCE
    }


@pytest.mark.slow
def test_no_module_and_no_function_is_longer_than_its_budget() -> None:
    texts = {name_of(path): path.read_text(encoding="utf-8") for path in SOURCE}
    long = {name: functions_longer_than(FUNCTION_LINES, text) for name, text in texts.items()}
    assert {name: found for name, found in long.items() if found} == {}
    assert [name for name, text in texts.items() if lines_by_hand(text) > MODULE_LINES] == []


def test_the_first_line_of_every_file_says_what_it_is_for() -> None:
    silent = [
        name_of(path)
        for path in SOURCE + BESIDES
        if not says_what_it_is_for(path.read_text(encoding="utf-8"))
    ]
    assert silent == []


@pytest.mark.slow
def test_no_small_module_has_a_single_importer() -> None:
    small = cut_too_small(source_texts())
    assert small == [], (
        f"{small} have fewer than {SMALL} lines and one importer each: put them into it, or say in "
        f"the docstring {EXCUSE!r} and a reason that has one of the words {REASONS}"
    )


@pytest.mark.slow
def test_every_module_is_imported_by_another_or_offered_by_a_page() -> None:
    pages = [ROOT / "pyproject.toml", ROOT / "Makefile", *sorted((ROOT / "docs").rglob("*.md"))]
    offered = "\n".join(page.read_text("utf-8") for page in pages)
    assert imported_by_none(source_texts(), offered) == []


def comments_in(text: str) -> list[str]:
    """Return the comments of a file; what looks like one in a text is none."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


def without_reason(comments: Iterable[str]) -> list[str]:
    """Return the comments that switch rules off and do not say which, or why."""
    return [each for each in comments if "noqa" in each.lower() and not NOQA.search(each)]


@pytest.mark.slow
def test_every_noqa_has_its_reason_and_there_are_few_in_the_package() -> None:
    comments = {
        path: comments_in(text)
        for path in SOURCE + BESIDES
        if "noqa" in (text := path.read_text(encoding="utf-8")).lower()
    }
    bare = {name_of(path): without_reason(found) for path, found in comments.items()}
    assert {name: found for name, found in bare.items() if found} == {}
    in_package = [each for path in SOURCE for each in comments.get(path, ()) if NOQA.search(each)]
    assert len(in_package) <= MOST_NOQA


def test_a_noqa_without_a_reason_is_noticed() -> None:
    said = "run()  # noqa: S603 - ourselves\ntext = '# noqa'  # a comment\n"
    assert without_reason(comments_in(said)) == []
    bare = ["# noqa", "# noqa: S603", "# noqa: S603 -", "#NOQA", "# noqa: ours", "# ruff: noqa"]
    assert without_reason(bare) == bare


def test_the_budget_tests_notice_what_breaks_a_budget() -> None:
    long = "def sprawl():\n" + "    pass\n" * FUNCTION_LINES
    assert functions_longer_than(FUNCTION_LINES, long) == ["sprawl has 61 lines"]
    made = "class Face:\n    # Made by scripts/write_verbs.py.\n\n    pass\n    # End.\n"
    assert (lines_by_hand(long), lines_by_hand(made)) == (FUNCTION_LINES + 1, 2)
    assert not says_what_it_is_for('"""Too short."""\n')
    assert not says_what_it_is_for("import os\n")
    texts = {
        "haptera.whole": '"""A whole."""\n\nfrom haptera import splinter, excused, vain, wrong\n',
        "haptera.table": '"""A table."""\n\nLATE = {"name": "haptera.late"}\n',
        "haptera.full": '"""Full."""\n\nfrom haptera import beside, unsaid\n' + "\n" * MODULE_LINES,
        "haptera.splinter": '"""A splinter."""\n',
        "haptera.excused": f'"""A table.\n\n{EXCUSE} it is data.\n"""\n',
        "haptera.vain": f'"""A function.\n\n{EXCUSE} it is another thing.\n"""\n',
        "haptera.late": '"""Loaded late."""\n',
        "haptera.beside": f'"""Beside it.\n\n{EXCUSE} its importer has no space for it.\n"""\n',
        "haptera.unsaid": '"""Has no space in its importer."""\n',
        "haptera.wrong": f'"""Not beside it.\n\n{EXCUSE} there is no space for it.\n"""\n',
    }
    apart = ["splinter", "vain", "late", "unsaid", "wrong"]
    assert cut_too_small(texts) == [f"haptera.{name}" for name in apart]
    offered = "`haptera.whole`, `haptera.table` and `haptera.fuller`"
    assert imported_by_none(texts, offered) == ["haptera.full"]
