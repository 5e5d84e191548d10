"""Optional rooms are found by tables: nothing else imports them, and few agents load them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source_tree import PACKAGE, modules_under
from tests.plugins.wheels import Machine

OPTIONAL = (
    "haptera.formats.claude_code",
    "haptera.formats.codex",
    "haptera.formats.opencode",
    "haptera.formats.pi",
    "haptera.providers.claude_agent",
    "haptera.providers.local",
    "haptera.stores.postgresql",
    "haptera.telemetry",
    "haptera.tools.mcp",
)
TABLES = {"haptera.access.assembly.late", "haptera.formats.formats", "haptera.stores"}
"""The modules that have the tables: each imports a room when a name of it is used."""


def is_optional(module: str) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in OPTIONAL)


def imports_in(text: str) -> Iterator[str]:
    """Yield what a source imports, with the names that may be modules."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def _module(path: Path) -> str:
    """Return the dotted name of a module."""
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    return name.removesuffix(".__init__")


def test_only_the_tables_import_an_optional_room() -> None:
    found = {
        importer
        for path in modules_under(PACKAGE)
        if not (importer := _module(path)).startswith(OPTIONAL)
        for imported in imports_in(path.read_text(encoding="utf-8"))
        if is_optional(imported)
    }
    assert found == TABLES


def test_the_test_notices_an_import() -> None:
    assert [*filter(is_optional, imports_in("from haptera.formats import pi, values"))] == [
        "haptera.formats.pi"
    ]
    assert not is_optional("haptera.formats.pipe")


@pytest.mark.slow
def test_an_agent_that_needs_none_loads_none(tmp_path: Path) -> None:
    loaded = Machine(tmp_path).python(f"""
        import asyncio, json, sys
        from haptera import Agent
        from haptera.testing import ScriptedProvider, says

        async def main():
            provider = ScriptedProvider([says("Hello.")], provider="anthropic")
            async with Agent("anthropic/x", providers=[provider], store="sqlite:a.db") as agent:
                async with agent.session("ana") as session:
                    await session.chat("Hi")
                for name in ("archive", "markdown"):
                    pieces = [each async for each in agent.sessions.export("ana", to=name)]

        asyncio.run(main())
        print(json.dumps([each for each in sys.modules if each.startswith({OPTIONAL!r})]))
    """)
    assert loaded == []
