"""What a session needs of the rooms below only now and then: imported when it is first used.

Use the names through the module: `late.SessionFinder(...)`.
"""

from typing import TYPE_CHECKING

from haptera.vocabulary.late_names import late_names

if TYPE_CHECKING:
    from haptera.administration.catalogue import Catalogue
    from haptera.administration.finding import SessionFinder
    from haptera.assembly.side_questions import ask_for_summary
    from haptera.session.notes import transcript_of

__all__ = ["Catalogue", "SessionFinder", "ask_for_summary", "transcript_of"]

if not TYPE_CHECKING:
    __getattr__ = late_names(
        __name__,
        {
            "Catalogue": "haptera.administration.catalogue",
            "SessionFinder": "haptera.administration.finding",
            "ask_for_summary": "haptera.assembly.side_questions",
            "transcript_of": "haptera.session.notes",
        },
    )
