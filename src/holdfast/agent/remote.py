"""Remote: a session of this agent's store that another process may hold."""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from holdfast.agent.keywords import Prompt, QueryOptions, make_prompt
from holdfast.agent.option_checks import check_id, check_options, decided
from holdfast.vocabulary.approvals import ApprovalScope, Approve, Deny
from holdfast.vocabulary.entries import Entry
from holdfast.vocabulary.ids import SessionId, new_query_id
from holdfast.vocabulary.json_types import Json
from holdfast.vocabulary.settings import Delivery
from holdfast.vocabulary.text import writable_or_none

if TYPE_CHECKING:
    from holdfast.session.remote import RemoteSession


class AgentRemote:
    """Reaches a session in another process: made by `await agent.remote(name)`."""

    def __init__(self, remote: "RemoteSession") -> None:
        self._remote = remote

    @property
    def session_id(self) -> SessionId:
        """The session's id."""
        return self._remote.session_id

    async def send(self, prompt: Prompt, *, delivery: Delivery = "queue") -> None:
        """Send a prompt; its answer comes through `events`."""
        check_options({"delivery": delivery}, QueryOptions, of="a prompt")
        message = make_prompt(prompt, {}, new_query_id())
        await self._remote.prompt(message, delivery=delivery)

    async def steer(self, prompt: Prompt) -> None:
        """Say something into the running query."""
        await self.send(prompt, delivery="steer")

    async def abort(self, reason: str | None = None) -> None:
        """Ask for the running query to be stopped."""
        await self._remote.abort(writable_or_none(reason))

    async def approve(
        self, approval_id: str, *, arguments: Json | None = None, scope: ApprovalScope = "once"
    ) -> None:
        """Let a waiting tool call run."""
        check_id(approval_id, of="the id of an approval")
        decided(Approve(arguments=arguments, scope=scope))
        await self._remote.approve(approval_id, arguments=arguments, scope=scope)

    async def deny(self, approval_id: str, reason: str | None = None) -> None:
        """Refuse a waiting tool call."""
        check_id(approval_id, of="the id of an approval")
        decided(Deny(reason))
        await self._remote.deny(approval_id, writable_or_none(reason))

    def events(self, *, after: int = 0) -> AsyncGenerator[Entry, None]:
        """Read what happened after a `seq`, then what happens, until closed."""
        return self._remote.events(after=after)
