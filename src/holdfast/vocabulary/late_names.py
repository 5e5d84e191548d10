"""Late names: a module can have names that are imported when they are first used.

A module lists them under `TYPE_CHECKING`, for type checkers and import contracts, and says in a
table where each of them is. A module of its own because packages import it in their own files.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType


def late_names(module: str, where: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a module: it imports the names of the table, and no others."""

    def load(name: str) -> object:
        if name not in where:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(import_module(where[name]), name)

    return load


def late_module(name: str) -> ModuleType:
    """Return a module of the standard library, or of another package, imported when it is needed.

    For what few programs need: importing the package loads what every program needs, and no more.
    Names of Holdfast itself go into a table of `late_names`, which type checkers and import
    contracts see.
    """
    return import_module(name)
