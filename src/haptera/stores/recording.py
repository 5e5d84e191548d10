"""Records what a model client answers into a file that can be replayed without it.

A recording is a file of JSON lines. The first says which format and version it is and which
provider answered; each other line is one exchange: a request, its digest, and what was read in
answer, with the seconds that passed before each read. Ids and time limits are left out of the
request: they differ from one session to the next and mean nothing to a model.
"""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from haptera.model.canonical import json_digest
from haptera.model.errors import AgentError, ConfigError, ErrorCode, ErrorReport, StoreError
from haptera.model.json_types import Json, JsonObject
from haptera.model.own_name import FORMER_NAME
from haptera.model.requests import ModelRequest, TokenCount
from haptera.model.stream_parts import (
    PartClosed,
    PartDelta,
    PartOpaque,
    PartOpened,
    StreamFinished,
    StreamOpened,
    StreamPart,
)
from haptera.ports.model_client import ModelClient
from haptera.system.clock import Clock
from haptera.system.private_files import open_or_create, translated_os_errors

_T = TypeVar("_T")

RECORDING_FORMAT = "haptera.recording"
_FORMATS = frozenset({RECORDING_FORMAT, f"{FORMER_NAME}.recording"})
"""What a file that can be read says that it is."""
RECORDING_VERSION = 1

_PART_TYPES: dict[str, type[StreamPart]] = {
    "stream_opened": StreamOpened,
    "part_opened": PartOpened,
    "part_delta": PartDelta,
    "part_closed": PartClosed,
    "part_opaque": PartOpaque,
    "stream_finished": StreamFinished,
}
_PART_NAMES = {kind: name for name, kind in _PART_TYPES.items()}
_NOT_SENT = ("timeouts", "reply_bytes", "fresh_media", "cache_ttl", "caches_tail")
"""What a request holds that its client reads and no model sees."""
_NOT_SAID = ("id", "query_id", "turn_id", "time", "usage", "cost", "stop_reason")
"""What a message holds that a model does not see and that is new in every session."""


class RecordingHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a recording."""

    format: str
    version: int
    provider: str


class Read(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came in one read, and the seconds before it."""

    delay: float
    parts: tuple[JsonObject, ...]


class Exchange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request and everything that came of it."""

    digest: str
    request: JsonObject
    reads: tuple[Read, ...] = ()
    ended: Literal["finished", "failed", "closed"] = "finished"
    """`closed` when the consumer stopped before the end of the answer, as an abort does."""
    delay: float = 0.0
    """Seconds between the last read and the end."""
    error: ErrorReport | None = None
    tokens: TokenCount | None = None
    """Set when the request was to count, not to answer."""


class RecordingClient:
    """Passes requests on to another client and writes down what it answers.

    Owns the file. Each exchange is added to it when it ends; a recording of several sessions at
    once holds their exchanges in the order in which they ended.
    """

    def __init__(self, inner: ModelClient, path: str | Path, *, clock: Clock | None = None) -> None:
        self._inner = inner
        self._path = Path(path)
        self._now = clock.now if clock is not None else _loop_seconds
        # Exchanges of several sessions end at the same time, in different threads.
        self._lock = threading.Lock()

    @property
    def provider(self) -> str:
        """The name of the provider that is recorded."""
        return self._inner.provider

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        """Answer as the other client does."""
        # Before each request, not once: the file may have been moved away since, and a new one
        # needs its header.
        await asyncio.to_thread(self._begin)
        reads: list[Read] = []
        # It stays `closed` when the consumer stops or is cancelled: neither raises an AgentError
        # here.
        ended: Literal["finished", "failed", "closed"] = "closed"
        error: AgentError | None = None
        last = self._now()
        try:
            async with aclosing(self._inner.stream(request)) as answer:
                async for parts in answer:
                    now = self._now()
                    reads.append(Read(delay=now - last, parts=tuple(map(encode_part, parts))))
                    last = now
                    yield parts
            ended = "finished"
        except AgentError as caught:
            ended, error = "failed", caught
            raise
        finally:
            # Also for a consumer that left: a replay has to end where it did.
            sent = plain_request(request)
            exchange = Exchange(
                digest=json_digest(sent),
                request=sent,
                reads=tuple(reads),
                ended=ended,
                delay=self._now() - last,
                error=None if error is None else error.report,
            )
            await asyncio.to_thread(self._add, exchange)

    async def count_tokens(self, request: ModelRequest) -> TokenCount:
        """Count as the other client does."""
        await asyncio.to_thread(self._begin)
        tokens = await self._inner.count_tokens(request)
        sent = plain_request(request)
        exchange = Exchange(digest=json_digest(sent), request=sent, tokens=tokens)
        await asyncio.to_thread(self._add, exchange)
        return tokens

    async def close(self) -> None:
        """Close the other client; the file is complete already."""
        await self._inner.close()

    def _begin(self) -> None:
        """Create the file if it is missing. A request that cannot be recorded is not sent."""
        with self._lock, translated_os_errors(self._path):
            descriptor = open_or_create(self._path, os.O_WRONLY | os.O_APPEND)
            with os.fdopen(descriptor, "ab") as file:
                if not file.tell():
                    header = RecordingHeader(
                        format=RECORDING_FORMAT, version=RECORDING_VERSION, provider=self.provider
                    )
                    file.write(msgspec.json.encode(header) + b"\n")

    def _add(self, exchange: Exchange) -> None:
        with self._lock, translated_os_errors(self._path), self._path.open("ab") as file:
            file.write(msgspec.json.encode(exchange) + b"\n")


def _loop_seconds() -> float:
    return asyncio.get_running_loop().time()


def read_recording(path: Path) -> tuple[str, tuple[Exchange, ...]]:
    """Read a recording: the provider's name, and the exchanges in their order.

    Raises:
        ConfigError: CONFIG_MISSING when there is no such file.
        StoreError: VERSION_UNSUPPORTED for a later version, CORRUPT for what cannot be read.

    """
    try:
        first, *rest = path.read_bytes().splitlines() or [b""]
    except FileNotFoundError as error:
        raise ConfigError(ErrorCode.CONFIG_MISSING, f"there is no recording {path}") from error
    header = _decode(first, RecordingHeader, f"line 1 of {path}")
    if header.format not in _FORMATS:
        raise StoreError(ErrorCode.CORRUPT, f"{path} is not a recording")
    if header.version > RECORDING_VERSION:
        raise StoreError(
            ErrorCode.VERSION_UNSUPPORTED,
            f"{path} is a recording of version {header.version}; "
            f"this version reads {RECORDING_VERSION}",
        )
    exchanges = tuple(
        _comparable(_decode(line, Exchange, f"line {number} of {path}"))
        for number, line in enumerate(rest, start=2)
    )
    return header.provider, exchanges


def _decode(line: bytes, kind: type[_T], where: str) -> _T:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError as error:
        raise StoreError(ErrorCode.CORRUPT, f"{where} cannot be read: {error}") from error


def plain_request(request: ModelRequest) -> JsonObject:
    """Return what a request says to a model, as plain JSON."""
    # Through JSON, so that it has lists and not tuples, as a request that is read from a file has.
    plain: JsonObject = msgspec.json.decode(msgspec.json.encode(request))
    for name in _NOT_SENT:
        plain.pop(name, None)
    for message in plain["messages"]:
        for name in _NOT_SAID:
            message.pop(name, None)
        for part in message["parts"]:
            part.pop("id", None)
    return plain


def _comparable(exchange: Exchange) -> Exchange:
    """Return an exchange without what earlier versions wrote down and no model sees."""
    seen = {name: value for name, value in exchange.request.items() if name not in _NOT_SENT}
    if len(seen) == len(exchange.request):
        return exchange
    return msgspec.structs.replace(exchange, request=seen, digest=json_digest(seen))


def first_difference(recorded: Json, sent: Json) -> str | None:
    """Say where two plain requests differ first, or None when they do not."""
    return next(_differences(recorded, sent, "request"), None)


def _differences(recorded: Json, sent: Json, path: str) -> Iterator[str]:
    match recorded, sent:
        case dict(), dict():
            for name in sorted(recorded.keys() | sent.keys()):
                if name in recorded and name in sent:
                    yield from _differences(recorded[name], sent[name], f"{path}.{name}")
                else:
                    yield f"{path}.{name} is only in what was " + (
                        "sent" if name in sent else "recorded"
                    )
        case list(), list():
            for number, (before, now) in enumerate(zip(recorded, sent, strict=False)):
                # Items come before lengths: the first one that differs says where.
                yield from _differences(before, now, f"{path}[{number}]")
            if len(recorded) != len(sent):
                yield f"{path} has {len(recorded)} items in the recording, {len(sent)} now"
        case _ if recorded != sent:
            yield f"{path}: recorded {recorded!r:.120}, sent {sent!r:.120}"


def encode_part(part: StreamPart) -> JsonObject:
    """Write a stream part as plain JSON."""
    fields: JsonObject = msgspec.to_builtins(part)
    return {"part": _PART_NAMES[type(part)]} | fields


def decode_part(plain: JsonObject) -> StreamPart:
    """Read a stream part from plain JSON."""
    fields = dict(plain)
    return msgspec.convert(fields, _PART_TYPES[fields.pop("part")])
