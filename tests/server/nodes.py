"""`haptera serve` as processes over one store, and clients that go from one to another."""

import asyncio
import contextlib
import json
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp

from tests.cli.commands import Place
from tests.server.serving import Sent, read_events

MODEL = "anthropic/claude-sonnet-5"
_TIME_LIMIT = aiohttp.ClientTimeout(total=60)


class Node:
    """One server process."""

    def __init__(self, process: "subprocess.Popen[bytes]", url: str, token: str) -> None:
        self.process = process
        self.url = url
        self._headers = {"authorization": f"Bearer {token}"}

    async def call(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any]:
        """Call a route; returns the status and the body, from JSON where it is."""
        sent = self._headers | {name.replace("_", "-"): text for name, text in headers.items()}
        async with (
            aiohttp.ClientSession(headers=sent, timeout=_TIME_LIMIT) as client,
            client.request(method, f"{self.url}{path}", json=body) as answer,
        ):
            content = await answer.read()
            return answer.status, json.loads(content) if "json" in answer.content_type else content

    async def must(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Call a route that has to work; returns the body."""
        status, answer = await self.call(method, path, body, **headers)
        assert 200 <= status < 300, (status, answer)
        return answer

    @contextlib.asynccontextmanager
    async def events(self, path: str, *, after: int) -> AsyncIterator[AsyncIterator[Sent]]:
        """Follow the events of a session."""
        headers = self._headers | ({"last-event-id": str(after)} if after else {})
        async with (
            aiohttp.ClientSession(headers=headers, timeout=_TIME_LIMIT) as client,
            client.get(f"{self.url}{path}/events") as answer,
        ):
            if answer.status == 503:  # it shuts down: a client goes to another one
                answer.raise_for_status()
            assert answer.status == 200, await answer.text()
            yield read_events(answer.content)

    async def kill(self) -> None:
        """End the process as a crash does."""
        self.process.kill()
        await asyncio.to_thread(self.process.wait)

    async def end(self) -> None:
        """End the process if it runs, by force if it does not end soon."""
        self.process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(self.process.wait, 30)
        finally:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdout, self.process.stderr):
                assert pipe is not None
                pipe.close()


async def start_node(place: Place, store: str, *more: str) -> Node:
    """Start a server over a store; returns once it answers."""
    process = place.start("serve", "--port", "0", "--model", MODEL, "--store", store, *more)
    assert process.stderr is not None
    lines = [await asyncio.to_thread(process.stderr.readline) for _ in range(2)]
    url, _, token = lines[0].decode().strip().partition("/#token=")
    node = Node(process, url, token)
    # The socket listens before the line is printed; the request waits until it is served.
    await node.must("GET", "/readyz")
    return node


@contextlib.asynccontextmanager
async def nodes(place: Place, store: str, count: int = 2) -> AsyncIterator[list[Node]]:
    """Run servers over one store until the block is left; a test may put others into the list."""
    starting = [asyncio.ensure_future(start_node(place, store)) for _ in range(count)]
    started = [await task for task in starting]
    try:
        yield started
    finally:
        await asyncio.gather(*(node.end() for node in started))


class Follower:
    """A client that follows one session, and goes to the next server when its own is gone."""

    def __init__(self, path: str, servers: Sequence[Node]) -> None:
        self._path = path
        self._servers = servers
        self._place = 0
        self.seqs: list[int] = []
        self.text = ""
        """What the model said in its last turn, put together by part and offset."""
        self._parts: dict[str, str] = {}
        self.kinds: list[str] = []
        self.ends: list[str] = []
        """How queries ended."""
        self.has_text = asyncio.Event()
        """Set when some text came that a test waits for."""

    async def until_end(self, *, ends: int = 1) -> None:
        """Follow until so many queries have ended."""
        while len(self.ends) < ends:
            await self.until_cut(ends=ends)
            self._place = (self._place + 1) % len(self._servers)

    async def until_cut(self, *, ends: int) -> None:
        """Follow until so many queries have ended, or the server is gone."""
        after = self.seqs[-1] if self.seqs else 0
        with contextlib.suppress(aiohttp.ClientError):
            async with self._servers[self._place].events(self._path, after=after) as events:
                async for event in events:
                    self._take(event)
                    if len(self.ends) >= ends:
                        return

    def _take(self, event: Sent) -> None:
        data = event.data
        self.kinds.append(event.kind)
        if event.seq is not None:
            self.seqs.append(event.seq)
        if event.kind == "query.ended":
            self.ends.append(data["stop_reason"])
        elif event.kind == "turn.started":
            self._parts = {}
        elif event.kind in {"text.delta", "part.checkpoint"}:
            known, offset = self._parts.get(data["part_id"], ""), data.get("offset", 0)
            if offset <= len(known):  # deltas before it may be missing after a reconnect
                self._parts[data["part_id"]] = known[:offset] + data["text"]
        elif event.kind == "part.ended" and data["part"]["type"] == "text":
            self._parts[data["part_id"]] = data["part"]["text"]
        self.text = "".join(self._parts.values())
        if self.text:
            self.has_text.set()
