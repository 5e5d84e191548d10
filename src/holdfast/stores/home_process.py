"""The process that a store belongs to: its threads exist nowhere else, not even in a fork of it."""

import os

from holdfast.vocabulary.errors import ErrorCode, SessionError


class HomeProcess:
    """Remembers where a store was made; there its threads are, and there it can be used."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def refuse_forks(self) -> None:
        """Raise CLOSED in a fork of the process: nobody would ever do what is asked for here."""
        if os.getpid() != self._pid:
            raise SessionError(
                ErrorCode.CLOSED,
                f"the store belongs to process {self._pid}, of which this one is a fork; "
                "make an agent after forking",
            )
