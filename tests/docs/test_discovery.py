"""What a user finds without a browser: `help`, and the completion and help of IPython."""

import inspect
import json
import pydoc
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import haptera.sync
from haptera import Agent, AgentSession, create_agent_session, run_agent, run_agent_stream, tool
from haptera.agent.agent_options import AGENT
from haptera.agent.query_options import CREATE_SESSION, ONE_CALL, QUERY, SESSION, SINGLE_QUERY
from haptera.kernel.blocks.tool_registry.tool import ToolOptions
from haptera.options.declarations import Declared, Keywords, options_of

pytestmark = pytest.mark.slow

_SCRIPT = Path(__file__).with_name("ipython_session.py")

_FUNCTIONS: dict[str, tuple[Callable[..., Any], Mapping[str, Declared]]] = {
    "Agent": (Agent, options_of(AGENT)),
    "Agent.run": (Agent.run, options_of(SINGLE_QUERY)),
    "Agent.stream": (Agent.stream, options_of(SINGLE_QUERY)),
    "Agent.session": (Agent.session, options_of(SESSION)),
    "AgentSession.chat": (AgentSession.chat, options_of(QUERY)),
    "AgentSession.stream": (AgentSession.stream, options_of(QUERY)),
    "run_agent": (run_agent, options_of(ONE_CALL)),
    "run_agent_stream": (run_agent_stream, options_of(ONE_CALL)),
    "create_agent_session": (create_agent_session, options_of(CREATE_SESSION)),
    "tool": (tool, options_of(ToolOptions)),
    "sync.Agent": (haptera.sync.Agent, options_of(AGENT)),
    "sync.Agent.run": (haptera.sync.Agent.run, options_of(SINGLE_QUERY)),
}


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_help_shows_every_option_with_its_type_default_and_a_sentence(name: str) -> None:
    value, options = _FUNCTIONS[name]
    text = pydoc.plain(pydoc.render_doc(value))
    for item in options.values():
        line = f"{item.name} ({item.shown_type}): {item.option.sentence} "
        assert f"{line}Default: {item.shown_default}." in text, item.name
    parameters = inspect.signature(value).parameters
    assert [name for name in options if name not in parameters] == []


@pytest.fixture(scope="module")
def ipython(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What IPython answers to everything that the tests below ask."""
    home = tmp_path_factory.mktemp("home")
    asked = {
        "complete": [*_COMPLETED, "agent.", "session.", "stream.", "haptera."],
        "inspect": ["Agent", "agent.run", "session.chat", "tool"],
    }
    with pytest.MonkeyPatch.context() as patch:
        # IPython and jedi keep their history and caches there.
        patch.setenv("HOME", str(home))
        patch.setenv("XDG_CACHE_HOME", str(home / "cache"))
        done = subprocess.run(
            [sys.executable, str(_SCRIPT)],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


_COMPLETED = {
    "Agent(thin": "thinking=",
    "Agent('a/b', sto": "store=",
    "agent.run('hi', output": "output_type=",
    "session.chat('hi', sig": "signal=",
    "run_agent('hi', mod": "model=",
    "tool(appr": "approval=",
    "agent.as_tool(time": "timeout=",
    "agent.sessions.list(pha": "phase=",
    "agent.sessions.update('a', ta": "tags=",
    "haptera.AgentE": "AgentError",
}


@pytest.mark.parametrize("text", _COMPLETED)
def test_ipython_completes_options_and_names(text: str, ipython: dict[str, Any]) -> None:
    assert _COMPLETED[text] in ipython["completed"][text]


def test_ipython_offers_methods_and_nothing_private(ipython: dict[str, Any]) -> None:
    completed = ipython["completed"]
    assert {"run", "stream", "session", "close"} <= set(completed["agent."])
    assert {"chat", "stream", "steer", "abort", "fork", "rewind"} <= set(completed["session."])
    assert {"text", "result", "abort"} <= set(completed["stream."])
    assert set(haptera.__all__) <= set(completed["haptera."])
    offered = [name for text in ("agent.", "session.", "stream.") for name in completed[text]]
    assert [name for name in offered if name.startswith("_")] == []


@pytest.mark.parametrize(
    ("name", "options"),
    [("Agent", AGENT), ("agent.run", SINGLE_QUERY), ("session.chat", QUERY)],
)
def test_ipython_shows_every_option_with_its_sentence(
    name: str, options: Keywords, ipython: dict[str, Any]
) -> None:
    shown = " ".join(ipython["shown"][name].split())
    missing = [
        item.name
        for item in options_of(options).values()
        if " ".join(item.option.sentence.split()) not in shown
    ]
    assert missing == []
