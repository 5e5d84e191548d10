"""The leases of a jsonl store: a lock file for each session."""

import functools
import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Literal

from holdfast.ports.session_store import Lease
from holdfast.stores.append_rules import fenced_error
from holdfast.stores.jsonl.lease_file import read_lease
from holdfast.stores.jsonl.room import JsonlRoom
from holdfast.stores.jsonl.session_writer import SessionWriter
from holdfast.stores.lease_rules import (
    NOT_WAITING,
    LinePosition,
    busy_error,
    finished,
    is_abandoned,
    lease_of_thread,
    wait_for_lease,
)
from holdfast.stores.notifications import PeriodicThread
from holdfast.stores.private_files import open_or_create, translated_os_errors
from holdfast.vocabulary.ids import SessionId


class JsonlLeases:
    """One writer per session; the lock of a process that died is free at once.

    Time counts only for a holder that is stopped; leases held in this process are renewed in time.
    """

    def __init__(self, room: JsonlRoom) -> None:
        self._room = room
        self._renewals = PeriodicThread("holdfast-renew", room.lease_seconds / 3, self._renew_all)

    async def acquire(
        self, session_id: SessionId, holder: str, *, busy: Literal["wait", "reject"] = "reject"
    ) -> Lease:
        """Become the writer of a session."""
        if busy == "wait":
            return await wait_for_lease(
                self._room.notifier,
                self,
                session_id,
                attempt=lambda turn: self._try_acquire(session_id, holder, turn),
            )
        return await self._try_acquire(session_id, holder)

    async def renew(self, lease: Lease) -> None:
        """Stay the writer; raises FENCED when somebody else took over."""
        await self._room.lanes.write(lease.session_id, lambda: self._renew(lease))

    async def release(self, lease: Lease) -> None:
        """Let somebody else become the writer; doing it twice is fine."""
        await finished(self._ask_to_release(lease.session_id, lambda: self._release(lease)))

    def stop_renewing(self) -> None:
        """Let what is held here expire, or be given up."""
        self._renewals.stop()

    async def join(self, session_id: SessionId, ticket: str) -> None:
        """Keep a ticket, and forget those of processes that are gone."""
        self._room.tickets.add(self._room.folder.named("waiting", session_id, ticket))
        await self._room.lanes.write(session_id, lambda: self._join(session_id, ticket))

    def leave(self, session_id: SessionId, ticket: str) -> "Future[None]":
        """Ask for a ticket to be forgotten."""
        path = self._room.folder.named("waiting", session_id, ticket)
        return self._room.lanes.ask(session_id, lambda: self._room.forget_ticket(path))

    def _join(self, session_id: SessionId, ticket: str) -> None:
        path = self._room.folder.named("waiting", session_id, ticket)
        with translated_os_errors(path):
            for other, file in self._room.folder.all_in("waiting", session_id).items():
                if is_abandoned(other):
                    file.unlink(missing_ok=True)
            os.close(open_or_create(path, os.O_WRONLY))

    async def _try_acquire(
        self, session_id: SessionId, holder: str, turn: LinePosition = NOT_WAITING
    ) -> Lease:
        gained: list[Lease] = []

        def acquire() -> Lease:
            gained.append(self._acquire(session_id, holder, turn))
            return gained[0]

        def give_back() -> None:
            for lease in gained:
                self._release(lease)

        return await lease_of_thread(
            self._room.lanes.ask(session_id, acquire),
            lambda: self._ask_to_release(session_id, give_back),
        )

    def _ask_to_release(self, session_id: SessionId, release: Callable[[], None]) -> "Future[None]":
        """Ask for a release, after which those who wait for the session are woken."""
        released = self._room.lanes.ask(session_id, release)
        released.add_done_callback(lambda _: self._room.notifier.notify(session_id))
        return released

    def _acquire(self, session_id: SessionId, holder: str, turn: LinePosition) -> Lease:
        with translated_os_errors(self._room.folder.lease(session_id)):
            writer = self._room.writers.get(session_id)
            if writer is not None and writer.is_current():
                if writer.holder != holder:
                    raise busy_error(session_id, writer.holder, process=os.getpid())
                writer.acquire_again()
                return writer.lease
            if writer is not None:
                writer.drop()
            writer = SessionWriter(
                self._room.folder,
                session_id,
                holder=holder,
                lease_seconds=self._room.lease_seconds,
            )
            writer.acquire(above=self._room.deleted_epochs.get(session_id, 0), turn=turn)
            self._room.writers[session_id] = writer
            self._renewals.start()
            return writer.lease

    def _renew_all(self) -> None:
        for writer in tuple(self._room.writers.values()):
            self._room.lanes.submit(
                writer.session_id, functools.partial(writer.renew, writer.epoch)
            )

    def _renew(self, lease: Lease) -> None:
        with translated_os_errors(self._room.folder.lease(lease.session_id)):
            writer = self._room.writers.get(lease.session_id)
            if writer is None:
                now = read_lease(self._room.folder.lease(lease.session_id))
                raise fenced_error(lease.session_id, now.holder)
            writer.renew(lease.epoch)

    def _release(self, lease: Lease) -> None:
        with translated_os_errors(self._room.folder.lease(lease.session_id)):
            writer = self._room.writers.get(lease.session_id)
            if writer is not None and writer.epoch == lease.epoch:
                del self._room.writers[lease.session_id]
                writer.release()
