"""What sessions can be asked over HTTP and JSON-RPC, made from the facts of their operations.

A body or a query has the fields of the operation, and the path what names the session. The call is
that of the method which a program would call.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeAlias, get_type_hints

import msgspec

from haptera import AgentSession, AgentSessions, ConfigError, SessionDescription
from haptera.access.sharing import Share
from haptera.model.file_snapshots import RewindReport
from haptera.model.operations.operation import Operation, Route, SessionCommand, operations_of
from haptera.model.operations.sessions import DeleteSession, GetSession
from haptera.options.operations import ask, given_fields, meant
from haptera.server.decoding import described
from haptera.server.operations import (
    ONE_SESSION,
    Call,
    Nothing,
    OperationAnswer,
    ServedOperation,
    Strict,
)
from haptera.server.problems import ProblemError


class RewoundSession(SessionDescription, frozen=True, kw_only=True):
    """A session after a rewind, or before one that was only tried."""

    rewind: RewindReport


class ShareList(msgspec.Struct, frozen=True, kw_only=True):
    """The valid links to a session."""

    data: tuple[Share, ...]


def check_unchanged(call: Call, session: SessionDescription) -> None:
    """Compare `If-Match` with the session.

    Raises:
        ProblemError: 412 when the session is another than the one that the client has read.

    """
    if call.if_match is None:
        return
    tags = [tag.strip() for tag in call.if_match.split(",")]
    if "*" not in tags and f'"{session.head}"' not in tags:
        raise ProblemError(412, "CHANGED", "the session has changed since it was read")


def described_session(session: SessionDescription) -> OperationAnswer:
    """Answer with a session, and with the tag of its state."""
    return OperationAnswer(session, headers={"etag": f'"{session.head}"'})


async def _described(_call: Call, session: SessionDescription) -> OperationAnswer:
    return described_session(session)


async def _made(call: Call, session: AgentSession) -> OperationAnswer:
    await session.close()
    description = await call.sessions.describe(session.session_id or "")
    return OperationAnswer(description, headers={"location": f"/api/v1/sessions/{description.id}"})


async def _rewound(call: Call, report: RewindReport) -> OperationAnswer:
    session = await call.sessions.describe(call.path["session_id"])
    fields = msgspec.structs.asdict(session)
    return OperationAnswer(RewoundSession(**fields, rewind=report.writable()))


async def _made_share(call: Call, share: Share) -> OperationAnswer:
    path = share.path or ""
    shown = msgspec.structs.replace(share, path=call.root + path)
    return OperationAnswer(shown, headers={"location": path})


async def _listed_shares(_call: Call, shares: tuple[Share, ...]) -> OperationAnswer:
    return OperationAnswer(ShareList(data=shares))


async def _as_it_is(_call: Call, value: object) -> OperationAnswer:
    return OperationAnswer(value)


AnswerMaker: TypeAlias = Callable[[Call, Any], Awaitable[OperationAnswer]]
_ANSWERS: dict[Any, tuple[Any, AnswerMaker]] = {
    AgentSession: (SessionDescription, _made),
    RewindReport: (RewoundSession, _rewound),
    SessionDescription: (SessionDescription, _described),
    Share: (Share, _made_share),
    tuple[Share, ...]: (ShareList, _listed_shares),
}
"""What a client gets instead of what the method returns, by its type."""


def served(kind: type[Operation]) -> ServedOperation:
    """Return an operation as HTTP and JSON-RPC serve it."""
    route, face = _route_of(kind), kind.facts.face
    owner = AgentSession if issubclass(kind, SessionCommand) else AgentSessions
    returned = get_type_hints(getattr(owner, face))["return"]
    answer, shown = _ANSWERS.get(returned) or (returned, _as_it_is)
    takes = _parameters_of(kind, route)
    is_read = route.method == "GET"

    async def handler(call: Call) -> OperationAnswer:
        asked, fields = _asked(kind, call.query if is_read else call.body, call.path)
        return await shown(call, await _answer(call, asked, fields))

    return ServedOperation(
        method=route.method,
        path=ONE_SESSION + (f"/{face}" if route.path is None else route.path),
        name=route.name or f"{face}_session",
        rpc=route.rpc or f"session/{face}",
        summary=route.summary,
        handler=handler,
        scope=route.scope,
        query=takes if is_read and takes is not None else Nothing,
        body=None if is_read else takes,
        options=("if_match",) if route.if_match else (),
        status=route.status,
        answer=None if answer is type(None) else answer,
        tag=route.tag,
    )


def _route_of(kind: type[Operation]) -> Route:
    if (route := kind.facts.route) is None:
        raise TypeError(f"{kind.__name__} is not asked for over HTTP")
    return route


def _parameters_of(kind: type[Operation], route: Route) -> type[msgspec.Struct] | None:
    """Return the type of a body or a query; None when the path says it all."""
    otherwise = kind.facts.otherwise
    fields: list[tuple[str, Any, Any]] = []
    declarations = given_fields(kind)
    for field in sorted(declarations, key=[*route.fields, *declarations].index):
        if field == "reference" or f"{{{field}}}" in (route.path or ""):
            continue
        declared = declarations[field]
        there, plain = route.fields.get(field, (field, declared.kind))
        if not there:
            continue
        meta, default = described(declared), declared.default
        if otherwise is not None and field == otherwise.field:
            meta, default = msgspec.Meta(description=route.about), None
        if default is None:
            plain = plain | None
        fields.append((there, Annotated[plain, meta], default))
    if not fields:
        return None
    name = route.body or f"{kind.facts.face.capitalize()}Body"
    namespace = {"__doc__": route.about}
    return msgspec.defstruct(
        name, fields, bases=(Strict,), namespace=namespace, frozen=True, kw_only=True
    )


def _asked(
    kind: type[Operation], sent: object, path: Mapping[str, str]
) -> tuple[type[Operation], dict[str, Any]]:
    """Return which operation is asked for, and with what.

    Raises:
        ProblemError: 400 when a field is for another one.

    """
    names = {field: there for field, (there, _) in _route_of(kind).fields.items()}
    values: dict[str, Any] = {}
    for field, declared in given_fields(kind).items():
        there = names.get(field, field)
        values[field] = path.get(field) or getattr(sent, there, declared.default)
    asked, fields, others = meant(kind, values)
    if others and (otherwise := kind.facts.otherwise) is not None:
        named = " and ".join(f"`{names.get(name, name)}`" for name in others)
        needed = names.get(otherwise.field, otherwise.field)
        raise ProblemError(400, "BODY_INVALID", f"{named} need a `{needed}`")
    return asked, fields


async def _answer(call: Call, kind: type[Operation], fields: dict[str, Any]) -> object:
    """Call the method of the face of the session, or of the sessions of its owner."""
    if not issubclass(kind, SessionCommand):
        session = await call.sessions.describe(call.path["session_id"])
        if kind is GetSession:
            return session
        check_unchanged(call, session)
        if kind is DeleteSession:
            # It closes what its agent holds, but the pool would hand the closed session out.
            await call.sessions.discard(session.id, force=True)
        return await ask(call.sessions.agent.sessions, kind, {**fields, "reference": session.id})
    # What was cut off is carried on first, unless the request is about the history.
    carries_on = not kind.facts.waits
    async with call.sessions.handle(call.path["session_id"], carries_on=carries_on) as handle:
        try:
            return await ask(handle, kind, fields)
        except ConfigError as error:
            if kind.facts.route is None or error.code != kind.facts.route.unready:
                raise
            # No failure of the server: its agent is not set up for it.
            raise ProblemError(409, error.code, error.message) from error


def served_besides(rows: Sequence[ServedOperation]) -> Iterator[ServedOperation]:
    """Yield the operations that have a route and are not among some rows, whose order is kept."""
    names = {each.name for each in rows}
    operations = (served(kind) for kind in operations_of() if kind.facts.route is not None)
    yield from (each for each in operations if each.name not in names)
