"""SpillBuffer: lines that wait for a slow consumer, bounded in memory; the rest waits in a file.

Knows nothing of agents. A module of its own because its only importer has no space for it.
"""

import os
import tempfile
from collections import deque
from typing import IO

DEFAULT_BYTES = 4 * 1024 * 1024
_LENGTH_BYTES = 8


class SpillBuffer:
    """A queue of byte strings. From `limit` bytes on they wait in an unnamed temporary file.

    Nothing is dropped. The file has no name, is readable for this process alone, and is gone when
    the buffer is closed or its process has ended. It is emptied whenever the consumer has caught
    up.
    """

    def __init__(self, limit: int = DEFAULT_BYTES) -> None:
        self._limit = limit
        self._memory: deque[bytes] = deque()
        self.memory_bytes = 0
        self._file: IO[bytes] | None = None
        self._spilled = 0
        self._read_at = 0

    def __len__(self) -> int:
        return len(self._memory) + self._spilled

    def put(self, line: bytes) -> None:
        """Add a line; order is kept, so nothing goes to memory while the file holds any."""
        if not self._spilled and self.memory_bytes + len(line) <= self._limit:
            self._memory.append(line)
            self.memory_bytes += len(line)
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="holdfast-")  # noqa: SIM115 - `close` does
        # Reading has moved the position.
        self._file.seek(0, os.SEEK_END)
        self._file.write(len(line).to_bytes(_LENGTH_BYTES, "big"))
        self._file.write(line)
        self._spilled += 1

    def get(self) -> bytes:
        """Take the first line out; raises IndexError when there is none."""
        if self._memory:
            line = self._memory.popleft()
            self.memory_bytes -= len(line)
            return line
        if self._file is None or not self._spilled:
            raise IndexError("nothing waits")
        self._file.seek(self._read_at)
        length = int.from_bytes(self._file.read(_LENGTH_BYTES), "big")
        line = self._file.read(length)
        self._read_at += _LENGTH_BYTES + length
        self._spilled -= 1
        if not self._spilled:
            self._read_at = 0
            self._file.truncate(0)
        return line

    def close(self) -> None:
        """Drop what waits, and the file."""
        self._memory.clear()
        self.memory_bytes = self._spilled = self._read_at = 0
        if self._file is not None:
            self._file.close()
            self._file = None
