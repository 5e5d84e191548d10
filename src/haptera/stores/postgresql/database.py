"""The database: how it is connected to, how statements carry their owner, how errors read.

Every statement is one round trip and one transaction. Nothing is kept on a connection between two
of them (no prepared statements, no settings), so connections can come from a pooler that hands them
out by transaction.
"""

import contextlib
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from haptera.model.errors import AgentError, ConfigError, ErrorCode, StoreError
from haptera.model.json_types import writable
from haptera.stores.postgresql.migrations import migrate
from haptera.stores.postgresql.watches import (
    ReplicationWatch,
    SilenceWatch,
    replication_warning,
)
from haptera.stores.stored_records import closed_error
from haptera.system.logs import scrubbed_logger
from haptera.system.processes import monotonic_seconds

_logger = scrubbed_logger(__name__)

PgConnection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"
Row: TypeAlias = tuple[Any, ...]

TOTAL_WAIT_SECONDS = 30.0
"""How long an operation goes on trying to reach the database before it is UNAVAILABLE."""
_FIRST_RETRY_SECONDS = 0.02
_LONGEST_RETRY_SECONDS = 0.5

_LEASE = "lease_seconds="
_SHORTEST_LEASE, _LONGEST_LEASE = 0.3, 3600.0

_DEFAULTS = {
    "connect_timeout": "10",
    "application_name": "haptera",
    # A machine that vanished is noticed by unanswered packets.
    "tcp_user_timeout": "20000",
    "keepalives_idle": "20",
    "keepalives_interval": "5",
}
_TRANSIENT_STATES = frozenset({"25006", "40001", "40P01", "53300", "55P03", "57014", "58P01"})
"""Among others: a standby that refuses writes, a deadlock, too many connections, a statement that
was cancelled."""
_TRANSIENT_CLASSES = ("08", "57P")
"""The connection failed; the server shuts down, has crashed or starts."""

T = TypeVar("T")
Work: TypeAlias = Callable[[PgConnection], T]
"""Talks to the database. It is repeated when the outcome of an attempt is not known, so doing it
twice has the same effect as doing it once."""


class Database:
    """Where the database is, and for which owner. Opens connections; does not keep them."""

    def __init__(self, url: str, *, owner: str | None) -> None:
        url, self.lease_seconds = _without_lease(url)
        try:
            parameters = conninfo_to_dict(url)
        except psycopg.Error as error:
            # The text of the error may hold the password.
            del error
            raise ConfigError(
                ErrorCode.CONFIG_INVALID, "the URL of the PostgreSQL store is not valid"
            ) from None
        self._parameters: dict[str, Any] = {**_DEFAULTS, **parameters}
        self.owner = owner
        self.owner_text = None if owner is None else to_text(owner)
        self._migrated = threading.Lock()
        self._is_migrated = False
        self.warning: str | None = None
        """What is wrong with how the server acknowledges commits, once there was a connection."""
        self.closing = threading.Event()
        self._silence = SilenceWatch()
        self._replication = ReplicationWatch()
        self._local = threading.local()

    def connect(self) -> PgConnection:
        """Open a connection; the first one sees that the schema is there."""
        # No prepared statements: behind a pooler the next one may run on another connection of the
        # server.
        connection: PgConnection = psycopg.connect(
            **self._parameters, autocommit=True, prepare_threshold=None
        )
        connection.add_notice_handler(self._replication.note)
        if not self._is_migrated:
            try:
                with self._migrated, self.watched(connection):
                    migrate(connection)
                    self.warning = replication_warning(connection)
                    if self.warning is not None:
                        _logger.warning("%s", self.warning)
                    self._is_migrated = True
            except BaseException:
                connection.close()
                raise
        return connection

    @contextlib.contextmanager
    def watched(self, connection: PgConnection, *, within: float | None = None) -> Iterator[None]:
        """Cut a connection that does not answer in time, so that its thread is free again.

        The time is that of the operation that `retry` is about, or `within`.
        """
        until = self._local_deadline() if within is None else monotonic_seconds() + within
        with self._silence.watched(connection, until=until):
            yield

    def confirm(self, connection: PgConnection) -> None:
        """Wait for the replicas again, if the wait of what was just done for them was cancelled.

        Nothing counts as stored before that. Called inside `retry`, which repeats the wait, too.
        """
        self._replication.confirm(connection, until=self._local_deadline())

    def _local_deadline(self) -> float:
        until: float | None = getattr(self._local, "until", None)
        return monotonic_seconds() + TOTAL_WAIT_SECONDS if until is None else until

    def query(self, connection: PgConnection, statement: str, *values: object) -> list[Row]:
        """Run one statement for the owner, with the setting that row-level security compares.

        Both go in one message, which the server runs as one transaction.
        """
        # Only the simple protocol takes two statements in one message. It has no parameters, so the
        # client writes the values into the text.
        cursor = psycopg.ClientCursor(connection)
        if self.owner_text is None:
            cursor.execute(statement.encode(), values)
        else:
            # The prefix tells an owner whose name is empty from a setting that was never made,
            # which reads as an empty text.
            scoped = f"SELECT set_config('haptera.owner', %s, true); {statement}"
            cursor.execute(scoped.encode(), (f"o:{self.owner_text}", *values))
            cursor.nextset()
        return cursor.fetchall() if cursor.description else []

    def retry(self, work: Callable[[int], T]) -> T:
        """Do something again while the database cannot be reached.

        `work` is told how often it was tried before.

        Raises:
            StoreError: UNAVAILABLE after `TOTAL_WAIT_SECONDS`, other codes at once.
            SessionError: CLOSED when the store is closed meanwhile.

        """
        deadline = monotonic_seconds() + TOTAL_WAIT_SECONDS
        wait, tried = _FIRST_RETRY_SECONDS, 0
        self._replication.begin()
        while True:
            self._local.until = deadline
            try:
                return work(tried)
            except psycopg.Error as error:
                if not is_transient(error) or monotonic_seconds() >= deadline:
                    raise store_error_from(error) from error
            finally:
                self._local.until = None
            tried += 1
            if self.closing.wait(wait * (1 + secrets.randbelow(1000) / 1000)):
                raise closed_error()
            wait = min(wait * 2, _LONGEST_RETRY_SECONDS)


def _without_lease(url: str) -> tuple[str, float | None]:
    """Take `lease_seconds` out of a URL: it is for this store, and PostgreSQL would refuse it."""
    base, _, query = url.partition("?")
    fields = [field for field in query.split("&") if field]
    named = [field for field in fields if field.startswith(_LEASE)]
    if not named:
        return url, None
    try:
        seconds = float(named[-1].removeprefix(_LEASE))
    except ValueError:
        seconds = 0.0
    if not _SHORTEST_LEASE <= seconds <= _LONGEST_LEASE:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"lease_seconds of a PostgreSQL store is a number from {_SHORTEST_LEASE} to "
            f"{_LONGEST_LEASE}",
        )
    remaining = "&".join(field for field in fields if field not in named)
    return (f"{base}?{remaining}" if remaining else base), seconds


def is_transient(error: psycopg.Error) -> bool:
    """Return whether the same statement may succeed on another connection."""
    state = error.sqlstate
    # There is no state when the connection broke before the server could say anything.
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state in _TRANSIENT_STATES or state.startswith(_TRANSIENT_CLASSES)


def store_error_from(error: psycopg.Error) -> AgentError:
    """Translate an error of the database."""
    state, text = error.sqlstate or "", str(error).strip().split("\n")[0]
    if state == "54000":  # owner, project and name are one key of an index
        return ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"an owner, a project or a name is too long for PostgreSQL: {text}",
        )
    # The class is about resources. 53300, too many connections, has nothing to do with space.
    if state.startswith("53") and state != "53300":
        return StoreError(ErrorCode.FULL, f"PostgreSQL has no space left: {text}")
    if state.startswith("XX"):
        return StoreError(ErrorCode.CORRUPT, f"PostgreSQL reports damage: {text}")
    return StoreError(ErrorCode.UNAVAILABLE, f"PostgreSQL cannot be used: {text}")


def close_quietly(connection: PgConnection) -> None:
    """Close a connection and ignore errors of closing."""
    try:
        connection.close()
    except psycopg.Error:
        return


_ESCAPED = re.compile("\x1a(.)", re.DOTALL)


def to_text(text: str) -> str:
    """Return a text that PostgreSQL can keep: it has no zero character."""
    if "\0" in text or "\x1a" in text:
        text = text.replace("\x1a", "\x1a\x1a").replace("\0", "\x1a0")
    return writable(text)


def from_text(text: str | None) -> str | None:
    """Return the text that `to_text` was given."""
    if text is None or "\x1a" not in text:
        return text
    return _ESCAPED.sub(lambda found: "\0" if found[1] == "0" else found[1], text)


def texts_or_none(texts: Sequence[str | None]) -> list[str | None]:
    """Return texts that PostgreSQL can keep."""
    return [None if text is None else to_text(text) for text in texts]
