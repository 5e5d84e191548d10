"""What a session needs of the rooms below only now and then: imported when it is first used.

Use the names through the module: `late.SessionFinder(...)`.
"""

from typing import TYPE_CHECKING

from holdfast.vocabulary.late_names import late_names

if TYPE_CHECKING:
    from holdfast.administration.catalogue import Catalogue
    from holdfast.administration.finding import SessionFinder
    from holdfast.assembly.side_questions import ask_for_summary
    from holdfast.session.notes import transcript_of

__all__ = ["Catalogue", "SessionFinder", "ask_for_summary", "transcript_of"]

if not TYPE_CHECKING:
    __getattr__ = late_names(
        __name__,
        {
            "Catalogue": "holdfast.administration.catalogue",
            "SessionFinder": "holdfast.administration.finding",
            "ask_for_summary": "holdfast.assembly.side_questions",
            "transcript_of": "holdfast.session.notes",
        },
    )
