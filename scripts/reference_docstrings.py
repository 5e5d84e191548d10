"""Shows options in the API reference: an extension of griffe, which reads the source for mkdocs.

The options of a function stand in its docstring at run time only (`takes`), because they are made
of their declarations.
"""

import importlib
import inspect
from typing import Any

import griffe


class RuntimeDocstrings(griffe.Extension):
    """Replaces the docstring of what takes options by the one that Python shows."""

    def on_function(self, *, func: griffe.Function, **_: object) -> None:
        """Replace the docstring of a function or method."""
        _replace(func)

    def on_class(self, *, cls: griffe.Class, **_: object) -> None:
        """Replace the docstring of a class whose constructor takes options."""
        _replace(cls)


def _replace(found: griffe.Function | griffe.Class) -> None:
    decorated = [str(decorator.value) for decorator in found.decorators]
    if not any(name.startswith("takes") for name in decorated) or found.docstring is None:
        return
    value: Any = importlib.import_module(found.module.path)
    for step in found.path.removeprefix(f"{found.module.path}.").split("."):
        value = getattr(value, step)
    found.docstring.value = inspect.getdoc(value) or found.docstring.value
