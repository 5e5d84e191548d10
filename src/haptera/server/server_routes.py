"""Routes about the server itself: health, the OpenAPI document, login, models, tools, usage."""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from haptera import AgentSessions, SessionDescription, __version__
from haptera.access.descriptions import SessionStats
from haptera.access.doctor import KnownModel, known_models
from haptera.access.pool import QueryStats
from haptera.model.tools import ToolSpec
from haptera.server.access import COOKIE, COOKIE_SECONDS, LOGIN_HEADER
from haptera.server.decoding import described
from haptera.server.loop_slices import Durations
from haptera.server.openapi import document
from haptera.server.operations import Call, OperationAnswer, ServedOperation
from haptera.server.problems import ProblemError

_LOGIN_BYTES = 8 * 1024
"""Enough for the longest token, whichever way JSON writes its characters."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the server answers."""

    status: str


class ServerDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What the server is, and for whom it answers."""

    version: str
    owner: str
    scopes: tuple[str, ...]
    model: str
    """The model of new sessions."""


class LoopDurations(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in milliseconds of CPU time, since the server began."""

    longest_ms: float
    over_ms: dict[int, int]
    """How many were longer than so many milliseconds."""


class ServerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What the server process does now, and whether its clients had to wait for each other."""

    streams: int
    """How many streams of events are open."""
    requests: int
    """How many requests are in progress."""
    queries: QueryStats
    """What became of prompts for idle sessions that are open here."""
    slices: LoopDurations
    """How long the event loop worked in one go, without looking at any other client."""
    delays: LoopDurations
    """How long it was kept from that by any thread of the process, itself included."""


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """The models that can be used."""

    default: str
    data: tuple[KnownModel, ...]


class ToolList(msgspec.Struct, frozen=True, kw_only=True):
    """The tools that sessions offer to the model."""

    data: tuple[ToolSpec, ...]


class UsageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions to add up: a page of them, the last updated first."""

    group_by: Annotated[
        Literal["session", "day", "model"],
        described(
            "What the numbers are for. A day (UTC) or a model has those of the sessions on this "
            "page."
        ),
    ] = "session"
    limit: Annotated[
        int, msgspec.Meta(ge=1, le=100), described("How many sessions a page has at most.")
    ] = 50
    after: Annotated[
        Annotated[str, msgspec.Meta(min_length=1, max_length=64)] | None,
        described("The id of the last session of the page before."),
    ] = None


class UsageGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a session, a day or a model has come to."""

    session_id: str | None = None
    model: str | None = None
    """The model; with a session, the one that it uses now."""
    day: str | None = None
    """Such as 2026-05-17."""
    stats: SessionStats


class UsagePage(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of a page of sessions: of each, or of each day or model on the page."""

    data: tuple[UsageGroup, ...]
    next_cursor: str | None = None


class Login(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to exchange for a cookie and a secret."""

    token: Annotated[
        str,
        msgspec.Meta(min_length=1, max_length=512),
        described("The token of the server, or an API key."),
    ]


class LoggedIn(msgspec.Struct, frozen=True, kw_only=True):
    """The half of a login that is no cookie."""

    secret: Annotated[
        str,
        described(
            f"Sent as `{LOGIN_HEADER}` with each request that has the cookie; it is shown only "
            "once. Keep it where only pages of this origin, port included, can read it."
        ),
    ]


@ServedOperation(
    method="GET", path="/healthz", rpc="server/health", tag="server", scope=None, answer=Health
)
async def health(call: Call) -> OperationAnswer:
    """Say that the server answers."""
    del call
    return OperationAnswer(Health(status="ok"))


@ServedOperation(
    method="GET", path="/readyz", rpc="server/readiness", tag="server", scope=None, answer=Health
)
async def readiness(call: Call) -> OperationAnswer:
    """Say whether the server takes requests."""
    await call.server.hub.health.check()
    call.server.check_open()
    return OperationAnswer(Health(status="ready"))


@ServedOperation(
    method="GET",
    path="/openapi.json",
    rpc="server/openapi",
    tag="server",
    scope=None,
    answer=dict[str, Any],
)
async def openapi(call: Call) -> OperationAnswer:
    """Return the OpenAPI document."""
    return OperationAnswer(_encoded_document(call.server.operations, call.root))


@lru_cache(maxsize=4)
def _encoded_document(operations: tuple[ServedOperation, ...], root: str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(document(operations, root=root)))


@ServedOperation(
    method="POST",
    path="/api/v1/login",
    rpc=None,
    scope=None,
    body=Login,
    answer=LoggedIn,
    body_bytes=_LOGIN_BYTES,
    tag="server",
)
async def log_in(call: Call) -> OperationAnswer:
    """Exchange a token for an HttpOnly cookie and a secret to send with it."""
    body: Login = call.body
    login = call.server.access.log_in(body.token)
    if login is None:
        call.server.count_failure(call.client)
        raise ProblemError(401, "TOKEN_REQUIRED", "this token is not valid")
    cookie = _cookie(call, login.cookie, seconds=COOKIE_SECONDS)
    return OperationAnswer(LoggedIn(secret=login.secret), headers={"set-cookie": cookie})


@ServedOperation(
    method="POST", path="/api/v1/logout", rpc=None, scope="read", status=204, tag="server"
)
async def log_out(call: Call) -> OperationAnswer:
    """Make the cookie worthless."""
    call.server.access.log_out(call.cookie)
    return OperationAnswer(headers={"set-cookie": _cookie(call, "", seconds=0)})


def _cookie(call: Call, value: str, *, seconds: int) -> str:
    """Return the header that sets the cookie; with no time left, a browser forgets it."""
    secure = "; Secure" if call.is_secure else ""
    return f"{COOKIE}={value}; HttpOnly; Max-Age={seconds}; Path=/; SameSite=strict{secure}"


@ServedOperation(
    method="GET",
    path="/api/v1/info",
    rpc="server/info",
    tag="server",
    scope="read",
    answer=ServerDescription,
)
async def describe_server(call: Call) -> OperationAnswer:
    """Describe the server and the caller."""
    return OperationAnswer(
        ServerDescription(
            version=__version__,
            owner=call.principal.owner,
            scopes=tuple(sorted(call.principal.scopes)),
            model=call.sessions.agent.settings.model,
        )
    )


@ServedOperation(
    method="GET",
    path="/api/v1/load",
    rpc="server/load",
    tag="server",
    scope="read",
    answer=ServerLoad,
)
async def server_load(call: Call) -> OperationAnswer:
    """Tell what the server does now, and how long its event loop works in one go."""
    hub = call.server.hub
    return OperationAnswer(
        ServerLoad(
            streams=hub.streams.open,
            requests=call.server.requests_in_progress,
            queries=hub.queries,
            slices=_told(hub.loop.slices),
            delays=_told(hub.loop.delays),
        )
    )


def _told(durations: Durations) -> LoopDurations:
    return LoopDurations(longest_ms=round(durations.longest, 1), over_ms=dict(durations.longer))


@ServedOperation(
    method="GET",
    path="/api/v1/models",
    rpc="model/list",
    tag="server",
    scope="read",
    answer=ModelList,
)
async def list_models(call: Call) -> OperationAnswer:
    """List the models that can be used."""
    models = await asyncio.to_thread(known_models)
    usable = tuple(each for each in models if each.has_key)
    return OperationAnswer(ModelList(default=call.sessions.agent.settings.model, data=usable))


@ServedOperation(
    method="GET", path="/api/v1/tools", rpc="tool/list", tag="server", scope="read", answer=ToolList
)
async def list_tools(call: Call) -> OperationAnswer:
    """List the tools that new sessions offer to the model."""
    return OperationAnswer(ToolList(data=call.sessions.agent.tools))


@ServedOperation(
    method="GET",
    path="/api/v1/usage",
    rpc="usage/list",
    tag="server",
    scope="read",
    query=UsageQuery,
    answer=UsagePage,
)
async def usage(call: Call) -> OperationAnswer:
    """Return the tokens, cost and time of sessions, a page at a time."""
    query: UsageQuery = call.query
    sessions = call.sessions.agent.sessions
    wanted: dict[str, Any] = {"limit": query.limit, "everywhere": True, "archived": None}
    if query.after is not None:
        wanted["after"] = query.after
    page = await sessions.list(**wanted)
    if query.group_by == "session":
        stats = [(each, await sessions.stats(each.id)) for each in page]
        data = [UsageGroup(session_id=each.id, model=each.model, stats=it) for each, it in stats]
    else:
        data = await _grouped(sessions, page, query.group_by)
    # A page that is not full is the last; a full one may be, and the next is empty then.
    is_full = len(page) == query.limit
    return OperationAnswer(
        UsagePage(data=tuple(data), next_cursor=page[-1].id if is_full else None)
    )


async def _grouped(
    sessions: AgentSessions, page: Sequence[SessionDescription], by: Literal["day", "model"]
) -> list[UsageGroup]:
    groups: dict[str, SessionStats] = {}
    for each in page:
        for key, used in (await sessions.usage(each.id, by=by)).items():
            groups[key] = groups.get(key, SessionStats()) + used
    return [UsageGroup(**{by: key}, stats=groups[key]) for key in sorted(groups)]


SERVER_OPERATIONS = (
    health,
    readiness,
    openapi,
    log_in,
    log_out,
    describe_server,
    server_load,
    list_models,
    list_tools,
    usage,
)
