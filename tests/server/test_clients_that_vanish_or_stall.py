"""Clients that vanish leave nothing behind; a client that does not read is left behind."""

import asyncio
import contextlib
import gc
import socket
import struct
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from haptera import TextDelta
from haptera.model.ids import PartId
from haptera.server import ServerSettings
from haptera.server.event_stream import EventEncoder
from haptera.server.serving import listen
from haptera.testing import says
from haptera.testing.scripted_provider import Beat
from tests.scripted_agents import make_agent
from tests.server.serving import TOKEN, Sent, Served, read_events, serving

pytestmark = pytest.mark.slow

WIDE = ServerSettings(requests_per_second=1e6, failures_per_second=1e6)
_PIECE = 1000
_KIB = 1024


class Connection:
    """A bare connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, served: Served, *, receives: int | None = None) -> "Connection":
        """Connect; `receives` is how many bytes the system takes in for a client that waits."""
        sock = socket.socket()
        sock.setblocking(False)
        if receives is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
        host, port = served.url.removeprefix("http://").split(":")
        await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
        return cls(*await asyncio.open_connection(sock=sock, limit=receives or 2**16))

    def send(self, method: str, path: str, *, body: bytes = b"", **headers: str) -> None:
        """Send a request; headers may say that more of it follows."""
        told = {"host": "{}:{}".format(*self._writer.get_extra_info("peername"))}
        told |= {"authorization": f"Bearer {TOKEN}", "content-length": str(len(body))}
        told |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method} {path} HTTP/1.1", *(f"{key}: {told[key]}" for key in told), "", ""]
        self._writer.write("\r\n".join(lines).encode() + body)

    async def events(self) -> AsyncIterator[Sent]:
        """Read the events of a response, which is sent in chunks."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head.splitlines()[0]
        content = asyncio.StreamReader()
        reading = asyncio.get_running_loop().create_task(self._read_chunks(content))
        async for event in read_events(content):
            yield event
        await reading

    async def _read_chunks(self, content: asyncio.StreamReader) -> None:
        while size := int(await self.reader.readline(), 16):
            content.feed_data((await self.reader.readexactly(size + 2))[:-2])
        content.feed_eof()

    def pause(self) -> None:
        """Take nothing more from the system."""
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]  # it reads, too

    def resume(self) -> None:
        """Read again."""
        self._writer.transport.resume_reading()  # type: ignore[attr-defined]  # it reads, too

    def reset(self) -> None:
        """Vanish: the peer gets a reset, not an end."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


def _dripping(count: int) -> tuple[list[Beat], asyncio.Semaphore]:
    """Return a script that says a word whenever the semaphore lets it."""
    drops = asyncio.Semaphore(0)

    async def wait() -> None:
        await drops.acquire()

    opened, begun, *words, closed, finished = says(*(f"word {n} " for n in range(count)))
    return [
        opened,
        begun,
        *(beat for word in words for beat in (wait, word)),
        wait,
        closed,
        finished,
    ], drops


async def _come_and_go(served: Served, session_id: str, turn: int) -> None:
    """Connect and leave in one of five ways."""
    connection = await Connection.to(served)
    path = f"/api/v1/sessions/{session_id}"
    match turn % 5:
        case 0:  # in the middle of what is replayed
            connection.send("GET", f"{path}/events")
            await connection.reader.readuntil(b"session.opened")
        case 1:  # while it follows
            connection.send("GET", f"{path}/events")
            await connection.reader.readuntil(b"log.synced")
        case 2:  # on the stream of all sessions
            connection.send("GET", "/api/v1/events")
            await connection.reader.readuntil(b"retry")
        case 3:  # before the response
            connection.send("GET", f"{path}/events")
        case 4:  # in the middle of its own body
            kind = "application/json"
            more = {"content_length": "1000", "content_type": kind, "expect": "100-continue"}
            connection.send("POST", f"{path}/messages", body=b'{"content": "', **more)
            await connection.reader.readuntil(b"100 Continue")
    connection.reset()


@contextlib.contextmanager
def _traced() -> Iterator[Callable[[], int]]:
    """Trace memory; yields what returns how much is in use."""
    tracemalloc.start(1)

    def used() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    try:
        yield used
    finally:
        tracemalloc.stop()


async def test_a_thousand_clients_that_vanish_leave_no_task_descriptor_or_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script, drops = _dripping(60)
    agent, _ = make_agent([script])
    async with serving(agent, settings=WIDE) as served:
        session_id = await served.new_session()
        path = f"/api/v1/sessions/{session_id}/messages"
        await served.call("POST", path, {"content": "go"})

        async def come_and_go(first: int, last: int) -> tuple[int, int]:
            for turn in range(first, last):
                if turn % 20 == 0:
                    drops.release()
                await _come_and_go(served, session_id, turn)
            while served.app.hub.streams.open or len(served.server.server_state.connections) > 1:
                await served.call("GET", "/healthz")
            return len(asyncio.all_tasks()), len(list(Path("/proc/self/fd").iterdir()))

        left = await come_and_go(0, 600)
        with _traced() as used:
            await come_and_go(600, 700)
            memory = used()
            assert await come_and_go(700, 1000) <= left
            assert used() - memory < 100 * _KIB
        assert not served.app.hub._feeds
        for _ in range(60):
            drops.release()
        async with served.events(f"/api/v1/sessions/{session_id}/events") as events:
            async for event in events:
                if event.kind == "query.ended":
                    assert event.data["stop_reason"] == "complete"  # no client's end was its end
                    break
    assert not [record for record in caplog.records if record.levelname in {"ERROR", "CRITICAL"}]


def _flood(pieces: int) -> tuple[list[Beat], str]:
    """Return a script of many pieces, after each 16 of which other tasks run, and its text."""
    texts = [f"{number:05d}".ljust(_PIECE, ".") for number in range(pieces)]
    opened, begun, *said, closed, finished = says(*texts)
    groups = [said[place : place + 16] for place in range(0, pieces, 16)]

    async def breathe() -> None:
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        loop.call_soon(turn.set_result, None)
        await turn

    beats: list[Beat] = [opened, begun]
    for group in groups:
        beats += [*group, breathe]
    return [*beats, closed, finished], "".join(texts)


def _narrow(**options: float) -> socket.socket:
    """Return a socket of a server for whose clients the system holds little."""
    sock = listen("127.0.0.1", 0, is_protected=False, **options)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 100 * _KIB)
    return sock


async def test_a_client_that_does_not_read_is_told_where_to_go_on_and_costs_little() -> None:
    used_by = {stalled: await _watch_a_flood(stalled) for stalled in (1, 4)}
    # Half a MiB of text waits for each at most, as events and as frames; where each of them stalls
    # depends on the system, so each may hold other ones.
    assert used_by[4] - used_by[1] < 3 * 2048 * _KIB


async def _watch_a_flood(stalled: int) -> int:
    """Let clients stall while much is said; returns the memory in use before they read on."""
    script, said = _flood(3000)
    agent, _ = make_agent([script], runtime={"observer_buffer": 256})
    async with serving(agent, settings=WIDE, sock=_narrow()) as served:
        session_id = await served.new_session()
        path = f"/api/v1/sessions/{session_id}"
        clients = [await Connection.to(served, receives=100 * _KIB) for _ in range(stalled)]
        streams = [client.events() for client in clients]
        got: list[list[Sent]] = []
        for client, stream in zip(clients, streams, strict=True):
            client.send("GET", f"{path}/events")
            got.append([await anext(stream)])
            client.pause()
        with _traced() as used:
            before = used()
            _, ended = await served.call(
                "POST", f"{path}/messages", {"content": "go"}, headers={"prefer": "wait=60"}
            )
            grown = used() - before
        assert ended["text"] == said
        log = await served.log(session_id)
        for client, stream, events in zip(clients, streams, got, strict=True):
            client.resume()
            events += [event async for event in stream]
            client.reset()
            await _check_lagged(served, path, events, log)
    return grown


async def _check_lagged(served: Served, path: str, events: list[Sent], log: list[Sent]) -> None:
    """Check that a client that lagged gets the rest of the log from the cursor that it was told."""
    lagged = events[-1]
    assert lagged.kind == "observer.lagged"
    stored = [event for event in events if event.seq is not None]
    assert lagged.data["resume_after"] == stored[-1].seq
    assert len(stored) < len(log)
    headers = {"last_event_id": str(stored[-1].seq)}
    async with served.events(f"{path}/events?follow=false", **headers) as rest:
        stored += [event async for event in rest if event.seq is not None]
    assert stored == log


async def test_a_client_of_all_sessions_that_does_not_read_is_told_so() -> None:
    script, said = _flood(3000)
    agent, _ = make_agent([script])
    async with serving(agent, settings=WIDE, sock=_narrow()) as served:
        client = await Connection.to(served, receives=100 * _KIB)
        client.send("GET", "/api/v1/events")
        while not any(served.app.hub._overviews.values()):
            await served.call("GET", "/healthz")
        session_id = await served.new_session()
        stream = client.events()
        assert (await anext(stream)).kind == "session.created"
        client.pause()
        path = f"/api/v1/sessions/{session_id}/messages"
        _, ended = await served.call("POST", path, {"content": "go"}, headers={"prefer": "wait=60"})
        assert ended["text"] == said
        client.resume()
        *events, lagged = [event async for event in stream]
        client.reset()
        assert (lagged.kind, lagged.data, lagged.seq) == ("observer.lagged", {}, None)
        told = [event.data["event"] for event in events]
        seqs = [event["seq"] for event in told if "seq" in event]
        assert seqs == list(range(seqs[0], seqs[-1] + 1)), "nothing is left out before"
        assert "query.ended" not in {event.kind for event in events}


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has it")
async def test_the_connection_of_a_client_that_never_reads_is_ended() -> None:
    script, said = _flood(2000)
    agent, _ = make_agent([script])
    async with serving(agent, settings=WIDE, sock=_narrow(stalled_seconds=0.2)) as served:
        session_id = await served.new_session()
        path = f"/api/v1/sessions/{session_id}"
        client = await Connection.to(served, receives=100 * _KIB)
        client.pause()
        client.send("GET", f"{path}/events")
        _, ended = await served.call(
            "POST", f"{path}/messages", {"content": "go"}, headers={"prefer": "wait=60"}
        )
        assert ended["text"] == said
        while served.app.hub.streams.open or len(served.server.server_state.connections) > 1:
            await served.call("GET", "/healthz")
        client.reset()


def test_what_is_kept_for_other_clients_is_bounded_in_bytes() -> None:
    def said(size: int) -> TextDelta:
        return TextDelta(part_id=PartId("prt_1"), offset=0, text="." * size)

    encoder = EventEncoder()
    small, large = said(10), said(1500 * _KIB)
    assert encoder.encode(small) is encoder.encode(small)
    assert encoder.encode(large) is encoder.encode(large)  # all clients that get it now
    first = encoder.encode(small)
    encoder.encode(said(1500 * _KIB))
    assert encoder.encode(small) is not first
