"""Finds the recorded provider traffic, which is read in place and is no part of this repository.

`HAPTERA_WIRE`, or the former `HOLDFAST_WIRE`, says where it is. Without it, tests that need it are
skipped; where nothing may be skipped (`CI=true` or `HAPTERA_REQUIRE_ALL=1`) they fail instead.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "wire"


def wire_root(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the recorded traffic, whether it exists or not."""
    former = environment.get("HOLDFAST_WIRE", DEFAULT)
    return Path(environment.get("HAPTERA_WIRE", former))


def is_everything_required(environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether a missing part is a failure rather than a reason to skip."""
    return environment.get("CI") == "true" or environment.get("HAPTERA_REQUIRE_ALL") == "1"


def require_wire(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the recorded traffic; skip or fail the test when there is none."""
    root = wire_root(environment)
    if root.is_dir():
        return root
    reason = "no recorded traffic: set HAPTERA_WIRE to its folder"
    if is_everything_required(environment):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def wire_files(pattern: str) -> list[object]:
    """Return the files that match as parameters; one that skips or fails when there are none."""
    if files := sorted(wire_root().glob(pattern)):
        return [pytest.param(path, id=str(path.relative_to(wire_root()))) for path in files]
    skip = pytest.mark.skip(reason="no recorded traffic: set HAPTERA_WIRE to its folder")
    # When it is required the test gets a path that is not there, and fails by opening it.
    marks = () if is_everything_required() else (skip,)
    return [pytest.param(wire_root() / pattern, id="missing", marks=marks)]


@pytest.fixture
def wire() -> Path:
    """The folder of the recorded traffic."""
    return require_wire()
