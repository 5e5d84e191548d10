"""Routes that stream events: of one session from any `seq` on, and of all that are open here."""

from collections.abc import AsyncGenerator
from typing import Annotated, Literal

import msgspec

from haptera.access.descriptions import SessionEvent
from haptera.model.events import ObserverLagged
from haptera.server.decoding import described
from haptera.server.event_stream import (
    SSE,
    EventStream,
    SentEvent,
    event_of,
    resume_point,
    told_event,
)
from haptera.server.feeds import Overview, Told
from haptera.server.operations import ONE_SESSION, Call, EventAnswer, ServedOperation
from haptera.server.problems import ProblemError

_LAGGED = str(ObserverLagged.__struct_config__.tag)


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events to send."""

    after: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=10**15)] | None,
        described("The `seq` after which to begin; the beginning of the log without it."),
    ] = None
    follow: Annotated[
        bool, described("Whether to go on with what happens, and not to end at `log.synced`.")
    ] = True
    types: Annotated[
        Annotated[str, msgspec.Meta(max_length=1000)] | None,
        described("Kinds of events, separated by commas; all without it."),
    ] = None
    names: Annotated[
        Literal["own", "source"],
        described("`source`: events have the names that other programs know them by."),
    ] = "own"


@ServedOperation(
    method="GET",
    path=f"{ONE_SESSION}/events",
    rpc="session/events",
    scope="read",
    query=EventsQuery,
    media=(SSE,),
    tag="messages",
)
async def stream_events(call: Call) -> EventAnswer:
    """Server-sent events: the log after a seq, then what happens. `id:` is the seq."""
    query: EventsQuery = call.query
    session = await call.sessions.describe(call.path["session_id"])
    after = resume_point(call.last_event_id, query.after)
    if after > session.head:
        raise ProblemError(410, "SEQ_UNKNOWN", f"the log ends at {session.head}", head=session.head)
    hub, owner = call.server.hub, call.principal.owner
    feed = call.sessions.feed(session.id, after=after)
    stream = EventStream(
        feed,
        call.server.encoder,
        head=session.head,
        types=frozenset((query.types or "").split(",")) - {""},
        follow=query.follow,
        has_source_names=query.names == "source",
    )
    return EventAnswer(
        batches=stream.batches(hub, owner, is_allowed=call.is_allowed),
        on_end=hub.streams.begin(owner),
        session_id=session.id,
        after=after,
        is_endless=query.follow,
    )


@ServedOperation(
    method="GET",
    path="/api/v1/events",
    rpc="events/all",
    summary="What happens in all sessions that are open here, on one stream, without replay.",
    scope="read",
    media=(SSE,),
    tag="messages",
)
async def stream_all(call: Call) -> EventAnswer:
    """Send what happens in every session of the caller that is open in this process."""
    end = call.server.hub.streams.begin(call.principal.owner)
    return EventAnswer(batches=_all_events(call), on_end=end, is_endless=True)


async def _all_events(call: Call) -> AsyncGenerator[list[SentEvent], None]:
    hub, owner = call.server.hub, call.principal.owner
    overview = Overview()
    forget = call.sessions.agent.sessions.on(lambda event: overview.publish((event,)))
    try:
        with hub.showing(owner, overview):
            yield []
            while not hub.is_closing:
                sent = await _next_sent(call, overview)
                if not (sent and call.is_allowed()):
                    return
                yield sent
                if sent[0].kind == _LAGGED:
                    return
    finally:
        forget()
        overview.abandon()


async def _next_sent(call: Call, overview: Overview) -> list[SentEvent]:
    """Return what a client gets next: what happened, or that nothing did, or that it lags."""
    try:
        taken = await overview.next_batch(call.server.hub.settings.ping_seconds)
    except TimeoutError:
        return [event_of("ping", {})]
    if not taken and overview.lagged:
        return [event_of(_LAGGED, {})]
    return [_sent(call, event) for event in taken]


def _sent(call: Call, event: Told) -> SentEvent:
    if isinstance(event, SessionEvent):
        return event_of(f"session.{event.kind}", {"session_id": event.session_id})
    return told_event(call.server.encoder, *event)


EVENT_OPERATIONS = (
    stream_events,
    stream_all,
)
