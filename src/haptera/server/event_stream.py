"""Events as clients get them: replayed from a `seq`, then followed, without gap or duplicate.

Live-only events have no `seq`, so a client that goes on after the last `seq` that it got gets every
entry once. An event is encoded once, however many clients get it.
"""

import contextlib
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator

import msgspec

from haptera import AgentError, Event, QueryEnded, QueryStarted
from haptera.model.entry_bytes import encode_event
from haptera.model.log.compactions import Compaction
from haptera.model.log.entry import Entry, UnknownEntry
from haptera.model.log.queries import InputDrained, InputPromoted, InputQueued
from haptera.server.feeds import SessionFeed
from haptera.server.loop_slices import next_turn
from haptera.server.problems import ProblemError
from haptera.server.sessions import Hub

SSE = "text/event-stream"
_KEPT = 512
_KEPT_BYTES = 2 * 1024 * 1024
_PART_BYTES = 256 * 1024
"""How much is encoded and sent before other clients have their turn."""
_LONGEST_SEQ = 15
_NAME = re.compile(r"[\w.:-]{1,100}", re.ASCII)
_UNKNOWN = str(UnknownEntry.__struct_config__.tag)


class SentEvent(msgspec.Struct, frozen=True, gc=False):
    """An event as it is sent, shared by all clients that get it."""

    kind: str
    seq: int
    """0: the event is not stored."""
    data: bytes
    """The event as JSON."""
    frame: bytes
    """The event as a server-sent event."""


class EventEncoder:
    """Encodes events, and keeps the last ones for the other clients that get them.

    Owns what it keeps: at most `_KEPT` events and `_KEPT_BYTES`, but always the last one.
    """

    def __init__(self) -> None:
        self._bytes = 0
        self._known: OrderedDict[int, tuple[Event, SentEvent]] = OrderedDict()

    def encode(self, event: Event) -> SentEvent:
        """Return an event as it is sent; the same object is encoded once."""
        # By identity: to compare or hash an event would take about as long as to encode it.
        encoded = self._known.get(id(event))
        if encoded is not None and encoded[0] is event:
            return encoded[1]
        seq = event.seq if isinstance(event, Entry) else 0
        sent = _sent(_name_of(event), encode_event(event), seq)
        self._known[id(event)] = (event, sent)  # holds the event, so that its id stays its own
        self._bytes += len(sent.frame)
        while len(self._known) > _KEPT or (self._bytes > _KEPT_BYTES and len(self._known) > 1):
            self._bytes -= len(self._known.popitem(last=False)[1][1].frame)
        return sent


def source_event(event: Event, sent: SentEvent) -> SentEvent:
    """Return an event under the name that other programs know it by, with their fields."""
    if not isinstance(event, Compaction):
        return _sent(event.alias, sent.data, sent.seq)
    more = {"pre_tokens": event.pre_tokens}
    data = msgspec.json.encode({**msgspec.json.decode(sent.data), **more})
    return _sent(event.alias, data, sent.seq)


def event_of(kind: str, value: object) -> SentEvent:
    """Encode what is no event of a session, such as a `ping`."""
    return _sent(kind, msgspec.json.encode(value))


def _name_of(event: Event) -> str:
    """Return the kind of an event; that of an unknown entry may be any text."""
    kind = event.kind
    # A line break in it would begin another field of the server-sent event.
    is_name = not isinstance(event, UnknownEntry) or _NAME.fullmatch(kind)
    return kind if is_name else _UNKNOWN


def _sent(kind: str, data: bytes, seq: int = 0) -> SentEvent:
    """Frame an event; only one with a `seq` can be resumed from."""
    number = b"id: %d\n" % seq if seq else b""
    # JSON has no raw line breaks, so one `data:` line is enough.
    frame = b"%sevent: %s\ndata: %s\n\n" % (number, kind.encode(), data)
    return SentEvent(kind, seq, data, frame)


class QueryWatch:
    """Finds the end of the query that answers one prompt, by the entries of the session.

    A steering prompt joins the query that runs, a prompt can be taken out of the queue, and a query
    that was cut off goes on as the one that resumes it.
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
            case QueryStarted(resumes=resumed) if resumed == self._query_id:
                self._query_id = event.query_id or self._query_id
            case InputDrained(input_id=input_id):
                return input_id == self._input_id
            case QueryEnded():
                return event.query_id == self._query_id
        return False


class EventStream:
    """The events that one client gets of a session."""

    def __init__(
        self,
        feed: SessionFeed,
        encoder: EventEncoder,
        *,
        head: int,
        types: frozenset[str] = frozenset(),
        follow: bool = True,
        has_source_names: bool = False,
        watch: QueryWatch | None = None,
    ) -> None:
        self._feed = feed
        self._encoder = encoder
        self._head = head
        self._types = types
        self._follow = follow
        self._has_source_names = has_source_names
        self._watch = watch
        self._is_synced = False
        self.is_over = False
        """Whether the query that it watches has ended."""

    async def batches(
        self, hub: Hub, owner: str, *, is_allowed: Callable[[], bool]
    ) -> AsyncGenerator[list[SentEvent], None]:
        """Yield what is ready, at once as an empty list or `log.synced`; a `ping` in silence.

        It ends when the caller is not allowed any more. From `log.synced` on, a client gets every
        live-only event: the session is observed before that is said.
        """
        feed = self._feed
        with hub.feeding(owner, feed):
            try:
                await self._begin()
                yield self._synced(feed.seen)
                if self._is_synced and not self._follow:
                    return
                batches = feed.batches(ping_seconds=hub.settings.ping_seconds)
                async with contextlib.aclosing(batches):
                    async for batch in batches:
                        if not is_allowed():
                            return
                        if not batch:
                            yield self._silence()
                        for sent in self._encoded(batch):
                            yield sent
                            # A client that reads fast enough would never make it wait.
                            await next_turn()
                        if self.is_over or (self._is_synced and not self._follow):
                            return
            finally:
                await feed.close()

    async def _begin(self) -> None:
        if self._feed.is_begun or (self._feed.seen >= self._head and not self._follow):
            return
        with contextlib.suppress(AgentError):  # the feed meets it again, and says what it means
            await self._feed.begin()

    def _encoded(self, batch: list[Event]) -> Iterator[list[SentEvent]]:
        """Encode what was read at once, and give it in parts: a log may have large entries."""
        sent: list[SentEvent] = []
        size = 0
        for event in batch:
            if not self._types or not self._types.isdisjoint((event.kind, event.alias)):
                encoded = self._encoder.encode(event)
                sent.append(source_event(event, encoded) if self._has_source_names else encoded)
                size += len(sent[-1].frame)
            if not self._is_synced and isinstance(event, Entry):
                sent += self._synced(event.seq)
            # Also for kinds that the client did not ask for: the stream ends with the query all the
            # same.
            if self._watch is not None and self._watch.is_end(event):
                self.is_over = True
            if self.is_over or (self._is_synced and not self._follow):
                break
            if size > _PART_BYTES:
                yield sent
                sent, size = [], 0
        if sent:
            yield sent

    def _synced(self, seen: int) -> list[SentEvent]:
        """Return the mark that what was stored when the stream began has been sent, once."""
        if self._is_synced or seen < self._head:
            return []
        self._is_synced = True
        return [event_of("log.synced", {"seq": seen})]

    def _silence(self) -> list[SentEvent]:
        # Entries at the end of a damaged log cannot be read: what can be, was sent.
        return [*self._synced(self._head), event_of("ping", {})]


def resume_point(last_event_id: str | None, after: int | None) -> int:
    """Return the `seq` to go on from: what a browser says by itself wins over the query.

    Raises:
        ProblemError: 400 when it is no number.

    """
    text = (last_event_id or "").strip()
    if not text:
        return after or 0
    if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_SEQ):
        raise ProblemError(400, "LAST_EVENT_ID", "Last-Event-ID is the seq of an entry")
    return int(text)


def told_event(encoder: EventEncoder, session_id: str, event: Event) -> SentEvent:
    """Return an event on the stream of all sessions: it names its session."""
    body = {"session_id": session_id, "event": msgspec.Raw(encoder.encode(event).data)}
    return event_of(_name_of(event), body)
