"""Nothing that is read is ever run: no module can turn data into code."""

import ast

import pytest

from tests.architecture.source_tree import PACKAGE, modules_under, name_of

MODULES = {"pickle", "cPickle", "dill", "marshal", "shelve", "yaml", "jinja2", "code", "codeop"}
CALLS = {"eval", "exec", "compile"}


def makers_of_code(text: str) -> list[str]:
    """Return what in a source could run data."""
    found: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            found.append(node.module or "")
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS
        ):
            found.append(node.func.id)
    return found


@pytest.mark.slow
def test_no_module_turns_data_into_code() -> None:
    found = {
        name_of(path): makers_of_code(path.read_text(encoding="utf-8"))
        for path in modules_under(PACKAGE)
    }
    assert {name: makers for name, makers in found.items() if makers} == {}


def test_the_test_notices_what_makes_code() -> None:
    assert makers_of_code("import pickle\nfrom yaml import load\neval('1')\n") == [
        "pickle", "yaml", "eval",
    ]  # fmt: skip
    assert makers_of_code("import re\nre.compile('a')\n") == []
