"""A subscription of JSON-RPC: the events of one answer as notifications, until it is closed."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec

from haptera.server.event_stream import SentEvent
from haptera.server.operations import EventAnswer
from haptera.server.rpc_messages import notification
from haptera.server.sessions import Hub
from haptera.system.owned_tasks import OwnedTasks

EVENT = "event"
CLOSED = "events/closed"
Send: TypeAlias = Callable[[Sequence[bytes]], Awaitable[None]]
"""Sends messages in their order; waits while the client does not read. ConnectionError: it left."""
_REASONS = {"observer.lagged": "lagged", "session.deleted": "deleted"}


class RpcSubscription:
    """Sends events to a client.

    Owns the task that does it. It reads on when the client has taken what was sent before.
    """

    def __init__(self, id_: str, answer: EventAnswer, hub: Hub) -> None:
        self.id = id_
        self.is_endless = answer.is_endless
        self._tasks = OwnedTasks()
        self.task: asyncio.Task[None] | None = None
        self.on_end: Callable[[], object] = lambda: None
        """Called once, when nothing is sent any more."""
        self._answer = answer
        self._hub = hub
        self._seq = answer.after
        self._reason = "ended"
        self._is_released = False
        session = b"" if answer.session_id is None else _pair(b"session_id", answer.session_id)
        head = b'{"jsonrpc":"2.0","method":"%s","params":{%s' % (
            EVENT.encode(),
            _pair(b"subscription", id_),
        )
        self._head = head + session

    def start(self, send: Send) -> None:
        """Begin to send."""
        self.task = self._tasks.start(self._run(send), name="haptera-rpc-subscription")

    async def stop(self) -> None:
        """End it without a word, also when it was never begun."""
        await self._tasks.cancel(within=None)
        await self._release()  # a task that was cancelled before its first step has not done it

    async def _run(self, send: Send) -> None:
        try:
            async for batch in self._answer.batches:
                await send([self._message(event) for event in batch if event.kind != "ping"])
            await send([self._closed()])
        except ConnectionError:
            pass  # the client has gone
        finally:
            await self._release()

    def _message(self, event: SentEvent) -> bytes:
        """Return the notification of an event, whose JSON is shared with all other clients."""
        self._reason = _REASONS.get(event.kind, self._reason)
        self._seq = event.seq or self._seq
        seq = b"%d" % event.seq if event.seq else b"null"
        kind = event.kind.encode()
        # Put together by hand: to decode and encode an event again for each client would cost the
        # most.
        return b'%s"seq":%s,"kind":"%s","event":%s}}' % (self._head, seq, kind, event.data)

    def _closed(self) -> bytes:
        reason = "shutting_down" if self._hub.is_closing else self._reason
        params = {"subscription": self.id, "seq": self._seq, "reason": reason}
        return notification(CLOSED, params)

    async def _release(self) -> None:
        if self._is_released:
            return
        self._is_released = True
        self._answer.on_end()
        self.on_end()
        await self._answer.batches.aclose()


def _pair(name: bytes, value: str) -> bytes:
    return b'"%s":%s,' % (name, msgspec.json.encode(value))
