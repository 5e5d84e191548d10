"""The log of a surface such as the server: what went wrong in it, without secrets."""

import logging
from types import TracebackType

from haptera.system.logs import add_root_handler, scrubbed_logger

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class FailureLog:
    """Writes warnings, and as a context manager exceptions that nothing foresaw.

    An exception in its block is logged with its traceback and goes no further: whatever is around
    the block, such as an ASGI server, would print it as it is. Cancellations and exceptions that
    the caller `expects` are passed on.
    """

    def __init__(
        self,
        source: str,
        *,
        message: str = "a request failed",
        expects: tuple[type[Exception], ...] = (),
    ) -> None:
        self._logger = scrubbed_logger(source)
        self._message = message
        self._expects = expects

    def warn(self, message: str) -> None:
        """Write a warning."""
        self._logger.warning("%s", message)

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception) or isinstance(error, self._expects):
            return False
        self._logger.error(self._message, exc_info=error)
        return True


def log_to_stderr() -> None:
    """Write the log of the process to standard error, without secrets, once.

    The level is that of the logger `haptera`, which the configuration sets; of other packages
    only warnings are written.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_FORMAT))
    add_root_handler(handler)
