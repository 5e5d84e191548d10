"""What the logger `haptera` says of queries, requests, retries and fallbacks; never content."""

import logging
from pathlib import Path
from typing import Any

import pytest

from haptera import tool
from haptera.model.errors import ErrorCode, ProviderError, RequestError, ToolError
from haptera.model.settings import ModelStep, RetrySettings
from haptera.testing import calls, says
from haptera.testing.clocks import AutoClock
from tests.scripted_agents import failure_of, playing, run_script

_REFUSED = RequestError(ErrorCode.NETWORK, "connection refused", basis="type")
_NO_KEY = ProviderError(ErrorCode.AUTH, "there is no key", basis="status")
_STEADY = RetrySettings(max_retries=2, jitter=0.0)


def _said(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


async def test_retries_are_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "haptera")
    await run_script([_REFUSED, _REFUSED, says("at last")], clock=AutoClock(), retry=_STEADY)
    assert _said(caplog, logging.WARNING) == [
        "scripted/one failed (NETWORK: connection refused); retrying in 2.0 s, attempt 2",
        "scripted/one failed (NETWORK: connection refused); retrying in 4.0 s, attempt 3",
    ]


async def test_a_fallback_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "haptera")
    await run_script([_NO_KEY, says("hello")], fallbacks=[ModelStep(model="scripted/other")])
    assert _said(caplog, logging.WARNING) == [
        "scripted/one failed (AUTH: there is no key); falling back to scripted/other"
    ]


async def test_queries_are_information_and_requests_are_details(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "haptera")
    async with playing([says("a secret answer")]) as (session, _):
        await session.chat("a secret prompt")
        told = _said(caplog, logging.INFO)
        assert told[0].endswith(f"started in session {session.session_id}")
        assert " ended: complete, 1 turns, " in told[1]
    assert "request to scripted/one: 1 messages, 0 tools, attempt 1" in _said(caplog, logging.DEBUG)
    assert "secret" not in caplog.text


async def test_a_key_in_an_error_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "haptera")
    shown = RequestError(ErrorCode.NETWORK, "sent Bearer sk-ant-0123456789abcdef0123", basis="type")
    async with playing([shown, shown, shown], clock=AutoClock(), retry=_STEADY) as (session, _):
        await failure_of(session.chat("go"))
    assert "retrying" in caplog.text
    assert "0123456789abcdef" not in caplog.text


# Tools that fail.


async def _records_of(
    caplog: pytest.LogCaptureFixture, failing: Any, **options: Any
) -> list[logging.LogRecord]:
    """Return what is logged of a tool that is called once, at any level."""
    caplog.set_level(logging.DEBUG, "haptera")
    name = failing if isinstance(failing, str) else failing.name
    offered: dict[str, Any] = {} if isinstance(failing, str) else {"tools": [failing]}
    arguments = {"path": "none.txt"} if isinstance(failing, str) else {}
    steps = [calls((name, arguments)), says("it failed")]
    await run_script(steps, clock=AutoClock(), retry=_STEADY, **offered, **options)
    return [record for record in caplog.records if f"tool {name} " in record.getMessage()]


async def test_an_exception_in_a_tool_is_a_warning_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool
    def boom() -> str:
        """Fail."""
        raise KeyError("x")

    (record,) = await _records_of(caplog, boom)
    assert record.levelno == logging.WARNING
    assert record.getMessage() == "tool boom raised an exception, which the model is told"
    assert 'raise KeyError("x")' in caplog.text
    assert __file__ in caplog.text


async def test_a_key_in_the_exception_of_a_tool_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shown = "sent Bearer sk-ant-0123456789abcdef0123"

    @tool
    def boom() -> str:
        """Fail."""
        raise ValueError(shown)  # the traceback has this line, too

    (record,) = await _records_of(caplog, boom)
    assert record.levelno == logging.WARNING
    assert "ValueError: sent Bearer" in caplog.text
    assert "0123456789abcdef" not in caplog.text


async def test_an_exception_with_half_a_character_can_be_written(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    half = "caf\udce9"  # as the name of a file in another encoding is read

    @tool
    def boom() -> str:
        """Fail."""
        raise FileNotFoundError(half)

    (record,) = await _records_of(caplog, boom)
    handler = logging.FileHandler(tmp_path / "log.txt", encoding="utf-8")
    handler.emit(record)
    handler.close()
    assert "FileNotFoundError: caf" in (tmp_path / "log.txt").read_text(encoding="utf-8")


async def test_a_result_that_cannot_be_sent_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    def thing() -> object:
        """Return what has no JSON form."""
        return object()

    (record,) = await _records_of(caplog, thing)
    assert record.levelno == logging.WARNING
    assert "has no JSON form" in caplog.text


async def test_a_tool_that_is_repeated_shows_its_last_exception_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool(idempotent=True, retry=1)
    def flaky() -> str:
        """Fail."""
        raise ConnectionError("no way")

    first, last = await _records_of(caplog, flaky)
    assert first.getMessage() == "tool flaky failed (NETWORK); retrying in 2.0 s, attempt 2"
    assert first.exc_info is None
    assert (last.levelno, last.exc_info is None) == (logging.WARNING, False)


async def test_a_tool_error_that_is_raised_on_purpose_is_information_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool
    def closed() -> str:
        """Refuse."""
        raise ToolError(ErrorCode.TOOL_FAILED, "the shop is closed on Sundays")

    (record,) = await _records_of(caplog, closed)
    assert (record.levelno, record.exc_info) == (logging.INFO, None)
    assert record.getMessage() == "tool closed failed (TOOL_FAILED)"


async def test_what_a_built_in_tool_tells_the_model_is_no_warning(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (record,) = await _records_of(caplog, "read", workspace=tmp_path)
    assert (record.levelno, record.exc_info) == (logging.INFO, None)


# Names of tools that do not exist.


async def _warnings(caplog: pytest.LogCaptureFixture, **options: Any) -> list[str]:
    caplog.set_level(logging.WARNING, "haptera")
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
async def test_names_of_tools_of_the_agent_or_of_haptera_are_no_warning(
    caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    assert await _warnings(caplog, tools=[search], **options) == []


async def test_a_name_of_no_tool_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "haptera")
    async with playing([says("a"), says("b")], permissions={"deny": ["shel"]}) as (session, _):
        await session.chat("go")
        await session.chat("go on")
    assert len(_said(caplog, logging.WARNING)) == 1


async def test_a_tool_that_a_query_brings_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "haptera")
    async with playing([says("a")], permissions={"deny": ["search"]}) as (session, _):
        await session.chat("go", tools=[search])
    assert _said(caplog, logging.WARNING) == []
