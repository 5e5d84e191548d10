"""Entry: what every durable record of a log has, what each kind says of itself, and the registry.

A kind is one class in a module of this package. It has the fields, the step of the fold (`apply`),
and what the rest of the program asks of a kind: whether it survives a rewind, what an import takes
over, whether consumers see it, the line that a transcript has for it. Defining the class registers
it; what decodes a log and the tables of the documentation are derived from the registry
(`scripts/write_entry_tables.py`).
"""

from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

import msgspec

from haptera.model.ids import EntryId, QueryId, TurnId
from haptera.model.json_types import Value
from haptera.model.source_names import event_names

if TYPE_CHECKING:
    # The state is made of entries, so it cannot be imported here when the program runs.
    from haptera.model.log.session_fold import SessionFold

ImportFate: TypeAlias = Literal["kept", "ended", "dropped"]
"""Kept as something to read; kept, and ended where it is open; not taken over."""


class ImportRule(msgspec.Struct, frozen=True):
    """What an import takes over of the entries of one kind."""

    fate: ImportFate
    fields: tuple[str, ...] | None = None
    """Those that are kept; None: all of them, also those of a later version. They are named of the
    kinds that could grant or begin something: a field that is added later is dropped until it is
    named."""


OPENING_SEQ = 1
"""The `seq` of the opening: whatever needs it needs all entries, also those that are inherited."""

KEPT, DROPPED = ImportRule("kept"), ImportRule("dropped")

_KINDS: list[type["Entry"]] = []


class NamedEvent(Value, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """What entries and live-only events share: a kind, and the names that others have for it."""

    @property
    def kind(self) -> str:
        """The event's name on the wire, such as `turn.started`."""
        return str(self.__struct_config__.tag)

    @property
    def alias(self) -> str:
        """The name that users of other systems know this event by; without one, the kind."""
        return next(iter(self.aliases), self.kind)

    @property
    def aliases(self) -> tuple[str, ...]:
        """All such names, of every system that has one for this event; the best known one first."""
        return event_names(self.kind, self)


class Entry(NamedEvent, frozen=True, kw_only=True):
    """What all entries share. `seq` is 0 until the entry has its place in a log.

    A kind that does not say itself whether it survives a rewind, what an import takes over of it,
    and what it changes in the fold is refused when its class is made.
    """

    id: EntryId
    time: int
    """Wall-clock milliseconds; for people, never for order."""
    seq: int = 0
    query_id: QueryId | None = None
    turn_id: TurnId | None = None
    raw: msgspec.Raw | None = None
    """The stored bytes, kept only when they hold more than this version understands."""
    survives_rewind: ClassVar[bool]
    """Whether an entry of this kind counts after a rewind to before it."""
    imported: ClassVar[ImportRule]
    """What an import takes over of it."""
    is_checked: ClassVar[bool] = False
    """Whether what makes it has made or checked all its values. Any other kind is read back before
    it is stored."""
    ends_calls: ClassVar[bool] = False
    """Whether no call of an earlier answer waits for anything after it."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        unsaid = {"survives_rewind", "imported", "apply"} - vars(cls).keys()
        if unsaid:
            raise TypeError(f"{cls.__name__} does not say {', '.join(sorted(unsaid))}")
        _KINDS.append(cls)

    def apply(self, fold: "SessionFold") -> None:
        """Change the session by this entry."""
        raise NotImplementedError

    def note_query(self, unended: dict[QueryId, None]) -> None:
        """Note in the queries without an end, by their order, if it begins or ends one.

        Also of an entry that was rewound: a query of another path may have ended, or may not.
        """

    @property
    def is_public(self) -> bool:
        """Whether consumers of events see it."""
        return True

    def transcript_line(self) -> str | None:
        """Return what a transcript says of it between the messages; None: nothing."""
        return None

    def off_path(self) -> "Entry | None":
        """Return what remains of it once it was rewound."""
        return self if self.survives_rewind else None

    @property
    def is_fate(self) -> bool:
        """Whether it says for good what became of a call."""
        return False

    def answer_after(self, before: int) -> int:
        """Return the `seq` at which the answer ended whose calls are open after it; 0: none is.

        `before` is that of the entry that it follows.
        """
        return 0 if self.ends_calls else before


def registered_kinds() -> list[type[Entry]]:
    """Return the kinds that were defined so far, in the order of their names, `UnknownEntry` last.

    They are all kinds once `model.known_events` is imported.
    """
    kinds = [kind for kind in _KINDS if kind is not UnknownEntry]
    return [*sorted(kinds, key=kind_name), UnknownEntry]


def kind_name(kind: type[Entry]) -> str:
    """Return the name of a kind in logs, such as `turn.started`."""
    return str(kind.__struct_config__.tag)


def own_fields(kind: type[Entry]) -> tuple[str, ...]:
    """Return the names of the fields that a kind has beside those of all entries."""
    return tuple(name for name in kind.__struct_fields__ if name not in Entry.__struct_fields__)


class UnknownEntry(Entry, frozen=True, kw_only=True, tag="unknown"):
    """An entry of a kind that this version does not know; its bytes are kept as they are."""

    survives_rewind: ClassVar[bool] = False
    imported: ClassVar[ImportRule] = KEPT
    is_checked: ClassVar[bool] = True
    stored_kind: str = ""

    @property
    def kind(self) -> str:
        """The kind that the entry was stored under."""
        return self.stored_kind

    def apply(self, fold: "SessionFold") -> None:
        """Change nothing: it is for a later version."""
