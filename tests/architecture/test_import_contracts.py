"""The source keeps the import contracts."""

import configparser
import subprocess
import sys
from pathlib import Path

from tests.architecture.source_tree import CONTRACTS, PACKAGE, ROOT

LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")


def test_every_room_imports_only_what_the_plan_of_the_house_allows() -> None:
    command = [str(LINT_IMPORTS), "--no-logo", "--no-cache", "--config", str(CONTRACTS)]
    verdict = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr


def test_the_contracts_are_about_this_source_tree() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(CONTRACTS, encoding="utf-8")
    assert contracts["importlinter"]["root_package"] == PACKAGE.name
    assert contracts["importlinter:contract:layers"]["exhaustive"] == "True"
