"""Names and texts say what a thing is: no catch-all words, synonyms or unnamed persons."""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatch
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
UNNAMED = re.compile(r"(?<![a-z])(?:(?:any|every|no|some)(?:one|body)|whoever)(?![a-z])")
# The Unix account of that name: as the name of a user in code, and between backquotes in a text.
ACCOUNT = re.compile(r"getpwnam\(\"nobody\"\)|`nobody`")
# Pictures and nouns for which a plainer word says more: entry point, constructor, consumed, limit.
UNCLEAR = re.compile(
    r"(?<![a-z])(?:ingredients?|bells?|lanes?|patience|doors?|doorways?|what_fits"
    r"|neutral_forms?|consumption)(?![a-z])"
    r"|(?<![a-z])(?:the|an?|its|their|our|your|own|whose)[\s_]making(?![a-z])"
    r"|_making(?!\w)|\b(?:class|def)\s+making\b|\bmaking\s*="
)
# A room is a package (docs/glossary.md). What bytes, files and sessions need is space.
ROOM_AS_SPACE = re.compile(
    r"(?<![a-z])(?:no|makes?|making|leaves?|needs?|is|more|less|enough|times[\s_]+the)[\s_]+room"
    r"(?![a-z])(?!\s+(?:that|imports))|(?<![a-z])room[\s_]+(?:for|left|than)(?![a-z])"
)
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
SOURCES = [ROOT / name for name in ("src", "tests", "scripts", "benchmarks", "examples")]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
THIS_FILE = Path(__file__).resolve()
"""It names the words."""

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


# Packages whose members do the same for different things, and so use the same names: stores of the
# same ports, formats of the same sessions, protocols of the same requests, suites of checks.
PARALLEL = ("stores/*/", "formats/", "providers/wire/", "testing/*/")
# What offers to users or programs what another module does, under the same name.
STAND_INS = ("sync/*", "access/administration.py")
OPERATIONS = ("cli/*_commands.py", "server/*_routes.py", "server/command.py")
NOT_NAMES = ("TypeVar", "ParamSpec", "TypeVarTuple")


def public_names(path: Path) -> Iterator[tuple[str, ast.stmt]]:
    """Return the public names that a module gives to classes, functions, types and constants."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                found = [node.name]
            case ast.AnnAssign(target=ast.Name(id=name)):
                found = [name]
            case ast.Assign(value=ast.Call(func=ast.Name(id=made))) if made in NOT_NAMES:
                found = []
            case ast.Assign(targets=targets):
                found = [each.id for each in targets if isinstance(each, ast.Name)]
            case _:
                found = []
        yield from ((name, node) for name in found if not name.startswith("_"))


def side_by_side(path: str, node: ast.stmt) -> str | None:
    """Return the place by which something of the same name is the same thing done again.

    None if the name is that of another module on purpose: a stand-in, an operation that a surface
    offers, a class for what a wire protocol calls so, and the `main` of a program.
    """
    named_on_purpose: tuple[str, ...] = STAND_INS
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        named_on_purpose += OPERATIONS if node.name != "main" else ("*",)
    elif isinstance(node, ast.ClassDef):
        named_on_purpose += ("providers/wire/*",)
    if any(fnmatch(path, pattern) for pattern in named_on_purpose):
        return None
    # A folder of `stores` is one of the stores; what all of them use is beside the folders.
    return next((each for each in PARALLEL if fnmatch(path, f"{each}*")), path)


def shared_names(modules: Iterable[tuple[str, Path]]) -> dict[str, list[str]]:
    """Return the names that mean different things in different modules, and where."""
    places: dict[str, set[str]] = defaultdict(set)
    for name, path in modules:
        for public, node in public_names(path):
            if (place := side_by_side(name, node)) is not None:
                places[public].add(place)
    return {name: sorted(found) for name, found in places.items() if len(found) > 1}


@pytest.mark.slow
def test_a_public_name_means_one_thing() -> None:
    modules = [(path.relative_to(PACKAGE).as_posix(), path) for path in modules_under(PACKAGE)]
    assert shared_names(modules) == {}


def test_a_name_with_two_meanings_is_noticed(tmp_path: Path) -> None:
    texts = {
        "kernel/turns.py": "LIMIT = 1\nT = TypeVar('T')\ndef cost_of(): ...\ndef main(): ...",
        "kernel/blocks/prices.py": "LIMIT: int = 2\nT = TypeVar('T')\nasync def cost_of(): ...",
        "access/auth/storage.py": "Place: TypeAlias = Literal['a', 'b']\ndef main(): ...",
        "tools/paths.py": "class Place: ...\n_own = 1",
        "stores/rules.py": "SECONDS = 60\ndef migrate(): ...",
        "stores/sqlite/leases.py": "SECONDS = 15\ndef put(): ...\n_own = 2",
        "stores/jsonl/leases.py": "def put(): ...",
        "server/session_routes.py": "def delete(): ...\nLIMIT = 3",
        "access/catalogue.py": "def delete(): ...",
    }
    for number, text in enumerate(texts.values()):
        (tmp_path / f"{number}.py").write_text(text)
    modules = [(name, tmp_path / f"{number}.py") for number, name in enumerate(texts)]
    assert shared_names(modules) == {
        "LIMIT": ["kernel/blocks/prices.py", "kernel/turns.py", "server/session_routes.py"],
        "cost_of": ["kernel/blocks/prices.py", "kernel/turns.py"],
        "Place": ["access/auth/storage.py", "tools/paths.py"],
        "SECONDS": ["stores/*/", "stores/rules.py"],
    }


@pytest.mark.parametrize("name", ["utils", "SessionManager", "_BaseStore", "UserInfo", "Context"])
def test_a_catch_all_name_is_refused(name: str) -> None:
    assert objections_to(name)


@pytest.mark.parametrize("name", ["QueryRunner", "database", "ToolContext", "Status", "tools"])
def test_a_name_that_says_something_is_left_alone(name: str) -> None:
    assert objections_to(name) == []


def plain(text: str) -> str:
    """Return a text in lower case, with the words of its CamelCase names apart."""
    return CAMEL.sub("_", text).lower()


def unnamed_in(text: str) -> list[str]:
    """Return the words of a text that leave open which component or person is meant."""
    return UNNAMED.findall(plain(ACCOUNT.sub("", text)))


def unclear_in(text: str) -> list[str]:
    """Return the words of a text that do not explain themselves."""
    return [" ".join(found.group().split()) for found in UNCLEAR.finditer(plain(text))]


def space_in(text: str) -> list[str]:
    """Return where a text says room and means space."""
    return [" ".join(found.group().split()) for found in ROOM_AS_SPACE.finditer(plain(text))]


@pytest.mark.slow
@pytest.mark.parametrize("words_in", [unnamed_in, unclear_in, space_in])
def test_texts_and_names_are_plain_and_say_what_is_meant(
    words_in: Callable[[str], list[str]],
) -> None:
    paths = [path for path in modules_under(*SOURCES) + PAGES if path != THIS_FILE]
    found = {name_of(path): words_in(path.read_text(encoding="utf-8")) for path in paths}
    found |= {f"the name {name_of(path)}": words_in(path.stem) for path in paths}
    assert {path: words for path, words in found.items() if words} == {}


def test_a_text_about_unnamed_persons_is_noticed() -> None:
    assert unnamed_in("Whoever asks tells nobody") == ["whoever", "nobody"]
    assert unnamed_in("def test_it_waits_for_nobody_who_asks(): ...") == ["nobody"]
    assert unnamed_in("class Anybody:\n    told_to_everyone = 1") == ["anybody", "everyone"]
    assert unnamed_in('As root it runs as `nobody`: pwd.getpwnam("nobody")') == []
    assert unnamed_in("The holder of a session answers; none of the others does") == []


def test_a_word_that_does_not_explain_itself_is_noticed() -> None:
    assert unclear_in("class WireLanes:\n    patience = 3") == ["lanes", "patience"]
    assert unclear_in("def what_fits(): ...  # from its doorway") == ["what_fits", "doorway"]
    assert unclear_in("class AgentMaking: ...") == ["_making"]
    assert unclear_in("the\nmaking of an agent; making = 1") == ["the making", "making ="]
    assert unclear_in("It fails when making an agent. What fits is taken; outdoors, too.") == []


def test_space_that_is_called_room_is_noticed() -> None:
    assert space_in("the disk has no room left; this takes more\nroom than text")
    assert space_in("def test_thinking_leaves_room_for_the_answer(): ...")
    assert space_in("A room imports only rooms below it. Only this room has it.") == []
