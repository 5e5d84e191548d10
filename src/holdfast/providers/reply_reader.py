"""Reads one reply: bytes to frames to stream parts, one list for each read."""

import asyncio
import contextlib
from collections.abc import Mapping
from types import MappingProxyType

from holdfast.providers.transport.frames import new_frame_parser
from holdfast.providers.transport.json_body import JsonBodyParser
from holdfast.providers.transport.protocol import Reply
from holdfast.providers.wire.protocol import Frame, WireProtocol
from holdfast.vocabulary.errors import AgentError, ErrorCode, ProviderError, RequestError
from holdfast.vocabulary.stream_parts import StreamFinished, StreamPart

BODY_LIMIT = 64 * 1024
"""How much of an error's body is looked at."""

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_OK = 200


class ReplyDecoder:
    """The pure half: takes the bytes of one reply and gives its parts.

    Owns the frame parser and the decoder of this reply. Does not wait for anything.
    """

    def __init__(self, protocol: WireProtocol, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        self.is_finished = False
        self._protocol = protocol
        self._decoder = protocol.decoder()
        self.go_on(headers)

    def go_on(self, headers: Mapping[str, str]) -> None:
        """Get ready for the bytes of a reply, the first one or the rest of a broken one."""
        self._headers = headers
        self._parser = new_frame_parser(self._protocol.framing, headers.get("content-type", ""))

    def resume(self) -> str | None:
        """Say where the rest of a broken reply is; see `Decoder.resume`."""
        return self._decoder.resume()

    def take(self, data: bytes, out: list[StreamPart]) -> None:
        """Append the parts that `data` completes to `out`."""
        frames: list[Frame] = []
        self._parser.feed(data, frames)
        self._decode(frames, out)
        self.is_finished = bool(out) and isinstance(out[-1], StreamFinished)

    def end(self, out: list[StreamPart]) -> None:
        """Take note that the body ended; raises STREAM_INTERRUPTED if the answer did not."""
        frames: list[Frame] = []
        self._parser.flush(frames)
        try:
            self._finish(frames, out)
        except AgentError as error:
            is_json = isinstance(self._parser, JsonBodyParser) and self._parser.is_json
            if not is_json or out:
                raise
            # JSON that holds nothing of an answer is an error's body, whatever its status.
            raise self._protocol.classify(_OK, self._headers, frames[0].data) from error
        self.is_finished = True

    def _decode(self, frames: list[Frame], out: list[StreamPart]) -> None:
        """Decode frames; a decoder that stumbles over one has not understood the provider."""
        try:
            self._decoder.feed(frames, out)
        except AgentError:
            raise
        except Exception as error:
            raise ProviderError(
                ErrorCode.PROTOCOL,
                f"the provider's reply could not be read: {type(error).__name__}",
                basis="type",
            ) from error

    def _finish(self, frames: list[Frame], out: list[StreamPart]) -> None:
        try:
            self._decode(frames, out)
        except AgentError as error:
            # A last frame that makes no sense was cut off, unless it says what went wrong.
            if error.code is not ErrorCode.PROTOCOL:
                raise
        if not (out and isinstance(out[-1], StreamFinished)):
            self._decoder.finish(out)
        if not (out and isinstance(out[-1], StreamFinished)):
            raise RequestError(
                ErrorCode.STREAM_INTERRUPTED, "the answer ended without its end", basis="type"
            )


class ReplyReader:
    """Reads an answer until it is complete or has failed, from one reply or from several.

    Owns two bounds that hold for any bytes: `content_seconds` is the longest wait for something
    that is part of the answer, however often something else comes meanwhile, and `limit` is how
    many bytes there may be in all.
    """

    def __init__(
        self,
        protocol: WireProtocol,
        reply: Reply,
        *,
        content_seconds: float,
        limit: int | None = None,
    ) -> None:
        self.failure: AgentError | None = None
        """What ended the reply early; it counts after the parts that came with it."""
        self.attempts = 0
        """How often the rest was asked for since something came."""
        self._reply = reply
        self._decoder = ReplyDecoder(protocol, reply.headers)
        self._content_seconds = content_seconds
        self._limit = limit
        self._size = 0
        self._clock = asyncio.get_running_loop().time
        self._silence = 0.0
        """Seconds that were waited for content; what a consumer does between reads is not in it."""

    @property
    def is_finished(self) -> bool:
        """Whether the answer is complete."""
        return self._decoder.is_finished

    def resume(self) -> str | None:
        """Say where the rest of the broken reply is; None if the provider does not keep it."""
        return self._decoder.resume()

    def go_on(self, reply: Reply) -> None:
        """Read on from `reply`, which begins where the one before it broke off."""
        self._reply = reply
        self._decoder.go_on(reply.headers)
        self.failure = None

    async def next_parts(self) -> list[StreamPart]:
        """Wait for more of the reply and return its parts; there may be none."""
        out: list[StreamPart] = []
        began = self._clock()
        try:
            if data := await self._read():
                self._decoder.take(data, out)
                self._count(data)
            else:
                self._decoder.end(out)
            self._note_content(out, waited=self._clock() - began)
        except AgentError as error:
            self.failure = error
        if out:
            self.attempts = 0
        return out

    async def _read(self) -> bytes:
        """Wait for bytes, but no longer than content may take."""
        if not self._silence:
            return await self._reply.read()
        try:
            async with asyncio.timeout(self._content_seconds - self._silence):
                return await self._reply.read()
        except TimeoutError:
            raise self._no_content() from None

    def _count(self, data: bytes) -> None:
        """Refuse a reply that goes on and on, whatever it consists of."""
        self._size += len(data)
        if self._limit is not None and self._size > self._limit:
            raise ProviderError(
                ErrorCode.PROTOCOL,
                f"the provider sent more than {self._limit} bytes in one answer",
                basis="type",
            )

    def _note_content(self, out: list[StreamPart], *, waited: float) -> None:
        """Tell a provider that keeps the line open from one that answers."""
        self._silence = 0.0 if out else self._silence + waited
        if self._silence > self._content_seconds:
            raise self._no_content()

    def _no_content(self) -> RequestError:
        return RequestError(
            ErrorCode.TIMEOUT,
            f"the provider kept the line open for {self._content_seconds:g} s without content",
            basis="type",
        )


async def read_body(reply: Reply, *, seconds: float, limit: int = BODY_LIMIT) -> bytes:
    """Read a short body; what breaks off, is too long or takes longer than `seconds` is cut."""
    body = bytearray()
    # The status says more than a second failure would.
    with contextlib.suppress(AgentError, TimeoutError):
        async with asyncio.timeout(seconds):
            while len(body) < limit and (data := await reply.read()):
                body += data
    return bytes(body[:limit])
