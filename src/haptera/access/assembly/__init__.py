"""The composition root: names concrete providers, stores and tools, and builds each block once.

An agent is built in two steps, a `Configuration` and a `Composition`. Both are imported when they
are first used, through this package, because `import haptera` loads this file.
"""

from typing import TYPE_CHECKING

from haptera.model.late_names import late_names

if TYPE_CHECKING:
    from haptera.access.assembly.composition import Composition
    from haptera.access.assembly.configuration import Configuration

# Made by scripts/write_late_names.py.
__all__ = ["Composition", "Configuration"]

if not TYPE_CHECKING:
    __getattr__ = late_names(
        __name__,
        {
            "Composition": "haptera.access.assembly.composition",
            "Configuration": "haptera.access.assembly.configuration",
        },
    )
# End.
