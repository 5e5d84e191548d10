"""Gemini generateContent: what the API sends, and how partial arguments and errors are read."""

import re
from itertools import pairwise

import msgspec

from haptera.model.errors import ErrorCode
from haptera.model.json_types import Json, JsonObject, objects_in
from haptera.providers.wire.failures import (
    Failure,
    FailureRules,
    code_table,
    error_object,
    status_among,
)
from haptera.providers.wire.lenient_decoding import as_text


class PartialArgument(msgspec.Struct, rename="camel"):
    """A value, or a piece of a string, and its path in the arguments."""

    json_path: str = "$"
    string_value: str | None = None
    number_value: float | int | None = None
    bool_value: bool | None = None
    will_continue: bool = False

    @property
    def value(self) -> Json:
        """The value, of any type."""
        for value in (self.string_value, self.bool_value, self.number_value):
            if value is not None:
                return value
        return None


class FunctionCall(msgspec.Struct, rename="camel"):
    """A function call, complete or a piece of one."""

    name: str | None = None
    args: Json = None
    """An object; some gateways send other values."""
    id: str | None = None
    partial_args: list[PartialArgument] | None = None
    will_continue: bool = False


class ContentPart(msgspec.Struct, rename="camel"):
    """A part; types of parts that are not declared here are passed on undecoded."""

    text: str | None = None
    thought: bool = False
    thought_signature: str | None = None
    function_call: FunctionCall | None = None


class Content(msgspec.Struct):
    """The content of one frame."""

    parts: list[ContentPart] | None = None


class Candidate(msgspec.Struct, rename="camel"):
    """One answer; requests never ask for more than one."""

    content: Content | None = None
    finish_reason: str | None = None
    grounding_metadata: Json = None
    url_context_metadata: Json = None
    citation_metadata: Json = None


class PromptFeedback(msgspec.Struct, rename="camel"):
    """Why a prompt was blocked."""

    block_reason: str | None = None


class UsageMetadata(msgspec.Struct, rename="camel"):
    """Token counts so far. Candidates do not include thoughts, nor the prompt tool results."""

    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    cached_content_token_count: int | None = None


class Reply(msgspec.Struct, rename="camel"):
    """One frame of a reply."""

    candidates: list[Candidate] | None = None
    prompt_feedback: PromptFeedback | None = None
    usage_metadata: UsageMetadata | None = None
    model_version: str | None = None
    response_id: str | None = None
    error: msgspec.Raw = msgspec.Raw()


# Partial arguments

_LONGEST_PATH = 100
_LAST_POSITION = 10_000
"""The largest index in an array; a larger one is ignored, because all before it would be filled."""
# A quoted name that does not end takes the rest, so that no search for an end begins twice.
_STEP = re.compile(r"\.?([A-Za-z_$][\w$-]*)|\[(\d{1,9})\]|\[['\"](.*?)(?:['\"]\]|\Z)", re.DOTALL)


def put_argument(arguments: JsonObject, piece: PartialArgument) -> None:
    """Set one value in the arguments; a string is appended to what it continues."""
    steps = steps_of(piece.json_path)
    far = any(isinstance(step, int) and step > _LAST_POSITION for step in steps)
    if not steps or far or len(steps) > _LONGEST_PATH:
        return
    here: Json = arguments
    for step, following in pairwise(steps):
        here = _child(here, step, [] if isinstance(following, int) else {})
    last = steps[-1]
    before = _child(here, last, None)
    value = piece.value
    if isinstance(before, str) and isinstance(value, str):
        value = before + value
    _put(here, last, value)


def steps_of(path: str) -> list[str | int]:
    """Split a path like `$.files[0].name` into names and indexes."""
    return [
        int(position) if position else name or quoted
        for name, position, quoted in _STEP.findall(path.removeprefix("$"))
    ]


def _child(here: Json, step: str | int, default: Json) -> Json:
    if isinstance(here, list) and isinstance(step, int):
        while len(here) <= step:
            here.append(None)
        if here[step] is None:
            here[step] = default
        return here[step]
    if isinstance(here, dict):
        return here.setdefault(str(step), default)
    # The path contradicts an earlier one: what is put into this is not part of the arguments.
    return default


def _put(here: Json, step: str | int, value: Json) -> None:
    if isinstance(here, list) and isinstance(step, int):
        here[step] = value
    elif isinstance(here, dict):
        here[str(step)] = value


# Errors

_QUOTA_OF_THE_DAY = "QUOTA_OF_THE_DAY"
CODES = code_table(
    {
        ErrorCode.AUTH: "API_KEY_INVALID API_KEY_SERVICE_BLOCKED SERVICE_DISABLED CONSUMER_INVALID"
        " ACCESS_TOKEN_EXPIRED UNAUTHENTICATED PERMISSION_DENIED",
        ErrorCode.QUOTA: f"BILLING_DISABLED {_QUOTA_OF_THE_DAY}",
        ErrorCode.RATE_LIMITED: "RESOURCE_EXHAUSTED",
        ErrorCode.SERVER_ERROR: "INTERNAL UNKNOWN ABORTED",
        ErrorCode.OVERLOADED: "UNAVAILABLE",
        ErrorCode.TIMEOUT: "DEADLINE_EXCEEDED",
        ErrorCode.STREAM_INTERRUPTED: "CANCELLED",
        ErrorCode.BAD_REQUEST: "FAILED_PRECONDITION OUT_OF_RANGE",
    }
)
# A wrong key is also reported as an invalid argument, and not only models can be not found.
AMBIGUOUS_CODES = code_table(
    {ErrorCode.BAD_REQUEST: "INVALID_ARGUMENT", ErrorCode.MODEL_NOT_FOUND: "NOT_FOUND"}
)

_LONG_TERM = re.compile(r"per_?(day|month)", re.IGNORECASE)
_NO_PLAN = re.compile(r"limit: 0\b")
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s")


def _read(report: Json) -> Failure:
    # Without server-sent events a stream is one array, and an error is its last item.
    error = error_object(report[-1] if isinstance(report, list) and report else report)
    details = objects_in(error.get("details"))
    message, word = as_text(error.get("message")), as_text(error.get("status"))
    codes = [str(each["reason"]) for each in details if each.get("reason")]
    if word == "RESOURCE_EXHAUSTED" and _is_spent(details, message):
        codes.insert(0, _QUOTA_OF_THE_DAY)
    return Failure(
        codes=(*codes, word) if word else tuple(codes),
        message=message,
        status=status_among(error.get("code")),
        retry_after=_retry_delay(details),
    )


def _is_spent(details: list[JsonObject], message: str) -> bool:
    """Whether waiting does not help: a quota of a day or a month, or one of zero."""
    violations = [
        violation for detail in details for violation in objects_in(detail.get("violations"))
    ]
    names = " ".join(str(each.get("quotaId") or "") for each in violations)
    return bool(_LONG_TERM.search(names) or _NO_PLAN.search(message))


def _retry_delay(details: list[JsonObject]) -> float | None:
    for detail in details:
        if match := _SECONDS.fullmatch(str(detail.get("retryDelay") or "")):
            return float(match[1])
    return None


ERRORS = FailureRules(read=_read, codes=CODES, general_codes=AMBIGUOUS_CODES)
