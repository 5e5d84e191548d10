"""From a provider's failure to a typed error: by typed code, then by status, then by words.

A protocol says how its error object is read and which typed codes are its own (`FailureRules`).
Everything else is the same for all and is here; the tables that all share are those of
`blocks.error_classification`. docs/provider-errors.md is the promise, row by row.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.blocks.error_classification import (
    GENERAL_CODES,
    TYPED_CODES,
    code_of_known_text,
    code_of_status,
    code_of_text,
)
from holdfast.providers.wire.lenient_json import decode_lenient
from holdfast.vocabulary.errors import AgentError, Basis, ErrorCode, ProviderError, error_of
from holdfast.vocabulary.json_types import Json, JsonObject
from holdfast.vocabulary.secrets import scrub

_Value = TypeVar("_Value")

_PLAIN_STATUSES = frozenset({401, 402, 408, 409, 498, 502, 503, 504, 529})
"""Statuses that mean one thing wherever they come from; beside any other, words may say more."""

_FIRST_ERROR_STATUS = 400
_NOTHING = frozenset({"{}", "[]", "null", '""'})
"""Texts that say no more than an empty one."""
_MESSAGE_LIMIT = 500
_REQUEST_ID_HEADERS = (
    "request-id",
    "x-request-id",
    "mistral-correlation-id",
    "apim-request-id",
    "x-ds-trace-id",
)
_WAIT = re.compile(
    r"(?:try again|retry) (?:in|after) (\d+(?:\.\d+)?)\s?"
    r"(ms|milliseconds?|s|seconds?|m|minutes?)\b",
    re.IGNORECASE,
)
_ERROR_STATUS = re.compile(r"[45]\d\d")
_SECONDS_IN = {"ms": 0.001, "mil": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0}


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider said about a failure, read out of its own form."""

    codes: tuple[str, ...] = ()
    """Typed codes, the most telling first, in any case."""
    message: str = ""
    status: int | None = None
    """The HTTP status that the report itself names, for replies that began as a success."""
    request_id: str | None = None
    retry_after: float | None = None


class FailureRules(msgspec.Struct, frozen=True, kw_only=True):
    """How one protocol reports failures."""

    read: Callable[[Json], Failure]
    """Reads the body of a reply, or an error found inside a stream; None is no JSON at all."""
    codes: Mapping[str, ErrorCode] = msgspec.field(default_factory=dict)
    """Typed codes that only this protocol has, in lower case."""
    general_codes: Mapping[str, ErrorCode] = msgspec.field(default_factory=dict)
    """The same for those that say so little that they are asked last."""

    def error_of_reply(self, status: int, headers: Mapping[str, str], body: bytes) -> AgentError:
        """Make the error of a reply that is none of the protocol's successes."""
        failure = self.read(_json_of(body))
        said = _shortened(failure.message) or _readable(body, status)
        if status >= _FIRST_ERROR_STATUS:
            code, basis = self._judge(
                replace(failure, status=status, message=failure.message or said)
            )
        elif failure.message or failure.codes:
            code, basis = self._judge(failure)
        else:
            # It was an answer, but not one that can be read.
            code, basis = ErrorCode.PROTOCOL, "fallback"
        lowered = {name.lower(): value for name, value in headers.items()}
        asked = _asked_wait(lowered)
        return error_of(
            code,
            said,
            basis=basis,
            status=status,
            request_id=failure.request_id or _first(lowered, _REQUEST_ID_HEADERS),
            retry_after=_told_wait(failure) if asked is None else asked,
        )

    def error_in_stream(self, report: Json) -> AgentError:
        """Make the error that a part of a reply reports which began as a success."""
        failure = self.read(report)
        code, basis = self._judge(failure)
        return error_of(
            code,
            _shortened(failure.message) or "the provider reported an error inside its stream",
            basis=basis,
            status=failure.status,
            request_id=failure.request_id,
            retry_after=_told_wait(failure),
        )

    def _judge(self, failure: Failure) -> tuple[ErrorCode, Basis]:
        typed = _first({**TYPED_CODES, **self.codes}, failure.codes)
        words = code_of_known_text(failure.message)
        if typed is ErrorCode.RATE_LIMITED and words is ErrorCode.CONTEXT_LENGTH:
            # More than a minute's allowance in one request: waiting does not make it smaller.
            return words, "pattern"
        if typed is not None:
            return typed, "code"
        by_status = None if failure.status is None else code_of_status(failure.status)
        # Words that only repeat the status are no better a reason than the status.
        if words not in {None, by_status} and failure.status not in _PLAIN_STATUSES:
            return words, "pattern"
        if by_status is not None:
            return by_status, "status"
        return self._guess(failure)

    def _guess(self, failure: Failure) -> tuple[ErrorCode, Basis]:
        """Judge what neither a telling code nor a status explains."""
        general = _first({**GENERAL_CODES, **self.general_codes}, failure.codes)
        if general is not None:
            return general, "code"
        loose = code_of_text(failure.message)
        # Only the user aborts: who says so at the other end has given up.
        if loose is None or loose is ErrorCode.ABORTED:
            return ErrorCode.SERVER_ERROR, "fallback"
        # A report that arrived says nothing of our network; it speaks of the provider's own.
        return (ErrorCode.SERVER_ERROR if loose is ErrorCode.NETWORK else loose), "pattern"


def code_table(words: Mapping[ErrorCode, str]) -> dict[str, ErrorCode]:
    """Return a table of typed codes from our codes, each with the words that mean it."""
    return {word.lower(): code for code, listed in words.items() for word in listed.split()}


def error_object(report: Json) -> JsonObject:
    """Return what a report has under `error`; a plain text there is its message."""
    error = report.get("error") if isinstance(report, dict) else None
    if isinstance(error, str):
        return {"message": error}
    return error if isinstance(error, dict) else {}


def text_of(value: Json) -> str:
    """Return `value` if it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def objects_in(value: Json) -> list[JsonObject]:
    """Return the objects of a list; what is no list has none."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def status_among(*values: Json) -> int | None:
    """Return the first of `values` that is the HTTP status of an error, as a number or a text."""
    texts = (str(value) for value in values if isinstance(value, str | int))
    return next((int(text) for text in texts if _ERROR_STATUS.fullmatch(text)), None)


def _first(table: Mapping[str, _Value], names: Iterable[str]) -> _Value | None:
    """Return what the first name stands for that is in the table, which is in lower case."""
    return next((table[name] for name in map(str.lower, names) if name in table), None)


def _json_of(body: bytes) -> Json:
    try:
        return decode_lenient(body)
    except ProviderError:
        return None


def _readable(body: bytes, status: int) -> str:
    """Return a line for people out of a body that is no report we know."""
    text = body.decode("utf-8", "replace")
    if title := re.search(r"<title>(.*?)</title>", text, re.IGNORECASE | re.DOTALL):
        text = title[1]
    text = " ".join(re.sub(r"<[^>]*>", " ", text).split())
    return _shortened(text) or f"the provider answered with status {status} and nothing else"


def _shortened(message: str) -> str:
    """Return `message` at a length that fits a log, and no half of a secret at its end.

    One that says nothing is empty.
    """
    if message.strip() in _NOTHING:
        return ""
    message = scrub(message)
    return message if len(message) <= _MESSAGE_LIMIT else message[: _MESSAGE_LIMIT - 1] + "…"


def _asked_wait(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the headers ask to wait: `retry-after-ms`, seconds or a date.

    A date is compared with the reply's own `date`, so that a wrong clock does not matter.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    due, sent = _date(headers.get("retry-after")), _date(headers.get("date"))
    if due is None or sent is None:
        return None
    seconds = (due - sent).total_seconds()
    return seconds if seconds > 0 else None


def _told_wait(failure: Failure) -> float | None:
    """Return the seconds that the report asks to wait, in a field or in words."""
    if failure.retry_after is not None:
        return failure.retry_after
    if found := _WAIT.search(failure.message):
        return round(float(found[1]) * _SECONDS_IN[found[2].lower()[:3]], 3)
    return None


def _date(text: str | None) -> datetime | None:
    try:
        date = parsedate_to_datetime(text or "")
    except ValueError:
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
