"""An application that users run under a web server of their own ends when it is told to."""

import http.client
import json
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from haptera.sync import Agent
from haptera.testing import ScriptedProvider
from tests.server.told_to_end import TOKEN

_SECONDS = 20


def _free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class _Client:
    def __init__(self, port: int, left: ExitStack) -> None:
        self._port, self._left = port, left

    def ask(self, method: str, path: str, body: Any = None) -> http.client.HTTPResponse:
        """Begin a request; its response is read by the caller."""
        asked = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_SECONDS)
        self._left.callback(asked.close)
        headers = {"authorization": f"Bearer {TOKEN}"}
        content = None
        if body is not None:
            content, headers["content-type"] = json.dumps(body), "application/json"
        asked.request(method, path, content, headers)
        response = asked.getresponse()
        self._left.callback(response.close)
        return response


def _when_ready(process: "subprocess.Popen[bytes]", port: int) -> None:
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except ConnectionRefusedError:
            continue
        return
    raise AssertionError("the server did not start")


def _begun(client: _Client, kind: str) -> http.client.HTTPResponse:
    """Send a prompt, and return the response that follows the session."""
    if kind == "recipe":
        client.ask("POST", "/sessions/trip/prompts", {"prompt": "go"}).read()
        return client.ask("GET", "/sessions/trip/events")
    root = "/ai" if kind == "mounted" else ""
    made = json.loads(client.ask("POST", f"{root}/api/v1/sessions", {"name": "trip"}).read())
    path = f"{root}/api/v1/sessions/{made['id']}"
    client.ask("POST", f"{path}/messages", {"content": "go"}).read()
    return client.ask("GET", f"{path}/events")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["alone", "mounted", "recipe"])
def test_it_ends_at_sigterm_while_a_stream_is_open(kind: str, tmp_path: Path) -> None:
    port, store = _free_port(), f"sqlite:{tmp_path / 'chat.db'}"
    program = [sys.executable, "-m", "tests.server.told_to_end", kind, store, str(port)]
    root = Path(__file__).parents[2]
    with ExitStack() as left, subprocess.Popen(program, cwd=root) as process:
        try:
            _when_ready(process, port)
            stream = _begun(_Client(port, left), kind)
            while b"Half" not in stream.readline():
                pass
            process.send_signal(signal.SIGTERM)
            rest = stream.read()
            # uvicorn ends with 0, or as the signal that it got would end it.
            assert process.wait(_SECONDS) in {0, -signal.SIGTERM}
        finally:
            process.kill()
    if kind != "recipe":
        assert b"event: query.suspended" in rest
    assert b"query.ended" not in rest
    provider = ScriptedProvider()
    with Agent("scripted/one", providers=[provider], store=store, cwd=root) as agent:
        (found,) = agent.sessions.list()
        assert found.phase == "running", "the next process carries it on"
