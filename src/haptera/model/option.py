"""What is said of an option beside its type: a sentence, bounds, and the variable that sets it.

A declaration stands beside the type: `name: Annotated[type, Option("A sentence.")] = default`, as a
field of a struct. Checks, signatures, help, documentation, configuration and flags derive from it
(`haptera.options`). Decoding does not look at it: bounds that change make no stored entry
unreadable.
"""

from collections.abc import Callable
from typing import Any

import msgspec


class Option(msgspec.Struct, frozen=True):
    """What is said of an option beside its type and default; all but the sentence by name."""

    sentence: str = ""
    """What it does, in one sentence."""
    of: type[msgspec.Struct] | None = None
    """The struct that declares it as a field: what is not said here is said there."""
    field: str = ""
    """The name of that field, where it is another one."""
    shown: str = ""
    """What to say of a default that is made when it is needed, or found elsewhere."""
    least: float | None = None
    above: float | None = None
    """A number that the value must exceed, where no least one can be named."""
    most: float | None = None
    fits: Callable[[Any], bool] | None = None
    """Tells whether a value can be used, where the type alone does not."""
    wanted: str = ""
    """What the value must be, for the error of one that does not fit."""
    variable: str | None = None
    """The variable that sets it, without the prefix HAPTERA_."""
    whole: bool = False
    """Whether the variable is one text, also where the option is a list."""
