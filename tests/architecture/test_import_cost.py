"""`import haptera` loads nothing of the package; naming an agent loads its types and no engine."""

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import haptera
import haptera.access.assembly.late
import haptera.agent
from haptera.access import administration
from tests.architecture.source_tree import PACKAGE, modules_under, name_of
from tests.fixtures_report import Report

pytestmark = pytest.mark.slow

# -S keeps what site-packages' .pth files load out of the count; the search path is handed over.
PROBE = """
import sys, time
sys.path[:] = {path!r}
before, started = set(sys.modules), time.process_time()
import {names}
spent, loaded = time.process_time() - started, set(sys.modules) - before
import json
print(json.dumps({{"cpu_ms": spent * 1000, "loaded": sorted(loaded)}}))
"""


def load(names: str) -> Any:
    command = [sys.executable, "-S", "-c", PROBE.format(path=sys.path, names=names)]
    probe = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(probe.stdout)


def test_importing_the_package_loads_no_part_of_it() -> None:
    own = [name for name in load("haptera")["loaded"] if name.startswith(("haptera", "msgspec"))]
    small = ["haptera.model.late_names", "haptera.model.own_name"]
    assert own == ["haptera", "haptera.model", *small]


def test_naming_an_agent_loads_nothing_but_asyncio_msgspec_and_the_package(report: Report) -> None:
    floor, measured = load("asyncio, msgspec"), load("haptera.agent.agent")
    report(
        f"an agent's names: {len(measured['loaded'])} modules, {measured['cpu_ms']:.0f} ms CPU; "
        f"asyncio and msgspec alone: {floor['cpu_ms']:.0f} ms"
    )
    more = {name.partition(".")[0] for name in set(measured["loaded"]) - set(floor["loaded"])}
    assert more == {"haptera"}


def test_importing_agent_loads_none_of_what_only_a_new_agent_needs() -> None:
    loaded = load("haptera.agent.agent")["loaded"]
    late = (
        "haptera.access.administration",
        "haptera.access.assembly.composition",
        "haptera.access.auth",
        "haptera.access.config",
        "haptera.kernel.query_runner",
        "haptera.providers",
        "haptera.kernel.session.live_session",
        "haptera.stores",
        "haptera.telemetry",
        "haptera.model.local_models",
        "opentelemetry",
    )
    assert [name for name in loaded if name.startswith(late)] == []


LATE = [
    haptera,
    haptera.agent,
    haptera.access.assembly,
    haptera.access.assembly.late,
]


def names_for_type_checkers(module: ModuleType) -> dict[str, str]:
    """Return the names that a module imports for type checkers only, and from where."""
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    return {
        alias.name: str(statement.module)
        for block in blocks
        if ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }


@pytest.mark.parametrize("module", LATE, ids=lambda module: module.__name__)
def test_what_is_loaded_late_is_what_type_checkers_see(module: ModuleType) -> None:
    load: Any = module.__getattr__
    table = inspect.getclosurevars(load).nonlocals["where"]
    assert table == names_for_type_checkers(module)
    for name, place in table.items():
        assert getattr(module, name) is getattr(importlib.import_module(place), name)
    with pytest.raises(AttributeError, match="no_such_name"):
        load("no_such_name")


def test_names_that_are_loaded_when_used_are_seen_before() -> None:
    assert set(haptera.__all__) <= set(dir(haptera))
    assert haptera.pull_model is administration.pull_model
    assert not hasattr(haptera, "no_such_name")


IMPORTERS = {"import_module", "late_module"}
NAMED_BY_DATA = {
    # It says what to install when the packages of the command line are missing.
    "src/haptera/cli/__init__.py",
    # The protocol of a vendor's row is the name of its package.
    "src/haptera/providers/vendor_clients.py",
}


def own_modules_named_late(text: str) -> list[str]:
    """Return the modules of Haptera that a file imports by a string, unseen by type checkers."""
    return [
        ast.unparse(node.args[0])
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] in IMPORTERS
        and ast.unparse(node.args[0]).lstrip("f").startswith("'haptera")
    ]


def late_modules_in(text: str) -> set[str]:
    """Return the modules that a file imports on their first use, each with its name there."""
    return {
        f"{place} as {name}"
        for name, place in re.findall(r'^ *(\w+) = on_first_use\("([\w.]+)"\)', text, re.MULTILINE)
    }


def modules_for_type_checkers(text: str) -> set[str]:
    """Return what a file imports for type checkers only, in the same form."""
    return {
        f"{_package_of(statement)}{alias.name} as {alias.asname or alias.name}"
        for block in ast.parse(text).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.Import | ast.ImportFrom)
        for alias in statement.names
    }


def _package_of(statement: ast.Import | ast.ImportFrom) -> str:
    return f"{statement.module}." if isinstance(statement, ast.ImportFrom) else ""


def test_modules_that_are_imported_on_first_use_are_those_that_type_checkers_see() -> None:
    texts = {name_of(path): path.read_text(encoding="utf-8") for path in modules_under(PACKAGE)}
    late = {name: late_modules_in(text) for name, text in texts.items()}
    assert sum(map(len, late.values())) == sum(
        text.count("= on_first_use(") for text in texts.values()
    )
    unseen = {name: found - modules_for_type_checkers(texts[name]) for name, found in late.items()}
    assert {name: found for name, found in unseen.items() if found} == {}


def test_modules_of_the_package_are_imported_late_by_tables_only() -> None:
    named = {
        name_of(path)
        for path in modules_under(PACKAGE)
        if own_modules_named_late(path.read_text(encoding="utf-8"))
    }
    assert named == NAMED_BY_DATA
    assert own_modules_named_late('import_module("haptera.agent")\nlate_module("json")') == [
        "'haptera.agent'"
    ]


APIS = ("anthropic_messages", "chat_completions", "gemini", "openai_responses")


def apis_in(loaded: list[str]) -> set[str]:
    """Return the APIs whose messages some of the modules encode or decode."""
    return {api for api in APIS if any(api in name.split(".") for name in loaded)}


@pytest.mark.parametrize("api", APIS)
def test_a_protocol_loads_the_encoder_of_its_own_messages_and_no_reader_of_files(api: str) -> None:
    loaded = load(f"haptera.providers.wire.{api}")["loaded"]
    assert apis_in(loaded) == {api}
    readers = ("haptera.formats.message_builder", "haptera.formats.values")
    assert [name for name in loaded if name.startswith(readers)] == []


@pytest.mark.parametrize(
    ("module", "apis"),
    [
        ("claude_code", {"anthropic_messages"}),
        ("anthropic_messages.document", {"anthropic_messages"}),
        ("codex", {"openai_responses"}),
        # A document of OpenAI may hold the messages of either API.
        ("chat_completions.document", {"chat_completions", "openai_responses"}),
        ("pi", set()),
        ("opencode", set()),
    ],
)
def test_a_format_of_files_loads_no_other_format_and_no_protocol(
    module: str, apis: set[str]
) -> None:
    loaded = load(f"haptera.formats.{module}")["loaded"]
    assert apis_in(loaded) == apis
    assert [name for name in loaded if name.startswith("haptera.providers")] == []
