"""Option checks: whether what a user handed in can be what was meant, before anything is built."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec

from holdfast.engine.query_input import Unanswered
from holdfast.ports.abort import AbortSignal
from holdfast.vocabulary.approvals import DecisionT, check_decision
from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.messages import Sender
from holdfast.vocabulary.secrets import Secret
from holdfast.vocabulary.settings import Delivery, RuntimeSettings
from holdfast.vocabulary.text import did_you_mean, writable

_Seconds = Annotated[float, msgspec.Meta(ge=0)]

_PLAIN_OPTIONS: dict[str, Any] = {
    "base_url": str | None,
    "busy": Literal["wait", "reject"],
    "delivery": Delivery,
    "headers": dict[str, str],
    "must_exist": bool,
    "on_abort": Literal["raise", "return"],
    "owner": str,
    "project": str,
    "reminders": tuple[str, ...],
    "require_tool": str | None,
    "runtime": RuntimeSettings,
    "sender": Sender | None,
    "timeout": _Seconds | None,
    "total_timeout": _Seconds | None,
    "unanswered": Unanswered,
}
"""Options that are plain values: their types say what fits."""


def _is_function(value: object) -> bool:
    return value is None or callable(value)


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def _is_place(value: object) -> bool:
    return value is None or isinstance(value, str | os.PathLike)


def _is_credential(value: object) -> bool:
    return (
        value is None
        or isinstance(value, str | Secret)
        or callable(value)
        or callable(getattr(value, "token", None))
    )


_OBJECTS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "api_key": (_is_credential, "a key, a Secret, a function that returns one, or a TokenSource"),
    "approver": (_is_function, "a function"),
    "attachments": (_is_list, "a list of attachments"),
    "before_tool": (_is_function, "a function"),
    "clock": (lambda value: hasattr(value, "time_ms"), "a Clock"),
    "config_dir": (_is_place, "a path"),
    "config_path": (_is_place, "a path"),
    "cwd": (_is_place, "a path"),
    "environment": (lambda value: value is None or isinstance(value, Mapping), "a mapping"),
    "instrumentation": (_is_function, "a function"),
    "providers": (_is_list, "a list of model clients"),
    "random": (lambda value: hasattr(value, "random"), "a Random"),
    "record_to": (_is_place, "a path"),
    "signal": (
        lambda value: value is None or isinstance(value, AbortSignal),
        "an AbortSignal (of an AbortController: its `signal`)",
    ),
    "store": (lambda value: isinstance(value, str) or hasattr(value, "leases"), "a store"),
    "tools": (_is_list, "a list of tools"),
    "transform": (_is_function, "a function"),
    "transport": (_is_function, "a function"),
}
"""Options that are objects: a glance tells whether they can be used at all."""


def check_options(options: Mapping[str, Any], known: Any, *, of: str) -> None:  # noqa: ANN401 - a TypedDict
    """Refuse what nobody knows and what cannot be meant: an option is never quietly ignored.

    Raises:
        TypeError: when there is no such option.
        ConfigError: CONFIG_INVALID naming the option whose value is wrong.

    """
    if unknown := set(options) - set(known.__annotations__):
        hints = {name: did_you_mean(name, known.__annotations__) for name in sorted(unknown)}
        named = ", ".join(f"{name} ({hint})" if hint else name for name, hint in hints.items())
        raise TypeError(f"{of} has no option {named}")
    for name, value in options.items():
        if name in _PLAIN_OPTIONS:
            _check_plain(name, value)
        elif name in _OBJECTS:
            fits, wanted = _OBJECTS[name]
            if not fits(value):
                raise ConfigError(
                    ErrorCode.CONFIG_INVALID,
                    f"option {name!r} must be {wanted}, not {type(value).__name__}",
                )


def check_subscription(kind: object, handler: object) -> None:
    """Refuse a subscription that could never be served.

    Raises:
        ConfigError: CONFIG_INVALID when the kind is no class or the handler no function.

    """
    if not isinstance(kind, type):
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"events are chosen by their class, such as TextDelta, not by {kind!r}",
        )
    if not callable(handler):
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"a handler is a function, not {handler!r}")


def check_reference(reference: object) -> None:
    """Refuse what cannot be the name or the id of a session.

    Raises:
        ConfigError: CONFIG_INVALID when it is no text, or blank.

    """
    if reference is not None:
        check_id(reference, of="a session's name or id")


def check_id(value: object, *, of: str) -> None:
    """Refuse what cannot name anything.

    Raises:
        ConfigError: CONFIG_INVALID when it is no text, blank, or text that no store can keep.

    """
    if not (isinstance(value, str) and value.strip()):
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"{of} must be text, not {value!r}")
    check_text(value, of=of)


def check_text(text: object, *, of: str) -> None:
    """Refuse what is no text, and text that no store can keep.

    Raises:
        ConfigError: CONFIG_INVALID naming whose text it is.

    """
    if not isinstance(text, str):
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"{of} must be text, not {text!r}")
    if writable(text) != text:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, f"{of} holds half a character, which cannot be kept: {text!r}"
        )


def decided(decision: DecisionT) -> DecisionT:
    """Return a decision about a tool call, checked, and with words that can be written.

    Raises:
        ConfigError: CONFIG_INVALID saying what is wrong with it.

    """
    mended = {
        name: writable(text)
        for name in ("reason", "by")
        if isinstance(text := getattr(decision, name, None), str)
    }
    try:
        return check_decision(msgspec.structs.replace(decision, **mended))
    except ValueError as error:
        raise ConfigError(ErrorCode.CONFIG_INVALID, str(error)) from error


def _check_plain(name: str, value: object) -> None:
    try:
        msgspec.convert(msgspec.to_builtins(value), _PLAIN_OPTIONS[name])
    except (msgspec.ValidationError, TypeError) as error:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, f"option {name!r} is not valid: {error}"
        ) from error
