"""SessionState: a conversation in a small versioned value, to export and to restore from."""

from typing import Literal

import msgspec

from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.json_types import (
    DEEPEST,
    Json,
    JsonObject,
    is_too_deep,
    python_words,
    writable,
)
from haptera.model.messages import Message
from haptera.model.settings import Thinking
from haptera.model.source_names import NATIVE_ID_NAMES

STATE_VERSION = 1
_LEVELS_AROUND = 10
"""How deep inside a state values from outside begin, and a little more."""


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """What is needed to go on with a conversation elsewhere.

    Provider and model are for reference: what a new session is told wins. Every field is written,
    the version first.
    """

    version: Literal[1] = 1
    messages: tuple[Message, ...] = ()
    provider: str = ""
    model: str = ""
    thinking: Thinking | None = None
    system_prompt: str | None = None
    exported_at: int = 0
    native_session_id: str | None = None
    """The session that a native agent kept; for reference, a restored session begins a new one."""

    def to_dict(self) -> JsonObject:
        """Return plain values for JSON, from which a session can be restored, too.

        The native session is also written by the names that other programs know it by.
        """
        values: JsonObject = msgspec.to_builtins(self)
        return values | dict.fromkeys(NATIVE_ID_NAMES, self.native_session_id)


def check_state(value: object) -> SessionState:
    """Check a state that a user hands in, as a value or as plain JSON."""
    try:
        if isinstance(value, SessionState):
            # A struct takes any value for any field. As plain values it is checked like the others.
            value = value.to_dict()
        msgspec.json.encode(value)  # what cannot be written down cannot be restored
    except (TypeError, ValueError, RecursionError) as error:
        is_text = isinstance(error, UnicodeEncodeError)
        why = f"{_half_character(value)} holds half a character" if is_text else error
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, f"the session state cannot be stored: {why}"
        ) from error
    if is_too_deep(value, levels=DEEPEST + _LEVELS_AROUND):
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, "the session state is nested too deeply to be stored"
        )
    if not isinstance(value, dict):
        is_json = isinstance(value, str | bytes)
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            "restore= takes a SessionState, or the dictionary of its to_dict(), not "
            f"{type(value).__name__}{'; read JSON with json.loads() first' if is_json else ''}",
        )
    version = value.get("version")
    # `True` equals 1.
    if version != STATE_VERSION or isinstance(version, bool):
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"session state version {version!r} cannot be restored; this version reads 1",
        )
    try:
        return msgspec.convert(value, SessionState)
    except msgspec.ValidationError as error:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, f"the session state is not valid: {python_words(str(error))}"
        ) from error


def _half_character(value: Json, path: str = "$") -> str | None:
    """Return where there is a text with a lone surrogate, which cannot be encoded."""
    if isinstance(value, str):
        return path if writable(value) != value else None
    inside: list[tuple[str, Json]] = []
    if isinstance(value, dict):
        inside = [(f"{path}.{writable(str(name))}", each) for name, each in value.items()]
        if any(isinstance(name, str) and writable(name) != name for name in value):
            return f"a key of {path}"
    elif isinstance(value, list | tuple):
        inside = [(f"{path}[{index}]", each) for index, each in enumerate(value)]
    return next((fault for name, each in inside if (fault := _half_character(each, name))), None)
