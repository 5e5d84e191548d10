"""Loggers whose records hold no secrets, and text that every handler can write."""

import logging

from haptera.model.json_types import writable
from haptera.model.secrets import scrub


class _Scrubbing(logging.Filter):
    """Takes secrets out of a record before any handler sees it, and halves of characters.

    An exception whose traceback shows either is replaced by its clean text: a file in UTF-8 could
    not hold the halves.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if (clean := writable(scrub(text))) != text:
            record.msg, record.args = clean, ()
        if record.exc_info:
            shown = logging.Formatter().formatException(record.exc_info)
            if (clean := writable(scrub(shown))) != shown:
                # Handlers write `exc_text` where there is no exception to format.
                record.exc_info, record.exc_text = None, clean
        return True


_SCRUBBING = _Scrubbing()


def scrubbed_logger(name: str) -> logging.Logger:
    """Return the logger of a module. Every logger of the package is made here.

    Filters of a logger are not asked about the records of its children, so each has this one.
    """
    logger = logging.getLogger(name)
    logger.addFilter(_SCRUBBING)
    return logger


def add_root_handler(handler: logging.Handler) -> None:
    """Let a handler have the records of all packages, without secrets, unless there is another."""
    root = logging.getLogger()
    if not root.handlers:
        handler.addFilter(_SCRUBBING)  # records of other packages have not passed it
        root.addHandler(handler)
