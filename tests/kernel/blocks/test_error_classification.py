"""Classification: facts first, words last, and a guess is called a guess."""

import asyncio
import errno
import socket
import ssl
from typing import Any

import pytest

from haptera import (
    AgentError,
    ConfigError,
    ErrorCode,
    HookError,
    ProviderError,
    RequestError,
    ToolError,
    to_agent_error,
)
from haptera.kernel.blocks.error_classification import code_of_status
from haptera.kernel.blocks.retry_policy import FailureCount, GiveUp, decide_retry
from haptera.model.errors import Basis
from haptera.model.settings import RetrySettings


class AbortError(Exception):
    """Named like the one that browsers raise."""


class WithFacts(Exception):  # noqa: N818 - stands for another package's error
    """An error that carries facts as those of HTTP clients and SDKs do."""

    def __init__(self, message: str = "it failed", **facts: Any) -> None:
        super().__init__(message)
        for name, value in facts.items():
            setattr(self, name, value)


# What providers really say, and what it means.
REAL_MESSAGES = {
    "prompt is too long: 213462 tokens > 200000 maximum": "CONTEXT_LENGTH",
    "Your input exceeds the context window of this model.": "CONTEXT_LENGTH",
    "The input token count (1200000) exceeds the maximum number allowed": "CONTEXT_LENGTH",
    "the request exceeds the available context size": "CONTEXT_LENGTH",
    "This model's maximum context length is 8192 tokens": "CONTEXT_LENGTH",
    # Moonshot, GLM, Qwen, MiniMax, LM Studio, text-generation-inference, Copilot, SGLang, vLLM and
    # Together, in this order.
    "Invalid request: Your request exceeded model token limit: 262144": "CONTEXT_LENGTH",
    "Prompt exceeds max length": "CONTEXT_LENGTH",
    "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]": (
        "CONTEXT_LENGTH"
    ),
    "invalid params, context window exceeds limit (2013)": "CONTEXT_LENGTH",
    "The model was loaded with context length of only 4096 tokens, which is not enough": (
        "CONTEXT_LENGTH"
    ),
    "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens": (
        "CONTEXT_LENGTH"
    ),
    "prompt token count of 140210 exceeds the limit of 128000": "CONTEXT_LENGTH",
    "The input (9000 tokens) is longer than the model's context length (8192 tokens).": (
        "CONTEXT_LENGTH"
    ),
    "You passed 9000 input tokens, but the model's context length is only 8192 tokens. Please "
    "reduce the length of the input prompt.": "CONTEXT_LENGTH",
    "`inputs` must have less than 32769 tokens; please reduce the length of the messages": (
        "CONTEXT_LENGTH"
    ),
    "Requested token count exceeds the model's maximum context length of 32768": "CONTEXT_LENGTH",
    "invalid x-api-key": "AUTH",
    "Incorrect API key provided: sk-***": "AUTH",
    "403 Forbidden": "AUTH",
    "404 page not found": "MODEL_NOT_FOUND",
    "model_not_found": "MODEL_NOT_FOUND",
    "The model `gpt-9` does not exist": "MODEL_NOT_FOUND",
    "500 Internal Server Error": "SERVER_ERROR",
    "insufficient_quota": "QUOTA",
    "messages: roles must alternate between user and assistant": "BAD_REQUEST",
    "tool_use ids were found without tool_result blocks": "BAD_REQUEST",
    "Connection aborted.": "NETWORK",
    "net/http: TLS handshake timeout": "NETWORK",
    "Too many tokens, please wait before trying again": "RATE_LIMITED",
}

LITERALS = {
    "NETWORK": [
        "ECONNRESET",
        "ECONNREFUSED",
        "EAI_AGAIN",
        "EPIPE",
        "socket hang up",
        "network error",
        "Failed to fetch",
        "fetch failed",
        "ETIMEDOUT",
        "ENOTFOUND",
        "TLS handshake timeout",
        "Temporary failure in name resolution",
        "[Errno 111]",
        "Name or service not known",
        "All connection attempts failed",
        "Server disconnected",
        "incomplete chunked read",
    ],
    "RATE_LIMITED": [
        "rate limit",
        "too many requests",
        "exceeded your current quota",
        "429",
        "try again later",
    ],
    "AUTH": ["invalid api key", "unauthorized", "access denied", "permission", "401"],
    "OVERLOADED": [
        "overloaded",
        "at capacity",
        "service unavailable",
        "bad gateway",
        "503",
        "502",
        "capacity exceeded",
        "upstream error",
        "provider is down",
        "model is currently overloaded",
    ],
    "CONTEXT_LENGTH": ["context length", "too many tokens", "maximum context", "token limit"],
    "TIMEOUT": ["timeout", "timed out", "deadline exceeded"],
    "ABORTED": ["aborted"],
}


def found(value: object) -> tuple[str, Basis]:
    error = to_agent_error(value)
    return error.code.value, error.basis


@pytest.mark.parametrize(("message", "code"), REAL_MESSAGES.items(), ids=REAL_MESSAGES)
def test_what_providers_really_say_is_understood(message: str, code: str) -> None:
    assert found(Exception(message)) == (code, "pattern")


@pytest.mark.parametrize(
    ("code", "literal"), [(code, text) for code, texts in LITERALS.items() for text in texts]
)
@pytest.mark.parametrize("form", ["{}", "Error: {} (see above)", "upper"])
def test_each_known_word_is_recognised_in_any_case(code: str, literal: str, form: str) -> None:
    message = literal.upper() if form == "upper" else form.format(literal)
    assert found(Exception(message)) == (code, "pattern")


@pytest.mark.parametrize(
    "message",
    [
        "request_id=req_0114290x",
        "took 15030 ms",
        "error code 4010",
        "id 5024429",
        "Permission denied: '/etc/shadow'",
        "something else entirely",
    ],
)
def test_a_number_or_word_inside_something_else_means_nothing(message: str) -> None:
    error = to_agent_error(Exception(message))
    assert (error.code, error.basis) == (ErrorCode.PROTOCOL, "fallback")


def test_a_guess_is_marked_and_never_repeated_by_itself() -> None:
    error = to_agent_error(Exception("something else entirely"), RequestError)
    assert error.code is ErrorCode.NETWORK
    assert error.retryable
    decision = decide_retry(error, FailureCount(failures=1), RetrySettings(), jitter=0.5)
    assert isinstance(decision, GiveUp)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("aborted after timeout", "ABORTED"),
        ("timeout: unauthorized", "TIMEOUT"),
        ("unauthorized: rate limit", "AUTH"),
        ("rate limit: overloaded", "RATE_LIMITED"),
        ("overloaded: token limit", "OVERLOADED"),
        ("token limit: ECONNRESET", "CONTEXT_LENGTH"),
    ],
)
def test_of_two_words_the_first_kind_in_the_order_wins(message: str, code: str) -> None:
    assert found(Exception(message))[0] == code


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (asyncio.CancelledError(), "ABORTED"),
        (AbortError("stopped by the user"), "ABORTED"),
        (TimeoutError(), "TIMEOUT"),
        (ConnectionResetError("peer"), "NETWORK"),
        (ConnectionAbortedError("aborted"), "NETWORK"),
        (BrokenPipeError("pipe"), "NETWORK"),
        (socket.gaierror(-2, "unknown host"), "NETWORK"),
        (ssl.SSLError("bad certificate"), "NETWORK"),
        (OSError(errno.ENETUNREACH, "unreachable"), "NETWORK"),
        (OSError(errno.EHOSTUNREACH, "no route"), "NETWORK"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_type_of_an_error_says_enough(value: BaseException, code: str) -> None:
    assert found(value) == (code, "type")


def test_a_file_that_cannot_be_read_is_no_provider_s_fault() -> None:
    for error in (PermissionError(13, "Permission denied", "/etc/shadow"), FileNotFoundError("x")):
        assert found(error) == ("PROTOCOL", "fallback")


@pytest.mark.parametrize(
    "mistake",
    [TypeError("timeout"), KeyError("rate limit"), RecursionError("503"), UnicodeError("overload")],
    ids=lambda mistake: type(mistake).__name__,
)
@pytest.mark.parametrize(
    ("hint", "code"),
    [
        (None, "PROTOCOL"),
        (RequestError, "PROTOCOL"),
        (ProviderError, "PROTOCOL"),
        (ToolError, "TOOL_FAILED"),
        (HookError, "HOOK_FAILED"),
    ],
)
def test_a_mistake_is_known_by_its_type_and_not_by_its_words(
    mistake: Exception, hint: type[AgentError] | None, code: str
) -> None:
    error = to_agent_error(mistake, hint)
    assert (error.code, error.basis, error.retryable) == (code, "type", False)


STATUSES = {
    400: "BAD_REQUEST",
    401: "AUTH",
    402: "QUOTA",
    403: "AUTH",
    404: "MODEL_NOT_FOUND",
    408: "TIMEOUT",
    409: "SERVER_ERROR",
    413: "CONTEXT_LENGTH",
    418: "BAD_REQUEST",
    422: "BAD_REQUEST",
    429: "RATE_LIMITED",
    498: "OVERLOADED",
    500: "SERVER_ERROR",
    501: "SERVER_ERROR",
    502: "OVERLOADED",
    503: "OVERLOADED",
    504: "TIMEOUT",
    529: "OVERLOADED",
}


@pytest.mark.parametrize(("status", "code"), STATUSES.items())
@pytest.mark.parametrize("name", ["status", "status_code"])
def test_an_http_status_says_more_than_words(status: int, code: str, name: str) -> None:
    error = to_agent_error(WithFacts("rate limit? timeout? aborted?", **{name: status}))
    assert (error.code, error.basis, error.status) == (code, "status", status)
    assert code_of_status(status) == code


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("authentication_error", "AUTH"),
        ("permission_error", "AUTH"),
        ("rate_limit_error", "RATE_LIMITED"),
        ("overloaded_error", "OVERLOADED"),
        ("api_error", "SERVER_ERROR"),
        ("not_found_error", "MODEL_NOT_FOUND"),
        ("model_not_found", "MODEL_NOT_FOUND"),
        ("insufficient_quota", "QUOTA"),
        ("invalid_request_error", "BAD_REQUEST"),
        ("context_length_exceeded", "CONTEXT_LENGTH"),
        ("content_filter", "CONTENT_FILTER"),
        ("timeout_error", "TIMEOUT"),
    ],
)
@pytest.mark.parametrize("name", ["code", "type"])
def test_a_provider_s_own_code_says_more_than_a_status(word: str, code: str, name: str) -> None:
    error = to_agent_error(WithFacts(status=429, **{name: word}))
    assert (error.code, error.basis, error.status) == (code, "code", 429)


@pytest.mark.parametrize("facts", [{"status": 200}, {"status": "500"}, {"code": "?"}, {"code": 7}])
def test_facts_that_say_nothing_are_passed_over(facts: dict[str, Any]) -> None:
    assert found(WithFacts("overloaded", **facts)) == ("OVERLOADED", "pattern")


@pytest.mark.parametrize(
    ("hint", "code"),
    [
        (ConfigError, "CONFIG_INVALID"),
        (HookError, "HOOK_FAILED"),
        (ProviderError, "SERVER_ERROR"),
        (ToolError, "TOOL_FAILED"),
        (RequestError, "NETWORK"),
    ],
)
def test_a_guess_follows_the_hint(hint: type[AgentError], code: str) -> None:
    error = to_agent_error(Exception("?"), hint)
    assert (error.code, error.basis, type(error)) == (code, "fallback", hint)


def test_an_unknown_provider_error_is_not_a_missing_model() -> None:
    error = to_agent_error(Exception("the moon is full"), ProviderError)
    assert error.code is not ErrorCode.MODEL_NOT_FOUND


def test_our_own_errors_are_returned_as_they_are() -> None:
    error = ConfigError(ErrorCode.CONFIG_MISSING, "timeout aborted 429")
    assert to_agent_error(error) is error


def test_the_cause_is_kept() -> None:
    cause = ValueError("overloaded")
    assert to_agent_error(cause).__cause__ is cause


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (ValueError(), "ValueError"),
        (ValueError("said"), "said"),
        ("just text", "just text"),
        (None, "NoneType"),
        ({"Authorization": "Bearer secret"}, "dict"),
    ],
)
def test_an_error_without_words_is_called_by_its_type(value: object, message: str) -> None:
    assert to_agent_error(value).message == message


def test_nothing_that_hangs_on_an_error_reaches_the_message() -> None:
    error = to_agent_error(
        WithFacts(
            "it failed", headers={"x-api-key": "sk-secret"}, body="sk-secret", request="sk-secret"
        )
    )
    assert "secret" not in str(error.to_dict())
    assert "secret" not in repr(error)
