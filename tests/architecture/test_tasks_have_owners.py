"""Tasks are started by `OwnedTasks` or in a task group, so that something waits for each.

The linter's ban on `asyncio.create_task` does not see the same method of an event loop.
"""

import ast

import pytest

from tests.architecture.source_tree import PACKAGE, modules_under, name_of

OWNER = PACKAGE / "system" / "owned_tasks.py"
# Checks for those who write stores and blocks: each waits for what it starts, as a test does.
CHECKS = PACKAGE / "testing"
GROUP = "asyncio.TaskGroup()"


def groups_in(tree: ast.AST) -> set[str]:
    """Return the names and attributes of a module that are task groups."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.withitem) and node.optional_vars is not None:
            value, target = node.context_expr, node.optional_vars
        elif isinstance(node, ast.Assign):
            value, target = node.value, node.targets[0]
        else:
            continue
        if ast.unparse(value) == GROUP:
            found.add(ast.unparse(target))
    return found


def tasks_without_owner(text: str) -> list[str]:
    """Return the calls that start a task of which nothing takes care."""
    tree = ast.parse(text)
    groups = groups_in(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            owner, _, method = ast.unparse(node.func).rpartition(".")
            if method == "ensure_future" or (method == "create_task" and owner not in groups):
                found.append(f"line {node.lineno}: {ast.unparse(node.func)}")
    return found


@pytest.mark.slow
def test_every_task_has_an_owner() -> None:
    found = {
        name_of(path): tasks_without_owner(path.read_text(encoding="utf-8"))
        for path in modules_under(PACKAGE)
        if path != OWNER and not path.is_relative_to(CHECKS)
    }
    assert {path: calls for path, calls in found.items() if calls} == {}


def test_a_task_without_an_owner_is_noticed() -> None:
    assert tasks_without_owner("asyncio.get_running_loop().create_task(work())")
    assert tasks_without_owner("waiting = asyncio.ensure_future(work())")
    assert tasks_without_owner("from asyncio import create_task\ncreate_task(work())")
    assert tasks_without_owner(f"self._group = {GROUP}\nself._other.create_task(work())")
    owned = (
        f"async def both():\n    async with {GROUP} as group:\n        group.create_task(work())"
    )
    assert tasks_without_owner(owned) == []
    assert tasks_without_owner(f"self._group = {GROUP}\nself._group.create_task(work())") == []
