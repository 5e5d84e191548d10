"""A reader finds the same rooms in the folder of every wire protocol."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from haptera.providers import wire
from haptera.providers.wire.failures import FailureRules
from haptera.providers.wire.protocol import WireProtocol

FOLDERS = sorted(path.parent for path in Path(wire.__path__[0]).glob("*/__init__.py"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_protocol_has_the_same_rooms_as_its_neighbours(folder: Path) -> None:
    rooms = {path.stem for path in folder.glob("*.py")}
    assert rooms >= {"request", "reply", "reply_format"}
    # APIs whose form is also that of files are encoded once for both.
    is_shared = find_spec(f"haptera.formats.{folder.name}") is not None
    assert ("messages" in rooms) is not is_shared
    if is_shared:
        assert find_spec(f"haptera.formats.{folder.name}.encoding") is not None
    package = f"{wire.__name__}.{folder.name}"
    assert isinstance(import_module(package).PROTOCOL, WireProtocol)
    assert isinstance(import_module(f"{package}.reply_format").ERRORS, FailureRules)
    request = import_module(f"{package}.request")
    assert "RequestEncoder" in vars(request)


def test_there_are_folders_to_look_at() -> None:
    assert len(FOLDERS) >= 4
