"""Asking a local model in tests: short requests, whole answers, waiting for real processes."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from haptera.model.ids import MessageId
from haptera.model.messages import UserMessage
from haptera.model.parts import TextPart
from haptera.model.requests import ModelRequest
from haptera.model.stream_parts import PartDelta, StreamPart
from haptera.ports.model_client import ModelClient
from haptera.providers.local.client import LocalModelClient

LONG = "Write a very long story about a lighthouse keeper."


def ask(text: str, **fields: Any) -> ModelRequest:
    """Make a request to SmolLM2 with one prompt."""
    message = UserMessage(id=MessageId("message-1"), parts=(TextPart(text=text),))
    settings: dict[str, Any] = {"model": "smollm2", "max_tokens": 40, "temperature": 0.0}
    return ModelRequest(messages=(message,), **(settings | fields))


async def answer(client: ModelClient, request: ModelRequest) -> list[StreamPart]:
    """Return the whole answer."""
    return [part async for parts in client.stream(request) for part in parts]


def process_of(client: LocalModelClient) -> int | None:
    """Return the id of the process that runs SmolLM2 for a client, if there is one."""
    served = client._served.get("smollm2")
    return None if served is None else served.lease.pid


def text_of(parts: list[StreamPart]) -> str:
    """Join the text of an answer."""
    return "".join(part.text for part in parts if isinstance(part, PartDelta))


async def until(is_so: Callable[[], bool], *, seconds: float = 10.0) -> None:
    """Wait for something in another process; fails when it does not come about."""
    async with asyncio.timeout(seconds):
        while not is_so():
            await asyncio.to_thread(threading.Event().wait, 0.01)


def is_alive(pid: int | None) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    assert pid is not None
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


async def get(client: LocalModelClient, path: str, *, key: str | None = None) -> tuple[int, Any]:
    """Ask the model process itself; returns the status and the decoded body."""
    endpoint = await client._served["smollm2"].lease.endpoint()
    address = urlsplit(endpoint.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(
        f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {endpoint.key if key is None else key}\r\n\r\n".encode()
    )
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), msgspec.json.decode(body)


async def is_generating(client: LocalModelClient) -> bool:
    """Whether the model process works on any answer."""
    _, slots = await get(client, "/slots")
    return any(slot["is_processing"] for slot in slots)
