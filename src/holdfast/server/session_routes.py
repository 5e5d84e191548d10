"""Routes about sessions as a whole: list, create, describe, change, fork, rewind, export."""

from collections.abc import AsyncGenerator
from typing import Annotated, Any

import msgspec
from starlette.responses import Response, StreamingResponse

from holdfast import AgentError, SessionDescription
from holdfast.administration.descriptions import ListOptions, MessageDescription, SessionStats
from holdfast.server.operations import Call, NoBody, Operation, json_answer
from holdfast.server.problems import Problem
from holdfast.vocabulary.errors import ErrorCode
from holdfast.vocabulary.ids import parse_session_id

Limit = Annotated[int, msgspec.Meta(ge=1, le=200)]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]

_FORMATS = {
    "archive": "application/zip",
    "claude-code": "application/x-ndjson",
    "codex": "application/x-ndjson",
    "opencode": "application/json",
    "pi": "application/x-ndjson",
    "openai": "application/json",
    "anthropic": "application/json",
    "markdown": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
}


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What bodies share: a name that is not known is refused."""


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions to list."""

    limit: Limit = 50
    after: str | None = None
    """The id of the last session of the page before."""
    q: Annotated[str, msgspec.Meta(max_length=400)] | None = None
    """Words that were said in the session."""
    tag: str | None = None
    archived: bool = False
    parent_id: str | None = None


class SessionPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of sessions."""

    data: tuple[SessionDescription, ...]
    next_cursor: str | None = None
    """What to pass as `after` for the next page; None on the last one."""


class NewSession(_Strict, frozen=True, kw_only=True):
    """A session to make."""

    id: str | None = None
    """A UUID of the client's choice; the same id with the same fields again is no error."""
    name: Name | None = None
    title: Name | None = None
    tags: tuple[Name, ...] = ()
    metadata: dict[str, Any] = {}
    model: Text | None = None
    system_prompt: str | None = None


class Changed(_Strict, frozen=True, kw_only=True):
    """What to change of a session; what is absent stays, None clears."""

    name: Name | None | msgspec.UnsetType = msgspec.UNSET
    title: Name | None | msgspec.UnsetType = msgspec.UNSET
    tags: tuple[Name, ...] | msgspec.UnsetType = msgspec.UNSET
    metadata: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    archived: bool | msgspec.UnsetType = msgspec.UNSET
    model: Text | msgspec.UnsetType = msgspec.UNSET


class MessagesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages to return."""

    limit: Limit = 100
    before: str | None = None
    after: str | None = None


class MessagePage(msgspec.Struct, frozen=True, kw_only=True):
    """Messages, oldest first."""

    data: tuple[MessageDescription, ...]
    watermark: int
    """The `seq` they reach to: `events?after=` this has no gap and no duplicate."""


class ForkBody(_Strict, frozen=True, kw_only=True):
    """Where a copy ends, and its name."""

    at_message_id: str | None = None
    name: Name | None = None


class RewindBody(_Strict, frozen=True, kw_only=True):
    """The message that becomes the last one; None takes the last rewind back."""

    message_id: str | None = None


class ExportQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How a session is exported."""

    format: Annotated[str, msgspec.Meta(pattern="^[a-z-]{1,20}$")] = "archive"
    redact: bool = False


class ImportQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How a file is read."""

    format: str | None = None
    name: Name | None = None


async def list_sessions(call: Call) -> Response:
    """List sessions, or find those in which something was said."""
    query: ListQuery = call.query
    sessions = call.sessions.agent.sessions
    if query.q is not None:
        hits = await sessions.search(query.q, limit=query.limit, everywhere=True)
        found = {hit.session.id: hit.session for hit in hits}
        return json_answer(SessionPage(data=tuple(found.values())))
    wanted: ListOptions = {"limit": query.limit, "everywhere": True}
    wanted["archived"] = None if query.archived else False
    if query.after is not None:
        wanted["after"] = query.after
    if query.tag is not None:
        wanted["tag"] = query.tag
    if query.parent_id is not None:
        wanted["parent"] = query.parent_id
    page = await sessions.list(**wanted)
    is_full = len(page) == query.limit
    return json_answer(SessionPage(data=page, next_cursor=page[-1].id if is_full else None))


async def create_session(call: Call) -> Response:
    """Make a session; with an id of the client's choice, once."""
    body: NewSession = call.body
    sessions = call.sessions.agent.sessions
    if body.id is not None:
        if parse_session_id(body.id) is None:
            raise Problem(400, "BODY_INVALID", "the id of a session is a UUID in lower case")
        try:
            return _existing(await sessions.get(body.id), body)
        except AgentError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
    settings: dict[str, Any] = {}
    if body.model is not None:
        settings["model"] = body.model
    if body.system_prompt is not None:
        settings["system_prompt"] = body.system_prompt
    session = await call.sessions.agent.session(body.id, **settings).open()
    session_id = session.session_id or ""
    await session.close()
    fields = {"name": body.name, "title": body.title, "tags": body.tags, "metadata": body.metadata}
    changes = {name: value for name, value in fields.items() if value}
    if changes:
        await sessions.update(session_id, **changes)  # type: ignore[arg-type]
    made = await sessions.get(session_id)
    return json_answer(made, status=201, location=f"/api/v1/sessions/{session_id}")


def _existing(found: SessionDescription, body: NewSession) -> Response:
    """Answer a repeated creation; another session with the same id is a conflict."""
    wanted = {"name": body.name, "title": body.title, "tags": body.tags, "model": body.model}
    for field, value in wanted.items():
        if value and getattr(found, field) != value:
            raise Problem(409, "CONFLICT", f"session {found.id} exists with another {field}")
    return json_answer(found)


async def get_session(call: Call) -> Response:
    """Describe a session."""
    found = await call.sessions.describe(call.path["session_id"])
    return json_answer(found, etag=f'"{found.head}"')


async def change_session(call: Call) -> Response:
    """Change a session's name, title, tags, metadata, model or whether it is archived."""
    session_id, body = call.path["session_id"], call.body
    found = await call.sessions.describe(session_id)
    expected = call.request.headers.get("if-match")
    if expected is not None and expected != f'"{found.head}"':
        raise Problem(412, "CHANGED", "the session has changed since it was read")
    changes = {
        field: value
        for field in ("name", "title", "tags", "metadata")
        if (value := getattr(body, field)) is not msgspec.UNSET
    }
    sessions = call.sessions.agent.sessions
    if changes:
        await sessions.update(session_id, **changes)
    if body.archived is not msgspec.UNSET:
        await sessions.archive(session_id, undo=not body.archived)
    if body.model is not msgspec.UNSET:
        async with call.sessions.held(session_id) as session:
            await session.configure(model=body.model)
    return json_answer(await call.sessions.describe(session_id))


async def delete_session(call: Call) -> Response:
    """Delete a session for good."""
    session_id = call.path["session_id"]
    await call.sessions.describe(session_id)
    await call.sessions.discard(session_id)
    await call.sessions.agent.sessions.delete(session_id)
    return Response(status_code=204)


async def list_messages(call: Call) -> Response:
    """Return messages with the `seq` that they reach to."""
    query: MessagesQuery = call.query
    found = await call.sessions.describe(call.path["session_id"])
    page = await call.sessions.agent.sessions.messages(
        found.id, limit=query.limit, before=query.before, after=query.after
    )
    return json_answer(MessagePage(data=page, watermark=found.head))


async def fork_session(call: Call) -> Response:
    """Copy a session, up to a message or as a whole."""
    body: ForkBody = call.body
    async with call.sessions.held(call.path["session_id"]) as session:
        forked = await session.fork(after=body.at_message_id, name=body.name)
        await forked.close()
    made = await call.sessions.describe(forked.session_id or "")
    return json_answer(made, status=201, location=f"/api/v1/sessions/{made.id}")


async def rewind_session(call: Call) -> Response:
    """Make a message the last one, or take the last rewind back."""
    body: RewindBody = call.body
    async with call.sessions.held(call.path["session_id"]) as session:
        if body.message_id is None:
            await session.undo_rewind()
        else:
            await session.rewind(to=body.message_id)
    return json_answer(await call.sessions.describe(call.path["session_id"]))


async def export_session(call: Call) -> Response:
    """Return a session as a file of Holdfast or of another program."""
    query: ExportQuery = call.query
    if query.format not in _FORMATS:
        raise Problem(400, "QUERY_INVALID", f"the format is one of {', '.join(_FORMATS)}")
    found = await call.sessions.describe(call.path["session_id"])
    pieces = call.sessions.agent.sessions.export(found.id, to=query.format, redact=query.redact)
    headers = {
        "content-disposition": f'attachment; filename="{found.id}.{query.format}"',
        "content-type": _FORMATS[query.format],
        "x-content-type-options": "nosniff",
        "content-security-policy": "sandbox",
    }
    return StreamingResponse(_started(pieces, await anext(pieces, b"")), headers=headers)


async def _started(
    pieces: AsyncGenerator[bytes, None], first: bytes
) -> AsyncGenerator[bytes, None]:
    """Yield the pieces; the first was made before the answer began, so that it may still fail."""
    yield first
    async for piece in pieces:
        yield piece


async def session_usage(call: Call) -> Response:
    """Add up the tokens, cost and time of a session."""
    found = await call.sessions.describe(call.path["session_id"])
    return json_answer(await call.sessions.agent.sessions.stats(found.id))


_ONE = "/api/v1/sessions/{session_id}"
SESSION_OPERATIONS = (
    Operation(
        method="GET",
        path="/api/v1/sessions",
        name="list_sessions",
        summary="List sessions, or search what was said in them.",
        handler=list_sessions,
        scope="read",
        query=ListQuery,
        answer=SessionPage,
    ),
    Operation(
        method="POST",
        path="/api/v1/sessions",
        name="create_session",
        summary="Make a session; with an id of your choice the request may be repeated.",
        handler=create_session,
        scope="write",
        body=NewSession,
        status=201,
        answer=SessionDescription,
    ),
    Operation(
        method="GET",
        path=_ONE,
        name="get_session",
        summary="Describe a session.",
        handler=get_session,
        scope="read",
        answer=SessionDescription,
    ),
    Operation(
        method="PATCH",
        path=_ONE,
        name="change_session",
        summary="Change a session; what is absent stays, null clears.",
        handler=change_session,
        scope="write",
        body=Changed,
        answer=SessionDescription,
    ),
    Operation(
        method="DELETE",
        path=_ONE,
        name="delete_session",
        summary="Delete a session for good.",
        handler=delete_session,
        scope="write",
        status=204,
    ),
    Operation(
        method="GET",
        path=f"{_ONE}/messages",
        name="list_messages",
        summary="Return messages, oldest first, with the seq that they reach to.",
        handler=list_messages,
        scope="read",
        query=MessagesQuery,
        answer=MessagePage,
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/fork",
        name="fork_session",
        summary="Copy a session, up to a message or as a whole.",
        handler=fork_session,
        scope="write",
        body=ForkBody,
        status=201,
        answer=SessionDescription,
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/rewind",
        name="rewind_session",
        summary="Make a message the last one; without one, take the last rewind back.",
        handler=rewind_session,
        scope="write",
        body=RewindBody,
        answer=SessionDescription,
    ),
    Operation(
        method="GET",
        path=f"{_ONE}/export",
        name="export_session",
        summary="Return a session as a file of Holdfast or of another program.",
        handler=export_session,
        scope="read",
        query=ExportQuery,
        media="application/octet-stream",
    ),
    Operation(
        method="GET",
        path=f"{_ONE}/usage",
        name="session_usage",
        summary="Add up the tokens, cost and time of a session.",
        handler=session_usage,
        scope="read",
        answer=SessionStats,
    ),
)
