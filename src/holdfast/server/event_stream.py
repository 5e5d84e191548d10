"""Events as server-sent events: replayed from a `seq`, then followed, without gap or duplicate.

`id:` is the `seq` of an entry. Live-only events have none, so a client that reconnects with
`Last-Event-ID` gets every entry once. An event is encoded once, however many clients get it.
"""

import contextlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from holdfast import Event, QueryEnded
from holdfast.server.feeds import SessionFeed
from holdfast.server.problems import ProblemError
from holdfast.vocabulary.entries import Entry, InputDrained, InputPromoted, InputQueued

SSE = "text/event-stream"
RETRY = b"retry: 1000\n\n"
_HEADERS = {
    "content-type": SSE,
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
_KEPT = 512
_LONGEST_SEQ = 15


class EventEncoder:
    """Encodes events as frames, and keeps the last ones for the other clients that get them."""

    def __init__(self) -> None:
        self._frames: OrderedDict[int, tuple[Event, bytes]] = OrderedDict()

    def frame(self, event: Event) -> bytes:
        """Return the frame of an event; the same object is encoded once."""
        known = self._frames.get(id(event))
        if known is not None and known[0] is event:
            return known[1]
        made = frame_of(event.kind, event, seq=event.seq if isinstance(event, Entry) else 0)
        self._frames[id(event)] = (event, made)  # holds the event, so that its id stays its own
        if len(self._frames) > _KEPT:
            self._frames.popitem(last=False)
        return made


def frame_of(kind: str, value: object, *, seq: int = 0) -> bytes:
    """Return one server-sent event; only one with a `seq` can be resumed from."""
    number = b"id: %d\n" % seq if seq else b""
    return b"%sevent: %s\ndata: %s\n\n" % (number, kind.encode(), msgspec.json.encode(value))


class QueryWatch:
    """Finds the end of the query that answers one prompt, by the entries of the session.

    A steering prompt joins the query that runs, and a prompt can be taken out of the queue.
    """

    def __init__(self, query_id: str) -> None:
        self._query_id = query_id
        self._input_id: str | None = None

    def is_end(self, event: Event) -> bool:
        """Whether the query is over with this event."""
        match event:
            case InputQueued(message=message) if message.query_id == self._query_id:
                self._input_id = event.input_id
            case InputPromoted(input_id=input_id) if input_id == self._input_id:
                self._query_id = event.query_id or self._query_id
            case InputDrained(input_id=input_id):
                return input_id == self._input_id
            case QueryEnded():
                return event.query_id == self._query_id
        return False


class EventStream:
    """The frames of one streamed response."""

    def __init__(
        self,
        feed: SessionFeed,
        encoder: EventEncoder,
        *,
        head: int,
        types: frozenset[str] = frozenset(),
        follow: bool = True,
        watch: QueryWatch | None = None,
    ) -> None:
        self._feed = feed
        self._encoder = encoder
        self._head = head
        self._types = types
        self._follow = follow
        self._watch = watch
        self._is_synced = False
        self.is_over = False
        """Whether the query that it watches has ended."""

    async def frames(self, *, ping_seconds: float) -> AsyncGenerator[bytes, None]:
        """Yield frames, all that are ready at once; a `ping` where nothing happens."""
        yield RETRY + self._synced(self._feed.seen)
        if self._is_synced and not self._follow:
            return
        batches = self._feed.batches(ping_seconds=ping_seconds)
        async with contextlib.aclosing(batches):
            async for batch in batches:
                yield b"".join(self._encoded(batch)) if batch else self._silence()
                if self.is_over or (self._is_synced and not self._follow):
                    return

    def _encoded(self, batch: list[Event]) -> list[bytes]:
        frames: list[bytes] = []
        for event in batch:
            if not self._types or event.kind in self._types:
                frames.append(self._encoder.frame(event))
            if isinstance(event, Entry):
                frames.append(self._synced(event.seq))
            if self._watch is not None and self._watch.is_end(event):
                self.is_over = True
            if self.is_over or (self._is_synced and not self._follow):
                break
        return frames

    def _synced(self, seen: int) -> bytes:
        """Return the mark that what was stored when the stream began has been sent, once."""
        if self._is_synced or seen < self._head:
            return b""
        self._is_synced = True
        return frame_of("log.synced", {"seq": seen})

    def _silence(self) -> bytes:
        # Entries at the end of a damaged log cannot be read: what can be, was sent.
        return self._synced(self._head) + frame_of("ping", {})


class StreamAnswer(StreamingResponse):
    """A streamed response that gives back what it holds, also when it is never begun."""

    def __init__(
        self, frames: AsyncGenerator[bytes, None], *, on_end: Callable[[], object]
    ) -> None:
        super().__init__(frames, headers=_HEADERS)
        self._frames = frames
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the frames until they end or the client goes away."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()
            await self._frames.aclose()


def resume_point(request: Request, after: int | None) -> int:
    """Return the `seq` to go on from: what a browser says by itself wins over the query.

    Raises:
        ProblemError: 400 when it is no number.

    """
    told = request.headers.get("last-event-id", "").strip()
    if not told:
        return after or 0
    if not (told.isascii() and told.isdecimal() and len(told) <= _LONGEST_SEQ):
        raise ProblemError(400, "LAST_EVENT_ID", "Last-Event-ID is the seq of an entry")
    return int(told)


def is_streamed(request: Request) -> bool:
    """Whether the client asks for a stream as the response."""
    return SSE in request.headers.get("accept", "")


def told_frame(encoder: EventEncoder, session_id: str, event: Event) -> bytes:
    """Return the frame of an event on the stream of all sessions: it names its session."""
    data = encoder.frame(event).partition(b"data: ")[2].rstrip(b"\n")
    told = b'{"session_id":"%s","event":%s}' % (session_id.encode(), data)
    return b"event: %s\ndata: %s\n\n" % (event.kind.encode(), told)
