"""The log of a surface such as the server: what went wrong in it, without secrets."""

from types import TracebackType

from holdfast.ports.logs import scrubbed_logger


class FailureLog:
    """Writes warnings, and as a context manager exceptions that nothing foresaw.

    An exception in its block is logged with its traceback and goes no further: whatever is around
    the block, such as an ASGI server, would print it as it is. Cancellations are passed on.
    """

    def __init__(self, source: str) -> None:
        self._logger = scrubbed_logger(source)

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
        if not isinstance(error, Exception):
            return False
        self._logger.error("a request failed", exc_info=error)
        return True
