"""Queries that were cut off: a server carries them on by itself, in the sessions of its pool.

A server looks for queries whose server has gone, and for those that were cut off in sessions which
it holds. It carries them on in its own pool, so that streams follow them live, requests reach them,
and a server that shuts down waits for them.
"""

import asyncio
import weakref
from collections.abc import Callable, Iterable, Mapping

from haptera import AgentError, AgentSession
from haptera.access.pool import SessionPool
from haptera.access.unowned import HeldQueries, HeldQuery, JoinedQueries
from haptera.access.worker import (
    SessionWorker,
    SharedStore,
    SharedWork,
    WorkerSettings,
    can_go_on,
    is_running,
)
from haptera.model.ids import SessionId
from haptera.server.limits import ServerSettings
from haptera.system.owned_tasks import OwnedTasks


class _Carried:
    """A query that is being carried on."""

    def __init__(self, session: AgentSession, tasks: OwnedTasks) -> None:
        self.begun = asyncio.Event()
        """Set when it runs, or has failed."""
        self.task = tasks.start(self._run(session), name="haptera-carry-on")

    async def _run(self, session: AgentSession) -> None:
        try:
            async with session.resume(on_abort="return") as stream:
                self.begun.set()
                await stream.result()
        finally:
            # Also when the query could not be resumed: a request that waits for its beginning goes
            # on.
            self.begun.set()


class CutOffQueries:
    """Carries on what was cut off. Owns the worker that looks for it, and the tasks that wait."""

    def __init__(
        self,
        pool: SessionPool[AgentSession],
        sessions: Mapping[tuple[str, str], AgentSession],
        settings: ServerSettings,
    ) -> None:
        self._pool = pool
        self._sessions = sessions
        self._settings = settings
        self._carried: dict[AgentSession, _Carried] = {}
        # Weak: a session that is closed and opened again is another object, and begins anew.
        self._left_alone: weakref.WeakSet[AgentSession] = weakref.WeakSet()
        self._tasks = OwnedTasks()
        self._worker: SessionWorker | None = None

    def start(self, stores: Callable[[], Iterable[SharedStore]]) -> None:
        """Look for queries from now on; `stores` returns those of every owner."""
        if self._worker is not None:
            return
        held = HeldQueries(self._cut_off)
        self._worker = SessionWorker(
            JoinedQueries(lambda: (*stores(), held) if self._settings.resume else (held,)),
            lambda query: SharedWork(
                self._pool.use(query.session_id, owner=query.owner), self._finish
            ),
            settings=WorkerSettings(
                pause_seconds=self._settings.resume_seconds,
                at_once=self._settings.resume_at_once,
            ),
        )
        self._worker.start()

    async def stop(self) -> None:
        """Look no more; what runs goes on in its session."""
        if self._worker is not None:
            await self._worker.close()

    async def close(self) -> None:
        """End what still waits for a query, after the sessions were closed."""
        await self._tasks.cancel(within=None)

    def carry_on(self, session: AgentSession) -> "asyncio.Task[None]":
        """Carry on the query that was cut off or rests, without waiting for it."""
        return self._carry_on(session).task

    async def before_request(self, session: AgentSession) -> None:
        """Carry on what was cut off before a request reaches the session; wait for its beginning.

        A new prompt would end it otherwise.
        """
        self._left_alone.discard(session)
        if self._resumes(session):
            await self._carry_on(session).begun.wait()

    def leave(self, session: AgentSession) -> None:
        """Carry nothing on in a session before the next request that needs it: the client says."""
        self._left_alone.add(session)

    def _resumes(self, session: AgentSession) -> bool:
        """Return whether something in a session is to be carried on, and is not."""
        if not self._settings.resume or session in self._left_alone:
            return False
        return _has_work(session)

    def _carry_on(self, session: AgentSession) -> _Carried:
        carried = self._carried.get(session)
        # No wait between the look and the assignment: worker and requests share one resume.
        if carried is None:
            carried = self._carried[session] = _Carried(session, self._tasks)
            carried.task.add_done_callback(lambda task: self._forget(session, task))
        return carried

    def _forget(self, session: AgentSession, task: "asyncio.Task[None]") -> None:
        self._carried.pop(session, None)
        if not task.cancelled():
            task.exception()  # how it ended is in the log, where clients read it

    async def _finish(self, session: AgentSession) -> None:
        """Carry on for the worker, which is told of failures and may be stopped alone."""
        task = self.carry_on(session)
        # `wait` passes no cancellation on: a worker that is stopped leaves the query running.
        await asyncio.wait({task})
        task.result()

    def _cut_off(self) -> list[HeldQuery]:
        """List what does not go on in sessions that are open here; close what others took over."""
        queries: list[HeldQuery] = []
        # A copy, because a discard changes the mapping.
        for (owner, session_id), session in list(self._sessions.items()):
            if session.taken_over:
                closing = self._pool.discard(session_id, owner=owner)
                self._tasks.start(closing, name="haptera-discard")
            elif self._resumes(session):
                head = session.view().head
                queries.append(HeldQuery(session_id=SessionId(session_id), owner=owner, head=head))
        return queries


def _has_work(session: AgentSession) -> bool:
    """Return whether something in a session could be carried on, and no query runs."""
    try:
        return not (session.closed or is_running(session.status)) and can_go_on(session.unfinished)
    except AgentError:  # it was closed meanwhile
        return False
