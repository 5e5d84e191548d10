"""Classification: any exception to an `AgentError`, by facts first and by its text last.

The order is: our own errors as they are; the exception's type; a typed code; an HTTP status; texts
that providers are known to send; general patterns, with numbers as whole words only; a fallback
that is marked as a guess. A program's own mistake (`TypeError` and the like) is known by its type,
and its words are not read: it is never the network's and never worth another try. The tables are
the only ones of their kind: providers judge their error replies by them, too
(docs/provider-errors.md).
"""

import errno
import re
from asyncio import CancelledError
from collections.abc import Iterator

from haptera.model.errors import (
    RETRYABLE_CODES,
    AgentError,
    Basis,
    ConfigError,
    ErrorCode,
    HookError,
    ProviderError,
    RequestError,
    ToolError,
    error_with_code,
)
from haptera.model.secrets import error_text, without_secrets

_CLIENT_ERRORS, _SERVER_ERRORS = range(400, 500), range(500, 600)
_STATUS_CODES = {
    400: ErrorCode.BAD_REQUEST,
    401: ErrorCode.AUTH,
    402: ErrorCode.QUOTA,
    403: ErrorCode.AUTH,
    404: ErrorCode.MODEL_NOT_FOUND,
    408: ErrorCode.TIMEOUT,
    # A lock that another request holds for the moment: vendors' own clients ask again, too.
    409: ErrorCode.SERVER_ERROR,
    413: ErrorCode.CONTEXT_LENGTH,
    422: ErrorCode.BAD_REQUEST,
    429: ErrorCode.RATE_LIMITED,
    498: ErrorCode.OVERLOADED,
    502: ErrorCode.OVERLOADED,
    503: ErrorCode.OVERLOADED,
    504: ErrorCode.TIMEOUT,
    529: ErrorCode.OVERLOADED,
}

TYPED_CODES = {
    "account_deactivated": ErrorCode.AUTH,
    "authentication_error": ErrorCode.AUTH,
    "invalid_api_key": ErrorCode.AUTH,
    "permission_error": ErrorCode.AUTH,
    "unsupported_country_region_territory": ErrorCode.AUTH,
    "billing_error": ErrorCode.QUOTA,
    "billing_hard_limit_reached": ErrorCode.QUOTA,
    "billing_not_active": ErrorCode.QUOTA,
    "insufficient_quota": ErrorCode.QUOTA,
    "rate_limit_error": ErrorCode.RATE_LIMITED,
    "rate_limit_exceeded": ErrorCode.RATE_LIMITED,
    "too_many_requests": ErrorCode.RATE_LIMITED,
    "overloaded_error": ErrorCode.OVERLOADED,
    "service_unavailable": ErrorCode.OVERLOADED,
    "deploymentnotfound": ErrorCode.MODEL_NOT_FOUND,
    "model_not_found": ErrorCode.MODEL_NOT_FOUND,
    "not_found_error": ErrorCode.MODEL_NOT_FOUND,
    "context_length_exceeded": ErrorCode.CONTEXT_LENGTH,
    "exceed_context_size_error": ErrorCode.CONTEXT_LENGTH,
    "request_too_large": ErrorCode.CONTEXT_LENGTH,
    "content_filter": ErrorCode.CONTENT_FILTER,
    "content_policy_violation": ErrorCode.CONTENT_FILTER,
    "server_error": ErrorCode.SERVER_ERROR,
    "timeout_error": ErrorCode.TIMEOUT,
}
"""Codes in lower case that mean the same with every provider."""

GENERAL_CODES = {
    "api_error": ErrorCode.SERVER_ERROR,
    "invalid_request_error": ErrorCode.BAD_REQUEST,
}
"""Codes that say whose fault it was and no more."""

# By name, because the modules that define them are not for blocks to import.
_NETWORK_TYPE_NAMES = frozenset({"ConnectionError", "gaierror", "SSLError"})

_NETWORK_ERRNOS = frozenset(
    {
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.EPIPE,
    }
)

# What providers are known to say. "You exceeded your current quota" is not here: some say it of a
# minute's allowance, too.
_KNOWN_TEXTS: tuple[tuple[ErrorCode, str], ...] = (
    (ErrorCode.RATE_LIMITED, r"too many tokens,? please wait|throttl"),
    (
        ErrorCode.CONTEXT_LENGTH,
        r"prompt (is )?too long|input is too long|too many input tokens|exceeded max context"
        r"|maximum (context|prompt) length|context[_ ]length[_ ]exceeded"
        r"|exceeds? (the )?(context|available context|model's? maximum)"
        r"|context size has been exceeded|greater than the context length"
        r"|input token count.{0,200}exceeds|reduce the length of the (input )?(messages|prompt)"
        r"|request too large for (model|gpt)"
        r"|exceed(s|ed) (the )?(model|max(imum)?) (token|input|prompt) (limit|length)"
        r"|prompt exceeds (the )?max(imum)? length|range of input length should be"
        r"|context window (is )?exceed(s|ed)( the)? limit|context window exceeds"
        r"|loaded with (a )?context length of only"
        r"|inputs?`? tokens \+ `?max_new_tokens`? must be <="
        r"|(tokens?|length|prompt|input).{0,80}exceeds? the limit of"
        r"|longer than the (model'?s )?(maximum )?context"
        r"|model's (maximum )?context length is (only )?\d",
    ),
    (
        ErrorCode.QUOTA,
        r"insufficient[_ ](quota|funds|balance|credits?)|credit balance is too low"
        r"|reached your specified (\w+ ){0,2}usage limit|spend(ing)? limit|billing hard limit",
    ),
    (
        ErrorCode.AUTH,
        r"(incorrect|invalid) (x-)?api[ -]key|api key (not valid|expired)|invalid bearer token"
        r"|no auth credentials",
    ),
    (
        ErrorCode.MODEL_NOT_FOUND,
        r"model[ _]not[ _]found|no such model|is not a valid model id"
        r"|model [`'\"]?[\w./:@-]+[`'\"]? not found|model .{1,80} (does not|doesn't) exist"
        r"|supported api model names are",
    ),
    (
        ErrorCode.CONTENT_FILTER,
        r"content[ _](filter|management policy|policy)|safety system|requires moderation"
        r"|input was flagged|violates usage guidelines|sensitive words",
    ),
    (
        ErrorCode.BAD_REQUEST,
        r"roles must alternate|tool_use.{0,80}without.{0,20}tool_result"
        r"|tool_call_ids? did not have|not found: cache content|requires more system memory"
        r"|no endpoints found that support tool use|tools is not supported in this model",
    ),
    (ErrorCode.SERVER_ERROR, r"error was encountered while running the model"),
)

_OWN_NETWORK_TEXTS = (
    r"\[errno 111\]|name or service not known|all connection attempts failed"
    r"|incomplete chunked read|temporary failure in name resolution"
)

# General words, in the order they are tried; a number only counts as a word of its own.
_PATTERNS: tuple[tuple[ErrorCode, str], ...] = (
    # Before the next two: an aborted connection is no abort by the user, and a handshake no slow
    # model.
    (ErrorCode.NETWORK, r"connection aborted|tls handshake timeout|server disconnected"),
    (ErrorCode.ABORTED, r"aborted"),
    (ErrorCode.TIMEOUT, r"timeout|timed out|deadline exceeded"),
    (
        ErrorCode.AUTH,
        r"unauthorized|access denied|\b401\b|\b403\b"
        # "Permission denied: '/path'" is about a file on this machine, not about a key.
        r"|permission(?! denied: ?['\"/\w])",
    ),
    (
        ErrorCode.RATE_LIMITED,
        r"rate limit|too many requests|exceeded your current quota|\b429\b|try again later",
    ),
    (
        ErrorCode.OVERLOADED,
        r"overloaded|at capacity|service unavailable|bad gateway|\b503\b|\b502\b"
        r"|capacity exceeded|upstream error|provider is down",
    ),
    (ErrorCode.CONTEXT_LENGTH, r"context length|too many tokens|maximum context|token limit"),
    (ErrorCode.MODEL_NOT_FOUND, r"\b404\b"),
    (ErrorCode.SERVER_ERROR, r"\b500\b|internal server error"),
    (
        ErrorCode.NETWORK,
        r"econnreset|econnrefused|eai_again|epipe|socket hang up|network error|failed to fetch"
        r"|fetch failed|etimedout|enotfound|" + _OWN_NETWORK_TEXTS,
    ),
)


_MISTAKES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    ImportError,
    LookupError,
    MemoryError,
    NameError,
    NotImplementedError,
    RecursionError,
    StopAsyncIteration,
    StopIteration,
    SyntaxError,
    SystemError,
    TypeError,
    UnicodeError,
)
"""What a program raises by mistake, ours or the user's; providers do not raise it."""

_FALLBACKS: dict[type[AgentError], ErrorCode] = {
    ConfigError: ErrorCode.CONFIG_INVALID,
    HookError: ErrorCode.HOOK_FAILED,
    ProviderError: ErrorCode.SERVER_ERROR,
    RequestError: ErrorCode.NETWORK,
    ToolError: ErrorCode.TOOL_FAILED,
}


def to_agent_error(value: object, fallback: type[AgentError] | None = None) -> AgentError:
    """Return `value` as an `AgentError`: itself if it is one, else by what is known of it.

    `fallback` is the family to guess where nothing is known; without it the guess is PROTOCOL:
    something did not keep its promise, and asking again does not help.
    """
    if isinstance(value, AgentError):
        return value
    message = _message_of(value)
    # The first finding decides. The generator looks no further, so texts are searched last.
    for code, basis, status in _findings(value, message):
        error = error_with_code(code, message, basis=basis, status=status)
        break
    else:
        error = _unexplained(value, message, fallback)
    if isinstance(value, BaseException):
        error.__cause__ = without_secrets(value)
    return error


def _unexplained(value: object, message: str, fallback: type[AgentError] | None) -> AgentError:
    """Make the error of what says nothing of its cause: by the family that the caller guesses."""
    code = ErrorCode.PROTOCOL if fallback is None else _FALLBACKS.get(fallback, ErrorCode.PROTOCOL)
    if not isinstance(value, _MISTAKES):
        return error_with_code(code, message, basis="fallback")
    code = ErrorCode.PROTOCOL if code in RETRYABLE_CODES else code
    return error_with_code(code, f"{type(value).__name__}: {message}", basis="type")


def code_of_status(status: int) -> ErrorCode:
    """Return the code of an HTTP status that is not a success."""
    if status in _STATUS_CODES:
        return _STATUS_CODES[status]
    return ErrorCode.SERVER_ERROR if status in _SERVER_ERRORS else ErrorCode.BAD_REQUEST


def code_of_known_text(text: str) -> ErrorCode | None:
    """Return the code of a text that providers are known to send, if it is one."""
    return _first_match(_KNOWN_TEXTS, text)


def code_of_text(text: str) -> ErrorCode | None:
    """Return the code that a text speaks of, if any."""
    return code_of_known_text(text) or _first_match(_PATTERNS, text)


def _first_match(table: tuple[tuple[ErrorCode, str], ...], text: str) -> ErrorCode | None:
    # Compiled (and then kept) by `re` when the first error is judged, not when the package loads.
    flags = re.IGNORECASE | re.DOTALL
    return next((code for code, pattern in table if re.search(pattern, text, flags)), None)


def _findings(value: object, message: str) -> Iterator[tuple[ErrorCode, Basis, int | None]]:
    status = _status_of(value)
    if (by_type := _code_of_type(value)) is not None:
        yield by_type, "type", status
    typed = _typed_code_of(value)
    if typed is not None:
        yield typed, "code", status
    if status is not None:
        yield code_of_status(status), "status", status
    if isinstance(value, (OSError, *_MISTAKES)):
        return  # a file that cannot be opened says nothing about a provider, nor does a mistake
    if (by_text := code_of_text(message)) is not None:
        yield by_text, "pattern", None


def _code_of_type(value: object) -> ErrorCode | None:
    if isinstance(value, CancelledError) or type(value).__name__ == "AbortError":
        return ErrorCode.ABORTED
    if isinstance(value, TimeoutError):
        return ErrorCode.TIMEOUT
    names = {kind.__name__ for kind in type(value).__mro__}
    unreachable = isinstance(value, OSError) and value.errno in _NETWORK_ERRNOS
    return ErrorCode.NETWORK if unreachable or names & _NETWORK_TYPE_NAMES else None


def _status_of(value: object) -> int | None:
    for name in ("status", "status_code"):
        status = getattr(value, name, None)
        if isinstance(status, int) and (status in _CLIENT_ERRORS or status in _SERVER_ERRORS):
            return status
    return None


def _typed_code_of(value: object) -> ErrorCode | None:
    for name in ("code", "type"):
        word = getattr(value, name, None)
        if isinstance(word, str):
            found = TYPED_CODES.get(word.lower()) or GENERAL_CODES.get(word)
            if found is not None:
                return found
    return None


def _message_of(value: object) -> str:
    """Return the text of an exception; never its attributes, which may hold secrets."""
    if isinstance(value, BaseException):
        return error_text(value)
    return value if isinstance(value, str) else type(value).__name__
