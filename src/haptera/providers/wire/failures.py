"""Failures: turns a provider's error into a typed `AgentError`, by code, then status, then text.

A protocol provides the function that reads its error object and the typed codes that only it has
(`FailureRules`). All protocols share the rest; the tables of shared codes and texts are in
`blocks.error_classification`. docs/provider-errors.md documents the result, row by row.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from haptera.kernel.blocks.error_classification import (
    GENERAL_CODES,
    TYPED_CODES,
    code_of_known_text,
    code_of_status,
    code_of_text,
)
from haptera.model.errors import AgentError, Basis, ErrorCode, ProviderError, error_with_code
from haptera.model.json_types import Json, JsonObject
from haptera.model.secrets import scrub
from haptera.providers.wire.lenient_decoding import decode_lenient

_Value = TypeVar("_Value")

_PLAIN_STATUSES = frozenset({401, 402, 408, 409, 498, 502, 503, 504, 529})
"""Statuses that mean the same at every provider. For any other, the message may be more precise."""

_FIRST_ERROR_STATUS = 400
_EMPTY_MESSAGES = frozenset({"{}", "[]", "null", '""'})
"""Messages that are treated like no message."""
_MESSAGE_LIMIT = 500
_REQUEST_ID_HEADERS = (
    "request-id",
    "x-request-id",
    "mistral-correlation-id",
    "apim-request-id",
    "x-ds-trace-id",
    "x-goog-request-id",
    # Cloudflare's own, for replies that the provider itself did not send.
    "cf-ray",
)
"""The first that is present counts."""
_WAIT = (
    r"(?i)(?:try again|retry) (?:in|after) (\d+(?:\.\d+)?)\s?"
    r"(ms|milliseconds?|s|seconds?|m|minutes?)\b"
)
_ERROR_STATUS = r"[45]\d\d"
_SECONDS_IN = {"ms": 0.001, "mil": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0}


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider reports about a failure, read from its own error format."""

    codes: tuple[str, ...] = ()
    """Typed codes, the most specific first, in upper or lower case."""
    message: str = ""
    status: int | None = None
    """The HTTP status inside the report, for errors in a reply whose own status was 200."""
    request_id: str | None = None
    retry_after: float | None = None


class FailureRules(msgspec.Struct, frozen=True, kw_only=True):
    """How one protocol reports failures."""

    read: Callable[[Json], Failure]
    """Reads the body of a reply, or an error inside a stream. The argument is None if the body is
    not JSON."""
    codes: Mapping[str, ErrorCode] = msgspec.field(default_factory=dict)
    """Typed codes that only this protocol has, in lower case."""
    general_codes: Mapping[str, ErrorCode] = msgspec.field(default_factory=dict)
    """Typed codes of this protocol that are so general that they are considered last."""

    def error_of_reply(self, status: int, headers: Mapping[str, str], body: bytes) -> AgentError:
        """Return the error of a reply that is not a success, or not one the protocol can read."""
        failure = self.read(_json_of(body))
        words = _shortened(failure.message) or _readable(body, status)
        if status >= _FIRST_ERROR_STATUS:
            code, basis = self._judge(
                replace(failure, status=status, message=failure.message or words)
            )
        elif failure.message or failure.codes:
            code, basis = self._judge(failure)
        else:
            # A success by its status, but nothing that the protocol can read.
            code, basis = ErrorCode.PROTOCOL, "fallback"
        lowered = {name.lower(): value for name, value in headers.items()}
        asked = _wait_in_headers(lowered)
        return error_with_code(
            code,
            words,
            basis=basis,
            status=status,
            request_id=failure.request_id or request_id_in(lowered),
            retry_after=_reported_wait(failure) if asked is None else asked,
        )

    def error_in_stream(self, report: Json) -> AgentError:
        """Return the error that is reported inside a reply whose status was 200."""
        failure = self.read(report)
        code, basis = self._judge(failure)
        return error_with_code(
            code,
            _shortened(failure.message) or "the provider reported an error inside its stream",
            basis=basis,
            status=failure.status,
            request_id=failure.request_id,
            retry_after=_reported_wait(failure),
        )

    def _judge(self, failure: Failure) -> tuple[ErrorCode, Basis]:
        typed = _first({**TYPED_CODES, **self.codes}, failure.codes)
        words = code_of_known_text(failure.message)
        if typed is ErrorCode.RATE_LIMITED and words is ErrorCode.CONTEXT_LENGTH:
            # The request alone exceeds the limit per minute: waiting does not make it smaller.
            return words, "pattern"
        if typed is not None:
            return typed, "code"
        by_status = None if failure.status is None else code_of_status(failure.status)
        # Words that only repeat the status add nothing to it.
        if words not in {None, by_status} and failure.status not in _PLAIN_STATUSES:
            return words, "pattern"
        if by_status is not None:
            return by_status, "status"
        return self._guess(failure)

    def _guess(self, failure: Failure) -> tuple[ErrorCode, Basis]:
        """Choose a code where neither a specific code nor a status decides."""
        general = _first({**GENERAL_CODES, **self.general_codes}, failure.codes)
        if general is not None:
            return general, "code"
        loose = code_of_text(failure.message)
        # ABORTED means the user. A provider that reports an abort has failed.
        if loose is None or loose is ErrorCode.ABORTED:
            return ErrorCode.SERVER_ERROR, "fallback"
        # The report arrived, so the network in question is the provider's.
        return (ErrorCode.SERVER_ERROR if loose is ErrorCode.NETWORK else loose), "pattern"


def code_table(words: Mapping[ErrorCode, str]) -> dict[str, ErrorCode]:
    """Return a table of typed codes, from our codes and the provider's words for each."""
    return {word.lower(): code for code, listed in words.items() for word in listed.split()}


def error_object(report: Json) -> JsonObject:
    """Return the object under `error`; a plain string there becomes its message."""
    error = report.get("error") if isinstance(report, dict) else None
    if isinstance(error, str):
        return {"message": error}
    return error if isinstance(error, dict) else {}


def status_among(*values: Json) -> int | None:
    """Return the first of `values` that is an HTTP error status, as a number or as text."""
    texts = (str(value) for value in values if isinstance(value, str | int))
    return next((int(text) for text in texts if re.fullmatch(_ERROR_STATUS, text)), None)


def request_id_in(headers: Mapping[str, str]) -> str | None:
    """Return the provider's id of the request; header names are in lower case."""
    return _first(headers, _REQUEST_ID_HEADERS)


def _first(table: Mapping[str, _Value], names: Iterable[str]) -> _Value | None:
    """Return the value of the first name that is in the table, whose keys are in lower case."""
    return next((table[name] for name in map(str.lower, names) if name in table), None)


def _json_of(body: bytes) -> Json:
    try:
        return decode_lenient(body)
    except ProviderError:
        return None


def _readable(body: bytes, status: int) -> str:
    """Return a readable line for a body that is not a known error report."""
    text = _title_in(body.decode("utf-8", "replace"))
    text = " ".join(_without_tags(text).split())
    return _shortened(text) or f"the provider answered with status {status} and nothing else"


def _without_tags(text: str) -> str:
    # No pattern: it would look for the end of a tag from every `<` anew.
    *pieces, rest = text.split(">")
    shown: list[str] = []
    for piece in pieces:
        before, sign, _ = piece.partition("<")
        shown += (before, " ") if sign else (piece, ">")
    return "".join([*shown, rest])


def _title_in(text: str) -> str:
    """Return the title of a page, which is what proxies such as Cloudflare send, or all of it."""
    # One pattern for both ends would look for the second behind every first.
    if start := re.search("(?i)<title>", text):
        text_behind = text[start.end() :]
        if end := re.search("(?i)</title>", text_behind):
            return text_behind[: end.start()]
    return text


def _shortened(message: str) -> str:
    """Return `message` without secrets and cut to a length that fits a log.

    Secrets are removed before the cut, so that no half of one is left at the end.
    """
    if message.strip() in _EMPTY_MESSAGES:
        return ""
    message = scrub(message)
    return message if len(message) <= _MESSAGE_LIMIT else message[: _MESSAGE_LIMIT - 1] + "…"


def _wait_in_headers(headers: Mapping[str, str]) -> float | None:
    """Return the wait in seconds that the headers ask for: `retry-after-ms` or `retry-after`.

    A date is compared with the reply's own `date` header, so that clocks need not agree.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if (wait := _possible_wait(seconds)) is not None:
            return wait
    due, sent = _date(headers.get("retry-after")), _date(headers.get("date"))
    if due is None or sent is None:
        return None
    seconds = (due - sent).total_seconds()
    return seconds if seconds > 0 else None


def _reported_wait(failure: Failure) -> float | None:
    """Return the wait in seconds that the report asks for, in a field or in its message."""
    if failure.retry_after is not None:
        return _possible_wait(failure.retry_after)
    if match := re.search(_WAIT, failure.message):
        # Three letters tell all spellings of the units apart.
        return _possible_wait(round(float(match[1]) * _SECONDS_IN[match[2].lower()[:3]], 3))
    return None


def _possible_wait(seconds: float) -> float | None:
    """Return a number of seconds; None for others that `float` reads: `nan`, `inf`, negative."""
    return seconds if 0 <= seconds < math.inf else None


def _date(text: str | None) -> datetime | None:
    try:
        date = parsedate_to_datetime(text or "")
    # A number may be larger than any year or hour, which is another error than a wrong date.
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
