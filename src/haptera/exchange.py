"""Exchange: names for programs that read and write sessions of other programs, and mask secrets."""

from haptera.formats.formats import Format, format_named, losses_of, read_session
from haptera.formats.redaction import Redactor, redacted
from haptera.formats.values import (
    ImportedSession,
    ImportLimits,
    ImportReport,
    SessionExport,
    TimedMessage,
)

__all__ = [
    "Format",
    "ImportLimits",
    "ImportReport",
    "ImportedSession",
    "Redactor",
    "SessionExport",
    "TimedMessage",
    "format_named",
    "losses_of",
    "read_session",
    "redacted",
]
