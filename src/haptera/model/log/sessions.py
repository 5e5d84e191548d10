"""Entries about the session itself: how it begins, what changes of it, what became of commands."""

from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from haptera.model.errors import ErrorReport
from haptera.model.ids import DEFAULT_OWNER, CallId, MessageId, QueryId, SessionId
from haptera.model.json_types import JsonObject
from haptera.model.log.entry import DROPPED, KEPT, OPENING_SEQ, Entry, ImportRule
from haptera.model.log.history import heal_history
from haptera.model.log.landmarks import Landmarks, StatePlace
from haptera.model.messages import Message
from haptera.model.operations.operation import CommandId
from haptera.model.settings import Settings, believed_settings
from haptera.model.usage import Usage

if TYPE_CHECKING:
    from haptera.model.log.session_fold import SessionFold

ChangeOrigin: TypeAlias = Literal["opening", "configure"]

FORMAT_VERSION = 1
"""The version of the log format that this code writes."""


class SessionOpened(Entry, frozen=True, kw_only=True, tag="session.opened"):
    """A session begins, new or as a branch of another."""

    survives_rewind: ClassVar[bool] = True
    imported: ClassVar[ImportRule] = ImportRule(
        "kept",
        (
            *("session_id", "format", "title", "settings", "history"),
            *("parent", "forked_at", "forked_after", "parent_head"),
        ),
    )
    is_checked: ClassVar[bool] = True
    ends_calls: ClassVar[bool] = True
    session_id: SessionId
    format: int = FORMAT_VERSION
    owner: str = DEFAULT_OWNER
    project: str = ""
    name: str | None = None
    title: str | None = None
    parent: SessionId | None = None
    forked_at: int | None = None
    """The last `seq` of the parent that belongs to this session, too."""
    forked_after: MessageId | None = None
    """The last message that belongs to it, where the parent itself had it from elsewhere."""
    parent_head: int | None = None
    """The parent's last `seq` at the fork: what it had recorded of calls by then counts here."""
    spawned_by: SessionId | None = None
    """The session whose tool call made this one. It shares nothing of its conversation."""
    spawned_by_call: CallId | None = None
    settings: Settings = Settings()
    configured: tuple[str, ...] = ()
    """Names of settings that `configure` had set in the session that this one was forked from."""
    native_session_id: str | None = None
    native_parent: str | None = None
    """The parent's native session, where all of it belongs to this session: it is copied."""
    history: tuple[Message, ...] = ()
    """The conversation that a restored session begins with."""

    def apply(self, fold: "SessionFold") -> None:
        """Begin the session, on top of what it inherits if it is a fork."""
        fold.opened = self
        fold.title = self.title
        fold.settings = self.settings
        fold.configured = frozenset(self.configured)
        fold.points.clear()
        # Those of a parent are in its log.
        fold.landmarks, fold.listed = Landmarks(), None
        if self.parent is None:
            fold.conversation.set_history(heal_history(self.history))
        else:
            self._inherit(fold)
            if self.forked_after is not None:
                fold.keep_through(self.forked_after)
        # Last, because what comes from another session is in no entry of this one.
        fold.compacted.start(self.seq if self.parent is None else 0)
        fold.native = fold.native.opened(self, fold.conversation.tip)

    def _inherit(self, fold: "SessionFold") -> None:
        """Take over a conversation from another session: what was unfinished there, rests here."""
        fold.end_all()
        # Untold notes come from entries of the parent: to have them, all entries must be read.
        if fold.notes.untold:
            fold.notes.since = OPENING_SEQ
        fold.folded_at = 0
        fold.rewound_at = None  # a rewind of the parent cannot be taken back here
        # The parent has paid for it.
        fold.usage, fold.cost = Usage(), Decimal(0)


FOLDED = "folded"
"""The change of a session that says what it was without its messages, for those who look at it."""


class SessionChanged(Entry, frozen=True, kw_only=True, tag="session.changed"):
    """A property of the session changed; has only the changed properties, and null clears one."""

    survives_rewind: ClassVar[bool] = True
    imported: ClassVar[ImportRule] = ImportRule("kept", ("changes",))
    changes: JsonObject
    origin: ChangeOrigin = "configure"
    """What changed it; a change at an opening ranks like what the session was opened with."""

    def apply(self, fold: "SessionFold") -> None:
        """Take over what is named."""
        changes = self.changes
        if FOLDED in changes and (place := self.state_place) is not None:
            fold.landmarks = fold.landmarks and fold.landmarks.with_state(place)
            # Off the path that the session is on, it says nothing of its messages.
            last = fold.conversation.tip
            if last is not None and changes[FOLDED]["tip"].get("id") == last.id:
                fold.folded_at, fold.listed = self.seq, last.id
        title = changes.get("title", fold.title)
        fold.title = title if title is None or isinstance(title, str) else fold.title
        fold.native = fold.native.changed(self)
        if "settings" in changes:
            fold.settings, names = believed_settings(fold.settings, changes["settings"])
            # What an opening has named is not set by `configure` any more.
            is_configured = self.origin == "configure"
            fold.configured = fold.configured | names if is_configured else fold.configured - names

    @property
    def state_place(self) -> StatePlace | None:
        """Where it says what the session was, if it does."""
        stored = self.changes.get(FOLDED)
        if not isinstance(stored, dict) or not isinstance(stored.get("tip"), dict):
            return None
        at = stored.get("at")
        return StatePlace(self.seq, at) if type(at) is int and 0 < at < self.seq else None


class SessionImported(Entry, frozen=True, kw_only=True, tag="session.imported"):
    """The entries before it came from a file: none of what they began is carried on.

    On every path of the log its queries, calls, questions and waiting prompts have ended here.
    """

    survives_rewind: ClassVar[bool] = True
    imported: ClassVar[ImportRule] = KEPT
    is_checked: ClassVar[bool] = True
    ends_calls: ClassVar[bool] = True

    def apply(self, fold: "SessionFold") -> None:
        """End everything that is open."""
        fold.end_all()
        # Who goes back to before it has to see it: it ends what was open there.
        fold.points.clear()
        fold.landmarks = fold.landmarks and fold.landmarks.without_states()

    def note_query(self, unended: dict[QueryId, None]) -> None:
        """Count every query as ended."""
        unended.clear()


class CommandEnded(Entry, frozen=True, kw_only=True, tag="command.ended"):
    """A command of another process was carried out, or refused with an `error`.

    It is in the append that holds what came of the command.
    """

    survives_rewind: ClassVar[bool] = True
    imported: ClassVar[ImportRule] = DROPPED
    command_id: CommandId
    result: JsonObject | None = None
    """What the sender gets: the report of a rewind, the id of a compaction."""
    error: ErrorReport | None = None
    """Why it was refused; nothing was changed then."""

    def apply(self, fold: "SessionFold") -> None:
        """Change nothing: it is for the sender of the command."""
