"""What tests know of each durable store from outside: its place, its files, how to damage it."""

import contextlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import apsw

from haptera.model.errors import ErrorCode
from haptera.model.ids import SessionId
from haptera.model.log.entry import Entry
from haptera.ports.session_store import Lease, Store
from haptera.stores.jsonl.store import JsonlStore
from haptera.stores.lease_rules import LOCAL_LEASE_SECONDS
from haptera.stores.sqlite.store import SqliteStore


class DurableKind(ABC):
    """A kind of store on a disk. The folder that all of this takes is one that a test gives it."""

    open_files: ClassVar[int]
    """How many files each live session keeps open."""
    synced: ClassVar[re.Pattern[str]]
    """Matches the path of each file that an append writes to and syncs before it returns."""
    code_when_deleted: ClassVar[ErrorCode]
    """What a holder gets when everything in `root` was deleted."""
    copy_serves_lost_append: ClassVar[bool] = False
    """Whether a copy put in the place of a log shows the append that raised because of it."""

    @abstractmethod
    def place(self, folder: Path) -> Path:
        """Return what comes after the colon in the store string: `root`, or a file in it."""

    @abstractmethod
    def open(self, folder: Path, *, lease_seconds: float = LOCAL_LEASE_SECONDS) -> Store:
        """Open the store at its place, with leases that outlive a silent holder for so long."""

    @abstractmethod
    def root(self, folder: Path) -> Path:
        """Return the folder that has every file of the store."""

    @abstractmethod
    def log(self, folder: Path, session_id: SessionId) -> Path:
        """Return the file that an append to this session goes into."""

    @abstractmethod
    async def append_while_deleted(
        self, store: Store, lease: Lease, entries: Sequence[Entry], *, log: Path
    ) -> None:
        """Append, and delete the log when the append has begun and has not returned."""

    @abstractmethod
    def damage_word(self, folder: Path, session_id: SessionId, word: bytes) -> None:
        """Change the first letter of a word that one entry holds, and nothing else."""

    @abstractmethod
    def damage_entries(self, folder: Path, session_id: SessionId, seqs: range) -> None:
        """Damage these entries, so that their checksums are wrong."""

    @abstractmethod
    def damage_command(self, folder: Path, session_id: SessionId, word: bytes) -> None:
        """Put a byte that is no text into the command in the inbox that holds a word."""

    @abstractmethod
    def damage_payloads(self, folder: Path, session_id: SessionId, *, gone: bool) -> None:
        """Delete or cut what is kept beside the log of a session because it is too big for it."""

    @abstractmethod
    def count_payloads(self, folder: Path) -> int:
        """Count what `damage_payloads` damages, of all sessions."""


class JsonlKind(DurableKind):
    """A folder of files."""

    open_files = 1
    synced = re.compile(r"sessions/[^/]*\.jsonl$")
    # The lease goes, too.
    code_when_deleted = ErrorCode.FENCED

    def place(self, folder: Path) -> Path:
        return folder / "sessions"

    def open(self, folder: Path, *, lease_seconds: float = LOCAL_LEASE_SECONDS) -> Store:
        return JsonlStore(self.place(folder), lease_seconds=lease_seconds)

    def root(self, folder: Path) -> Path:
        return self.place(folder)

    def log(self, folder: Path, session_id: SessionId) -> Path:
        return self.root(folder) / "sessions" / f"{session_id}.jsonl"

    async def append_while_deleted(
        self, store: Store, lease: Lease, entries: Sequence[Entry], *, log: Path
    ) -> None:
        sync = os.fdatasync

        def sync_and_lose(descriptor: int) -> None:
            sync(descriptor)
            log.unlink(missing_ok=True)

        os.fdatasync = sync_and_lose  # type: ignore[assignment]
        try:
            await store.log.append(lease, entries)
        finally:
            os.fdatasync = sync

    def damage_word(self, folder: Path, session_id: SessionId, word: bytes) -> None:
        _replace(self.log(folder, session_id), word, b"?" + word[1:])

    def damage_entries(self, folder: Path, session_id: SessionId, seqs: range) -> None:
        log = self.log(folder, session_id)
        lines = log.read_bytes().splitlines(keepends=True)
        for seq in seqs:
            lines[seq - 1] = lines[seq - 1].replace(b"note", b"nope")
        log.write_bytes(b"".join(lines))

    def damage_command(self, folder: Path, session_id: SessionId, word: bytes) -> None:
        inbox = self.root(folder) / "inbox" / f"{session_id}.jsonl"
        _replace(inbox, word, word[:-1] + b"\xff")

    def damage_payloads(self, folder: Path, session_id: SessionId, *, gone: bool) -> None:
        for file in (self.root(folder) / "blobs" / session_id).iterdir():
            file.unlink() if gone else file.write_bytes(file.read_bytes()[:-1])

    def count_payloads(self, folder: Path) -> int:
        return sum(path.is_file() for path in (self.root(folder) / "blobs").rglob("*"))


class SqliteKind(DurableKind):
    """A database file, and what SQLite puts beside it."""

    open_files = 0
    synced = re.compile(r"-wal$")
    code_when_deleted = ErrorCode.UNAVAILABLE
    # The write-ahead log of a database that is replaced serves the new file, too.
    copy_serves_lost_append = True

    def place(self, folder: Path) -> Path:
        return self.root(folder) / "sessions.db"

    def open(self, folder: Path, *, lease_seconds: float = LOCAL_LEASE_SECONDS) -> Store:
        return SqliteStore(self.place(folder), lease_seconds=lease_seconds)

    def root(self, folder: Path) -> Path:
        return folder / "store"

    def log(self, folder: Path, session_id: SessionId) -> Path:
        return self.place(folder)

    async def append_while_deleted(
        self, store: Store, lease: Lease, entries: Sequence[Entry], *, log: Path
    ) -> None:
        # The file goes while the transaction is under way: a reader of the entries sees to it.
        class Losing(list[Entry]):
            def __iter__(self) -> Iterator[Entry]:
                log.unlink(missing_ok=True)
                return super().__iter__()

        await store.log.append(lease, Losing(entries))

    def damage_word(self, folder: Path, session_id: SessionId, word: bytes) -> None:
        with self._writing(folder) as connection:
            connection.execute(
                "UPDATE entry SET body = CAST(replace(CAST(body AS TEXT), ?1, '?' || substr(?1, 2))"
                " AS BLOB) WHERE instr(body, CAST(?1 AS BLOB))",
                (word.decode(),),
            )
            assert connection.changes() == 1

    def damage_entries(self, folder: Path, session_id: SessionId, seqs: range) -> None:
        with self._writing(folder) as connection:
            connection.execute(
                "UPDATE entry SET crc = crc + 1 WHERE seq BETWEEN ? AND ?", (seqs[0], seqs[-1])
            )

    def damage_command(self, folder: Path, session_id: SessionId, word: bytes) -> None:
        with self._writing(folder) as connection:
            connection.execute(
                "UPDATE command SET body = CAST(replace(CAST(body AS TEXT), ?,"
                " CAST(x'66ff' AS TEXT)) AS BLOB)",
                (word.decode(),),
            )

    def damage_payloads(self, folder: Path, session_id: SessionId, *, gone: bool) -> None:
        with self._writing(folder) as connection:
            connection.execute("DELETE FROM blob" if gone else "UPDATE blob SET content = x'00'")

    def count_payloads(self, folder: Path) -> int:
        with self._writing(folder) as connection:
            return int(connection.execute("SELECT count(*) FROM blob").get)

    def _writing(self, folder: Path) -> contextlib.closing[apsw.Connection]:
        return contextlib.closing(apsw.Connection(str(self.place(folder))))


def _replace(file: Path, word: bytes, other: bytes) -> None:
    content = file.read_bytes()
    assert word in content
    file.write_bytes(content.replace(word, other))


DURABLE_KINDS: dict[str, DurableKind] = {
    "jsonl": JsonlKind(),
    "sqlite": SqliteKind(),
}


def durable_kind(kind: str) -> DurableKind:
    """Return what is known of a kind of store; no kind is taken for another."""
    if kind not in DURABLE_KINDS:
        raise LookupError(
            f"tests do not know the files of a {kind!r} store: write a DurableKind for it and add "
            "it to DURABLE_KINDS in tests/stores/durable_kinds.py"
        )
    return DURABLE_KINDS[kind]
