"""Events as server-sent events: replayed from a `seq`, then followed, without gap or duplicate.

`id:` is the `seq` of an entry; live events have none, so a client that reconnects with
`Last-Event-ID` gets every entry once. An event is encoded once, however many clients get it.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import StreamingResponse

from holdfast.server.problems import Problem
from holdfast.vocabulary.entries import Entry, QueryEnded
from holdfast.vocabulary.events import Event, ObserverLagged, SessionDeleted

SSE = "text/event-stream"
PING_SECONDS = 12.0
_RETRY = b"retry: 1000\n\n"
_HEADERS = {
    "content-type": SSE,
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
_KEPT = 512


class EventEncoder:
    """Encodes events as frames, and keeps the last ones for the other clients that get them."""

    def __init__(self) -> None:
        self._frames: OrderedDict[int, tuple[Event, bytes]] = OrderedDict()

    def frame(self, event: Event) -> bytes:
        """Return the frame of an event; the same object is encoded once."""
        known = self._frames.get(id(event))
        if known is not None and known[0] is event:
            return known[1]
        seq = getattr(event, "seq", None)
        made = frame_of(event.kind, event, seq=seq if isinstance(event, Entry) else None)
        self._frames[id(event)] = (event, made)  # holds the event, so that its id stays its own
        if len(self._frames) > _KEPT:
            self._frames.popitem(last=False)
        return made


def frame_of(kind: str, value: Any, *, seq: int | None = None) -> bytes:
    """Return one server-sent event."""
    number = b"" if seq is None else b"id: %d\n" % seq
    data = msgspec.json.encode(value)
    return b"%sevent: %s\ndata: %s\n\n" % (number, kind.encode(), data)


class EventStream:
    """The body of one streamed answer."""

    def __init__(
        self,
        events: AsyncGenerator[Event, None],
        encoder: EventEncoder,
        *,
        after: int,
        head: int,
        types: frozenset[str] = frozenset(),
        follow: bool = True,
        until: str | None = None,
    ) -> None:
        self._events = events
        self._encoder = encoder
        self._seen, self._head = after, head
        self._types = types
        self._follow = follow
        self._until = until

    def answer(self) -> StreamingResponse:
        """Return the answer to a request."""
        return StreamingResponse(self.frames(), headers=_HEADERS)

    async def frames(self) -> AsyncIterator[bytes]:
        """Yield frames, what is ready together; a ping where nothing happens."""
        yield _RETRY
        is_synced = self._seen >= self._head
        if is_synced:
            yield self._synced()
            if not self._follow:
                return
        async with contextlib.aclosing(with_pings(self._events, PING_SECONDS)) as events:
            async for event in events:
                if event is None:
                    yield frame_of("ping", {})
                    continue
                if self._is_wanted(event):
                    yield self._encoder.frame(event)
                self._seen = max(self._seen, getattr(event, "seq", 0) or 0)
                if not is_synced and self._seen >= self._head:
                    is_synced = True
                    yield self._synced()
                    if not self._follow:
                        return
                if self._is_last(event):
                    return

    def _is_wanted(self, event: Event) -> bool:
        return not self._types or event.kind in self._types

    def _is_last(self, event: Event) -> bool:
        """Whether the stream ends here: the query is over, or the client must resume."""
        if isinstance(event, ObserverLagged | SessionDeleted):
            return True
        return self._until is not None and isinstance(event, QueryEnded)

    def _synced(self) -> bytes:
        return frame_of("log.synced", {"seq": max(self._seen, self._head)})


async def with_pings(
    events: AsyncGenerator[Event, None], seconds: float
) -> AsyncGenerator[Event | None, None]:
    """Yield events, and None whenever nothing came for a while."""
    async with contextlib.aclosing(events):
        pending: asyncio.Future[Event] | None = None
        try:
            while True:
                pending = pending or asyncio.ensure_future(anext(events))
                done, _ = await asyncio.wait({pending}, timeout=seconds)
                if not done:
                    yield None
                    continue
                try:
                    event = pending.result()
                except StopAsyncIteration:
                    return
                finally:
                    pending = None
                yield event
        finally:
            if pending is not None:
                pending.cancel()
                with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
                    await pending


def resume_point(request: Request, after: int | None) -> int:
    """Return the `seq` to go on from: what a browser says by itself wins over the query.

    Raises:
        Problem: 400 when it is no number.

    """
    told = request.headers.get("last-event-id")
    if told is None or not told.strip():
        return after or 0
    if not told.strip().isdecimal() or len(told.strip()) > 18:
        raise Problem(400, "LAST_EVENT_ID", "Last-Event-ID is the seq of an entry")
    return int(told)


def is_streamed(request: Request) -> bool:
    """Whether the client asks for a stream as the answer."""
    return SSE in request.headers.get("accept", "")


