"""What depends on a provider is read from the table of vendors, not told by its name."""

import ast
from collections.abc import Iterator

import pytest

from haptera.providers.vendors import VENDORS
from tests.architecture.source_tree import PACKAGE, modules_under, name_of


def literals_in(node: ast.AST) -> Iterator[str]:
    """Yield the texts of an expression: one, or those of a set, tuple or list."""
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def is_provider(node: ast.AST) -> bool:
    """Whether an expression is called a provider or a model: `provider`, `message.provider`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
            return name.rpartition("_")[2] in {"provider", "model", "kind"}
    return False


def names_told(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield where code compares a provider with a literal name of a vendor, or passes one on."""
    for node in ast.walk(tree):
        sides: list[tuple[ast.AST, ast.AST]] = []
        match node:
            case ast.Compare(left=left, comparators=[right]):
                sides = [(left, right), (right, left)]
            case ast.keyword(arg="provider", value=value):
                sides = [(node, value)]
            case ast.Call(func=ast.Attribute(value=owner, attr="startswith"), args=[start, *_]):
                sides = [(owner, start)]
        for named, told in sides:
            if is_provider(named):
                found = {text.rstrip("/:") for text in literals_in(told)} & set(VENDORS)
                yield from ((getattr(node, "lineno", 0), text) for text in found)


@pytest.mark.slow
def test_no_code_tells_a_provider_by_its_name() -> None:
    found = {
        (name_of(path), line, name)
        for path in modules_under(PACKAGE)
        for line, name in names_told(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == set()


@pytest.mark.parametrize(
    "text",
    [
        'if provider == "local": pass',
        'is_native = message.provider in {"anthropic", "x"}',
        'raise error(provider="claude-agent")',
        'if model.startswith("local/"): pass',
        'case_of = "openai" != own_provider',
    ],
)
def test_a_name_that_is_told_is_found(text: str) -> None:
    assert len([*names_told(ast.parse(text))]) == 1
