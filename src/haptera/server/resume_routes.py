"""The route that opens a session again, and says what that comes to."""

import asyncio
import contextlib
from typing import Annotated, Any, Literal

import msgspec

from haptera import AgentError, AgentSession
from haptera.access.doctor import known_models
from haptera.agent.agent_options import CONFIGURE
from haptera.model.errors import ErrorCode
from haptera.model.log.compactions import Compaction
from haptera.server.decoding import described
from haptera.server.operations import ONE_SESSION, Call, OperationAnswer, ServedOperation, Strict
from haptera.server.session_routes import Text
from haptera.server.sessions import SessionHandle

_SETTINGS = CONFIGURE.options


class ResumeBody(Strict, frozen=True, kw_only=True):
    """How to resume."""

    model: Annotated[
        Text | None,
        described(_SETTINGS["model"].brief("From now on; without one, the session's own.")),
    ] = None
    carry_on: Annotated[
        bool, described("Whether a query that was cut off or rests is carried on.")
    ] = True


class Resumed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session that is open again."""

    session_id: str
    resumed: bool
    """Whether the next query goes on in the provider's own session, or one that had not ended is
    carried on."""
    resume: Annotated[
        Literal["native", "replay", "none"],
        described("How the next query gets the conversation; `none`: there is none."),
    ]
    provider: str
    model: str
    seq: int
    """`events?after=` this has what happens from now on."""
    query_id: str | None = None
    """The query that had not ended."""
    native_session_id: str | None = None
    """The id of the session that the provider keeps; what follows is absent then."""
    context_tokens: int | None = None
    context_window: int | None = None
    messages_loaded: int | None = None
    compactions_applied: int | None = None
    auto_compacted: bool | None = None
    """Whether resuming has compacted the conversation: never, because a conversation that is too
    long is compacted before the next request to the model. A `compaction` event says so then."""


@ServedOperation(
    method="POST",
    path=f"{ONE_SESSION}/resume",
    rpc="session/resume",
    scope="write",
    body=ResumeBody,
    answer=Resumed,
    tag="messages",
)
async def resume_session(call: Call) -> OperationAnswer:
    """Open a session again, and carry on a query that had not ended.

    A session that another process holds is left to it: what its log says is answered.
    """
    body: ResumeBody = call.body
    session = await call.sessions.describe(call.path["session_id"])
    # Carried on below, after it was read what is unfinished: the answer names the query.
    async with call.sessions.handle(session.id, carries_on=False) as handle:
        if body.model is not None:
            await handle.configure(model=body.model)
        if isinstance(handle, AgentSession):
            left, view, is_native = handle.unfinished, handle.view(), handle.is_native
        else:
            left, view = await handle.unfinished(), await handle.view()
            is_native = await handle.is_native()
        kind: Literal["native", "replay", "none"] = await handle.resume_kind() or "none"
        native = view.native_session_id if is_native and kind == "native" else None
        replayed = {} if native is not None else await _replayed(handle, head=view.head)
        if isinstance(handle, AgentSession):
            _go_on(call, handle)
    if native is None:
        replayed["messages_loaded"] = len(view.messages)
        replayed["context_window"] = await _window(f"{view.provider}/{view.model}")
    return OperationAnswer(
        Resumed(
            session_id=session.id,
            resumed=native is not None or left.query_id is not None,
            resume=kind,
            provider=view.provider,
            model=view.model,
            seq=session.head,
            query_id=left.query_id,
            native_session_id=native,
            **replayed,
        )
    )


def _go_on(call: Call, session: AgentSession) -> None:
    """Carry on what is unfinished in a session that is held here, or leave it as asked."""
    left = session.unfinished
    if not call.body.carry_on:
        call.server.hub.cut_off.leave(session)
    elif (left.query_id or left.inputs) and not left.is_unanswered:
        call.server.hub.cut_off.carry_on(session)


async def _replayed(handle: SessionHandle, *, head: int) -> dict[str, Any]:
    """Return what replaying the conversation comes to, where no provider keeps it."""
    tokens: int | None = None
    try:
        tokens = (await handle.count_tokens()).tokens
    except AgentError as error:  # a session can be resumed while its provider cannot count
        if error.code is ErrorCode.NOTHING_TO_SEND:
            tokens = 0
    return {
        "context_tokens": tokens,
        "compactions_applied": await _compactions(handle, head=head),
        "auto_compacted": False,  # nothing is compacted before the next request to a model
    }


async def _window(model: str) -> int | None:
    windows = {each.name: each.context_window for each in await asyncio.to_thread(known_models)}
    return windows.get(model)


async def _compactions(handle: SessionHandle, *, head: int) -> int:
    """Count the compactions in the log up to a `seq`."""
    count = 0
    async with contextlib.aclosing(handle.events()) as events:
        async for event in events:
            count += isinstance(event, Compaction)
            # `events` goes on with what happens, so the end has to be noticed here.
            if getattr(event, "seq", 0) >= head:
                break
    return count


RESUME_OPERATIONS = (resume_session,)
