"""Module and class names say what a thing is: no catch-all words, no synonyms of glossary words."""

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.source_tree import PACKAGE, modules_under, name_of

# Words that fit everything and so say nothing; not even as a piece of a name.
CATCH_ALL = {"base", "common", "data", "handler", "helper", "info", "manager", "misc", "service"}
CATCH_ALL |= {"util"}
# Another word is the one in docs/glossary.md: query, query, turn, stream part.
SYNONYMS = {"job", "run", "iteration", "chunk"}
# Too wide to be a whole name; fine with a word before it.
NOT_ALONE = {"context", "state", "options", "process"}

CASE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")


def words_of(name: str) -> list[str]:
    """Split a snake_case or CamelCase name into lower-case words, plurals made singular."""
    return [word.lower().removesuffix("s") for word in CASE.findall(name)]


def objections_to(name: str) -> list[str]:
    """Return what is wrong with a module or class name."""
    words = words_of(name)
    found = [word for word in words if word in CATCH_ALL | SYNONYMS]
    alone = [word for word in NOT_ALONE if name.strip("_").lower() == word]
    return [f"{name}: {word!r}" for word in found + alone]


def names_in(path: Path) -> list[str]:
    """Return the name of a module and of the classes in it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return [path.parent.name if path.stem == "__init__" else path.stem, *classes]


@pytest.mark.slow
def test_names_say_what_a_thing_is() -> None:
    objections = {
        name_of(path): [line for name in names_in(path) for line in objections_to(name)]
        for path in modules_under(PACKAGE)
    }
    assert {path: lines for path, lines in objections.items() if lines} == {}


@pytest.mark.parametrize("name", ["utils", "SessionManager", "_BaseStore", "UserInfo", "Context"])
def test_a_catch_all_name_is_refused(name: str) -> None:
    assert objections_to(name)


@pytest.mark.parametrize("name", ["QueryRunner", "database", "ToolContext", "Status", "tools"])
def test_a_name_that_says_something_is_left_alone(name: str) -> None:
    assert objections_to(name) == []
