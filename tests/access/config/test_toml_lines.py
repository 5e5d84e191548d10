"""Lines of keys in every shape that TOML allows."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera.access.config.toml_lines import key_lines, line_of
from haptera.options.checks import KeyPath

TEXT = '''\
# a comment with [brackets] and = signs
top = 1
[a]
x = """
not = a key
[nor a table]
""" # = [
"quoted.key" = 2
b.c = 3

[a.'d e']
list = [
  1,
  [2, { deep = 3 }], # ] }
]
inline = { one = 1, two = { three = "}" } }
literal = \'\'\'[x]\'\'\'\'
after = true

[[many]]
n = 1
[many.sub]
m = 1
[[many]]
n = 2
'''


def test_keys_of_every_shape_are_found_on_their_lines() -> None:
    lines = key_lines(TEXT)
    expected: dict[KeyPath, int] = {
        ("top",): 2,
        ("a",): 3,
        ("a", "x"): 4,
        ("a", "quoted.key"): 8,
        ("a", "b", "c"): 9,
        ("a", "d e"): 11,
        ("a", "d e", "list", 0): 13,
        ("a", "d e", "list", 1, 1, "deep"): 14,
        ("a", "d e", "inline", "two", "three"): 16,
        ("a", "d e", "literal"): 17,
        ("a", "d e", "after"): 18,
        ("many", 0, "n"): 21,
        ("many", 0, "sub", "m"): 23,
        ("many", 1): 24,
        ("many", 1, "n"): 25,
    }
    assert {path: lines.get(path) for path in expected} == expected


def test_every_key_that_the_parser_finds_has_a_line() -> None:
    assert paths_in(tomllib.loads(TEXT)) <= key_lines(TEXT).keys()


def test_a_key_that_is_not_there_points_to_the_table_around_it() -> None:
    lines = key_lines(TEXT)
    assert line_of(lines, ("a", "d e", "missing", "deeper")) == 11
    assert line_of(lines, ("nowhere",)) is None


def paths_in(value: Any, path: KeyPath = ()) -> set[KeyPath]:
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    found = {path} - {()}
    for key, inner in items:
        found |= paths_in(inner, (*path, key))
    return found


names = st.text(alphabet="abc.' \"#=[]é", min_size=1, max_size=6)
scalars = st.integers() | st.booleans() | st.text(alphabet="ab\"\\'\n#]}=", max_size=8)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3)
)


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def written(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case str():
            return quoted(value)
        case list():
            return "[\n" + ",\n".join(written(item) for item in value) + "\n]"
        case _:
            pairs = (f"{quoted(key)} = {written(item)}" for key, item in value.items())
            return "{" + ", ".join(pairs) + "}"


@pytest.mark.slow
@given(st.dictionaries(names, st.dictionaries(names, values, max_size=3), max_size=4))
def test_any_document_is_read_to_its_end(document: dict[str, dict[str, Any]]) -> None:
    text = ""
    for table, pairs in document.items():
        text += f"[{quoted(table)}]\n"
        text += "".join(f"{quoted(key)} = {written(value)}\n" for key, value in pairs.items())
    document = tomllib.loads(text)
    lines = key_lines(text)
    assert paths_in(document) == lines.keys()
    assert list(lines.values()) == sorted(lines.values())
