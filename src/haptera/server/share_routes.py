"""Routes about links to sessions: make, list and revoke them, and what a link shows to others.

The last two routes are public: their credential is the token in the path. A link that is wrong, has
expired or was revoked gets one and the same answer, after about the same work, and is counted like
a wrong credential.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable

import msgspec

from haptera.access.sharing import SharedSession, owners_of
from haptera.formats.html_page import PAGE_POLICY
from haptera.model.errors import AgentError, ErrorCode
from haptera.model.operations.sessions import ListShares, RevokeShare, ShareSession
from haptera.server.operations import (
    HTML,
    Call,
    FileAnswer,
    OperationAnswer,
    ServedOperation,
    Server,
)
from haptera.server.problems import ProblemError
from haptera.server.session_operations import served

_NOT_INDEXED = {"x-robots-tag": "noindex, nofollow, noarchive"}
_PAGE_HEADERS = {
    **_NOT_INDEXED,
    "content-security-policy": f"{PAGE_POLICY}; frame-ancestors 'none'",
}


@ServedOperation(
    method="GET",
    path="/s/{token}.json",
    rpc="share/read",
    scope=None,
    answer=SharedSession,
    tag="shares",
)
async def read_shared_session(call: Call) -> OperationAnswer:
    """Return the messages that a link shows."""
    # In a thread: a session may be long, and no credential is needed to ask for it.
    encoded = await _shown(call, msgspec.json.encode)
    return OperationAnswer(msgspec.Raw(encoded), headers=_NOT_INDEXED)


@ServedOperation(
    method="GET", path="/s/{token}", rpc="share/page", scope=None, media=(HTML,), tag="shares"
)
async def read_shared_page(call: Call) -> FileAnswer:
    """Return what a link shows, as a page."""
    page = await _shown(call, SharedSession.html)
    return FileAnswer(
        name="session.html",
        media_type=f"{HTML}; charset=utf-8",
        pieces=_one_piece(page),
        headers=_PAGE_HEADERS,
    )


async def _shown(call: Call, write: Callable[[SharedSession], bytes]) -> bytes:
    """Write what a link shows, among the sessions of the owners that it may belong to.

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
        async with server.hub.exporting.of(owner):
            shown = await _shown_by(server, owner, token)
            if shown is not None:
                return await asyncio.to_thread(write, shown)
    server.count_failure(call.client)
    message = "this link is not valid; it may have expired or been revoked"
    raise ProblemError(404, ErrorCode.NOT_FOUND.value, message)


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
        message = "the session cannot be read now"
        raise ProblemError(503, ErrorCode.UNAVAILABLE.value, message, retryable=True) from error


async def _one_piece(content: bytes) -> AsyncGenerator[bytes, None]:
    yield content


SHARE_OPERATIONS = (
    served(ShareSession),
    served(ListShares),
    served(RevokeShare),
    # Before the page: its path would match this one, too.
    read_shared_session,
    read_shared_page,
)
