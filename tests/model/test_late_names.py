"""Names that are imported when they are first used, also by several threads at once."""

import importlib
import os
import sys
import threading
from importlib import _bootstrap
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

import pytest

from haptera.model.late_names import late_names, on_first_use


class GatedFinder:
    """Lets the import of a package wait while it has the lock of the package."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name != "late_package":
            return None
        spec = PathFinder.find_spec(name)
        assert spec is not None
        monitored: Any = spec.loader
        monitored.create_module = self._wait  # before others can see the package
        return spec

    def _wait(self, _: ModuleSpec) -> None:
        self.begun.set()
        self.go_on.wait(60)


def _waits_for_an_import(thread: threading.Thread) -> bool:
    locks: Any = _bootstrap
    return locks._blocking_on.get(thread.ident) is not None


@pytest.mark.parametrize("is_module", [False, True])
def test_a_package_and_a_late_name_of_a_part_of_it_can_be_imported_by_two_threads(
    is_module: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_package").mkdir()
    (tmp_path / "late_package" / "__init__.py").write_text("from late_package import part")
    (tmp_path / "late_package" / "part.py").write_text("value = 1")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("late_package", "late_package.part"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    finder, found = GatedFinder(), []
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    load = late_names("late_package", {"value": "late_package.part"})
    late = on_first_use("late_package.part")

    def use() -> None:
        found.append(late.value if is_module else load("value"))

    importing = threading.Thread(target=importlib.import_module, args=["late_package"])
    using = threading.Thread(target=use)
    importing.start()
    assert finder.begun.wait(60)
    using.start()
    while using.is_alive() and not _waits_for_an_import(using):
        os.sched_yield()
    finder.go_on.set()
    for thread in (importing, using):
        thread.join(60)
    assert found == [1]
