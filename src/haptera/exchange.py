"""Exchange: names for programs that read and write sessions of other programs, and mask secrets."""

from haptera.formats.formats import format_named, losses_of, read_session
from haptera.formats.redaction import Redactor, redacted
from haptera.formats.values import SessionExport, TimedMessage

__all__ = [
    "Redactor",
    "SessionExport",
    "TimedMessage",
    "format_named",
    "losses_of",
    "read_session",
    "redacted",
]
