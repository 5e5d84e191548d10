"""Errors: every code has its family and says whether asking again may help; facts never change."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from haptera import (
    AgentError,
    AgentResult,
    ConfigError,
    ErrorCode,
    HookError,
    ProviderError,
    RequestError,
    SessionError,
    StoreError,
    ToolError,
    is_agent_error,
)
from haptera.model.errors import FAMILIES, error_with_code

CODES: dict[type[AgentError], dict[str, bool]] = {
    ConfigError: {"CONFIG_MISSING": False, "CONFIG_INVALID": False},
    ProviderError: {
        "AUTH": False,
        "RATE_LIMITED": True,
        "OVERLOADED": True,
        "MODEL_NOT_FOUND": False,
        "SERVER_ERROR": True,
        "QUOTA": False,
        "BAD_REQUEST": False,
        "CONTENT_FILTER": False,
        "PROTOCOL": False,
        "OUTPUT_INVALID": False,
    },
    RequestError: {
        "TIMEOUT": True,
        "ABORTED": False,
        "CONTEXT_LENGTH": False,
        "NETWORK": True,
        "STREAM_INTERRUPTED": True,
    },
    HookError: {"HOOK_FAILED": False},
    ToolError: {
        "TOOL_FAILED": False,
        "TOOL_NOT_FOUND": False,
        "TOOL_INVALID_INPUT": False,
        "TOOL_TIMEOUT": False,
    },
    SessionError: {
        "CLOSED": False,
        "BUSY": False,
        "STREAM_BUSY": False,
        "NOT_FOUND": False,
        "MESSAGE_NOT_FOUND": False,
        "POOL_FULL": True,
        "ACCESS_DENIED": False,
        "NOTHING_TO_SEND": False,
    },
    StoreError: {
        "CONFLICT": False,
        "FENCED": False,
        "CORRUPT": False,
        "FULL": False,
        "VERSION_UNSUPPORTED": False,
        "UNAVAILABLE": True,
    },
}

TABLE = [
    pytest.param(family, ErrorCode(code), retryable, id=code)
    for family, codes in CODES.items()
    for code, retryable in codes.items()
]

# What other systems call these failures, and where they are here.
KNOWN_ELSEWHERE = {
    "session_busy": (SessionError, "BUSY"),
    "session_not_found": (SessionError, "NOT_FOUND"),
    "message_not_found": (SessionError, "MESSAGE_NOT_FOUND"),
    "provider_auth_error": (ProviderError, "AUTH"),
    "api_error": (ProviderError, "SERVER_ERROR"),
    "output_length_error": (RequestError, "CONTEXT_LENGTH"),
    "aborted": (RequestError, "ABORTED"),
    "unknown": (RequestError, "NETWORK"),
}


def an_error() -> AgentError:
    return ProviderError(
        ErrorCode.RATE_LIMITED,
        "slow down",
        basis="status",
        status=429,
        provider="anthropic",
        request_id="req_1",
        retry_after=7.0,
    )


def pickled(error: AgentError) -> AgentError:
    again: AgentError = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    return again


def test_the_table_names_every_code_and_family() -> None:
    assert {code for codes in CODES.values() for code in codes} == {
        code.value for code in ErrorCode
    }
    assert set(CODES) == set(FAMILIES)


@pytest.mark.parametrize(("family", "code", "retryable"), TABLE)
def test_a_code_belongs_to_its_family_and_says_whether_to_ask_again(
    family: type[AgentError], code: ErrorCode, retryable: bool
) -> None:
    error = error_with_code(code, "it failed")
    assert type(error) is family
    assert (error.tag, error.code, error.retryable) == (family.__name__, code, retryable)
    assert (error.message, str(error)) == ("it failed", f"{code}: it failed")


@pytest.mark.parametrize(("family", "code", "retryable"), TABLE)
def test_an_error_survives_being_a_dict(
    family: type[AgentError], code: ErrorCode, retryable: bool
) -> None:
    facts = error_with_code(code, "it failed").to_dict()
    assert (facts["tag"], facts["code"], facts["retryable"]) == (family.__name__, code, retryable)
    assert type(AgentError.from_dict(facts)) is family


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_refuses_the_codes_of_others(family: type[AgentError]) -> None:
    for code in set(ErrorCode) - family.codes:
        with pytest.raises(TypeError, match=code):
            family(code, "no")


@pytest.mark.parametrize(("family", "code"), KNOWN_ELSEWHERE.values(), ids=KNOWN_ELSEWHERE)
def test_failures_known_elsewhere_have_a_code_here(family: type[AgentError], code: str) -> None:
    assert isinstance(error_with_code(ErrorCode(code), "it failed"), family)


@pytest.mark.parametrize("name", KNOWN_ELSEWHERE)
def test_an_error_says_what_it_is_called_elsewhere(name: str) -> None:
    error = error_with_code(ErrorCode(KNOWN_ELSEWHERE[name][1]), "it failed")
    assert (error.alias, error.report.alias) == (name, name)


def test_every_code_has_a_name_elsewhere() -> None:
    found = {error_with_code(code, "it failed").alias for code in ErrorCode}
    assert found == set(KNOWN_ELSEWHERE)


def test_every_fact_travels_through_a_dict() -> None:
    error = an_error()
    again = AgentError.from_dict(error.to_dict())
    assert again.report == error.report
    assert (again.status, again.retry_after, again.request_id) == (429, 7.0, "req_1")


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, pickled], ids=lambda call: call.__name__
)
def test_an_error_can_be_pickled_and_copied(duplicate: Callable[[AgentError], AgentError]) -> None:
    error = an_error()
    again = duplicate(error)
    assert type(again) is ProviderError
    assert again.report == error.report


@pytest.mark.parametrize("name", ["code", "message", "retryable", "tag", "basis", "report"])
def test_the_facts_of_an_error_cannot_be_changed(name: str) -> None:
    error = an_error()
    before = getattr(error, name)
    with pytest.raises(AttributeError, match=name):
        setattr(error, name, "other")
    with pytest.raises(AttributeError, match=name):
        delattr(error, name)
    assert getattr(error, name) == before


def test_a_result_is_attached_once() -> None:
    error = RequestError(ErrorCode.ABORTED, "stop")
    kept: AgentResult[Any] = AgentResult(text="half")
    error.result = kept
    with pytest.raises(AttributeError, match="result"):
        error.result = AgentResult(text="other")
    assert error.result is kept


def test_only_errors_raised_on_purpose_are_ours() -> None:
    assert is_agent_error(an_error())
    assert not is_agent_error(ValueError("no"))
    assert not is_agent_error("RATE_LIMITED")
