"""The entry of a compaction: what is sent instead of earlier messages, and why."""

from decimal import Decimal
from typing import ClassVar, Literal, TypeAlias

from haptera.model.entries import Entry
from haptera.model.ids import MessageId
from haptera.model.json_types import JsonObject
from haptera.model.usage import Usage

CompactionTrigger: TypeAlias = Literal["auto", "manual", "overflow", "provider"]
"""What made it happen: the estimate before a request, the user, a request that the provider refused
as too long, or the provider itself."""


class Compaction(Entry, frozen=True, kw_only=True, tag="compaction"):
    """From here on something shorter is sent instead, depending on `strategy`.

    - `summarise`: the summary, then the messages from `kept_from` on.
    - `tail`: the same, but there is no usable summary; `summary` says so.
    - `prune`: placeholders instead of the results of tools before `kept_from`.
    - `none`: what was sent before; there is no usable summary, and the request fits without one.
    - `server`: the provider's own summary, which is a part of its answer.
    - `native`: what the native agent decides; nothing changes here.
    """

    survives_rewind: ClassVar[bool] = False
    trigger: CompactionTrigger
    strategy: str
    summary: str
    kept_from: MessageId | None = None
    """The first message that is still sent after the summary; None when all are replaced."""
    tokens_before: int | None = None
    tokens_after: int | None = None
    reminders: tuple[str, ...] = ()
    """The cached reminders, which are sent again after the summary."""
    rejected: str | None = None
    """Why the summary that was asked for was not used; None when it was."""
    usage: Usage = Usage()
    """What asking for the summary used."""
    cost: Decimal | None = Decimal(0)
    reads_from: int | None = None
    """The first `seq` that has to be read to go on from here; None: all entries."""
    carried: JsonObject | None = None
    """What the session was at this point beside its messages, for going on from here."""

    @property
    def pre_tokens(self) -> int | None:
        """The tokens before it, by the name that native agents use."""
        return self.tokens_before
