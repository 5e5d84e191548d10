"""The sessions of one owner as routes use them: held in this process, or by another one."""

import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import TypeAlias

from holdfast import Agent, AgentRemote, AgentSession
from holdfast.administration.descriptions import SessionDescription
from holdfast.administration.pool import SessionPool
from holdfast.server.problems import Problem
from holdfast.vocabulary.errors import ErrorCode, SessionError
from holdfast.vocabulary.ids import parse_session_id

Door: TypeAlias = AgentSession | AgentRemote
"""A session to talk to: open here, or reached through the inbox of the process that holds it."""


class OwnerSessions:
    """What one owner can reach. Other owners' sessions do not exist for it."""

    def __init__(self, agent: Agent, pool: SessionPool[AgentSession], owner: str) -> None:
        self.agent = agent
        self._pool = pool
        self._owner = owner

    async def describe(self, session_id: str) -> SessionDescription:
        """Describe a session by its id; there is no look-up by name, and no default.

        Raises:
            SessionError: NOT_FOUND, also for the session of another owner.

        """
        if parse_session_id(session_id) is None:
            raise _not_found(session_id)
        return await self.agent.sessions.get(session_id)

    @contextlib.asynccontextmanager
    async def door(self, session_id: str) -> AsyncGenerator[Door, None]:
        """Open a session here, or reach it where another process holds it."""
        await self.describe(session_id)
        try:
            async with self._pool.use(session_id, owner=self._owner) as session:
                yield session
                return
        except SessionError as error:
            if error.code is not ErrorCode.BUSY:
                raise
        yield await self.agent.remote(session_id)

    @contextlib.asynccontextmanager
    async def held(self, session_id: str) -> AsyncGenerator[AgentSession, None]:
        """Open a session here.

        Raises:
            SessionError: BUSY when another process holds it.

        """
        await self.describe(session_id)
        async with self._pool.use(session_id, owner=self._owner) as session:
            yield session

    async def discard(self, session_id: str) -> None:
        """Close a session that is open here."""
        await self._pool.discard(session_id, owner=self._owner)


class Owners:
    """Makes the sessions of each owner once: an agent, and a place in the shared pool."""

    def __init__(self, agents: Callable[[str], Agent | None], pool: SessionPool[AgentSession]) -> None:
        self._agents = agents
        self._pool = pool
        self._made: dict[str, OwnerSessions] = {}

    def __call__(self, owner: str) -> OwnerSessions:
        """Return the sessions of an owner.

        Raises:
            Problem: 403 when no agent serves this owner.

        """
        if owner not in self._made:
            agent = self._agents(owner)
            if agent is None:
                raise Problem(403, "OWNER_UNKNOWN", "nothing is served to this owner")
            self._made[owner] = OwnerSessions(agent, self._pool, owner)
        return self._made[owner]


def _not_found(session_id: str) -> SessionError:
    return SessionError(ErrorCode.NOT_FOUND, f"there is no session {session_id[:60]!r}")
