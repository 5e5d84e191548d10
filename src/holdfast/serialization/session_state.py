"""SessionState: a conversation in a small versioned value, to export and to restore from."""

from typing import Literal

import msgspec

from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.messages import Message
from holdfast.vocabulary.settings import Thinking

STATE_VERSION = 1


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """What is needed to go on with a conversation elsewhere.

    Provider and model are for reference: what a new session is told wins. Every field is written,
    the version first, whoever writes it.
    """

    version: Literal[1] = 1
    messages: tuple[Message, ...] = ()
    provider: str = ""
    model: str = ""
    thinking: Thinking | None = None
    system_prompt: str | None = None
    exported_at: int = 0

    def to_dict(self) -> JsonObject:
        """Return plain values for JSON, from which a session can be restored, too."""
        values: JsonObject = msgspec.to_builtins(self)
        return values


def encode_state(state: SessionState) -> bytes:
    """Write a state as JSON."""
    return msgspec.json.encode(state)


def decode_state(raw: bytes) -> SessionState:
    """Read a state; raises CONFIG_INVALID naming the version or the field that is wrong."""
    try:
        values = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, f"the session state is not JSON: {error}"
        ) from error
    return check_state(values)


def check_state(value: object) -> SessionState:
    """Check a state that a user hands in, as a value or as plain JSON."""
    if isinstance(value, SessionState):
        value = value.to_dict()
    version = value.get("version") if isinstance(value, dict) else None
    if version != STATE_VERSION or isinstance(version, bool):
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"session state version {version!r} cannot be restored; this version reads 1",
        )
    try:
        state = msgspec.convert(value, SessionState)
        encode_state(state)  # half a character can be neither kept nor sent
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, f"the session state is not valid: {error}"
        ) from error
    return state
