"""What a session needs of the rooms below only now and then: imported when it is first used.

Use the names through the module: `late.Catalogue(...)`.
"""

from typing import TYPE_CHECKING

from haptera.model.late_names import late_names

if TYPE_CHECKING:
    from haptera.access.assembly.side_questions import ask_for_summary
    from haptera.access.catalogue import Catalogue
    from haptera.access.changing import delete
    from haptera.access.finding import get_session, summary

__all__ = ["Catalogue", "ask_for_summary", "delete", "get_session", "summary"]

if not TYPE_CHECKING:
    __getattr__ = late_names(
        __name__,
        {
            "Catalogue": "haptera.access.catalogue",
            "ask_for_summary": "haptera.access.assembly.side_questions",
            "delete": "haptera.access.changing",
            "get_session": "haptera.access.finding",
            "summary": "haptera.access.finding",
        },
    )
