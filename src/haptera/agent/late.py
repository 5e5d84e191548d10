"""What a session needs of the rooms below only now and then: imported when it is first used.

Use the names through the module: `late.SessionFinder(...)`.
"""

from typing import TYPE_CHECKING

from haptera.model.late_names import late_names

if TYPE_CHECKING:
    from haptera.access.assembly.side_questions import ask_for_summary
    from haptera.access.catalogue import Catalogue
    from haptera.access.finding import SessionFinder

__all__ = ["Catalogue", "SessionFinder", "ask_for_summary"]

if not TYPE_CHECKING:
    __getattr__ = late_names(
        __name__,
        {
            "Catalogue": "haptera.access.catalogue",
            "SessionFinder": "haptera.access.finding",
            "ask_for_summary": "haptera.access.assembly.side_questions",
        },
    )
