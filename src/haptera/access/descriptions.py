"""Sessions as they are listed and described: values for programs, pages and tables."""

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Literal, TypeAlias

import msgspec

from haptera.formats.forms import iso_time
from haptera.model.errors import ErrorReport
from haptera.model.ids import MessageId, PartId, QueryId, SessionId
from haptera.model.json_types import JsonObject
from haptera.model.messages import Message
from haptera.model.option import Option
from haptera.model.parts import Part
from haptera.model.results import SessionPhase
from haptera.model.usage import Usage, add_costs
from haptera.ports.session_store import SearchHit, SessionRecord

_DEFAULT_TITLE = re.compile(
    r"(?:New|Child) session - \d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z", re.ASCII
)

SessionEventKind: TypeAlias = Literal["created", "updated", "deleted", "switched"]


class _Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What all values of this module share: immutable, keyword-only."""


class SessionDescription(_Value, frozen=True, kw_only=True):
    """What a list shows of a session."""

    id: SessionId
    owner: str
    project: str
    """The folder, or the name, that the session belongs to."""
    title: str
    """The title that was given, or one made from the time of creation."""
    name: str | None = None
    model: str = ""
    """`provider/model` of new queries."""
    parent: SessionId | None = None
    """The session that it was forked from."""
    spawned_by: SessionId | None = None
    """The session whose tool call made it."""
    native_session_id: str | None = None
    created: int = 0
    """Milliseconds since 1970, as all times here."""
    updated: int = 0
    archived: int | None = None
    tags: tuple[str, ...] = ()
    metadata: JsonObject = msgspec.field(default_factory=dict)
    phase: SessionPhase = "idle"
    """What the log says of the last query."""
    error: str | None = None
    """What the last query failed with."""
    head: int = 0
    """The `seq` of the last entry."""

    @property
    def status(self) -> str:
        """The status that a program has set as metadata, or else the `phase`."""
        return str(self.metadata.get("status", self.phase))

    @property
    def error_message(self) -> str | None:
        """The error that a program has set as metadata, or else that of the last query."""
        message = self.metadata.get("error_message")
        return message if isinstance(message, str) else self.error

    @property
    def workflow_id(self) -> str | None:
        """The metadata `workflow_id`."""
        workflow_id = self.metadata.get("workflow_id")
        return workflow_id if isinstance(workflow_id, str) else None


class SessionStats(_Value, frozen=True, kw_only=True):
    """What a session has come to, added up over its log."""

    messages: int = 0
    queries: int = 0
    turns: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()
    cost: Decimal | None = Decimal(0)
    """In US dollars; None when the price of a model that was used is not known."""
    duration_ms: int = 0
    """The time that queries took, without the time between them."""

    def __add__(self, other: "SessionStats") -> "SessionStats":
        return SessionStats(
            messages=self.messages + other.messages,
            queries=self.queries + other.queries,
            turns=self.turns + other.turns,
            tool_calls=self.tool_calls + other.tool_calls,
            usage=self.usage + other.usage,
            cost=add_costs(self.cost, other.cost),
            duration_ms=self.duration_ms + other.duration_ms,
        )


class SessionTree(_Value, frozen=True, kw_only=True):
    """A session with those of its sub-agents, and theirs."""

    session: SessionDescription
    children: "tuple[SessionTree, ...]" = ()
    """The first that began comes first."""


class PartTimes(_Value, frozen=True, kw_only=True):
    """When a part of an answer began and ended; None while it has not."""

    part_id: PartId
    started: int
    ended: int | None = None


class MessageDescription(_Value, frozen=True, kw_only=True):
    """A message with what its session knows of it."""

    message: Message
    time: int = 0
    parent: MessageId | None = None
    """The message before it."""
    query_id: QueryId | None = None
    folder: str = ""
    cost: Decimal | None = None
    usage: Usage | None = None
    error: ErrorReport | None = None
    """What the query of the message failed with."""
    parts: tuple[PartTimes, ...] = ()
    synthetic: bool = False
    """Whether the program made it, and neither a person nor a model."""


class FoundText(_Value, frozen=True, kw_only=True):
    """A place that a search found, with its session."""

    session: SessionDescription
    hit: SearchHit


class FoundPrompt(_Value, frozen=True, kw_only=True):
    """Where the log of a session has a prompt."""

    seq: int
    query_id: QueryId | None = None
    parts: tuple[Part, ...] = ()


class ActiveContext(_Value, frozen=True, kw_only=True):
    """What a person was looking at: saved with a session, and there when it is opened again."""

    cwd: str | None = None
    root: str | None = None
    open_files: tuple[str, ...] = ()
    preferences: JsonObject = msgspec.field(default_factory=dict)
    environment: dict[str, str] = msgspec.field(default_factory=dict)


class SessionSummary(_Value, frozen=True, kw_only=True):
    """A summary of a session that a person or a model has made."""

    title: str = ""
    body: str = ""
    topics: tuple[str, ...] = ()
    files_changed: tuple[str, ...] = ()
    made: int = 0


class SessionEvent(_Value, frozen=True, kw_only=True):
    """Something happened to a session as a whole, in this process."""

    kind: SessionEventKind
    session_id: SessionId


def _change_option(sentence: str) -> Option:
    """Declare a field of a session that can be changed."""
    return Option(sentence, shown="<unchanged>")


class SessionChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What can be changed of a session; None clears a field."""

    name: Annotated[
        str | None, _change_option("The name, unique within the owner and project.")
    ] = None
    title: Annotated[
        str | None, _change_option("The title; None: one made from the time of creation.")
    ] = None
    tags: Annotated[Sequence[str], _change_option("All tags; they replace the previous ones.")] = ()
    metadata: Annotated[
        JsonObject | None,
        _change_option("Metadata fields to set; a field with the value None is removed."),
    ] = None
    status: Annotated[
        str | None, _change_option("The metadata field `status`, shown instead of the phase.")
    ] = None
    error_message: Annotated[
        str | None,
        _change_option(
            "The metadata field `error_message`, shown instead of the error of the last query."
        ),
    ] = None
    workflow_id: Annotated[str | None, _change_option("The metadata field `workflow_id`.")] = None
    system_prompt: Annotated[str | None, _change_option("The system prompt.")] = None
    native_session_id: Annotated[
        str | None,
        _change_option(
            "The session of a native agent to go on with, for a session without a conversation; "
            "None: the next query begins a new one."
        ),
    ] = None


def describe(record: SessionRecord) -> SessionDescription:
    """Describe a session by its record."""
    return SessionDescription(
        id=record.id,
        owner=record.owner,
        project=record.project,
        title=record.title or default_title(record.created, is_child=_is_child(record)),
        name=record.name,
        model=record.model,
        parent=record.parent,
        spawned_by=record.spawned_by,
        native_session_id=record.native_session_id,
        created=record.created,
        updated=record.updated,
        archived=record.archived,
        tags=record.tags,
        metadata=record.metadata,
        phase=record.status,
        error=record.error,
        head=record.head,
    )


def default_title(created: int, *, is_child: bool = False) -> str:
    """Return the title of a session that was given none."""
    return f"{'Child' if is_child else 'New'} session - {iso_time(created)}"


def is_default_title(title: str) -> bool:
    """Whether a title is one that `default_title` makes."""
    return _DEFAULT_TITLE.fullmatch(title) is not None


def _is_child(record: SessionRecord) -> bool:
    return record.parent is not None or record.spawned_by is not None
