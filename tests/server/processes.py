"""`haptera serve` in a process of its own, and plain requests to it."""

import contextlib
import http.client
import json
import signal
import stat
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.cli.commands import Place

MODEL = "anthropic/claude-sonnet-5"
_SECONDS = 60


@dataclass
class ServeProcess:
    """A running server: its process, its state file and what it printed."""

    process: subprocess.Popen[bytes]
    state: dict[str, Any]
    path: Path
    printed: list[bytes] = field(default_factory=list)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        """Call a route with the server's token, unless a header says otherwise."""
        with self.answer(method, path, body, **headers) as answer:
            return answer.status, answer.read()

    def json(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Call a route that must succeed, and return what it says."""
        status, content = self.call(method, path, body, **headers)
        assert 200 <= status < 300, (status, content)
        return json.loads(content)

    @contextlib.contextmanager
    def answer(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> Iterator[http.client.HTTPResponse]:
        """Begin a call, and return its response while the body is still to be read."""
        sent = {"authorization": f"Bearer {self.state['token']}"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            sent["content-type"] = "application/json"
        asked = http.client.HTTPConnection(
            self.state["url"].removeprefix("http://"), timeout=_SECONDS
        )
        with contextlib.closing(asked):
            asked.request(method, path, content, sent)
            yield asked.getresponse()

    def log(self, session_id: str) -> list[dict[str, Any]]:
        """Return the log of a session."""
        path = f"/api/v1/sessions/{session_id}/events?follow=false"
        with self.answer("GET", path) as answer:
            return [data for data in sent_in(answer) if "seq" in data and "id" in data]

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait for the end and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(_SECONDS)


def sent_in(lines: Iterator[bytes] | http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """Yield the data of server-sent events as they come."""
    for line in lines:
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))


@contextlib.contextmanager
def started(place: Place, *more: str, program: Sequence[str] = ()) -> Iterator[ServeProcess]:
    """Start a server; it is killed after the block, unless it has ended by then."""
    options = ("serve", "--port", "0", "--model", MODEL, *more)
    process = place.start(*options, program=program)
    assert process.stderr is not None
    assert process.stdout is not None
    printed: list[bytes] = []
    readers = [
        threading.Thread(target=_drain, args=(stream, printed), daemon=True)
        for stream in (process.stderr, process.stdout)
    ]
    try:
        lines = [_next_line(process.stderr, printed) for _ in range(2)]
        for reader in readers:
            reader.start()
        path = Path(lines[1].removeprefix("the token is in ").strip())
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        server = ServeProcess(process, json.loads(path.read_bytes()), path, printed)
        assert lines[0].strip() == f"{server.state['url']}/#token={server.state['token']}"
        assert server.state["pid"] == process.pid
        # The socket listens before the line is printed; the request waits until it is served.
        assert server.call("GET", "/readyz")[0] == 200
        yield server
    finally:
        process.kill()
        process.wait()
        for reader in readers:
            if reader.ident is not None:
                reader.join()
        process.stderr.close()
        process.stdout.close()


@contextlib.contextmanager
def running(place: Place, *more: str) -> Iterator[ServeProcess]:
    """Run the server until the block is left; then it ends in order."""
    with started(place, *more) as server:
        yield server
        assert server.path.exists()
        assert server.end() == 0
        assert not server.path.exists()


def _next_line(stream: IO[bytes], printed: list[bytes]) -> str:
    """Return the next line that is not of the log."""
    while line := stream.readline():
        if line.startswith((b"http", b"the token is in ")):
            return line.decode()
        printed.append(line)
    raise AssertionError(b"".join(printed).decode())


def _drain(stream: IO[bytes], printed: list[bytes]) -> None:
    printed.extend(stream)
