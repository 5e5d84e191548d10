"""The leases of a jsonl store: a lock file for each session."""

import functools
import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Literal

from haptera.model.ids import SessionId
from haptera.ports.session_store import Lease
from haptera.stores.append_rules import fenced_error
from haptera.stores.jsonl.lock_file import read_lease_state
from haptera.stores.jsonl.resources import JsonlResources
from haptera.stores.jsonl.session_writer import SessionWriter
from haptera.stores.lease_rules import (
    LinePosition,
    acquire_in_line,
    busy_error,
    is_abandoned,
    lease_of_thread,
    result_of_thread,
)
from haptera.stores.notifications import PeriodicThread
from haptera.system.private_files import open_or_create, translated_os_errors


class JsonlLeases:
    """One writer per session, across processes.

    Owns the renewal of the leases that this store holds. A process that ends loses its locks at
    once; one that is stopped loses its lease when it expires.
    """

    def __init__(self, resources: JsonlResources) -> None:
        self._resources = resources
        self._folder = resources.folder
        # At a third of the time one renewal may be late or fail, and the lease still does not
        # expire.
        self._renewals = PeriodicThread(
            "haptera-renew", resources.lease_seconds / 3, self._renew_all
        )

    async def acquire(
        self, session_id: SessionId, holder: str, *, busy: Literal["wait", "reject"] = "reject"
    ) -> Lease:
        """Become the writer of a session."""
        return await acquire_in_line(
            self._resources.notifier,
            self,
            session_id,
            busy=busy,
            attempt=lambda position: self._try_acquire(session_id, holder, position),
        )

    async def renew(self, lease: Lease) -> None:
        """Stay the writer; raises FENCED when another holder took over."""
        await self._resources.threads.write(lease.session_id, lambda: self._renew(lease))

    async def release(self, lease: Lease) -> None:
        """Let another holder become the writer; doing it twice is fine."""
        await result_of_thread(self._ask_to_release(lease.session_id, lambda: self._release(lease)))

    def stop_renewing(self) -> None:
        """Renew no lease from now on."""
        self._renewals.stop()

    async def join(self, session_id: SessionId, ticket: str) -> None:
        """Store a ticket, and remove the tickets of processes that have ended."""
        # Noted before it is stored, so that closing the store removes it even if the caller is
        # gone.
        self._resources.tickets.add(self._folder.side_file("waiting", session_id, ticket))
        await self._resources.threads.write(session_id, lambda: self._join(session_id, ticket))

    def leave(self, session_id: SessionId, ticket: str) -> "Future[None]":
        """Start removing a ticket."""
        path = self._folder.side_file("waiting", session_id, ticket)
        return self._resources.threads.submit(
            session_id, lambda: self._resources.remove_ticket(path)
        )

    def _join(self, session_id: SessionId, ticket: str) -> None:
        path = self._folder.side_file("waiting", session_id, ticket)
        with translated_os_errors(path):
            for other, file in self._folder.side_files("waiting", session_id).items():
                if is_abandoned(other):
                    file.unlink(missing_ok=True)
            os.close(open_or_create(path, os.O_WRONLY))

    async def _try_acquire(
        self, session_id: SessionId, holder: str, position: LinePosition
    ) -> Lease:
        # Filled by the thread, so that a lease is given back even if its caller was cancelled
        # before it got the result.
        gained: list[Lease] = []

        def acquire() -> Lease:
            gained.append(self._acquire(session_id, holder, position))
            return gained[0]

        def give_back() -> None:
            for lease in gained:
                self._release(lease)

        return await lease_of_thread(
            self._resources.threads.submit(session_id, acquire),
            lambda: self._ask_to_release(session_id, give_back),
        )

    def _ask_to_release(self, session_id: SessionId, release: Callable[[], None]) -> "Future[None]":
        """Start a release; callers that wait for the session are woken after it."""
        released = self._resources.threads.submit(session_id, release)
        released.add_done_callback(lambda _: self._resources.notifier.notify(session_id))
        return released

    def _acquire(self, session_id: SessionId, holder: str, position: LinePosition) -> Lease:
        with translated_os_errors(self._folder.lease(session_id)):
            writer = self._resources.writers.get(session_id)
            if writer is not None and writer.is_current():
                if writer.holder != holder:
                    raise busy_error(session_id, writer.holder, process=os.getpid())
                writer.acquire_again()
                return writer.lease
            # It was taken over, or its session deleted: what it knows of the log is out of date.
            if writer is not None:
                writer.close()
            writer = SessionWriter(
                self._folder,
                session_id,
                holder=holder,
                lease_seconds=self._resources.lease_seconds,
            )
            # Deleting removed the lock file with its epoch. A lease from before must not become
            # valid again.
            above = self._resources.deleted_epochs.get(session_id, 0)
            writer.acquire(above=above, position=position)
            self._resources.writers[session_id] = writer
            self._renewals.start()
            return writer.lease

    def _renew_all(self) -> None:
        # A renewal that fails is not reported here: the next append of its holder gets FENCED.
        # Copied, because the threads that write add and remove writers meanwhile.
        for writer in tuple(self._resources.writers.copy().values()):
            self._resources.threads.submit_unless_closed(
                writer.session_id, functools.partial(writer.renew, writer.epoch)
            )

    def _renew(self, lease: Lease) -> None:
        with translated_os_errors(self._folder.lease(lease.session_id)):
            writer = self._resources.writers.get(lease.session_id)
            if writer is None:
                now = read_lease_state(self._folder.lease(lease.session_id))
                raise fenced_error(lease.session_id, now.holder)
            writer.renew(lease.epoch)

    def _release(self, lease: Lease) -> None:
        with translated_os_errors(self._folder.lease(lease.session_id)):
            writer = self._resources.writers.get(lease.session_id)
            # A holder that acquired again has a newer epoch, which the release of the older does
            # not end.
            if writer is not None and writer.epoch == lease.epoch:
                del self._resources.writers[lease.session_id]
                writer.release()
