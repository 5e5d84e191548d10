"""Aliases: methods by which other programs resume and keep chat sessions, over operations.

`ai/session/resume` and `chat/session/…` have fields of their own. They are translated here; all
work is done by the operations of the same meaning.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeAlias

import msgspec

from haptera import AgentError, SessionDescription
from haptera.access.descriptions import SessionChanges
from haptera.agent.agent_options import CONFIGURE
from haptera.model.operations.texts import Name
from haptera.model.source_names import METHODS
from haptera.model.vendors import split_model
from haptera.options.declarations import options_of
from haptera.server.decoding import described
from haptera.server.problems import ProblemError
from haptera.server.resume_routes import Resumed
from haptera.server.rpc_messages import INVALID_PARAMS, rpc_error
from haptera.server.session_routes import SystemPrompt, Text
from haptera.server.sessions import OwnerSessions

_SETTINGS = CONFIGURE.options
_CHANGES = options_of(SessionChanges)
_ID = "The id of the session."
_PROVIDER = "The provider of the model; without one, that of the session."
_MODEL = _SETTINGS["model"].brief("Without one, that of the session.")
_IN_METADATA = ("status", "error_message", "workflow_id")


class _Named(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What parameters share: names in camel case, unknown ones refused."""


class AliasCall(msgspec.Struct, frozen=True, kw_only=True):
    """What a method works with."""

    invoke: Callable[..., Awaitable[Any]]
    """Calls an operation by its name in JSON-RPC; returns its value."""
    sessions: OwnerSessions


class ResumeParams(_Named, frozen=True, kw_only=True):
    """Which session to resume, and with which model."""

    chat_session_id: Annotated[str, described(_ID)]
    provider: Annotated[Text | None, described(_PROVIDER)] = None
    model: Annotated[Text | None, described(_MODEL)] = None


class ResumedByAlias(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A session that is open again; what was loaded is absent where an agent keeps its own."""

    ai_session_id: str
    provider: str
    model: str
    sdk_session_id: str | None
    resumed: bool
    resume: str
    context_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    context_window: int | msgspec.UnsetType | None = msgspec.UNSET
    messages_loaded: int | msgspec.UnsetType | None = msgspec.UNSET
    compactions_applied: int | msgspec.UnsetType | None = msgspec.UNSET
    auto_compacted: bool | msgspec.UnsetType | None = msgspec.UNSET


class ChatFields(_Named, frozen=True, kw_only=True):
    """What can be set of a chat session; what is absent stays, null clears."""

    title: Annotated[Name | msgspec.UnsetType | None, described(_CHANGES["title"].brief())] = (
        msgspec.UNSET
    )
    provider: Annotated[Text | msgspec.UnsetType | None, described(_PROVIDER)] = msgspec.UNSET
    model: Annotated[Text | msgspec.UnsetType | None, described(_MODEL)] = msgspec.UNSET
    system_prompt: Annotated[
        SystemPrompt | msgspec.UnsetType | None, described(_SETTINGS["system_prompt"].brief())
    ] = msgspec.UNSET
    cli_session_id: Annotated[
        Name | msgspec.UnsetType | None, described(_CHANGES["native_session_id"])
    ] = msgspec.UNSET
    status: Annotated[Name | msgspec.UnsetType | None, described(_CHANGES["status"])] = (
        msgspec.UNSET
    )
    error_message: Annotated[
        str | msgspec.UnsetType | None, described(_CHANGES["error_message"])
    ] = msgspec.UNSET
    workflow_id: Annotated[Name | msgspec.UnsetType | None, described(_CHANGES["workflow_id"])] = (
        msgspec.UNSET
    )


class CreateParams(ChatFields, frozen=True, kw_only=True):
    """A chat session to make."""

    id: Annotated[str | None, described("A UUID of the client's choice.")] = None


class GetParams(_Named, frozen=True, kw_only=True):
    """Which chat session to return."""

    id: Annotated[str, described(_ID)]


class UpdateParams(ChatFields, frozen=True, kw_only=True):
    """Which chat session to change, and how; named by `id` or `sessionId`."""

    id: Annotated[str | None, described(_ID)] = None
    session_id: Annotated[str | None, described(_ID)] = None


class ChatSession(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A session as these methods return it."""

    id: str
    title: str
    provider: str
    model: str
    system_prompt: str | None
    cli_session_id: str | None
    """The id of the session that an agent keeps itself."""
    status: str
    error_message: str | None
    workflow_id: str | None
    created_at: int
    """Milliseconds since 1970."""
    updated_at: int


async def resume(call: AliasCall, params: ResumeParams) -> ResumedByAlias:
    """Open a session again; starts nothing."""
    session = await call.invoke("session/get", session_id=params.chat_session_id)
    model = _model(session, params.provider, params.model)
    resumed: Resumed = await call.invoke(
        "session/resume",
        session_id=session.id,
        carry_on=False,
        **({"model": model} if model else {}),
    )
    answer = ResumedByAlias(
        ai_session_id=resumed.session_id,
        provider=resumed.provider,
        model=resumed.model,
        sdk_session_id=resumed.native_session_id,
        resumed=resumed.resumed,
        resume=resumed.resume,
    )
    if resumed.native_session_id is not None:
        return answer
    return msgspec.structs.replace(
        answer,
        context_tokens=resumed.context_tokens,
        context_window=resumed.context_window,
        messages_loaded=resumed.messages_loaded,
        compactions_applied=resumed.compactions_applied,
        auto_compacted=resumed.auto_compacted,
    )


async def create(call: AliasCall, params: CreateParams) -> ChatSession:
    """Make a session."""
    fields = {} if params.id is None else {"id": params.id}
    session: SessionDescription = await call.invoke("session/create", **fields)
    try:
        return await _changed(call, session, params)
    except (AgentError, ProblemError):
        if session.head <= 1:  # a session that was there before stays
            await call.invoke("session/delete", session_id=session.id)
        raise


async def get(call: AliasCall, params: GetParams) -> ChatSession:
    """Return a session."""
    return await _described(call, await call.invoke("session/get", session_id=params.id))


async def update(call: AliasCall, params: UpdateParams) -> ChatSession:
    """Change a session; what is absent stays."""
    named = params.id or params.session_id
    if named is None or (params.session_id or named) != named:
        raise rpc_error(INVALID_PARAMS, "PARAMS_INVALID", "id, or sessionId, is required")
    session = await call.invoke("session/get", session_id=named)
    return await _changed(call, session, params)


async def _changed(call: AliasCall, session: SessionDescription, params: ChatFields) -> ChatSession:
    def given(*names: str) -> dict[str, Any]:
        return {
            name: value for name in names if (value := getattr(params, name)) is not msgspec.UNSET
        }

    changes = given("title", "system_prompt")
    if params.cli_session_id is not msgspec.UNSET:
        changes["native_session_id"] = params.cli_session_id
    if metadata := given(*_IN_METADATA):
        changes["metadata"] = metadata
    if model := _model(session, params.provider or None, params.model or None):
        changes["model"] = model
    if changes:
        session = await call.invoke("session/update", session_id=session.id, **changes)
    return await _described(call, session)


async def _described(call: AliasCall, session: SessionDescription) -> ChatSession:
    fold, _ = await call.sessions.agent.sessions.folded(session.id)
    provider, model = split_model(session.model)
    return ChatSession(
        id=session.id,
        title=session.title,
        provider=provider,
        model=model,
        system_prompt="\n\n".join(fold.settings.system_prompts) or None,
        cli_session_id=session.native_session_id,
        status=session.status,
        error_message=session.error_message,
        workflow_id=session.workflow_id,
        created_at=session.created,
        updated_at=session.updated,
    )


def _model(session: SessionDescription, provider: str | None, model: str | None) -> str | None:
    """Return the model to change to, as `provider/model`; what is not said stays as it is stored.

    Raises:
        ProblemError: 400 when there is no model to go with a provider.

    """
    if provider is None and (model is None or "/" in model):
        return model
    stored_provider, stored_model = split_model(session.model)
    provider, model = provider or stored_provider, model or stored_model
    if not (provider and model):
        raise ProblemError(400, "PARAMS_INVALID", "a provider is given with its model")
    return f"{provider}/{model.removeprefix(provider + '/')}"


AliasMethod: TypeAlias = Callable[[AliasCall, Any], Awaitable[object]]
RPC_ALIASES: dict[str, tuple[type[msgspec.Struct], AliasMethod]] = {
    METHODS["resume"]: (ResumeParams, resume),
    METHODS["create"]: (CreateParams, create),
    METHODS["get"]: (GetParams, get),
    METHODS["update"]: (UpdateParams, update),
}
