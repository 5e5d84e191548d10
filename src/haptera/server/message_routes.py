"""Routes in a session: send a message, cancel a query, answer approvals."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec

from haptera import ApprovalRequest, PartEnded, QueryEnded, TurnStarted
from haptera.access.descriptions import FoundPrompt
from haptera.agent.query_options import AdmissionOptions
from haptera.model.approval_cards import ApprovalCard, card_of
from haptera.model.errors import ErrorCode
from haptera.model.ids import CHOSEN_MESSAGE_ID
from haptera.model.operations.session import AbortQuery
from haptera.model.parts import MediaPart, Part, TextPart
from haptera.model.settings import Delivery
from haptera.options.declarations import options_of
from haptera.server.decoding import described
from haptera.server.event_stream import SSE, EventStream, QueryWatch
from haptera.server.feeds import SessionFeed
from haptera.server.operations import (
    JSON,
    ONE_SESSION,
    Call,
    EventAnswer,
    OperationAnswer,
    ServedOperation,
    Strict,
)
from haptera.server.problems import ProblemError
from haptera.server.session_operations import served
from haptera.system.owned_tasks import OwnedTasks

_OPTIONS = options_of(AdmissionOptions)


class NewMessage(Strict, frozen=True, kw_only=True):
    """A prompt to a session."""

    content: Annotated[
        Annotated[str, msgspec.Meta(min_length=1, pattern=r"\S")]
        | Annotated[tuple[TextPart | MediaPart, ...], msgspec.Meta(min_length=1)],
        described("The prompt: a text, or a list of parts."),
    ]
    id: Annotated[
        Annotated[str, msgspec.Meta(pattern=CHOSEN_MESSAGE_ID)] | None,
        described(_OPTIONS["message_id"]),
    ] = None
    delivery: Annotated[Delivery, described(_OPTIONS["delivery"])] = _OPTIONS["delivery"].default
    on_disconnect: Annotated[
        Literal["continue", "abort"],
        described(
            "Whether the query is aborted when the client leaves a streamed response before its "
            "end."
        ),
    ] = "continue"


class Admitted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The prompt is stored; with 202 it will be answered, with 200 it was."""

    session_id: str
    query_id: str
    seq: int
    """202: `events?after=` this has the prompt and all of its answer. 200: the `seq` of the end."""
    text: str | None = None
    """200: what the model said in its last turn; null when the prompt was taken out."""
    end: QueryEnded | None = None


class ApprovalAnswer(Strict, frozen=True, kw_only=True):
    """The answer to a question about a tool call."""

    decision: Annotated[
        Literal["allow_once", "allow_always", "reject_once"],
        described(
            "`allow_once`: the call runs. `allow_always`: the same call also runs for the rest of "
            "the session without a question. `reject_once`: it does not run."
        ),
    ]
    message: Annotated[
        Annotated[str, msgspec.Meta(min_length=1, max_length=4000)] | None,
        described("A note to the model."),
    ] = None
    arguments: Annotated[
        dict[str, Any] | None, described("Arguments that replace the model's.")
    ] = None


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """The tool calls that wait for an answer."""

    data: tuple[ApprovalRequest, ...]
    cards: tuple[ApprovalCard, ...]
    """What to show of each, whole and part by part, with whose words it is."""


@ServedOperation(
    method="POST",
    path=f"{ONE_SESSION}/messages",
    rpc="message/send",
    summary="Send a prompt: 202 when it is stored; `Accept: text/event-stream` streams the "
    "answer, `Prefer: wait=60` waits for it. A disconnect does not stop the query.",
    scope="write",
    body=NewMessage,
    options=("wait", "stream"),
    status=202,
    also=(200,),
    answer=Admitted,
    media=(JSON, SSE),
    tag="messages",
)
async def send_message(call: Call) -> OperationAnswer | EventAnswer:
    """Store a prompt, then answer at once, stream, or wait for its end."""
    if not call.wants_stream and call.wait is None:
        admitted, _ = await _admit(call)
        return OperationAnswer(admitted)
    # Before the prompt is stored: a client that is refused sends it again.
    release = call.server.hub.streams.begin(call.principal.owner)
    try:
        admitted, feed = await _admit(call)
        if call.wants_stream:
            return _streamed(call, admitted, feed, release=release)
        answer = await _waited(call, admitted, feed)
    except BaseException:
        release()
        raise
    release()
    return answer


async def _waited(call: Call, admitted: Admitted, feed: SessionFeed) -> OperationAnswer:
    """Answer with the end of a query, or with its beginning when it takes too long."""
    seconds = min(call.wait or 0, call.server.hub.settings.wait_seconds)
    try:
        ended = await _wait(call, admitted, feed, seconds=seconds)
    finally:
        await feed.close()
    if ended is None:
        return OperationAnswer(admitted)
    return OperationAnswer(ended, status=200, headers={"preference-applied": f"wait={seconds}"})


async def _admit(call: Call) -> tuple[Admitted, SessionFeed]:
    """Store a prompt; returns the feed of what follows, which reads when the client waits."""
    body: NewMessage = call.body
    session = await call.sessions.describe(call.path["session_id"])
    content = body.content if isinstance(body.content, str) else _checked(body.content)
    seq = session.head
    if body.id is not None:
        sessions = call.sessions.agent.sessions
        before = await sessions.find_prompt(session.id, body.id)
        if before is not None:
            # A repeated request gets the answer from its beginning, also when it is over already.
            seq = before.seq - 1
            _refuse_another(content, before)
    feed = call.sessions.feed(session.id, after=seq)
    async with call.sessions.handle(session.id, is_known=True) as handle:
        if call.wants_stream or call.wait is not None:
            await feed.begin()  # before the prompt is stored, so that nothing is to be read back
        try:
            query_id = await call.sessions.begin(
                handle,
                lambda: handle.send(content, delivery=body.delivery, message_id=body.id),
            )
        except BaseException:
            await feed.close()
            raise
    return Admitted(session_id=session.id, query_id=query_id, seq=seq), feed


def _checked(parts: tuple[TextPart | MediaPart, ...]) -> list[TextPart | MediaPart]:
    """Refuse parts that name content of the store: it may be another owner's."""
    if any(isinstance(part, MediaPart) and part.blob is not None for part in parts):
        raise ProblemError(400, "BODY_INVALID", "media is sent as `data` or `url`")
    return list(parts)


def _refuse_another(content: str | list[TextPart | MediaPart], before: FoundPrompt) -> None:
    """Refuse another text with the id of a message.

    The session itself compares whole messages, but cannot tell the client of another server.
    """
    texts = [content] if isinstance(content, str) else _texts(content)
    if texts != _texts(before.parts):
        message = "the session has another message with this id"
        raise ProblemError(409, ErrorCode.CONFLICT.value, message)


def _texts(parts: Sequence[Part]) -> list[str]:
    return [part.text for part in parts if isinstance(part, TextPart)]


def _streamed(
    call: Call, admitted: Admitted, feed: SessionFeed, *, release: Callable[[], None]
) -> EventAnswer:
    hub, owner = call.server.hub, call.principal.owner
    watch = QueryWatch(admitted.query_id)
    stream = EventStream(feed, call.server.encoder, head=admitted.seq, watch=watch)

    def end() -> None:
        release()
        feed.stop()
        is_left = not (stream.is_over or hub.is_closing)
        # One that another process holds is left alone: `abort` would have to wait, and this cannot.
        session = hub.open_here(owner, admitted.session_id)
        if is_left and call.body.on_disconnect == "abort" and session is not None:
            session.abort("the client disconnected", query_id=admitted.query_id)

    return EventAnswer(
        batches=stream.batches(hub, owner, is_allowed=call.is_allowed),
        on_end=end,
        value=admitted,
        session_id=admitted.session_id,
        after=admitted.seq,
    )


async def _wait(
    call: Call, admitted: Admitted, feed: SessionFeed, *, seconds: int
) -> Admitted | None:
    """Wait for the end of a query; None when it takes longer, or the client has gone.

    The query goes on in any case.
    """
    hub = call.server.hub
    watch, text, seq = QueryWatch(admitted.query_id), "", admitted.seq
    with contextlib.suppress(TimeoutError), hub.feeding(call.principal.owner, feed):
        async with (
            _stopped_by(call.left, feed),
            asyncio.timeout(seconds),
            # No pings: the wait is over before the first.
            contextlib.aclosing(feed.batches(ping_seconds=float(seconds + 1))) as batches,
        ):
            async for batch in batches:
                for event in batch:
                    if isinstance(event, TurnStarted):
                        text = ""
                    elif isinstance(event, PartEnded) and isinstance(event.part, TextPart):
                        text += event.part.text
                    if watch.is_end(event):
                        end = event if isinstance(event, QueryEnded) else None
                        return Admitted(
                            session_id=admitted.session_id,
                            query_id=admitted.query_id,
                            seq=getattr(event, "seq", seq),
                            text=text if end else None,
                            end=end,
                        )
    return None


@contextlib.asynccontextmanager
async def _stopped_by(left: asyncio.Event, feed: SessionFeed) -> AsyncGenerator[None, None]:
    """End a feed when its client has gone, while the block runs."""
    async with OwnedTasks() as tasks:
        leaving = tasks.start(left.wait(), name="haptera-client-left")
        leaving.add_done_callback(lambda _: feed.stop())
        yield


@ServedOperation(
    method="GET",
    path=f"{ONE_SESSION}/approvals",
    rpc="approval/list",
    scope="read",
    answer=Pending,
    tag="messages",
)
async def list_approvals(call: Call) -> OperationAnswer:
    """List the tool calls that wait for an answer."""
    session = await call.sessions.describe(call.path["session_id"])
    remote = await call.sessions.agent.remote(session.id)
    asked = await remote.pending()
    return OperationAnswer(Pending(data=asked, cards=tuple(map(card_of, asked))))


@ServedOperation(
    method="POST",
    path=f"{ONE_SESSION}/approvals/{{approval_id}}",
    rpc="approval/answer",
    scope="write",
    body=ApprovalAnswer,
    status=202,
    tag="messages",
)
async def answer_approval(call: Call) -> OperationAnswer:
    """Allow or reject a tool call."""
    body: ApprovalAnswer = call.body
    approval_id, by = call.path["approval_id"], call.principal.owner
    async with call.sessions.handle(call.path["session_id"]) as handle:
        if body.decision == "reject_once":
            await handle.deny(approval_id, body.message, by=by)
        else:
            await handle.approve(
                approval_id,
                arguments=body.arguments,
                scope="session" if body.decision == "allow_always" else "once",
                by=by,
                feedback=body.message,
            )
    return OperationAnswer()


MESSAGE_OPERATIONS = (
    send_message,
    served(AbortQuery),
    list_approvals,
    answer_approval,
)
