"""The page about logging shows what a program without any set-up prints to standard error."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "logging.md").read_text(encoding="utf-8")

BEGINNING = """
import asyncio, socket
import haptera
from haptera import Agent, AgentError, ErrorCode, RequestError, RetrySettings, tool
from haptera.testing import ScriptedProvider, calls, says
from haptera.testing.clocks import AutoClock

STEADY = {"environment": {}, "clock": AutoClock()}

async def run(agent):
    async with agent:
        try:
            print((await agent.run("Hello")).text)
        except AgentError as error:
            print(error.code)
"""

PROGRAMS = {
    "A port that refuses": (
        """
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        asyncio.run(run(Agent("compatible/some-model", base_url=url, environment={})))
        """,
        "NETWORK",
    ),
    "A server elsewhere that cannot be reached": (
        """
        refused = RequestError(
            ErrorCode.NETWORK,
            "example.com could not be reached (connection refused); "
            "check the base URL, the network and that the server runs",
            basis="type",
        )
        away = ScriptedProvider([refused] * 4, provider="compatible")
        retry = RetrySettings(max_retries=3, first_delay=1.0, jitter=0.0)
        asyncio.run(
            run(Agent("compatible/some-model", providers=[away], retry=retry, **STEADY))
        )
        """,
        "NETWORK",
    ),
    "A fallback for a missing key": (
        """
        small = ScriptedProvider([says("Hello.")], provider="local")
        model, fallbacks = "anthropic/claude-sonnet-5", ["local/small"]
        asyncio.run(run(Agent(model, fallbacks=fallbacks, providers=[small], **STEADY)))
        """,
        "Hello.",
    ),
    "A tool that is repeated": (
        """
        runs = []

        @tool(idempotent=True, retry=1)
        def weather() -> str:
            runs.append(1)
            if len(runs) == 1:
                raise ConnectionError("no way to the secret place")
            return "fine"

        model = ScriptedProvider([calls(("weather", {})), says("Fine.")], provider="local")
        retry = RetrySettings(jitter=0.0)
        asyncio.run(
            run(Agent("local/m", providers=[model], tools=[weather], retry=retry, **STEADY))
        )
        """,
        "Fine.",
    ),
    "A tool that raises an exception": (
        """
        @tool
        def divide(a: int, b: int) -> float:
            return a / b

        steps = [calls(("divide", {"a": 1, "b": 0})), says("Not by zero.")]
        model = ScriptedProvider(steps, provider="local")
        asyncio.run(run(Agent("local/m", providers=[model], tools=[divide], **STEADY)))
        """,
        "Not by zero.",
    ),
}


def shown_under(heading: str) -> str:
    """Return the log that the page shows under a heading."""
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    (log,) = re.findall(r"```text\n(.*?)```", section, re.DOTALL)
    return str(log)


@pytest.mark.parametrize("heading", PROGRAMS)
def test_the_log_of_a_program_is_the_one_on_the_page(
    heading: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not the file of the user who runs the tests: the log would name it.
    monkeypatch.setenv("HOME", str(tmp_path))
    program, printed = PROGRAMS[heading]
    code = BEGINNING + textwrap.dedent(program)
    (tmp_path / "program.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "program.py"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=tmp_path,
    )
    assert (_fixed(done.stderr), done.stdout) == (shown_under(heading), f"{printed}\n")


def _fixed(told: str) -> str:
    """Return a log with the port and the frames of the page, which differ from run to run."""
    told = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8000", told)
    told = re.sub(r"^[ ~^]+\n", "", told, flags=re.MULTILINE)
    told = re.sub(r'(  File ".*/haptera/.*\n    .*\n)+', "  …\n", told)
    return re.sub(r'File ".*/program.py", line \d+', 'File "program.py", line 8', told)


def test_the_page_shows_no_other_log() -> None:
    assert PAGE.count("```text") == len(PROGRAMS)
