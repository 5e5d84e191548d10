"""Decodes a recorded reply through the production frame parser, decoder and stream processor."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal, TypeAlias

import msgspec

from haptera.kernel.blocks.stream_processor.processor import AnswerAssembler
from haptera.model.errors import AgentError, ErrorCode
from haptera.model.events import Event
from haptera.model.parts import Part, ReasoningPart, ToolCallPart, text_of
from haptera.model.stream_parts import FinishKind, StreamPart
from haptera.model.usage import Usage
from haptera.providers.reply_reader import ReplyReader
from haptera.providers.wire import (
    anthropic_messages,
    chat_completions,
    gemini,
    ollama,
    openai_responses,
)
from haptera.providers.wire.chat_completions.dialects import DIALECTS, GENERIC
from haptera.providers.wire.gemini.dialects import VERTEX
from haptera.providers.wire.openai_responses import dialects as responses
from haptera.providers.wire.protocol import WireProtocol
from haptera.system.clock import Stamp

PROTOCOLS: dict[str, WireProtocol] = {
    "anthropic-messages": anthropic_messages.PROTOCOL,
    "gemini-generatecontent": gemini.PROTOCOL,
    "vertex-generatecontent": gemini.protocol_for(VERTEX),
    "ollama-native": ollama.PROTOCOL,
    **{
        f"{dialect.name}-chat": chat_completions.protocol_for(dialect)
        for dialect in DIALECTS.values()
    },
    "compat-chat": chat_completions.protocol_for(GENERIC),
    **{
        f"{dialect.name}-responses": openai_responses.protocol_for(dialect)
        for dialect in responses.DIALECTS.values()
    },
    "compat-responses": openai_responses.protocol_for(responses.PLAIN),
}
"""The protocol of each kind of recording: who answered, and in which protocol."""

ReplyOutcome: TypeAlias = Literal["complete", "interrupted", "error_in_stream", "error"]
"""Whole; broken off; a failure told inside a reply that began well; refused from the start."""

_OK = 200
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class DecodedReply(msgspec.Struct, frozen=True, kw_only=True):
    """What Haptera makes of a reply."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallPart, ...] = ()
    """The complete calls; one whose arguments are not JSON is marked `invalid`.

    None of an answer that was interrupted: it is not known whether it would have ended with them.
    """
    stop_reason: str | None = None
    """The provider's own word."""
    finish: FinishKind | None = None
    usage: Usage = Usage()
    outcome: ReplyOutcome
    error: AgentError | None = None
    parts: tuple[Part, ...] = ()
    model: str = ""
    response_id: str | None = None


def decode_reply(
    api: str,
    body: bytes,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    chunk_size: int | None = None,
) -> DecodedReply:
    """Decode `body`, handed over in pieces of `chunk_size` bytes, as if it came from a provider.

    `api` is the kind of recording, one of `PROTOCOLS`.
    """
    protocol = PROTOCOLS[api]
    lowered = {name.lower(): value for name, value in (headers or {}).items()}
    if status != _OK:
        return DecodedReply(outcome="error", error=protocol.classify(status, lowered, body))
    size = chunk_size or len(body) or 1
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return decode_pieces(protocol, pieces, lowered)


def decode_pieces(
    protocol: WireProtocol, pieces: Sequence[bytes], headers: Mapping[str, str] = _NO_HEADERS
) -> DecodedReply:
    """Decode a reply that arrives in `pieces`, each of them one read."""
    answer = AnswerAssembler(stamp=Stamp(_StoppedClock()), provider=protocol.name, model="")
    reader = ReplyReader(protocol, headers)
    error: AgentError | None = None
    # An empty piece is the end of the reply.
    for piece in (*pieces, b""):
        parts: list[StreamPart] = []
        events: list[Event] = []
        try:
            reader.take(piece, parts)
        except AgentError as raised:
            error = raised
        # After an error, too: what was decoded before it is part of the answer.
        answer.feed(parts, events)
        error = error or answer.failure
        if error or reader.is_finished:
            break
    answer.close([])
    finished, opened = answer.finished, answer.opened
    outcome = _outcome(error)
    calls = tuple(part for part in answer.parts if isinstance(part, ToolCallPart))
    return DecodedReply(
        text=text_of(tuple(answer.parts)),
        reasoning="".join(part.text for part in answer.parts if isinstance(part, ReasoningPart)),
        tool_calls=() if outcome == "interrupted" else calls,
        stop_reason=finished.reason or None if finished else None,
        finish=finished.kind if finished else None,
        usage=finished.usage if finished else Usage(),
        outcome=outcome,
        error=error,
        parts=tuple(answer.parts),
        model=opened.model if opened else "",
        response_id=opened.response_id if opened else None,
    )


def _outcome(error: AgentError | None) -> ReplyOutcome:
    if error is None:
        return "complete"
    # A provider may say itself that it gave up; otherwise we saw it by the kind of the end.
    is_cut = error.code is ErrorCode.STREAM_INTERRUPTED and error.basis == "type"
    return "interrupted" if is_cut else "error_in_stream"


class _StoppedClock:
    """A clock for entries that are not kept."""

    def now(self) -> float:
        return 0.0

    def time_ms(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        pass
