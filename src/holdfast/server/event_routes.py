"""Routes that stream events: of one session from any `seq` on, and of all that are open here."""

from collections.abc import AsyncGenerator
from typing import Annotated

import msgspec

from holdfast.administration.descriptions import SessionEvent
from holdfast.server.event_stream import (
    SSE,
    EventStream,
    SentEvent,
    event_of,
    resume_point,
    told_event,
)
from holdfast.server.funnel import Funnel
from holdfast.server.operations import Call, EventAnswer, Operation
from holdfast.server.problems import ProblemError
from holdfast.server.session_routes import ONE_SESSION
from holdfast.server.sessions import Told, named_events


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events to send."""

    after: Annotated[int, msgspec.Meta(ge=0, le=10**15)] | None = None
    follow: bool = True
    types: Annotated[str, msgspec.Meta(max_length=1000)] | None = None
    """Kinds of events, separated by commas; all without it."""


async def stream_events(call: Call) -> EventAnswer:
    """Replay events from a `seq` on, then follow."""
    query: EventsQuery = call.query
    found = await call.sessions.describe(call.path["session_id"])
    after = resume_point(call.last_event_id, query.after)
    if after > found.head:
        raise ProblemError(410, "SEQ_UNKNOWN", f"the log ends at {found.head}", head=found.head)
    hub, owner = call.server.hub, call.principal.owner
    feed = call.sessions.feed(found.id, after=after)
    stream = EventStream(
        feed,
        call.server.encoder,
        head=found.head,
        types=frozenset((query.types or "").split(",")) - {""},
        follow=query.follow,
    )
    return EventAnswer(
        batches=stream.batches(hub, owner, is_allowed=call.is_allowed),
        on_end=hub.streams.begin(owner),
        session_id=found.id,
        after=after,
        is_endless=query.follow,
    )


async def stream_all(call: Call) -> EventAnswer:
    """Send what happens in every session of the caller that is open in this process."""
    end = call.server.hub.streams.begin(call.principal.owner)
    return EventAnswer(batches=_all_events(call), on_end=end, is_endless=True)


async def _all_events(call: Call) -> AsyncGenerator[list[SentEvent], None]:
    hub, owner = call.server.hub, call.principal.owner
    funnel: Funnel[Told] = Funnel()
    forget = call.sessions.agent.sessions.on(funnel.offer)
    try:
        with hub.showing(owner, funnel):
            for session_id, session in hub.sessions_open(owner).items():
                funnel.add(named_events(session_id, session, after=session.snapshot().head))
            yield []
            while not hub.is_closing:
                taken = await funnel.take(hub.settings.ping_seconds)
                if not call.is_allowed():
                    return
                if taken is None:
                    yield [event_of("ping", {})]
                elif taken:
                    yield [_sent(call, told) for told in taken]
    finally:
        forget()
        await funnel.close()


def _sent(call: Call, told: Told) -> SentEvent:
    if isinstance(told, SessionEvent):
        return event_of(f"session.{told.kind}", {"session_id": told.session_id})
    return told_event(call.server.encoder, *told)


EVENT_OPERATIONS = (
    Operation(
        method="GET",
        path=f"{ONE_SESSION}/events",
        name="stream_events",
        rpc="session/events",
        summary="Server-sent events: the log after a seq, then what happens. `id:` is the seq.",
        handler=stream_events,
        scope="read",
        query=EventsQuery,
        media=(SSE,),
        tag="messages",
    ),
    Operation(
        method="GET",
        path="/api/v1/events",
        name="stream_all",
        rpc="events/all",
        summary="What happens in all sessions that are open here, on one stream, without replay.",
        handler=stream_all,
        scope="read",
        media=(SSE,),
        tag="messages",
    ),
)
