"""Names and texts say what a thing is: no catch-all words, no synonyms, and no unnamed persons."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.architecture.source_tree import PACKAGE, ROOT, modules_under, name_of

# Words that fit everything and so say nothing; not even as a piece of a name.
CATCH_ALL = {"base", "common", "data", "handler", "helper", "info", "manager", "misc", "service"}
CATCH_ALL |= {"util"}
# Another word is the one in docs/glossary.md: query, query, turn, stream part.
SYNONYMS = {"job", "run", "iteration", "chunk"}
# Too wide to be a whole name; fine with a word before it.
NOT_ALONE = {"context", "state", "options", "process"}

# A text names the component or the person that is meant: the caller, the holder, the user.
UNNAMED = re.compile(r"\b(?:any|every|no|some)(?:one|body)\b|\bwhoever\b", re.IGNORECASE)
# A room is a package (docs/glossary.md). What bytes, files and sessions need is space.
ROOM_AS_SPACE = re.compile(
    r"\b(?:no|makes?|making|needs?|is|more|less|enough|times\s+the)\s+room\b(?!\s+that)"
    r"|\broom\s+(?:for|left|than)\b",
    re.IGNORECASE,
)
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
"""The pages for users. Decisions are left as they were written."""

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


def side_by_side(path: Path) -> Path:
    """Return the place of a class by which one of the same name is the same thing done again.

    Blocking classes stand for those of the library, each wire protocol has its own words, and the
    stores in SQL do the same in their own database.
    """
    place = path.relative_to(PACKAGE)
    if place.parts[0] == "sync" or place.is_relative_to("providers/wire"):
        return Path()
    if place.parts[:2] in {("stores", "sqlite"), ("stores", "postgresql")}:
        return Path("stores/sql")
    return place


@pytest.mark.slow
def test_a_name_means_one_class() -> None:
    places: dict[str, set[Path]] = defaultdict(set)
    for path in modules_under(PACKAGE):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(side_by_side(path))
    shared = {name: sorted(map(str, found - {Path()})) for name, found in places.items()}
    assert {name: found for name, found in shared.items() if len(found) > 1} == {}


@pytest.mark.parametrize("name", ["utils", "SessionManager", "_BaseStore", "UserInfo", "Context"])
def test_a_catch_all_name_is_refused(name: str) -> None:
    assert objections_to(name)


@pytest.mark.parametrize("name", ["QueryRunner", "database", "ToolContext", "Status", "tools"])
def test_a_name_that_says_something_is_left_alone(name: str) -> None:
    assert objections_to(name) == []


def unnamed_in(text: str) -> list[str]:
    """Return the words of a text that leave open which component or person is meant."""
    return [word.lower() for word in UNNAMED.findall(text)]


@pytest.mark.slow
def test_texts_name_the_component_that_is_meant() -> None:
    found = {
        name_of(path): unnamed_in(path.read_text(encoding="utf-8"))
        for path in modules_under(PACKAGE) + PAGES
    }
    assert {path: words for path, words in found.items() if words} == {}


@pytest.mark.slow
def test_a_room_is_a_package_and_nothing_else() -> None:
    found = {
        name_of(path): ROOM_AS_SPACE.findall(path.read_text(encoding="utf-8"))
        for path in modules_under(PACKAGE) + PAGES
    }
    assert {path: words for path, words in found.items() if words} == {}
    assert ROOM_AS_SPACE.findall("the disk has no room left; this takes more\nroom than text")
    assert ROOM_AS_SPACE.findall("A room imports only rooms below it. Only this room has it.") == []


def test_a_text_about_unnamed_persons_is_noticed() -> None:
    assert unnamed_in("Whoever asks tells nobody") == ["whoever", "nobody"]
    assert unnamed_in("The holder of a session answers; none of the others does") == []
