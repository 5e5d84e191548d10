"""Routes about sessions as a whole: list, create, describe, change, delete, read messages."""

from datetime import datetime
from typing import Annotated, Any, cast
from uuid import UUID, uuid5

import msgspec

from haptera import AgentError, SessionDescription
from haptera.access.descriptions import MessageDescription, SessionChanges
from haptera.access.keywords import CountKeywords, ListKeywords, SessionChangeKeywords
from haptera.agent.agent_options import CONFIGURE
from haptera.model.errors import ErrorCode
from haptera.model.ids import parse_session_id
from haptera.model.operations.sessions import DeleteSession, GetSession, ListSessions
from haptera.model.operations.texts import Name
from haptera.model.results import SessionOrder, SessionPhase
from haptera.options.declarations import Declared, options_of
from haptera.server.decoding import described
from haptera.server.operations import ONE_SESSION, Call, OperationAnswer, ServedOperation, Strict
from haptera.server.problems import ProblemError
from haptera.server.session_operations import check_unchanged, described_session, served

PageLimit = Annotated[int, msgspec.Meta(ge=1, le=200)]
SessionIdText = Annotated[str, msgspec.Meta(min_length=36, max_length=36)]
# The handler checks that it is one, and says so: a limit of its length here would not.
NewSessionId = Annotated[str, msgspec.Meta(extra_json_schema={"format": "uuid"})]
SystemPrompt = Annotated[str, msgspec.Meta(max_length=100_000)]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=1000, pattern=r"\S")]
LongText = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
_SETTINGS = CONFIGURE.options
_LIST = options_of(ListSessions)
_CHANGES = options_of(SessionChanges)


def _sentence(option: Declared, more: str = "") -> msgspec.Meta:
    """Describe a field by the first part of an option's sentence, and what is different here."""
    return described(option.brief(more).option.sentence)


class SelectionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions are meant."""

    tag: Annotated[Name | None, described(_LIST["tag"])] = None
    tags: Annotated[LongText | None, _sentence(_LIST["tags"], "Separated by commas.")] = None
    metadata: Annotated[LongText | None, _sentence(_LIST["metadata"], "A JSON object.")] = None
    name_prefix: Annotated[Name | None, described(_LIST["name_prefix"])] = None
    sender: Annotated[Name | None, described(_LIST["sender"])] = None
    status: Annotated[Name | None, described(_LIST["status"])] = None
    since: Annotated[
        int | datetime | None,
        _sentence(_LIST["since"], "In milliseconds since 1970, or as RFC 3339 has it."),
    ] = None
    archived: Annotated[bool, described("Whether archived sessions are meant, too.")] = False
    parent_id: Annotated[SessionIdText | None, described(_LIST["parent"])] = None
    project: Annotated[
        LongText | None, _sentence(_LIST["project"], "Without it, those of all projects.")
    ] = None
    phase: Annotated[SessionPhase | None, described(_LIST["phase"])] = None


class CountQuery(SelectionQuery, frozen=True, kw_only=True):
    """Which sessions to count."""


class ListQuery(SelectionQuery, frozen=True, kw_only=True):
    """Which sessions to list."""

    limit: Annotated[PageLimit, _sentence(_LIST["limit"])] = _LIST["limit"].default
    after: Annotated[SessionIdText | None, described(_LIST["after"])] = None
    order: Annotated[SessionOrder, described(_LIST["order"])] = _LIST["order"].default
    q: Annotated[
        Annotated[str, msgspec.Meta(min_length=1, max_length=400)] | None,
        described(
            "Words that were said in the session; the other fields but `limit` are not used then."
        ),
    ] = None
    name: Annotated[
        Name | None,
        described(
            "The name of one session of the server's project; the other fields are not used then."
        ),
    ] = None


class SessionCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many sessions there are."""

    count: int


class SessionPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of sessions."""

    data: tuple[SessionDescription, ...]
    next_cursor: str | None = None
    """What to pass as `after` for the next page; None on the last one."""


class NewSession(Strict, frozen=True, kw_only=True):
    """A session to make."""

    id: Annotated[
        NewSessionId | None,
        described(
            "A UUID of the client's choice: the request may be repeated with it. A session of "
            "another owner than the server's gets an id that is made of it and the owner."
        ),
    ] = None
    name: Annotated[Name | None, described(_CHANGES["name"])] = None
    title: Annotated[Name | None, _sentence(_CHANGES["title"])] = None
    tags: Annotated[tuple[Name, ...], _sentence(_CHANGES["tags"])] = ()
    metadata: Annotated[dict[str, Any], _sentence(_CHANGES["metadata"])] = msgspec.field(
        default_factory=dict
    )
    model: Annotated[
        Text | None, _sentence(_SETTINGS["model"], "Without one, that of the server.")
    ] = None
    system_prompt: Annotated[
        SystemPrompt | None,
        _sentence(_SETTINGS["system_prompt"], "Without one, that of the server."),
    ] = None


class Changed(Strict, frozen=True, kw_only=True):
    """What to change of a session; what is absent stays, null clears."""

    name: Annotated[Name | msgspec.UnsetType | None, described(_CHANGES["name"])] = msgspec.UNSET
    title: Annotated[Name | msgspec.UnsetType | None, _sentence(_CHANGES["title"])] = msgspec.UNSET
    tags: Annotated[tuple[Name, ...] | msgspec.UnsetType, described(_CHANGES["tags"])] = (
        msgspec.UNSET
    )
    metadata: Annotated[
        dict[str, Any] | msgspec.UnsetType,
        _sentence(_CHANGES["metadata"], "A field that is null is removed, and others stay."),
    ] = msgspec.UNSET
    archived: Annotated[bool | msgspec.UnsetType, described("Whether the session is put away.")] = (
        msgspec.UNSET
    )
    model: Annotated[Text | msgspec.UnsetType, _sentence(_SETTINGS["model"])] = msgspec.UNSET
    system_prompt: Annotated[
        SystemPrompt | msgspec.UnsetType | None, _sentence(_SETTINGS["system_prompt"])
    ] = msgspec.UNSET
    native_session_id: Annotated[
        Name | msgspec.UnsetType | None, described(_CHANGES["native_session_id"])
    ] = msgspec.UNSET


class MessagesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages to return."""

    limit: Annotated[PageLimit, described("How many messages a page has at most.")] = 100
    before: Annotated[
        Name | None, described("The id of a message: those before it are returned.")
    ] = None
    after: Annotated[
        Name | None, described("The id of a message: those after it are returned.")
    ] = None
    newest: Annotated[
        bool,
        described(
            "Whether the last ones are returned, and not the first; oldest first all the same."
        ),
    ] = False


class MessagePage(msgspec.Struct, frozen=True, kw_only=True):
    """Messages, oldest first."""

    data: tuple[MessageDescription, ...]
    watermark: int
    """The `seq` they reach to: `events?after=` this has no gap and no duplicate."""


@ServedOperation(
    method="GET",
    path="/api/v1/sessions",
    rpc="session/list",
    scope="read",
    query=ListQuery,
    answer=SessionPage,
)
async def list_sessions(call: Call) -> OperationAnswer:
    """List sessions, or search what was said in them."""
    query: ListQuery = call.query
    sessions = call.sessions.agent.sessions
    if query.name is not None:
        return OperationAnswer(SessionPage(data=await _named(call, query.name)))
    if query.q is not None:
        hits = await sessions.search(query.q, limit=query.limit, everywhere=True)
        sessions_by_id = {hit.session.id: hit.session for hit in hits}
        return OperationAnswer(SessionPage(data=tuple(sessions_by_id.values())))
    paging = {"limit": query.limit, "order": query.order, "after": query.after}
    page = await sessions.list(**cast("ListKeywords", {**_selection(query), **paging}))
    is_full = len(page) == query.limit
    return OperationAnswer(SessionPage(data=page, next_cursor=page[-1].id if is_full else None))


@ServedOperation(
    method="GET",
    path="/api/v1/sessions:count",
    rpc="session/count",
    scope="read",
    query=CountQuery,
    answer=SessionCount,
)
async def count_sessions(call: Call) -> OperationAnswer:
    """Count the sessions that a list would have, all pages together."""
    count = await call.sessions.agent.sessions.count(**_selection(call.query))
    return OperationAnswer(SessionCount(count=count))


def _selection(query: SelectionQuery) -> CountKeywords:
    """Return the sessions that are meant as a program says it.

    Raises:
        ProblemError: 400 for metadata that are no object.

    """
    wanted: dict[str, Any] = {
        "everywhere": query.project is None,
        "archived": None if query.archived else False,
        "parent": query.parent_id,
        "tags": query.tags.split(",") if query.tags else (),
    }
    names = ("tag", "project", "phase", "name_prefix", "sender", "status", "since")
    wanted |= {name: getattr(query, name) for name in names}
    if query.metadata is not None:
        try:
            wanted["metadata"] = msgspec.json.decode(query.metadata, type=dict)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            told = f"`metadata` is a JSON object: {error}"
            raise ProblemError(400, "QUERY_INVALID", told) from error
    return cast("CountKeywords", {name: each for name, each in wanted.items() if each is not None})


async def _named(call: Call, name: str) -> tuple[SessionDescription, ...]:
    try:
        session = await call.sessions.agent.sessions.get(name)
    except AgentError as error:
        if error.code is not ErrorCode.NOT_FOUND:
            raise
        return ()
    return (session,) if session.name == name else ()


@ServedOperation(
    method="POST",
    path="/api/v1/sessions",
    rpc="session/create",
    scope="write",
    body=NewSession,
    status=201,
    also=(200,),
    answer=SessionDescription,
)
async def create_session(call: Call) -> OperationAnswer:
    """Make a session; with an id of your choice the request may be repeated."""
    body: NewSession = call.body
    sessions = call.sessions.agent.sessions
    wanted = _own_ids(call, body.id)
    for each in wanted:
        if (existing := await _session_there(call, each)) is not None:
            return _repeated(existing, body)
    settings: dict[str, Any] = {
        name: value
        for name in ("model", "system_prompt")
        if (value := getattr(body, name)) is not None
    }
    async with call.sessions.agent.session(wanted[-1] if wanted else None, **settings) as session:
        session_id = session.session_id or ""
        if settings:
            await session.configure(**settings)  # the agent's own would be in force otherwise
        try:
            if changes := _changes(body):
                await sessions.update(session_id, **changes)
        except AgentError:
            await session.delete()  # its name is taken: nothing of it is left
            raise
    description = await call.sessions.describe(session_id)
    sessions.announce("created", description.id)
    return OperationAnswer(description, headers={"location": f"/api/v1/sessions/{session_id}"})


def _own_ids(call: Call, session_id: str | None) -> tuple[str, ...]:
    """Return the ids under which a session of the caller may be, the one to make it under last.

    All owners share one space of ids, so what is made under a given id would tell whether another
    owner has it. Only the server's own user, who can read the store, makes sessions under the id
    itself; those of others that were made so are still found.
    """
    if session_id is None:
        return ()
    if parse_session_id(session_id) is None:
        raise ProblemError(
            400,
            "BODY_INVALID",
            "the id of a session is a UUID in lower case; use the field name for other names",
        )
    owner = call.principal.owner
    is_servers = owner == call.server.access.owner
    return (session_id,) if is_servers else (session_id, str(uuid5(UUID(session_id), owner)))


async def _session_there(call: Call, session_id: str) -> SessionDescription | None:
    try:
        return await call.sessions.describe(session_id)
    except AgentError as error:
        if error.code is not ErrorCode.NOT_FOUND:
            raise
    return None


def _repeated(session: SessionDescription, body: NewSession) -> OperationAnswer:
    """Answer a repeated request; another session with the same id is a conflict."""
    wanted = {**_changes(body), **({"model": body.model} if body.model else {})}
    for field, value in wanted.items():
        if getattr(session, field) != value:
            raise ProblemError(409, "CONFLICT", f"session {session.id} exists with another {field}")
    return OperationAnswer(
        session, status=200, headers={"location": f"/api/v1/sessions/{session.id}"}
    )


def _changes(body: NewSession | Changed) -> SessionChangeKeywords:
    """Return what a body says of the fields that are changed without opening the session."""
    is_new = isinstance(body, NewSession)
    fields = ["name", "title", "tags", "metadata"]
    if not is_new:
        fields += ["system_prompt", "native_session_id"]
    fields_given: Any = {
        field: value
        for field in fields
        if (value := getattr(body, field)) is not msgspec.UNSET and (value or not is_new)
    }
    if "tags" in fields_given:
        fields_given["tags"] = tuple(sorted(set(fields_given["tags"])))
    changes: SessionChangeKeywords = fields_given
    return changes


@ServedOperation(
    method="PATCH",
    path=ONE_SESSION,
    rpc="session/update",
    scope="write",
    body=Changed,
    options=("if_match",),
    answer=SessionDescription,
)
async def change_session(call: Call) -> OperationAnswer:
    """Change a session; what is absent stays, null clears."""
    session_id, body = call.path["session_id"], call.body
    session = await call.sessions.describe(session_id)
    check_unchanged(call, session)
    sessions = call.sessions.agent.sessions
    if body.model is not msgspec.UNSET:
        async with call.sessions.handle(session_id, carries_on=False) as handle:
            await handle.configure(model=body.model)
    if changes := _changes(body):
        await sessions.update(session_id, **changes)
    if body.archived is not msgspec.UNSET:
        await sessions.archive(session_id, undo=not body.archived)
    changed = await call.sessions.describe(session_id)
    return described_session(changed)


@ServedOperation(
    method="GET",
    path=f"{ONE_SESSION}/messages",
    rpc="message/list",
    scope="read",
    query=MessagesQuery,
    answer=MessagePage,
)
async def list_messages(call: Call) -> OperationAnswer:
    """Return messages, oldest first, with the seq that they reach to."""
    query: MessagesQuery = call.query
    session = await call.sessions.describe(call.path["session_id"])
    limit = None if query.newest else query.limit
    page = await call.sessions.agent.sessions.messages(
        session.id, limit=limit, before=query.before, after=query.after, through=session.head
    )
    page = page[-query.limit :] if query.newest else page
    return OperationAnswer(MessagePage(data=page, watermark=session.head))


SESSION_OPERATIONS = (
    list_sessions,
    count_sessions,
    create_session,
    served(GetSession),
    change_session,
    served(DeleteSession),
    list_messages,
)
