"""A process that uses a store as it is told, line by line; started by tests.

It reads one request per line from stdin, such as `append 3`, and answers each with one line: `ok`
with what was asked for, or the code of the error.
"""

import asyncio
import os
import resource
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from haptera.model.errors import AgentError
from haptera.model.ids import SessionId
from haptera.ports.session_store import Lease, Store
from haptera.stores.jsonl import log_file
from haptera.stores.jsonl.lock_file import LockFile
from haptera.stores.jsonl.session_writer import SessionWriter
from haptera.system.atomic_files import write_all
from haptera.testing.store_conformance.samples import command, note, opening
from tests.stores.durable_kinds import durable_kind

LEASE_SECONDS = 0.3


def open_impatient(kind: str, folder: Path) -> Store:
    """Open a store whose leases outlive a silent holder only for a moment.

    Those of a store whose kind begins with `patient`, such as `patient jsonl`, are not renewed
    while a test runs.
    """
    is_patient, _, name = kind.rpartition(" ")
    seconds = 3600.0 if is_patient else LEASE_SECONDS
    return durable_kind(name).open(folder, lease_seconds=seconds)


def say(line: str) -> None:
    """Write one line."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def tell_when_waiting(leases: Any, tell: Callable[[], None]) -> None:
    """Tell each time that an `acquire` has put its ticket into the waiting line."""
    join = leases.join

    async def join_and_tell(session_id: SessionId, ticket: str) -> None:
        await join(session_id, ticket)
        tell()

    leases.join = join_and_tell


class Session:
    """One session of a store and the lease on it."""

    def __init__(self, store: Store, session_id: SessionId) -> None:
        self._store = store
        self._id = session_id
        self._lease: Lease | None = None

    async def acquire(self, busy: str = "reject") -> str:
        """Become the writer; says `waiting` when it stands in line for that."""
        mode = "wait" if busy == "wait" else "reject"
        if mode == "wait":
            tell_when_waiting(self._store.leases, lambda: say("waiting"))
        self._lease = await self._store.leases.acquire(self._id, f"worker {busy}", busy=mode)  # type: ignore[arg-type]
        return str(self._lease.epoch)

    async def append(self, seq: str, size: str = "1") -> str:
        """Append one entry; the first one opens the session."""
        lease = self._lease or Lease(session_id=self._id, holder="none", epoch=0)
        entry = opening(self._id) if seq == "1" else note(int(seq), "x" * int(size))
        await self._store.log.append(lease, [entry])
        return seq

    async def head(self) -> str:
        """Read the log."""
        return str(len(await self._store.log.read(self._id)))

    async def put(self, name: str) -> str:
        """Leave a command."""
        await self._store.inbox.put(self._id, command(name))
        return name

    async def limit(self, size: str) -> str:
        """Let no file grow beyond this size; `none` lifts the limit."""
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard if size == "none" else int(size), hard))
        return size

    async def stop(self, place: str) -> str:
        """Stop the whole process at a place inside its next write, until it is told to go on."""
        stop_inside(place)
        return place

    async def take_turns(self, name: str, rounds: str) -> str:
        """Wait for the session, note its name in the log and let go, again and again."""
        for _ in range(int(rounds)):
            lease = await self._store.leases.acquire(self._id, name, busy="wait")
            head = len(await self._store.log.read(self._id))
            await self._store.log.append(lease, [note(head + 1, name)])
            await self._store.leases.release(lease)
        return rounds

    async def release(self) -> str:
        """Give the lease up."""
        if self._lease is not None:
            await self._store.leases.release(self._lease)
        return "released"

    async def close(self) -> str:
        """Close the store."""
        await self._store.close()
        return "closed"


def stop_inside(place: str) -> None:
    """Wrap what a jsonl store writes with, so that the process stops there, once."""
    write, sync, is_at_its_path = write_all, os.fdatasync, LockFile.is_at_its_path
    release = SessionWriter.release

    def stop(now: str) -> None:
        nonlocal place
        if now == place:
            place = ""
            # To this thread, so that it does not get a step further before the process stands.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    def stopping_write(descriptor: int, lines: bytes) -> None:
        stop("unwritten")
        write(descriptor, lines[: len(lines) // 2])
        stop("half-written")
        write(descriptor, lines[len(lines) // 2 :])
        stop("written")

    def stopping_sync(descriptor: int) -> None:
        sync(descriptor)
        stop("synced")

    def stopping_look(lease: LockFile) -> bool:
        outcome = is_at_its_path(lease)
        stop("looked")
        return outcome

    def stopping_release(writer: SessionWriter) -> None:
        stop("releasing")
        release(writer)

    log_file.write_all = stopping_write  # type: ignore[attr-defined, assignment]
    os.fdatasync = stopping_sync  # type: ignore[assignment]
    LockFile.is_at_its_path = stopping_look  # type: ignore[method-assign, assignment]
    SessionWriter.release = stopping_release  # type: ignore[method-assign, assignment]


async def answer(work: Callable[..., Awaitable[str]], arguments: list[str]) -> str:
    """Do what was asked for and say how it went."""
    try:
        return f"ok {await work(*arguments)}"
    except AgentError as error:
        return f"{error.code} {error.message}".replace("\n", " ")


async def main() -> None:
    """Answer until there are no more requests."""
    kind, folder, session_id = sys.argv[1:]
    session = Session(open_impatient(kind, Path(folder)), SessionId(session_id))
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        name, *arguments = line.split()
        say(await answer(getattr(session, name), arguments))


if __name__ == "__main__":
    asyncio.run(main())
