"""Late imports: names and modules that are imported when they are first used.

A file lists what it imports late under `TYPE_CHECKING`, for type checkers and import contracts: a
table of names (`late_names`), or a module that it uses by its name (`on_first_use`). A module of
its own because packages import it in their own files.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from itertools import accumulate
from types import ModuleType


def late_names(module: str, where: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a module: it imports the names of the table, and no others.

    The module keeps what was imported, so that it is looked up once.
    """

    def load(name: str) -> object:
        if name not in where:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(_imported(where[name]), name)
        setattr(import_module(module), name, value)
        return value

    return load


class _LateModule(ModuleType):
    """Stands for a module until a name of it is used, and keeps the names that were."""

    def __getattr__(self, name: str) -> object:
        value = getattr(_imported(self.__name__), name)
        setattr(self, name, value)
        return value


def on_first_use(name: str) -> ModuleType:
    """Return what stands for a module that is imported when a name of it is used.

    For modules that many sessions never need, where one file uses them: `rules.parse(...)`.
    """
    return _LateModule(name)


def _imported(module: str) -> ModuleType:
    """Return a module, importing the packages that it is in before it, and msgspec.

    One thread may import a package while another uses a late name of a module in it. If these two
    import each other, each thread waits for the other, and Python raises an error. It is so with
    msgspec and its modules, which nearly every module of Haptera imports.
    """
    import_module("msgspec")
    *packages, whole = accumulate(module.split("."), "{}.{}".format)
    for package in packages:
        import_module(package)
    return import_module(whole)


def late_module(name: str) -> ModuleType:
    """Return a module of the standard library, or of another package, imported when it is needed.

    For what few programs need: importing the package loads what every program needs, and no more.
    Names of Haptera itself go into a table of `late_names`, which type checkers and import
    contracts see.
    """
    return import_module(name)
