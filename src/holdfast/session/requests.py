"""Requests for sessions: which one to open, and where a new one comes from."""

from typing import Literal

import msgspec

from holdfast.vocabulary.ids import MessageId, SessionId
from holdfast.vocabulary.messages import Message
from holdfast.vocabulary.settings import Settings


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session branches off from another."""

    parent: SessionId
    forked_at: int
    """The last `seq` of the parent that belongs to the branch."""
    forked_after: MessageId | None = None
    """The last message that does, where the parent itself had it from elsewhere."""
    parent_head: int
    """The last `seq` that the parent has by now."""
    settings: Settings


class SessionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which session to open, and what it starts with if it is new."""

    reference: str | None = None
    """An id or a name; None makes a new session without a name."""
    owner: str = "local"
    project: str = ""
    settings: Settings = msgspec.field(default_factory=Settings)
    busy: Literal["wait", "reject"] = "reject"
    history: tuple[Message, ...] = ()
    must_exist: bool = False
    fork: Fork | None = None
