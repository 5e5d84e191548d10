"""Routes in a session: send a message, follow events, cancel, answer approvals, carry on."""

import asyncio
import re
from typing import Annotated, Any, Literal

import msgspec
from starlette.responses import Response

from holdfast import AgentSession, ApprovalRequest
from holdfast.server.event_stream import EventEncoder, EventStream, is_streamed, resume_point
from holdfast.server.operations import Call, NoBody, Operation, json_answer
from holdfast.server.problems import Problem
from holdfast.server.session_routes import Name
from holdfast.vocabulary.entries import QueryEnded
from holdfast.vocabulary.parts import MediaPart, TextPart

_WAIT = re.compile(r"\bwait=(\d{1,4})\b")
_ONE = "/api/v1/sessions/{session_id}"
encoder = EventEncoder()
"""Shared by all streams of the process."""


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What bodies share: a name that is not known is refused."""


class NewMessage(_Strict, frozen=True, kw_only=True):
    """A prompt to a session."""

    content: Annotated[str, msgspec.Meta(min_length=1)] | tuple[TextPart | MediaPart, ...]
    id: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{1,128}$")] | None = None
    """An id of the client's choice: a message that the session has already is not sent again."""
    delivery: Literal["queue", "steer", "reject", "interrupt"] = "queue"


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt is stored and will be answered."""

    session_id: str
    query_id: str
    seq: int
    """Follow the answer with `events?after=` this."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a query ended that was waited for."""

    session_id: str
    query_id: str
    seq: int
    text: str
    end: QueryEnded


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events to send."""

    after: Annotated[int, msgspec.Meta(ge=0, le=10**15)] | None = None
    follow: bool = True
    types: Annotated[str, msgspec.Meta(max_length=1000)] | None = None
    """Kinds of events, separated by commas; all without it."""


class CancelBody(_Strict, frozen=True, kw_only=True):
    """Which query to stop; one that does not run any more is ignored."""

    query_id: Name | None = None
    reason: Name | None = None


class ApprovalAnswer(_Strict, frozen=True, kw_only=True):
    """The answer to a question about a tool call."""

    decision: Literal["allow_once", "allow_always", "reject_once"]
    message: Annotated[str, msgspec.Meta(max_length=4000)] | None = None
    arguments: dict[str, Any] | None = None


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """The questions that wait for an answer."""

    data: tuple[ApprovalRequest, ...]


class Resumed(msgspec.Struct, frozen=True, kw_only=True):
    """How a session was carried on."""

    session_id: str
    resumed: bool
    """Whether there was an earlier query to carry on."""
    provider: str
    model: str
    native_session_id: str | None = None
    messages_loaded: int | None = None
    """Only where the conversation was replayed to the model."""
    seq: int = 0


async def send_message(call: Call) -> Response:
    """Store a prompt, then answer at once, stream, or wait for its end."""
    body: NewMessage = call.body
    session_id = call.path["session_id"]
    seq = (await call.sessions.describe(session_id)).head
    content = body.content if isinstance(body.content, str) else list(body.content)
    async with call.sessions.door(session_id) as door:
        query_id = await door.send(content, delivery=body.delivery)
        admitted = Admitted(session_id=session_id, query_id=query_id, seq=seq)
        if is_streamed(call.request):
            stream = EventStream(
                door.events(after=seq), encoder, after=seq, head=seq, until=query_id
            )
            return stream.answer()
        if waited := _WAIT.search(call.request.headers.get("prefer", "")):
            ended = await _wait(door, admitted, seconds=int(waited[1]))
            return json_answer(ended or admitted, status=200 if ended else 202)
    return json_answer(admitted, status=202)


async def _wait(door: Any, admitted: Admitted, *, seconds: int) -> Ended | None:
    """Wait for the end of a query; None when it takes longer. It goes on in any case."""
    text: list[str] = []
    try:
        async with asyncio.timeout(seconds):
            async for event in door.events(after=admitted.seq):
                if getattr(event, "query_id", None) != admitted.query_id:
                    continue
                if isinstance(event, QueryEnded):
                    return Ended(
                        session_id=admitted.session_id,
                        query_id=admitted.query_id,
                        seq=event.seq,
                        text="".join(text),
                        end=event,
                    )
                if event.kind == "turn.started":
                    text.clear()
                if event.kind == "part.ended" and isinstance(event.part, TextPart):
                    text.append(event.part.text)
    except TimeoutError:
        return None
    return None


async def stream_events(call: Call) -> Response:
    """Replay events from a `seq` on, then follow."""
    query: EventsQuery = call.query
    found = await call.sessions.describe(call.path["session_id"])
    after = resume_point(call.request, query.after)
    if after > found.head:
        raise Problem(410, "SEQ_UNKNOWN", f"the log ends at {found.head}", head=found.head)
    types = frozenset((query.types or "").split(",")) - {""}
    async with call.sessions.door(found.id) as door:
        events = door.events(after=after)
    stream = EventStream(
        events, encoder, after=after, head=found.head, types=types, follow=query.follow
    )
    return stream.answer()


async def cancel_query(call: Call) -> Response:
    """Stop the running query; what was said is kept."""
    body: CancelBody = call.body
    async with call.sessions.door(call.path["session_id"]) as door:
        if not isinstance(door, AgentSession):
            await door.abort(body.reason)
        elif body.query_id is None or door.running_query_id == body.query_id:
            door.abort(body.reason)
        else:
            return Response(status_code=204)
    return Response(status_code=202)


async def list_approvals(call: Call) -> Response:
    """List the questions that wait for an answer."""
    remote = await call.sessions.agent.remote(
        (await call.sessions.describe(call.path["session_id"])).id
    )
    return json_answer(Pending(data=await remote.pending()))


async def answer_approval(call: Call) -> Response:
    """Answer a question about a tool call; a query that rests on it is carried on."""
    body: ApprovalAnswer = call.body
    approval_id = call.path["approval_id"]
    async with call.sessions.door(call.path["session_id"]) as door:
        if body.decision == "reject_once":
            await door.deny(approval_id, body.message, by=call.principal.owner)
        else:
            await door.approve(
                approval_id,
                arguments=body.arguments,
                scope="session" if body.decision == "allow_always" else "once",
                by=call.principal.owner,
                feedback=body.message,
            )
    return Response(status_code=202)


async def resume_session(call: Call) -> Response:
    """Carry on the query that was cut off or rests; the answer comes through the events."""
    found = await call.sessions.describe(call.path["session_id"])
    async with call.sessions.held(found.id) as session:
        had_query = session.unfinished.query_id is not None
        if had_query:
            await call.sessions.carry_on(session)
        model = session.settings.model
        provider, _, name = model.partition("/")
        told = Resumed(
            session_id=found.id,
            resumed=had_query,
            provider=provider,
            model=name,
            native_session_id=session.native_session_id,
            messages_loaded=None if session.native_session_id else len(session.messages),
            seq=found.head,
        )
    return json_answer(told)


MESSAGE_OPERATIONS = (
    Operation(
        method="POST",
        path=f"{_ONE}/messages",
        name="send_message",
        summary="Send a prompt: 202 when it is stored; `Accept: text/event-stream` streams the "
        "answer, `Prefer: wait=60` waits for it. A disconnect does not stop the query.",
        handler=send_message,
        scope="write",
        body=NewMessage,
        status=202,
        answer=Admitted | Ended,
        tag="messages",
    ),
    Operation(
        method="GET",
        path=f"{_ONE}/events",
        name="stream_events",
        summary="Server-sent events: the log after a seq, then what happens. `id:` is the seq.",
        handler=stream_events,
        scope="read",
        query=EventsQuery,
        media="text/event-stream",
        tag="messages",
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/cancel",
        name="cancel_query",
        summary="Stop the running query; what was said is kept.",
        handler=cancel_query,
        scope="write",
        body=CancelBody,
        status=202,
        tag="messages",
    ),
    Operation(
        method="GET",
        path=f"{_ONE}/approvals",
        name="list_approvals",
        summary="List the tool calls that wait for an answer.",
        handler=list_approvals,
        scope="read",
        answer=Pending,
        tag="messages",
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/approvals/{{approval_id}}",
        name="answer_approval",
        summary="Allow or reject a tool call.",
        handler=answer_approval,
        scope="write",
        body=ApprovalAnswer,
        status=202,
        tag="messages",
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/resume",
        name="resume_session",
        summary="Carry on a query that was cut off or rests on an approval.",
        handler=resume_session,
        scope="write",
        body=NoBody,
        answer=Resumed,
        tag="messages",
    ),
)
