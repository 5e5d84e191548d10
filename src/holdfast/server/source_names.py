"""Source names: methods by which other programs resume and keep chat sessions, over operations.

`ai/session/resume` and `chat/session/…` have fields of their own. They are translated here; all
work is done by the operations of the same meaning.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from holdfast import SessionDescription
from holdfast.server.problems import ProblemError
from holdfast.server.resume_routes import Resumed
from holdfast.server.session_routes import Name, SystemPrompt, Text
from holdfast.server.sessions import OwnerSessions

_IN_METADATA = ("status", "error_message", "workflow_id")


class _Named(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What parameters share: names in camel case, unknown ones refused."""


class SourceCall(msgspec.Struct, frozen=True, kw_only=True):
    """What a method works with."""

    invoke: Callable[..., Awaitable[Any]]
    """Calls an operation by its name in JSON-RPC; returns its value."""
    sessions: OwnerSessions


class ResumeParams(_Named, frozen=True, kw_only=True):
    """Which session to resume, and with which model."""

    chat_session_id: str
    provider: Text | None = None
    model: Text | None = None


class SourceResumed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A session that is open again; what was loaded is absent where an agent keeps its own."""

    ai_session_id: str
    provider: str
    model: str
    sdk_session_id: str | None
    resumed: bool
    context_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    context_window: int | msgspec.UnsetType | None = msgspec.UNSET
    messages_loaded: int | msgspec.UnsetType | None = msgspec.UNSET
    compactions_applied: int | msgspec.UnsetType | None = msgspec.UNSET
    auto_compacted: bool | msgspec.UnsetType | None = msgspec.UNSET


class ChatFields(_Named, frozen=True, kw_only=True):
    """What can be set of a chat session; what is absent stays, null clears."""

    title: Name | msgspec.UnsetType | None = msgspec.UNSET
    provider: Text | msgspec.UnsetType | None = msgspec.UNSET
    model: Text | msgspec.UnsetType | None = msgspec.UNSET
    system_prompt: SystemPrompt | msgspec.UnsetType | None = msgspec.UNSET
    cli_session_id: Name | msgspec.UnsetType | None = msgspec.UNSET
    status: Name | msgspec.UnsetType | None = msgspec.UNSET
    error_message: str | msgspec.UnsetType | None = msgspec.UNSET
    workflow_id: Name | msgspec.UnsetType | None = msgspec.UNSET


class CreateParams(ChatFields, frozen=True, kw_only=True):
    """A chat session to make."""

    id: str | None = None
    """A UUID of the client's choice."""


class GetParams(_Named, frozen=True, kw_only=True):
    """Which chat session to return."""

    id: str


class UpdateParams(ChatFields, frozen=True, kw_only=True):
    """Which chat session to change, and how."""

    id: str


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


async def resume(call: SourceCall, params: ResumeParams) -> SourceResumed:
    """Open a session again; starts nothing."""
    found = await call.invoke("session/get", session_id=params.chat_session_id)
    model = _model(found, params.provider, params.model)
    resumed: Resumed = await call.invoke(
        "session/resume", session_id=found.id, carry_on=False, **({"model": model} if model else {})
    )
    told = SourceResumed(
        ai_session_id=resumed.session_id,
        provider=resumed.provider,
        model=resumed.model,
        sdk_session_id=resumed.native_session_id,
        resumed=resumed.resumed,
    )
    if resumed.native_session_id is not None:
        return told
    return msgspec.structs.replace(
        told,
        context_tokens=resumed.context_tokens,
        context_window=resumed.context_window,
        messages_loaded=resumed.messages_loaded,
        compactions_applied=resumed.compactions_applied,
        auto_compacted=resumed.auto_compacted,
    )


async def create(call: SourceCall, params: CreateParams) -> ChatSession:
    """Make a session."""
    given = {} if params.id is None else {"id": params.id}
    made: SessionDescription = await call.invoke("session/create", **given)
    return await _changed(call, made, params)


async def get(call: SourceCall, params: GetParams) -> ChatSession:
    """Return a session."""
    return await _described(call, await call.invoke("session/get", session_id=params.id))


async def update(call: SourceCall, params: UpdateParams) -> ChatSession:
    """Change a session; what is absent stays."""
    found = await call.invoke("session/get", session_id=params.id)
    return await _changed(call, found, params)


async def _changed(call: SourceCall, found: SessionDescription, params: ChatFields) -> ChatSession:
    def given(*names: str) -> dict[str, Any]:
        return {
            name: value for name in names if (value := getattr(params, name)) is not msgspec.UNSET
        }

    changes = given("title", "system_prompt")
    if params.cli_session_id is not msgspec.UNSET:
        changes["native_session_id"] = params.cli_session_id
    if metadata := given(*_IN_METADATA):
        changes["metadata"] = metadata
    if model := _model(found, params.provider or None, params.model or None):
        changes["model"] = model
    if changes:
        found = await call.invoke("session/update", session_id=found.id, **changes)
    return await _described(call, found)


async def _described(call: SourceCall, found: SessionDescription) -> ChatSession:
    fold, _ = await call.sessions.agent.sessions.folded(found.id)
    provider, _, model = found.model.partition("/")
    return ChatSession(
        id=found.id,
        title=found.title,
        provider=provider,
        model=model,
        system_prompt="\n\n".join(fold.settings.system_prompts) or None,
        cli_session_id=found.native_session_id,
        status=found.status,
        error_message=found.error_message,
        workflow_id=found.workflow_id,
        created_at=found.created,
        updated_at=found.updated,
    )


def _model(found: SessionDescription, provider: str | None, model: str | None) -> str | None:
    """Return the model to change to, as `provider/model`; what is not said stays as it is stored.

    Raises:
        ProblemError: 400 when there is no model to go with a provider.

    """
    if provider is None and (model is None or "/" in model):
        return model
    stored_provider, _, stored_model = found.model.partition("/")
    provider, model = provider or stored_provider, model or stored_model
    if not (provider and model):
        raise ProblemError(400, "PARAMS_INVALID", "a provider is given with its model")
    return f"{provider}/{model.removeprefix(provider + '/')}"


SourceMethod: TypeAlias = Callable[[SourceCall, Any], Awaitable[object]]
SOURCE_METHODS: dict[str, tuple[type[msgspec.Struct], SourceMethod]] = {
    "ai/session/resume": (ResumeParams, resume),
    "chat/session/create": (CreateParams, create),
    "chat/session/get": (GetParams, get),
    "chat/session/update": (UpdateParams, update),
}
