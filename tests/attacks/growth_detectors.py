"""Finds, in the syntax, what takes longer the more there is already: each step looks at all of it.

A search in a text or a list, a move of all items, and a list, tuple, text or table that is made
anew from itself, in a loop or by each entry of a log.
"""

import ast
from collections.abc import Callable, Iterator

LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp)
NameOf = Callable[[ast.expr], str | None]
_SEARCHES = {"find", "rfind", "index", "rindex", "count", "remove"}
_SEQUENCES = ("list", "tuple", "Sequence", "Iterable")


def searches_in(loop: ast.AST) -> bool:
    """Whether a loop looks for something in a text or list, or moves all of it, each time anew."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (node.func.attr in _SEARCHES or _is_at_the_front(node))
        for node in ast.walk(loop)
    )


def _is_at_the_front(call: ast.Call) -> bool:
    """Whether a call takes the first item out of a list or puts one before it."""
    is_first = bool(call.args) and ast.unparse(call.args[0]) == "0"
    return is_first and ast.unparse(call.func).endswith((".pop", ".insert"))


def rebuilds_in(loop: ast.AST) -> bool:
    """Whether a loop makes something anew from itself: `items = [*items, x]`, `text[-1] += x`."""
    nodes = list(ast.walk(loop))
    return any(
        isinstance(node, ast.Assign)
        and any(_is_remade(_full_name(target), node.value, _full_name) for target in _targets(node))
        for node in nodes
    ) or any(isinstance(node, ast.AugAssign) and _adds_text(node) for node in nodes)


def _targets(node: ast.Assign) -> Iterator[ast.expr]:
    for target in node.targets:
        yield from target.elts if isinstance(target, ast.Tuple) else (target,)


def _adds_text(node: ast.AugAssign) -> bool:
    """Whether `+=` makes a text or tuple anew; of a plain name, a text grows where it is."""
    is_text = isinstance(node.value, ast.JoinedStr | ast.Tuple) or (
        isinstance(node.value, ast.Constant) and isinstance(node.value.value, str | bytes)
    )
    is_part = isinstance(node.target, ast.Subscript) and not isinstance(node.value, ast.Constant)
    return isinstance(node.op, ast.Add) and (
        isinstance(node.value, ast.Tuple)
        or (is_text and not isinstance(node.target, ast.Name))
        or (is_part and not _is_number(node.value))
    )


def _is_number(value: ast.expr) -> bool:
    return isinstance(value, ast.Compare) or (
        isinstance(value, ast.Call) and ast.unparse(value.func) in {"len", "sum", "isinstance"}
    )


def remade_by(node: ast.AST) -> bool:
    """Whether a field gets a value made from itself: by a step that many entries may take."""
    if isinstance(node, ast.Assign):
        targets = [each for each in _targets(node) if isinstance(each, ast.Attribute)]
        return any(_is_remade(each.attr, node.value, _last_name) for each in targets)
    if isinstance(node, ast.AugAssign):
        return isinstance(node.target, ast.Attribute) and isinstance(node.value, ast.Tuple)
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("replace"):
        return any(
            each.arg is not None and _is_remade(each.arg, each.value, _last_name)
            for each in node.keywords
        )
    return False


def _full_name(node: ast.expr) -> str | None:
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else None


def _last_name(node: ast.expr) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) else None


def _is_remade(name: str | None, value: ast.expr, name_of: NameOf) -> bool:
    if name is None:
        return False
    for node in ast.walk(value):
        parts: list[ast.expr] = []
        match node:
            case ast.Starred():
                parts = [node.value]
            case ast.Dict():
                parts = [each for key, each in zip(node.keys, node.values, strict=True) if not key]
            case ast.BinOp(op=ast.Add() | ast.BitOr()):
                parts = [each for each in (node.left, node.right) if not _counts(node)]
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                parts = [each.iter for each in node.generators]
            case ast.Subscript(slice=ast.Slice()):
                parts = [node.value]
        if any(name_of(each) == name for each in parts):
            return True
    return False


def _counts(node: ast.BinOp) -> bool:
    """Whether a sum is one of numbers, as far as the syntax tells."""
    return any(
        _is_number(each) or (isinstance(each, ast.Constant) and isinstance(each.value, int | float))
        for each in (node.left, node.right)
    )


def looked_up_in(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a loop of a function asks what is in a list or tuple, by its name."""
    lists = set(_lists_of(function))
    return any(
        isinstance(node, ast.Compare)
        and any(isinstance(op, ast.In | ast.NotIn) for op in node.ops)
        and any(_full_name(each) in lists for each in node.comparators)
        for loop in ast.walk(function)
        if isinstance(loop, (*LOOPS, ast.GeneratorExp))
        for node in ast.walk(loop)
    )


def _lists_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for argument in (*function.args.args, *function.args.kwonlyargs):
        if argument.annotation is not None and _is_sequence(argument.annotation):
            yield argument.arg
    for node in ast.walk(function):
        if isinstance(node, ast.AnnAssign) and _is_sequence(node.annotation):
            yield ast.unparse(node.target)
        elif isinstance(node, ast.Assign) and isinstance(
            node.value, ast.List | ast.Tuple | ast.ListComp
        ):
            yield from (ast.unparse(each) for each in _targets(node))


def _is_sequence(annotation: ast.expr) -> bool:
    return ast.unparse(annotation).startswith(_SEQUENCES)
