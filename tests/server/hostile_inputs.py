"""Inputs that cost a server more than their size, sent by one caller for as long as it is told.

python -m tests.server.hostile_inputs URL KEY SESSION SHARE SECONDS INPUT…

Runs beside the clients that are measured, in a process of its own: what it takes to make and send
the inputs is none of theirs.
"""

import asyncio
import contextlib
import io
import json
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cache

import aiohttp

from haptera.formats.archive import ArchivedLog, ArchiveExport, write_archive
from haptera.model.ids import EntryId, new_session_id
from haptera.model.log.notes import ContextNoted
from haptera.model.log.sessions import SessionOpened
from haptera.system.clock import SystemClock
from tests.server.deep_json import BODIES

MEBIBYTE = 1024 * 1024
LARGEST = 4 * MEBIBYTE - 100
CLOCK = SystemClock()
JSON = {"content-type": "application/json"}
FETCH = "fetch the page"
"""A prompt to which the model of the test answers with a call of `web_fetch`."""
PAGE = b"<b" * (2 * MEBIBYTE)
"""A page that is quadratic in a reader which looks for the end of each tag."""
EXPORTED = "`" * 200_000
"""A message that is quadratic in a renderer which looks for the end of each run of them."""


@dataclass
class Hostile:
    """One caller with a key, a session of its own and a link to it."""

    url: str
    key: str
    session_id: str
    share: str
    client: aiohttp.ClientSession
    answered: list[int] = field(default_factory=list, init=False)
    """The statuses of what was answered."""

    @property
    def session(self) -> str:
        """The path of the session."""
        return f"/api/v1/sessions/{self.session_id}"

    async def send(self, method: str, path: str, body: bytes | None = None, **more: str) -> bytes:
        """Send a request with the key, and return what is answered."""
        headers = {"authorization": f"Bearer {self.key}", **JSON, **more}
        data = None if body is None else io.BytesIO(body)
        async with self.client.request(
            method, self.url + path, data=data, headers=headers
        ) as answer:
            self.answered.append(answer.status)
            return await answer.read()

    async def dribble(self, head: list[str], piece: bytes, *, seconds: float) -> None:
        """Open a connection, and send a piece of a body now and then."""
        host, _, port = self.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write("\r\n".join([*head, f"host: {host}:{port}", "", ""]).encode())
            end = CLOCK.now() + seconds
            while CLOCK.now() < end and not reader.at_eof():
                writer.write(piece)
                await writer.drain()
                await CLOCK.sleep(0.1)
        finally:
            writer.close()

    def authorised(self, line: str, *lines: str) -> list[str]:
        """Return the head of a request with the key."""
        return [line, f"authorization: Bearer {self.key}", "content-type: application/json", *lines]


Input = Callable[[Hostile], Awaitable[object]]


@cache
def _content(kind: str) -> bytes:
    return BODIES[kind](LARGEST)


@cache
def _archive(texts: int) -> bytes:
    """Return an archive with so many notes, whose texts have to be escaped."""
    session_id = new_session_id()
    opened = SessionOpened(id=EntryId("evt_1"), time=1, seq=1, session_id=session_id)
    text = '\\"\n' * (LARGEST // texts // 8)
    notes = [
        ContextNoted(id=EntryId(f"evt_{seq}"), time=1, seq=seq, text=text)
        for seq in range(2, texts + 2)
    ]
    log = ArchivedLog(session_id=session_id, entries=[opened, *notes])
    return b"".join(write_archive(ArchiveExport(session_id=session_id, logs=[log], created=5)))


@cache
def _summaries() -> bytes:
    """Return a file of pi of which every second line is a summary, each before the first prompt."""
    rows: list[dict[str, object]] = [{"type": "session", "version": 3, "id": "s", "cwd": "/"}]
    message = {"role": "user", "content": "x"}
    kept = {"summary": "x", "firstKeptEntryId": "1", "tokensBefore": 1}
    for number in range(1, 10_000):
        place = {"id": str(number), "parentId": str(number - 1)}
        own = {"type": "compaction", **kept} if number % 2 == 0 else {"message": message}
        rows.append({"type": "message", **place, **own})
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _file(content: Callable[[], bytes]) -> Input:
    octets = {"content-type": "application/octet-stream"}
    return lambda each: each.send("POST", "/api/v1/sessions:import", content(), **octets)


def _body(kind: str, path: str) -> Input:
    return lambda each: each.send("POST", path, _content(kind))


async def _websocket(hostile: Hostile) -> None:
    """Send a batch that is too large on a WebSocket."""
    headers = {"authorization": f"Bearer {hostile.key}"}
    async with hostile.client.ws_connect(hostile.url + "/rpc", headers=headers) as connection:
        await connection.send_str(_content("numbers").decode())
        await connection.receive()


async def _together(hostile: Hostile, one: Input, count: int) -> None:
    async def begin(number: int) -> None:
        await CLOCK.sleep(number / 100)
        await one(hostile)

    await asyncio.gather(*map(begin, range(count)), return_exceptions=True)


async def _slow_bodies(hostile: Hostile) -> None:
    head = hostile.authorised("POST /api/v1/sessions HTTP/1.1", "content-length: 100000")
    await _together(hostile, lambda each: each.dribble(head, b" ", seconds=2), 50)


async def _slow_logins(hostile: Hostile) -> None:
    head = ["POST /api/v1/login HTTP/1.1", "content-type: application/json", "content-length: 999"]
    await _together(hostile, lambda each: each.dribble(head, b" ", seconds=2), 50)


async def _after_refusals(hostile: Hostile) -> None:
    head = ["POST /api/v1/sessions HTTP/1.1", "content-length: 100000"]
    await _together(hostile, lambda each: each.dribble(head, b" ", seconds=2), 50)


async def _waits(hostile: Hostile) -> None:
    message = json.dumps({"content": "hold", "id": "held"}).encode()
    wait = {"prefer": "wait=1"}
    path = f"{hostile.session}/messages"
    await _together(hostile, lambda each: each.send("POST", path, message, **wait), 150)


async def _fetched_pages(hostile: Hostile) -> None:
    """Let the model fetch a page that is hard to read, in each of some sessions."""
    message = json.dumps({"content": FETCH}).encode()

    async def fetch(_: int) -> None:
        made = json.loads(await hostile.send("POST", "/api/v1/sessions", b"{}"))
        if "id" in made:  # and not that there were too many requests
            path = f"/api/v1/sessions/{made['id']}"
            await hostile.send("POST", f"{path}/messages", message, prefer="wait=30")
            await hostile.send("DELETE", path)

    await asyncio.gather(*map(fetch, range(3)))


async def _unread_streams(hostile: Hostile) -> None:
    """Open streams and read nothing of them."""
    head = hostile.authorised(f"GET {hostile.session}/events HTTP/1.1")
    await _together(hostile, lambda each: each.dribble(head, b"", seconds=1), 50)


async def _ahead(hostile: Hostile) -> None:
    """Send thousands of requests without reading an answer."""
    host, _, port = hostile.url.removeprefix("http://").partition(":")
    with contextlib.closing(socket.socket()) as sock:
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, (host, int(port)))
        one = f"GET /healthz HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n".encode()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                await loop.sock_sendall(sock, one * 20_000)


INPUTS: dict[str, Input] = {
    "a batch of numbers": _body("numbers", "/rpc"),
    "a batch of objects": _body("objects", "/rpc"),
    "a batch of lists": _body("lists", "/rpc"),
    "a batch within the values": lambda each: each.send(
        "POST", "/rpc", b"[" + b"1," * 90_000 + b"1]"
    ),
    "a batch within its limit": lambda each: each.send("POST", "/rpc", b"[" + b"1," * 63 + b"1]"),
    "a batch on a WebSocket": _websocket,
    "deep JSON": _body("depth", "/rpc"),
    "deep JSON in turns": _body("depth in turns", "/api/v1/sessions"),
    "texts": _body("texts after brackets", "/api/v1/sessions"),
    "escapes": _body("escapes", "/api/v1/sessions"),
    "names": _body("names", "/api/v1/sessions"),
    "a long name": _body("a long name", "/api/v1/sessions"),
    "a long number": _body("a long number", "/api/v1/sessions"),
    "long numbers": _body("long numbers", "/rpc"),
    "large exponents": _body("large exponents", "/rpc"),
    "ends": _body("ends", "/api/v1/sessions"),
    "a login of 4 MiB": lambda each: each.send(
        "POST", "/api/v1/login", b'{"token":"' + b"a" * LARGEST + b'"}'
    ),
    "slow bodies": _slow_bodies,
    "slow logins": _slow_logins,
    "bytes after refusals": _after_refusals,
    "waits": _waits,
    "streams that are not read": _unread_streams,
    "requests ahead": _ahead,
    "pages that are fetched": _fetched_pages,
    "large metadata": lambda each: each.send(
        "PATCH",
        each.session,
        json.dumps({"metadata": {str(name): "x" for name in range(45_000)}}).encode(),
    ),
    "words to search for": lambda each: each.send(
        "GET", "/api/v1/sessions?q=" + "a*%20OR%20" * 40 + "a"
    ),
    "kinds of events": lambda each: each.send(
        "GET", f"{each.session}/events?follow=false&types=" + "a," * 499
    ),
    "an archive of large entries": _file(lambda: _archive(8)),
    "an archive of many entries": _file(lambda: _archive(4000)),
    "a file of summaries": _file(_summaries),
    "an export as HTML": lambda each: each.send("GET", f"{each.session}/export?format=html"),
    "a redacted export": lambda each: each.send(
        "GET", f"{each.session}/export?format=markdown&redact=true"
    ),
    "a shared page": lambda each: each.send("GET", each.share),
    "a shared session": lambda each: each.send("GET", each.share + ".json"),
}


async def main(seconds: float, names: list[str], *who: str) -> None:
    """Send each input again and again, for an equal part of the time."""
    os.nice(10)  # so that the clients that are measured do not wait for this process
    timeout = aiohttp.ClientTimeout(total=30)
    async with aiohttp.ClientSession(timeout=timeout) as client:
        url, key, session_id, share = who
        caller = Hostile(url, key, session_id, share, client)
        for name in names:
            end = CLOCK.now() + seconds / len(names)
            times = 0
            while CLOCK.now() < end:
                with contextlib.suppress(aiohttp.ClientError, ConnectionError, TimeoutError):
                    await INPUTS[name](caller)
                times += 1
            told = [name, times, sorted(set(caller.answered))]
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()
            caller.answered.clear()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[5]), sys.argv[6:], *sys.argv[1:5]))
