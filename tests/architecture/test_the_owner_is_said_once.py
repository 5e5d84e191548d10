"""The owner of sessions that were given none is one constant, and no default beside it."""

import ast

import pytest

from haptera.model.agent_defaults import AgentDefaults
from haptera.model.ids import DEFAULT_OWNER
from tests.architecture.source_tree import PACKAGE, modules_under, name_of


def owners_written_in(text: str) -> list[int]:
    """Return the lines in which something called `owner` is given the default as a literal."""
    given: list[ast.AST | None] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.arguments):
            named = (*node.posonlyargs, *node.args)[-len(node.defaults) :] if node.defaults else ()
            given += [d for a, d in zip(named, node.defaults, strict=True) if a.arg == "owner"]
            pairs = zip(node.kwonlyargs, node.kw_defaults, strict=True)
            given += [default for argument, default in pairs if argument.arg == "owner"]
        elif isinstance(node, ast.keyword) and node.arg == "owner":
            given.append(node.value)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            given += [node.value for each in targets if _last_name(each) == "owner"]
    constants = [each for found in given if found is not None for each in ast.walk(found)]
    return [
        each.lineno
        for each in constants
        if isinstance(each, ast.Constant) and each.value == DEFAULT_OWNER
    ]


def _last_name(target: ast.expr) -> str:
    return str(getattr(target, "attr", "") or getattr(target, "id", ""))


@pytest.mark.slow
def test_the_default_owner_is_a_constant_and_not_written_again() -> None:
    found = {
        name_of(path): lines
        for path in modules_under(PACKAGE)
        if (lines := owners_written_in(path.read_text(encoding="utf-8")))
    }
    assert found == {}
    assert AgentDefaults().owner == DEFAULT_OWNER == "local"


def test_an_owner_that_is_written_again_is_found() -> None:
    texts = [
        'def use(self, name, *, owner="local"): ...',
        'def use(name, owner="local"): ...',
        'class Opened:\n    owner: str = "local"',
        'make(owner=found.owner if found else "local")',
        'self.owner = given or "local"',
    ]
    assert [len(owners_written_in(text)) for text in texts] == [1] * len(texts)
    assert owners_written_in('make(owner="aside", provider="local")') == []
