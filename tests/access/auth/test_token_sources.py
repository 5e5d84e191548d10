"""Token sources: where a credential comes from, and where it does not go."""

import asyncio
import functools
import sys

import pytest

from haptera.model.errors import AgentError, ErrorCode
from haptera.model.secrets import Secret
from haptera.system.token_source import Origin, TokenSource
from haptera.system.token_sources import (
    BoundTokenSource,
    CallableTokenSource,
    CommandTokenSource,
    EnvironmentTokenSource,
    StaticTokenSource,
    origin_of,
)

HERE = origin_of("https://api.example.org")


def printing(code: str) -> list[str]:
    return [sys.executable, "-c", code]


async def failure_of(source: TokenSource) -> AgentError:
    with pytest.raises(AgentError) as caught:
        await source.token(HERE)
    return caught.value


async def test_a_fixed_key_is_given() -> None:
    source: TokenSource = StaticTokenSource("key", kind="oauth")
    assert (await source.token(HERE)).reveal() == "key"
    assert source.kind == "oauth"


async def test_a_variable_is_read_for_every_request() -> None:
    environment = {"KEY": " one "}
    source = EnvironmentTokenSource("KEY", environment)
    assert (await source.token(HERE)).reveal() == "one"
    environment["KEY"] = "two"
    assert (await source.token(HERE)).reveal() == "two"
    environment["KEY"] = ""
    error = await failure_of(source)
    assert error.code is ErrorCode.CONFIG_MISSING
    assert "KEY" in error.message


async def test_a_function_may_be_sync_or_async_and_is_called_each_time() -> None:
    calls: list[int] = []

    def sync() -> str:
        calls.append(1)
        return "sync"

    async def asynchronous() -> Secret:
        calls.append(1)
        return Secret("async")

    for function, token in (
        (sync, "sync"),
        (asynchronous, "async"),
        (functools.partial(asynchronous), "async"),
    ):
        assert (await CallableTokenSource(function).token(HERE)).reveal() == token
    assert len(calls) == 3


async def test_a_function_that_fails_tells_no_secret() -> None:
    def broken() -> str:
        raise ValueError("key sk-secret is wrong")

    error = await failure_of(CallableTokenSource(broken))
    assert error.code is ErrorCode.AUTH
    assert "sk-secret" not in error.message
    assert (await failure_of(CallableTokenSource(lambda: ""))).code is ErrorCode.AUTH


async def test_a_command_gives_its_first_line() -> None:
    source = CommandTokenSource(printing("print(' tok '); print('more')"))
    assert (await source.token(HERE)).reveal() == "tok"


@pytest.mark.parametrize(
    "command",
    [
        ["/no/such/command"],
        printing("import sys; sys.exit(3)"),
        printing("pass"),
    ],
    ids=["missing", "fails", "silent"],
)
async def test_a_command_that_gives_nothing_is_an_auth_error(command: list[str]) -> None:
    assert (await failure_of(CommandTokenSource(command))).code is ErrorCode.AUTH


async def test_a_command_that_hangs_is_ended() -> None:
    hang = printing("import threading; threading.Event().wait()")
    error = await failure_of(CommandTokenSource(hang, seconds=0.2))
    assert error.code is ErrorCode.AUTH
    assert "longer than" in error.message


async def test_a_command_does_not_outlive_its_request() -> None:
    hang = printing("import threading; threading.Event().wait()")
    task = asyncio.ensure_future(CommandTokenSource(hang).token(HERE))
    done, _ = await asyncio.wait({task}, timeout=0.3)
    assert not done
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    "url",
    [
        "http://api.example.org",
        "https://api.example.org:444",
        "https://api.example.org.evil.example",
        "https://evil.example",
    ],
)
async def test_a_key_is_bound_to_scheme_host_and_port(url: str) -> None:
    source = BoundTokenSource(StaticTokenSource("key"), HERE)
    assert source.kind == "key"
    assert (await source.token(origin_of("https://API.example.org:443/v1"))).reveal() == "key"
    with pytest.raises(AgentError) as caught:
        await source.token(origin_of(url))
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert "key" not in str(Origin("https", "h", 1))
