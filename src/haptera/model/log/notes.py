"""Entries that say something beside the conversation: notes of a project, messages of hooks."""

from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec

from haptera.model.ids import SessionId
from haptera.model.log.entry import KEPT, Entry, ImportRule
from haptera.model.messages import UserMessage
from haptera.model.parts import ReminderPart

if TYPE_CHECKING:
    from haptera.model.log.session_fold import SessionFold


class ContextNoted(Entry, frozen=True, kw_only=True, tag="context.noted"):
    """A note for all sessions of the project, or content of another session that was included."""

    survives_rewind: ClassVar[bool] = False
    imported: ClassVar[ImportRule] = ImportRule("kept", ("text", "source", "included"))
    is_checked: ClassVar[bool] = True
    text: str
    source: SessionId | None = None
    """The session that the text comes from; None for a note that was made in this one."""
    included: Literal["summary", "full"] | None = None
    """What of the source the text is, when a session was included; None for a note."""

    def apply(self, fold: "SessionFold") -> None:
        """Have the next prompt lead with it."""
        fold.notes.take(self)


class HookMessage(Entry, frozen=True, kw_only=True, tag="hook.message"):
    """A hook sends a message; without `display` it is on no stream."""

    survives_rewind: ClassVar[bool] = False
    imported: ClassVar[ImportRule] = KEPT
    hook: str
    text: str
    display: bool = True

    def apply(self, fold: "SessionFold") -> None:
        """Change nothing: it is for people."""

    @property
    def is_public(self) -> bool:
        """Whether consumers of events see it: what a hook says to the log alone they do not."""
        return self.display


class UntoldNotes:
    """Notes and included sessions: what of them leads the next prompt."""

    def __init__(self) -> None:
        self.untold: list[ReminderPart] = []
        self.noted: list[ReminderPart] = []
        """All notes, told or not."""
        self.since: int | None = None
        """The first entry that what is untold comes from; None when everything was told."""

    def take(self, entry: ContextNoted) -> None:
        """Take in what was noted."""
        is_note = entry.included is None
        text = f"A note for this project: {entry.text}" if is_note else entry.text
        if not text.strip():
            return  # an import can bring one; no provider takes a blank text
        reminder = ReminderPart(text=text, persisted=True)
        self.since = self.since or entry.seq
        self.untold.append(reminder)
        if is_note:
            self.noted.append(reminder)

    def lead(self, prompt: UserMessage) -> UserMessage:
        """Return a prompt with what is untold before it."""
        if not self.untold:
            return prompt
        return msgspec.structs.replace(prompt, parts=(*self.untold, *prompt.parts))

    def tell(self, prompt: UserMessage) -> UserMessage:
        """Return a prompt that leads with what is untold; it is told by that."""
        prompt, self.untold, self.since = self.lead(prompt), [], None
        return prompt

    def tell_again(self, seq: int) -> None:
        """Have notes told again: a summary stands for what they led, and for included sessions."""
        noted = {part.text for part in self.noted}
        self.untold = [*self.noted, *(part for part in self.untold if part.text not in noted)]
        if self.untold:
            self.since = self.since or seq
