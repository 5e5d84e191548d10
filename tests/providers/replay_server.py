"""A server that answers the n-th request with the n-th recorded reply, and keeps requests."""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from haptera.model.json_types import JsonObject
from tests.providers.faulty_server import Connection, FaultyServer, faulty_server

_TYPES = {
    ".ndjson": "application/x-ndjson",
    ".json": "application/json",
    ".sse": "text/event-stream",
}


class Recorded(NamedTuple):
    """One recorded reply with the request that was made for it."""

    api: str
    """The kind of recording."""
    request: JsonObject
    expect: JsonObject
    status: int
    content_type: str
    body: bytes
    model: str


def recorded(folder: Path) -> Recorded:
    """Read the recorded reply in a folder."""
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    file = folder / meta["body_file"]
    return Recorded(
        api=folder.parent.name,
        request=meta.get("request") or {},
        expect=json.loads((folder / "expect.json").read_text(encoding="utf-8")),
        status=meta["status"],
        content_type=_TYPES.get(file.suffix, "text/plain"),
        body=file.read_bytes(),
        model=(meta.get("models") or [""])[0],
    )


@asynccontextmanager
async def replay_server(replies: Iterable[Recorded]) -> AsyncIterator[FaultyServer]:
    """Serve `replies` in order; one request too many gets 409."""
    left = iter(replies)

    async def answer(connection: Connection) -> None:
        reply = next(left, None)
        status, kind, body = (
            (409, "application/json", b'{"error": {"message": "the recording has ended"}}')
            if reply is None
            else (reply.status, reply.content_type, reply.body)
        )
        await connection.head(status, {"content-type": kind})
        await connection.piece(body)
        await connection.end()

    async with faulty_server(answer) as server:
        yield server
