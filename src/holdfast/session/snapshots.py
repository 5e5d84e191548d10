"""Snapshots: a session at one moment, as a value to look at or to export."""

from typing import TYPE_CHECKING, Literal

import msgspec

from holdfast.serialization.session_state import SessionState
from holdfast.vocabulary.ids import InputId, SessionId
from holdfast.vocabulary.messages import Message
from holdfast.vocabulary.settings import Thinking

if TYPE_CHECKING:
    from holdfast.session.live_session import LiveSession


class WaitingPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt in the queue."""

    input_id: InputId
    text: str
    delivery: Literal["queue", "steer", "reject", "interrupt"]


class SessionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is at one moment."""

    session_id: SessionId
    provider: str
    model: str
    thinking: Thinking | None
    messages: tuple[Message, ...]
    pending: tuple[WaitingPrompt, ...]
    steer_count: int
    queue_count: int


def take_snapshot(live: "LiveSession") -> SessionSnapshot:
    """Look at a session without changing it."""
    fold = live.fold
    provider, _, model = fold.settings.model.partition("/")
    waiting = tuple(
        WaitingPrompt(input_id=item.input_id, text=item.message.text, delivery=item.delivery)
        for item in fold.inputs.values()
    )
    steers = sum(item.delivery == "steer" for item in waiting)
    return SessionSnapshot(
        session_id=live.session_id,
        provider=provider,
        model=model,
        thinking=fold.settings.thinking,
        messages=fold.messages(),
        pending=waiting,
        steer_count=steers,
        queue_count=len(waiting) - steers,
    )


def state_of(live: "LiveSession") -> SessionState:
    """Return the committed conversation, ready to be restored elsewhere.

    It does not wait for a running query: abort first if its partial answer matters.
    """
    fold = live.fold
    provider, _, model = fold.settings.model.partition("/")
    return SessionState(
        messages=fold.committed_messages(),
        provider=provider,
        model=model,
        thinking=fold.settings.thinking,
        system_prompt="\n\n".join(fold.settings.system_prompts) or None,
        exported_at=live.stamp.clock.time_ms(),
    )
