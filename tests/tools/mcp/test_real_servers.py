"""MCP servers that others wrote, over stdio and streamable HTTP: list, call, progress, cancel,
crash and restart, long results. Those from npm run on the node of a wheel."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from haptera import AbortController, AgentError, Approve, ErrorCode, MediaPart, ToolProgress
from haptera.testing import calls, says
from haptera.tools.mcp import McpServer, mcp_servers
from scripts.set_up_npm_packages import EVERYTHING, FILESYSTEM, main, node
from tests.scripted_agents import events_of, make_agent, outcomes_in, playing
from tests.tools.mcp.mcp_agents import results_of

CANARY = "canary-7f3a9c"


@pytest.fixture(autouse=True)
def canary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.setenv("SOME_PRIVATE_VALUE", CANARY)


@pytest.fixture(scope="module")
def npm_servers() -> None:
    main()


def python_server(name: str, module: str, *args: str) -> McpServer:
    shape = {"command": sys.executable, "args": ["-m", module, *args], "approval": "never"}
    (server,) = mcp_servers({"mcpServers": {name: shape}})
    return server


def node_server(name: str, program: Path, *args: str, **options: Any) -> McpServer:
    options = {"approval": "never", **options}
    return McpServer(name, command=str(node()), args=[str(program), *args], **options)


@pytest.fixture
def http_port(npm_servers: None) -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return port


def make_repository(folder: Path) -> None:
    """Make a repository with one commit and one change after it."""
    git = shutil.which("git") or "git"
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.test"]
    subprocess.run([git, "init", "-q", str(folder)], check=True)
    (folder / "a.txt").write_text("one\n")
    subprocess.run([git, "-C", str(folder), "add", "a.txt"], check=True)
    subprocess.run([git, "-C", str(folder), *identity, "commit", "-qm", "first"], check=True)
    (folder / "a.txt").write_text("two\n")


@asynccontextmanager
async def everything_over_http(port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        str(node()),
        str(EVERYTHING),
        "streamableHttp",
        env={"PORT": str(port)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        assert b"listening" in await process.stderr.readline()
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.slow
async def test_the_time_server_tells_the_time() -> None:
    results, provider = await results_of(
        ("time__convert_time",
         {"source_timezone": "Europe/Oslo", "time": "12:00", "target_timezone": "Asia/Tokyo"}),
        ("time__get_current_time", {"timezone": "Nowhere/Nothing"}),
        server=python_server("time", "mcp_server_time"),
    )  # fmt: skip
    assert [spec.name for spec in provider.requests[0].tools][:2] == [
        *("time__get_current_time", "time__convert_time")
    ]
    assert results[0].outcome == "ok"
    assert "Asia/Tokyo" in results[0].text
    assert results[1].outcome == "error"
    assert "Nowhere/Nothing" in results[1].text


@pytest.mark.slow
async def test_the_git_server_works_in_a_repository(tmp_path: Path) -> None:
    make_repository(tmp_path)
    server = python_server("git", "mcp_server_git", "--repository", str(tmp_path))
    results, _ = await results_of(
        ("git__git_status", {"repo_path": str(tmp_path)}),
        ("git__git_log", {"repo_path": str(tmp_path)}),
        ("git__git_status", {"repo_path": "/"}),
        server=server,
    )
    assert "modified:   a.txt" in results[0].text
    assert "first" in results[1].text
    assert [result.outcome for result in results] == ["ok", "ok", "error"]


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_the_filesystem_server_reads_ten_megabytes(npm_servers: None, tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text("0123456789" * 1_000_000)
    results, _ = await results_of(
        ("fs__write_file", {"path": f"{tmp_path}/new.txt", "content": "ü"}),
        ("fs__read_text_file", {"path": f"{tmp_path}/big.txt"}),
        ("fs__read_text_file", {"path": "/etc/hostname"}),
        server=node_server("fs", FILESYSTEM, str(tmp_path)),
    )
    assert (tmp_path / "new.txt").read_text() == "ü"
    assert "of 10000000 characters are left out here" in results[1].text
    assert len(results[1].text) < 31_000
    assert (results[2].outcome, "Access denied" in results[2].text) == ("error", True)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_the_everything_server_does_everything_over_stdio(npm_servers: None) -> None:
    def approve(_: object) -> Approve:
        return Approve({"name": "Ana", "check": True})

    results, provider = await results_of(
        ("every__echo", {"message": "hi"}),
        ("every__get-tiny-image", {}),
        ("every__get-structured-content", {"location": "New York"}),
        ("every__get-env", {}),
        ("every__trigger-elicitation-request", {}),
        server=node_server("every", EVERYTHING, "stdio"),
        approver=approve,
    )
    echo, image, structured, environment, elicited = results
    assert echo.text == "Echo: hi"
    assert [part.mime for part in image.content if isinstance(part, MediaPart)] == ["image/png"]
    assert structured.text.count("temperature") == 1
    assert CANARY not in environment.text
    assert '"HOME"' in environment.text
    assert "Ana" in elicited.text
    assert all(result.outcome == "ok" for result in results)
    assert "every__read_resource" in [spec.name for spec in provider.requests[0].tools]


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_the_everything_server_has_resources_and_prompts(npm_servers: None) -> None:
    async with node_server("every", EVERYTHING, "stdio") as server:
        resources = await server.resources()
        assert any(item.is_template for item in resources)
        first = next(item for item in resources if not item.is_template)
        assert await server.read_resource(first.uri)
        assert "simple-prompt" in [prompt.name for prompt in await server.prompts()]
        (message, *_) = await server.prompt("args-prompt", {"city": "Oslo"})
        assert "Oslo" in message.text


LONG = ("every__trigger-long-running-operation", {"duration": 30, "steps": 300})
SHORT = ("every__trigger-long-running-operation", {"duration": 0.1, "steps": 4})


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_progress_cancellation_and_a_crash_over_stdio(npm_servers: None) -> None:
    server = node_server("every", EVERYTHING, "stdio")
    echo = calls(("every__echo", {"message": "after"}))
    steps = [calls(SHORT), says("a"), calls(LONG), echo, says("b"), calls(LONG), echo, says("c")]
    async with playing(steps, tools=[server]) as (session, provider):
        events = await events_of(session)
        progress = [event.progress for event in events if isinstance(event, ToolProgress)]
        assert [step["progress"] for step in progress] == [1, 2, 3, 4]

        controller = AbortController()
        with pytest.raises(AgentError) as caught:
            async for event in session.stream("long", signal=controller.signal):
                if isinstance(event, ToolProgress):
                    controller.abort()
        assert caught.value.code is ErrorCode.ABORTED
        await session.chat("is it still there?")
        assert server.status.failures == 0
        assert outcomes_in(provider.requests[-1])[-1][1:] == ("ok", "Echo: after")

        async for event in session.stream("crash"):
            if isinstance(event, ToolProgress) and server.status.state == "running":
                os.killpg(children_of(os.getpid(), EVERYTHING), signal.SIGKILL)
        (_, outcome, told), after = outcomes_in(provider.requests[-1])[-2:]
        assert outcome == "error"
        assert "the MCP server 'every' has ended (exit status -9)" in told
        assert after[1:] == ("ok", "Echo: after")


def children_of(parent: int, program: Path) -> int:
    """Return the process of a program that a process has started."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (entry / "cmdline").exists():
            try:
                is_child = f"PPid:\t{parent}\n" in (entry / "status").read_text()
                if is_child and str(program) in (entry / "cmdline").read_text():
                    return int(entry.name)
            except OSError:
                continue
    raise AssertionError(f"{program} does not run")


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_the_everything_server_over_streamable_http(http_port: int) -> None:
    url = f"http://127.0.0.1:{http_port}/mcp"
    shape = {"type": "http", "url": url, "approval": "never"}
    (server,) = mcp_servers({"mcpServers": {"every": shape}})
    echo = calls(("every__echo", {"message": "after"}))
    steps = [calls(SHORT), echo, says("a"), calls(LONG), echo, says("b")]
    agent, provider = make_agent([*steps, echo, echo, says("c")], tools=[server])
    async with agent, agent.session() as session:
        async with everything_over_http(http_port):
            events = await events_of(session)
            progress = [event.progress for event in events if isinstance(event, ToolProgress)]
            assert [step["progress"] for step in progress] == [1, 2, 3, 4]
            assert outcomes_in(provider.requests[-1])[-1][1:] == ("ok", "Echo: after")

            controller = AbortController()
            with pytest.raises(AgentError):
                async for event in session.stream("long", signal=controller.signal):
                    if isinstance(event, ToolProgress):
                        controller.abort()
            await session.chat("is it still there?")
            assert outcomes_in(provider.requests[-1])[-1][1:] == ("ok", "Echo: after")
        async with everything_over_http(http_port):  # its sessions are gone
            await session.chat("again")
            assert outcomes_in(provider.requests[-1])[-1][1:] == ("ok", "Echo: after")
    provider.check()
