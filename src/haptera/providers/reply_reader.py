"""Reply reader: decodes the bytes of an answer into stream parts, one list for each read."""

import asyncio
import contextlib
from collections.abc import Mapping
from types import MappingProxyType

from haptera.model.errors import AgentError, ErrorCode, RequestError
from haptera.model.stream_parts import StreamFinished, StreamPart
from haptera.providers.transport.frames import JsonBodyParser, new_frame_parser
from haptera.providers.transport.protocol import Reply
from haptera.providers.wire.lenient_decoding import cut_off, malformed
from haptera.providers.wire.protocol import Frame, WireProtocol

_BODY_LIMIT = 64 * 1024
"""How many bytes of an error's body are read."""

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_OK = 200


class ReplyReader:
    """Decodes an answer that arrives in one reply, or in several if the connection broke.

    Owns the frame parser, the decoder and two limits that hold for any bytes: the size of the
    answer, and how long the provider may send nothing that belongs to the answer. It does not wait
    for bytes (the client does), so that tests can decode without an event loop.
    """

    def __init__(
        self,
        protocol: WireProtocol,
        headers: Mapping[str, str] = _NO_HEADERS,
        *,
        limit: int | None = None,
        content_seconds: float = float("inf"),
    ) -> None:
        self.is_finished = False
        """Whether the answer is complete."""
        self.silence = 0.0
        """The seconds spent waiting since the last content, without the consumer's own time."""
        self.attempts = 0
        """How many times the rest was requested since the last content."""
        self._protocol = protocol
        self._decoder = protocol.decoder()
        self._limit = float("inf") if limit is None else limit
        self._content_seconds = content_seconds
        self._size = 0
        self.continue_with(headers)

    def continue_with(self, headers: Mapping[str, str]) -> None:
        """Prepare for a reply: the first one, or the rest of one that broke off."""
        self._headers = headers
        self._parser = new_frame_parser(self._protocol.framing, headers.get("content-type", ""))

    def resume(self) -> str | None:
        """Return where the rest of the answer is; see `Decoder.resume`."""
        return self._decoder.resume()

    def take(self, data: bytes, out: list[StreamPart]) -> None:
        """Append the parts that `data` completes to `out`; empty `data` is the end of the body.

        Raises:
            AgentError: what the provider reports, PROTOCOL for what cannot be decoded or is too
                long, STREAM_INTERRUPTED if the body ends before the answer.

        """
        frames: list[Frame] = []
        try:
            if data:
                self._parser.feed(data, frames)
                self._decoder.feed(frames, out)
            else:
                self._end(frames, out)
        except AgentError:
            raise
        except Exception as error:
            # A decoder promises to raise nothing else, whatever the provider sends.
            name = type(error).__name__
            raise malformed(f"sent a reply that could not be read: {name}") from error
        finally:
            # Also after an error: what was decoded before it is content, so the provider was not
            # silent.
            if out:
                self.silence, self.attempts = 0.0, 0
        self.is_finished = bool(out) and type(out[-1]) is StreamFinished
        # After decoding, so that the parts of this read are yielded before the error.
        self._size += len(data)
        if self._size > self._limit:
            raise malformed(f"sent more than {self._limit} bytes in one answer")

    def add_silence(self, seconds: float) -> None:
        """Count a wait that brought no content; raises TIMEOUT if it was too long in all."""
        self.silence += seconds
        if self.silence > self._content_seconds:
            raise self._no_content()

    async def read_in_time(self, reply: Reply) -> bytes:
        """Read from `reply`, but not longer than the provider may be silent."""
        try:
            async with asyncio.timeout(self._content_seconds - self.silence):
                return await reply.read()
        except TimeoutError:
            raise self._no_content() from None

    def _no_content(self) -> RequestError:
        return RequestError(
            ErrorCode.TIMEOUT,
            f"the provider kept the stream open for {self._content_seconds:g} s without content",
            basis="type",
        )

    def _end(self, frames: list[Frame], out: list[StreamPart]) -> None:
        self._parser.flush(frames)
        try:
            self._decode_last(frames, out)
        except AgentError as error:
            is_json = isinstance(self._parser, JsonBodyParser) and self._parser.is_json
            if not is_json or out:
                raise
            # JSON without anything of an answer is the body of an error, whatever its status.
            raise self._protocol.classify(_OK, self._headers, frames[0].data) from error

    def _decode_last(self, frames: list[Frame], out: list[StreamPart]) -> None:
        try:
            self._decoder.feed(frames, out)
        except Exception as error:
            # A last frame that cannot be decoded was cut off, unless it reports an error.
            if isinstance(error, AgentError) and error.code is not ErrorCode.PROTOCOL:
                raise
        if not (out and isinstance(out[-1], StreamFinished)):
            out.extend(self._decoder.finish())
        if not (out and isinstance(out[-1], StreamFinished)):
            raise cut_off("the answer ended without its final event")


async def read_body(reply: Reply, *, seconds: float) -> bytes:
    """Read a short body; what breaks off, is too long or takes longer than `seconds` is cut."""
    body = bytearray()
    # The body is of a reply that failed already, and its status says more than a second failure.
    with contextlib.suppress(AgentError, TimeoutError):
        async with asyncio.timeout(seconds):
            while len(body) < _BODY_LIMIT and (data := await reply.read()):
                body += data
    return bytes(body[:_BODY_LIMIT])
