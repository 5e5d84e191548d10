"""Identifiers: prefixed and sortable for everything, UUIDv7 for sessions.

An id is `<prefix>_` + 12 hex digits of milliseconds + 4 hex digits of counter + 10 random base62
characters. Ids of one factory never repeat and never go backwards, whatever the clock does. They
name things; order is always taken from a log's `seq`.
"""

import os
import re
import threading
import time
from collections.abc import Callable
from typing import NewType
from uuid import UUID, uuid5

SessionId = NewType("SessionId", str)
QueryId = NewType("QueryId", str)
TurnId = NewType("TurnId", str)
MessageId = NewType("MessageId", str)
CHOSEN_MESSAGE_ID = "^[A-Za-z0-9_.:-]{1,128}$"
"""What an id of a message may be that its sender chooses."""
PartId = NewType("PartId", str)
CallId = NewType("CallId", str)
EntryId = NewType("EntryId", str)
ApprovalId = NewType("ApprovalId", str)
InputId = NewType("InputId", str)

DEFAULT_OWNER = "local"
OWNER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""What an owner may be called where several share a server or a pool."""
"""Whose sessions are those that were given no owner. What is stored leaves it out, so it never
changes."""

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# 256 is no multiple of 62: eight characters are slightly more likely. Ids are names, no secrets.
_DIGIT_OF_BYTE = bytes(ord(_BASE62[byte % 62]) for byte in range(256))
_COUNTER_BITS = 16
_HEAD_MASK = (1 << 64) - 1
_TAIL_BYTES = 10
_PROMPTS = UUID("6f1d9a52-5d0c-5e0b-9d3a-2b8f4e6c7a10")
"""The name space of queries whose prompt has an id of the sender's choice."""
_TAILS = 64
"""How many random tails are drawn at a time: each draw is a call of the operating system."""


def _system_milliseconds() -> int:
    return time.time_ns() // 1_000_000


def _system_bits(count: int) -> int:
    """Return bits that cannot be guessed, as `secrets.randbits` does, which is slow to import."""
    return int.from_bytes(os.urandom((count + 7) // 8)) >> (-count % 8)


class IdFactory:
    """Mints ids that ascend within this factory, across threads and clock changes.

    Owns the last tick given out, and random characters for the next ids. Does not own the
    clock, which is handed in.
    """

    def __init__(self, *, now_ms: Callable[[], int] = _system_milliseconds) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._last = 0
        self._tails: list[str] = []

    def ascending(self, prefix: str) -> str:
        """Mint an id that sorts after every earlier one of the same prefix."""
        return f"{prefix}_{self._tick():016x}{self._random_tail()}"

    def descending(self, prefix: str) -> str:
        """Mint an id that sorts before every earlier one of the same prefix.

        For programs whose own tables list the newest row first by the order of keys alone. Haptera
        itself orders by `seq`, never by id.
        """
        return f"{prefix}_{self._tick() ^ _HEAD_MASK:016x}{self._random_tail()}"

    def session(self) -> SessionId:
        """Mint a session id: a UUIDv7 whose counter continues this factory's order."""
        tick = self._tick()
        milliseconds, counter = tick >> _COUNTER_BITS, tick & 0xFFFF
        # 12 counter bits fit beside the version, the other 4 lead the random field.
        value = milliseconds << 80 | 0x7 << 76 | (counter >> 4) << 64
        value |= 0b10 << 62 | (counter & 0xF) << 58 | _system_bits(58)
        digits = f"{value:032x}"
        groups = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        return SessionId("-".join(groups))

    def go_on_after_fork(self) -> None:
        """Go on in the child of a fork, with a lock and with random characters of its own.

        No thread is left there to release the old lock, and the parent uses the old characters.
        """
        self._lock = threading.Lock()
        self._tails = []

    def _tick(self) -> int:
        """Advance to a head of milliseconds and counter; an overflow borrows from the next ms."""
        with self._lock:
            self._last = max(self._now_ms() << _COUNTER_BITS, self._last + 1)
            return self._last

    def _random_tail(self) -> str:
        """Return characters that are used for one id only; needs no lock, since `pop` is atomic."""
        try:
            return self._tails.pop()
        except IndexError:
            size = _TAILS * _TAIL_BYTES
            drawn = _system_bits(8 * size).to_bytes(size)
            characters = drawn.translate(_DIGIT_OF_BYTE).decode()
            starts = range(0, size, _TAIL_BYTES)
            first, *self._tails = (characters[start : start + _TAIL_BYTES] for start in starts)
            return first


# One factory per process, because ids must ascend across every session in it.
_process_ids = IdFactory()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process_ids.go_on_after_fork)


def new_id(prefix: str) -> str:
    """Mint an ascending id from the process-wide factory."""
    return _process_ids.ascending(prefix)


def new_session_id() -> SessionId:
    """Mint a session id from the process-wide factory."""
    return _process_ids.session()


def new_query_id() -> QueryId:
    """Mint the id of a query."""
    return QueryId(_process_ids.ascending("qry"))


def query_id_for(source: str) -> QueryId:
    """Return the id of the query that follows from a message or command of that id."""
    return QueryId(f"qry_{uuid5(_PROMPTS, source).hex}")


def new_turn_id() -> TurnId:
    """Mint the id of a turn."""
    return TurnId(_process_ids.ascending("trn"))


def new_message_id() -> MessageId:
    """Mint the id of a message."""
    return MessageId(_process_ids.ascending("msg"))


def new_part_id() -> PartId:
    """Mint the id of a part of a message."""
    return PartId(_process_ids.ascending("prt"))


def new_entry_id() -> EntryId:
    """Mint the id of a log entry."""
    return EntryId(_process_ids.ascending("evt"))


def new_approval_id() -> ApprovalId:
    """Mint the id of an approval request."""
    return ApprovalId(_process_ids.ascending("apr"))


def new_input_id() -> InputId:
    """Mint the id of a queued input."""
    return InputId(_process_ids.ascending("inp"))


def parse_session_id(text: str) -> SessionId | None:
    """Return `text` as a session id if it is a UUID in canonical form, else None (it is a name)."""
    # `UUID` also takes capitals, braces, and digits without dashes: such text is a name.
    try:
        return SessionId(text) if str(UUID(text)) == text else None
    except ValueError:
        return None
