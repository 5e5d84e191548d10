"""Exchange: names for programs that read and write sessions of other programs, and mask secrets."""

from haptera.access.other_tools import FoundSession, find_other_sessions, openai_agents_sessions
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
    "FoundSession",
    "ImportLimits",
    "ImportReport",
    "ImportedSession",
    "Redactor",
    "SessionExport",
    "TimedMessage",
    "find_other_sessions",
    "format_named",
    "losses_of",
    "openai_agents_sessions",
    "read_session",
    "redacted",
]
