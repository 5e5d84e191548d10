"""Routes about links to sessions: make, list and revoke them, and what a link shows to others.

The last two routes are public: their credential is the token in the path. A link that is wrong, has
expired or was revoked gets one and the same answer, after about the same work, and is counted like
a wrong credential.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated

import msgspec

from haptera.access.descriptions import ShareOptions
from haptera.access.sharing import Share, SharedSession, owners_of
from haptera.formats.html_page import PAGE_POLICY
from haptera.model.errors import AgentError, ErrorCode
from haptera.options.declarations import options_of
from haptera.server.decoding import described
from haptera.server.operations import HTML, Call, FileAnswer, Operation, OperationAnswer, Server
from haptera.server.problems import ProblemError
from haptera.server.session_routes import ONE_SESSION, Strict

_OPTIONS = options_of(ShareOptions)
_NOT_INDEXED = {"x-robots-tag": "noindex, nofollow, noarchive"}
_PAGE_HEADERS = {
    **_NOT_INDEXED,
    "content-security-policy": f"{PAGE_POLICY}; frame-ancestors 'none'",
}


class NewShare(Strict, frozen=True, kw_only=True):
    """A link to make."""

    days: Annotated[float, described(_OPTIONS["days"])] = _OPTIONS["days"].default
    redact: Annotated[bool, described(_OPTIONS["redact"])] = _OPTIONS["redact"].default
    live: Annotated[bool, described(_OPTIONS["live"])] = _OPTIONS["live"].default


class ShareList(msgspec.Struct, frozen=True, kw_only=True):
    """The valid links to a session."""

    data: tuple[Share, ...]


async def share_session(call: Call) -> OperationAnswer:
    """Make a link under which others may read a session."""
    body: NewShare = call.body
    found = await call.sessions.describe(call.path["session_id"])
    made = await call.sessions.agent.sessions.share(
        found.id, days=body.days, redact=body.redact, live=body.live
    )
    path = made.path or ""
    shown = msgspec.structs.replace(made, path=call.root + path)
    return OperationAnswer(shown, headers={"location": path})


async def list_shares(call: Call) -> OperationAnswer:
    """List the valid links to a session."""
    found = await call.sessions.describe(call.path["session_id"])
    return OperationAnswer(ShareList(data=await call.sessions.agent.sessions.shares(found.id)))


async def revoke_share(call: Call) -> OperationAnswer:
    """Revoke a link, for good."""
    found = await call.sessions.describe(call.path["session_id"])
    await call.sessions.agent.sessions.unshare(found.id, call.path["share_id"])
    return OperationAnswer()


async def read_shared_session(call: Call) -> OperationAnswer:
    """Return the messages that a link shows."""
    return OperationAnswer(await _shared(call), headers=_NOT_INDEXED)


async def read_shared_page(call: Call) -> FileAnswer:
    """Return what a link shows, as a page."""
    page = await asyncio.to_thread((await _shared(call)).html)
    return FileAnswer(
        name="session.html",
        media_type=f"{HTML}; charset=utf-8",
        pieces=_one_piece(page),
        headers=_PAGE_HEADERS,
    )


async def _shared(call: Call) -> SharedSession:
    """Find what a link shows, among the sessions of the owners that it may belong to.

    Raises:
        ProblemError: 404; 429 after too many requests with the link, or too many wrong links; 503.

    """
    token, server = call.path["token"], call.server
    server.check_open()
    # Before the look-up, and by token: a link that many readers share does not use up the rate of
    # its owner.
    server.count_reading(token)
    # An owner is asked in any case, so that the time of an answer does not say which there are.
    for owner in owners_of(token, server.access.owners) or [server.access.owner]:
        shown = await _shown_by(server, owner, token)
        if shown is not None:
            return shown
    server.count_failure(call.client)
    told = "this link is not valid; it may have expired or been revoked"
    raise ProblemError(404, ErrorCode.NOT_FOUND.value, told)


async def _shown_by(server: Server, owner: str, token: str) -> SharedSession | None:
    """Return what a link shows; None when it is none of this owner.

    Raises:
        ProblemError: 503 when the session cannot be read, without saying why: errors of a store
            name files and sessions.

    """
    try:
        return await server.hub.owner(owner).agent.sessions.shared(token)
    except ProblemError:
        return None  # no agent serves this owner any more
    except AgentError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return None
        told = "the session cannot be read now"
        raise ProblemError(503, ErrorCode.UNAVAILABLE.value, told, retryable=True) from error


async def _one_piece(content: bytes) -> AsyncGenerator[bytes, None]:
    yield content


SHARE_OPERATIONS = (
    Operation(
        method="POST",
        path=f"{ONE_SESSION}/shares",
        name="share_session",
        rpc="share/create",
        summary="Make a link under which others may read a session; its token is shown once.",
        handler=share_session,
        scope="write",
        body=NewShare,
        status=201,
        answer=Share,
        tag="shares",
    ),
    Operation(
        method="GET",
        path=f"{ONE_SESSION}/shares",
        name="list_shares",
        rpc="share/list",
        summary="List the valid links to a session, without their tokens.",
        handler=list_shares,
        scope="read",
        answer=ShareList,
        tag="shares",
    ),
    Operation(
        method="DELETE",
        path=f"{ONE_SESSION}/shares/{{share_id}}",
        name="revoke_share",
        rpc="share/revoke",
        summary="Revoke a link, for good.",
        handler=revoke_share,
        scope="write",
        status=204,
        tag="shares",
    ),
    # Before the page: its path would match this one, too.
    Operation(
        method="GET",
        path="/s/{token}.json",
        name="read_shared_session",
        rpc="share/read",
        summary="Return the messages that a link shows.",
        handler=read_shared_session,
        scope=None,
        answer=SharedSession,
        tag="shares",
    ),
    Operation(
        method="GET",
        path="/s/{token}",
        name="read_shared_page",
        rpc="share/page",
        summary="Return what a link shows, as a page.",
        handler=read_shared_page,
        scope=None,
        media=(HTML,),
        tag="shares",
    ),
)
