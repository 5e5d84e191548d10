"""Signatures and help of functions with options, for those who look at live objects.

A type checker reads `Unpack[...]` of the keywords that `scripts/write_keywords.py` writes from the
same declarations. IPython, `help` and editors read `__signature__` and `__doc__`.
"""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from haptera.options.declarations import Declared, Taken, options_of

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def takes(taken: Taken) -> Callable[[FunctionT], FunctionT]:
    """Show the options that a function takes, or a class when it is called.

    A parameter of an option's name stays where it is, and can be given by its name, too.
    """
    options = options_of(taken)
    lines = "\n".join(_shown(item)[1] for item in options.values())

    def show(function: FunctionT) -> FunctionT:
        own = inspect.signature(function)
        placed = [item for item in own.parameters.values() if item.kind is not item.VAR_KEYWORD]
        if any(item.name in options for item in placed):
            placed = [item.replace(kind=item.POSITIONAL_OR_KEYWORD) for item in placed]
        taken_names = {item.name for item in placed}
        named = [_shown(item)[0] for name, item in options.items() if name not in taken_names]
        shown: Any = function
        # Of a class, not of its `__init__`: `help` shows both, and would show all options twice.
        shown.__signature__ = own.replace(parameters=[*placed, *named])
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nKeyword Args:\n{lines}\n"
        return function

    return show


_known: dict[int, tuple[inspect.Parameter, str]] = {}
"""By the identity of options, which their structs keep: importing the package makes hundreds."""


def _shown(item: Declared) -> tuple[inspect.Parameter, str]:
    """Return an option as a parameter, and as a line of `help`."""
    if id(item) not in _known:
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameter = inspect.Parameter(
            item.name, keyword, default=item.default, annotation=item.kind
        )
        sentence = f"{item.name} ({item.shown_type}): {item.option.sentence}"
        _known[id(item)] = parameter, f"    {sentence} Default: {item.shown_default}."
    return _known[id(item)]
