"""What the logger `holdfast` says of queries, requests, retries and fallbacks; never content."""

import logging
from typing import Any

import pytest

from holdfast import tool
from holdfast.testing import says
from holdfast.testing.clocks import AutoClock
from holdfast.vocabulary.errors import ErrorCode, ProviderError, RequestError
from holdfast.vocabulary.settings import ModelStep, RetrySettings
from tests.scripted_agents import failure_of, playing, run_script

_REFUSED = RequestError(ErrorCode.NETWORK, "connection refused", basis="type")
_NO_KEY = ProviderError(ErrorCode.AUTH, "there is no key", basis="status")
_STEADY = RetrySettings(max_retries=2, jitter=0.0)


def _said(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


async def test_retries_are_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "holdfast")
    await run_script([_REFUSED, _REFUSED, says("at last")], clock=AutoClock(), retry=_STEADY)
    assert _said(caplog, logging.WARNING) == [
        "scripted/one failed (NETWORK: connection refused); retrying in 2.0 s, attempt 2",
        "scripted/one failed (NETWORK: connection refused); retrying in 4.0 s, attempt 3",
    ]


async def test_a_fallback_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "holdfast")
    await run_script([_NO_KEY, says("hello")], fallbacks=[ModelStep(model="scripted/other")])
    assert _said(caplog, logging.WARNING) == [
        "scripted/one failed (AUTH: there is no key); falling back to scripted/other"
    ]


async def test_queries_are_information_and_requests_are_details(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "holdfast")
    async with playing([says("a secret answer")]) as (session, _):
        await session.chat("a secret prompt")
        told = _said(caplog, logging.INFO)
        assert told[0].endswith(f"started in session {session.session_id}")
        assert " ended: complete, 1 turns, " in told[1]
    assert "request to scripted/one: 1 messages, 0 tools, attempt 1" in _said(caplog, logging.DEBUG)
    assert "secret" not in caplog.text


async def test_a_key_in_an_error_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "holdfast")
    shown = RequestError(ErrorCode.NETWORK, "sent Bearer sk-ant-0123456789abcdef0123", basis="type")
    async with playing([shown, shown, shown], clock=AutoClock(), retry=_STEADY) as (session, _):
        await failure_of(session.chat("go"))
    assert "retrying" in caplog.text
    assert "0123456789abcdef" not in caplog.text


# Names of tools that do not exist.


async def _warnings(caplog: pytest.LogCaptureFixture, **options: Any) -> list[str]:
    caplog.set_level(logging.WARNING, "holdfast")
    caplog.clear()
    await run_script([says("done")], **options)
    return _said(caplog, logging.WARNING)


@tool
def search(text: str) -> str:
    """Search."""
    return text


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        (
            {"permissions": {"deny": ["shel"]}},
            "the deny rule 'shel': there is no tool 'shel' now, so it has no effect; did you mean "
            "'shell'?",
        ),
        (
            {"permissions": {"ask": ["serch(text=x)"]}},
            "the ask rule 'serch(text=x)': there is no tool 'serch' now, so it has no effect; did "
            "you mean 'search'?",
        ),
        (
            {"denied_tools": ["serch"]},
            "denied_tools: there is no tool 'serch' now, so no tool is denied by it; did you mean "
            "'search'?",
        ),
        (
            {"allowed_tools": ["zzz"]},
            "allowed_tools: there is no tool 'zzz' now, so no tool is allowed by it.",
        ),
        (
            {"allowed_tools": ["shell"]},
            "allowed_tools: there is no tool 'shell' now, so no tool is allowed by it.",
        ),
    ],
)
async def test_a_name_of_no_tool_is_a_warning_that_says_what_may_be_meant(
    caplog: pytest.LogCaptureFixture, options: dict[str, Any], warning: str
) -> None:
    assert await _warnings(caplog, tools=[search], **options) == [warning]


@pytest.mark.parametrize(
    "options",
    [
        {"permissions": {"deny": ["search", "s*ch", "*", "shell(rm *)", "read(.env)", "todo"]}},
        {"denied_tools": ["shell", "search"]},
        {"allowed_tools": ["search"]},
        {"allowed_tools": []},
    ],
)
async def test_names_of_tools_of_the_agent_or_of_holdfast_are_no_warning(
    caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    assert await _warnings(caplog, tools=[search], **options) == []


async def test_a_name_of_no_tool_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "holdfast")
    async with playing([says("a"), says("b")], permissions={"deny": ["shel"]}) as (session, _):
        await session.chat("go")
        await session.chat("go on")
    assert len(_said(caplog, logging.WARNING)) == 1


async def test_a_tool_that_a_query_brings_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "holdfast")
    async with playing([says("a")], permissions={"deny": ["search"]}) as (session, _):
        await session.chat("go", tools=[search])
    assert _said(caplog, logging.WARNING) == []
