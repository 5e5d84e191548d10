"""Each import contract catches the violation it is there for, planted in empty rooms.

A contract is about names. So the copies have the folders of the source and no code: a linter reads
forty of them in the time of one full copy. That the source itself keeps the contracts is another
test's.
"""

import configparser
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import pytest

from tests.architecture.source_tree import CONTRACTS, PACKAGE, ROOT, modules_under

pytestmark = pytest.mark.slow

LAYERS = "A room imports only rooms below it, and every room has its place"
KERNEL = "The kernel knows ports, not providers, stores, tools or access"
EDGES = "Providers, stores, tools and telemetry know only the blocks of the kernel"
CONCRETE = "Only access and testing name concrete providers, stores and tools"
SURFACES = "Surfaces import agent, access, sync, formats, options, system and model only"
PUBLIC_NAMES = "The public names are for users and surfaces, no room imports them"
BLOCKS = "No block imports another"
ALONE = "Blocks import no other part of the kernel"
PURE_BLOCKS = "Blocks and the fold touch no files, no sockets, no clock and no chance"
ACYCLIC = "No two neighbours import each other, at any depth"
AIOHTTP = "Only providers.transport imports aiohttp"
DRIVERS = "Only stores imports database drivers"
TESTING = "No room that runs in production imports testing"
TRACING = "Only telemetry imports opentelemetry"
MCP = "Only tools.mcp imports mcp"
NOT_REQUIRED = "Nothing imports pydantic or a vendor's SDK"


@dataclass(frozen=True)
class Plant:
    """A violation: who imports whom, and the contract that has to notice."""

    importer: str
    imported: str
    contract: str

    def __str__(self) -> str:
        return f"{self.importer} -> {self.imported}"


class Verdict(TypedDict):
    """What the linter said of one copy."""

    passed: bool
    output: str


VIOLATIONS = [
    Plant("kernel.session.planted", "haptera.stores.planted", KERNEL),
    Plant("kernel.session.planted", "haptera.access.config.planted", KERNEL),
    Plant("kernel.session.planted", "haptera.access.auth.planted", KERNEL),
    Plant("kernel.session.planted", "haptera.agent", LAYERS),
    Plant("kernel.query.planted", "haptera.providers.planted", KERNEL),
    Plant("kernel.query.planted", "haptera.tools.planted", KERNEL),
    Plant("kernel.blocks.planted", "haptera.kernel.blocks.neighbour", BLOCKS),
    Plant("kernel.blocks.planted", "haptera.kernel.query.planted", ALONE),
    Plant("kernel.blocks.planted", "time", PURE_BLOCKS),
    Plant("kernel.blocks.planted", "pathlib", PURE_BLOCKS),
    Plant("model.log.planted", "time", PURE_BLOCKS),
    Plant("kernel.blocks.planted", "aiohttp", AIOHTTP),
    Plant("ports.planted", "haptera.kernel.query.planted", LAYERS),
    Plant("formats.planted", "haptera.kernel.blocks.planted", LAYERS),
    Plant("system.planted", "haptera.ports.planted", LAYERS),
    Plant("model.planted", "haptera.system.planted", LAYERS),
    Plant("model.planted", "haptera", PUBLIC_NAMES),
    Plant("stores.planted", "haptera.kernel.session.planted", EDGES),
    Plant("providers.planted", "haptera.kernel.query.planted", EDGES),
    Plant("stores.planted", "haptera.providers.planted", LAYERS),
    Plant("providers.planted", "haptera.stores.planted", LAYERS),
    Plant("tools.planted", "haptera.access.config.planted", LAYERS),
    Plant("providers.wire.planted", "aiohttp", AIOHTTP),
    Plant("kernel.session.planted", "apsw", DRIVERS),
    Plant("stores.planted", "sqlite3", DRIVERS),
    Plant("agent.planted", "haptera.stores.planted", CONCRETE),
    Plant("sync.planted", "haptera.tools.planted", CONCRETE),
    Plant("cli.planted", "haptera.kernel.query.planted", SURFACES),
    Plant("server.planted", "haptera.kernel.session.planted", SURFACES),
    Plant("server.planted", "haptera.ports.planted", SURFACES),
    Plant("demo.planted", "haptera.access.assembly.planted", SURFACES),
    Plant("server.planted", "haptera.cli.planted", LAYERS),
    Plant("access.planted", "haptera.testing.planted", TESTING),
    Plant("agent.planted", "haptera.testing.planted", TESTING),
    Plant("kernel.query.planted", "opentelemetry", TRACING),
    Plant("tools.planted", "mcp", MCP),
    Plant("kernel.query.planted", "anyio", MCP),
    Plant("model.planted", "pydantic", NOT_REQUIRED),
    Plant("providers.planted", "anthropic", NOT_REQUIRED),
]

ALLOWED = [
    Plant("access.planted", "haptera.stores.planted", ""),
    Plant("testing.planted", "haptera.providers.planted", ""),
    Plant("agent.planted", "haptera.access.assembly.planted", ""),
    Plant("cli.planted", "haptera.agent.planted", ""),
    Plant("cli.planted", "haptera", ""),
    Plant("server.planted", "haptera.system.planted", ""),
    Plant("tools.planted", "haptera.kernel.blocks.planted", ""),
    Plant("providers.transport.planted", "aiohttp", ""),
    Plant("stores.planted", "apsw", ""),
    Plant("telemetry.planted", "opentelemetry", ""),
    Plant("tools.mcp.planted", "mcp", ""),
]

CYCLE = [
    Plant("kernel.query.planted", "haptera.kernel.query.neighbour", ACYCLIC),
    Plant("kernel.query.neighbour", "haptera.kernel.query.planted", ACYCLIC),
]


def build_empty(package: Path) -> None:
    """Make the rooms of the source without what is in them; a room that is one file is a file."""
    for path in modules_under(PACKAGE):
        if path.name == "__init__.py" or path.parent == PACKAGE:
            copy = package / path.relative_to(PACKAGE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.touch()


def settle(package: Path, dotted: str) -> tuple[Path, str]:
    """Make sure the module exists in the copy; a room that is one file stands for all in it."""
    *rooms, leaf = dotted.split(".")
    folder = package
    for room in rooms:
        if (folder / f"{room}.py").exists():
            return folder / f"{room}.py", room
        folder /= room
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").touch()
    path = folder / leaf / "__init__.py" if (folder / leaf).is_dir() else folder / f"{leaf}.py"
    path.touch()
    return path, dotted


def plant(package: Path, violation: Plant) -> str:
    """Write the import into the copy and return it as the linter spells it."""
    imported = violation.imported
    if imported.startswith("haptera."):
        imported = f"haptera.{settle(package, imported.removeprefix('haptera.'))[1]}"
    path, importer = settle(package, violation.importer)
    with path.open("a", encoding="utf-8") as file:
        file.write(f"\nimport {imported}\n")
    return f"haptera.{importer} -> {imported}"


@dataclass(frozen=True)
class Planted:
    """All copies, each with its verdict, and the imports as the linter spells them."""

    verdicts: Mapping[str, Verdict]
    spelled: Mapping[Plant, str]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """Plant every violation in a copy of its own, and lint all copies in one process."""
    root = tmp_path_factory.mktemp("planted")
    spelled: dict[Plant, str] = {}
    copies = {str(violation): [violation] for violation in VIOLATIONS}
    copies |= {"allowed": ALLOWED, "cycle": CYCLE, "new room": []}
    for number, plants in enumerate(copies.values()):
        package = root / str(number) / "haptera"
        build_empty(package)
        spelled |= {violation: plant(package, violation) for violation in plants}
    new_room = root / str(list(copies).index("new room")) / "haptera" / "attic"
    new_room.mkdir()
    (new_room / "__init__.py").touch()
    folders = {str(root / str(number)): name for number, name in enumerate(copies)}
    command = [sys.executable, str(ROOT / "tests/architecture/lint_each.py"), str(CONTRACTS)]
    linted = subprocess.run([*command, *folders], capture_output=True, text=True, check=True)
    found: dict[str, Verdict] = json.loads(linted.stdout)
    return Planted({folders[folder]: verdict for folder, verdict in found.items()}, spelled)


@pytest.mark.parametrize("violation", VIOLATIONS, ids=str)
def test_a_planted_violation_is_caught_and_named(planted: Planted, violation: Plant) -> None:
    verdict = planted.verdicts[str(violation)]
    assert not verdict["passed"]
    assert f"{violation.contract} BROKEN" in verdict["output"]
    assert planted.spelled[violation] in verdict["output"]


def test_a_new_room_that_is_in_no_layer_is_caught(planted: Planted) -> None:
    verdict = planted.verdicts["new room"]
    assert f"{LAYERS} BROKEN" in verdict["output"]
    assert "- haptera.attic" in verdict["output"]


def test_a_cycle_between_neighbours_is_caught(planted: Planted) -> None:
    verdict = planted.verdicts["cycle"]
    assert f"{ACYCLIC} BROKEN" in verdict["output"]
    assert "haptera.kernel.query" in verdict["output"]


def test_every_contract_has_a_violation_planted_against_it() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(CONTRACTS, encoding="utf-8")
    names = {contracts[section]["name"] for section in contracts.sections()[1:]}
    assert names == {violation.contract for violation in VIOLATIONS + CYCLE}


def test_what_the_plan_allows_is_not_caught(planted: Planted) -> None:
    verdict = planted.verdicts["allowed"]
    assert verdict["passed"], verdict["output"]
