"""Chat Completions: the decoder of one reply.

Text and reasoning are closed when the other begins. Tool calls stay open until the answer is known
to be complete, so that a call in a stream that broke off is never mistaken for a complete one.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from haptera.kernel.blocks.stream_processor.aggregators import GrowingText
from haptera.model.json_types import Json, JsonObject
from haptera.model.stream_parts import (
    PartClosed,
    PartDelta,
    PartOpaque,
    PartOpened,
    StreamFinished,
    StreamOpened,
    StreamPart,
)
from haptera.providers.wire.chat_completions.dialects import CostField
from haptera.providers.wire.chat_completions.reply_assembly import (
    CallAssembler,
    merge_detail,
    text_of_detail,
)
from haptera.providers.wire.chat_completions.reply_format import (
    ERRORS,
    AnswerPiece,
    Choice,
    Delta,
    decode_piece,
    decode_text_piece,
    decode_unusual,
    failed_finish,
    finish_kind,
    is_error,
    read_cost,
    read_usage,
)
from haptera.providers.wire.lenient_decoding import DECODE_ERRORS, as_text, cut_off, decode_lenient
from haptera.providers.wire.protocol import Frame

_Kind: TypeAlias = Literal["text", "reasoning"]
_EMPTY_DELTAS = (Delta(), Delta(content=""))


class ChatDecoder:
    """Decodes one reply of any dialect; `cost` says where the server reports what it billed."""

    def __init__(self, cost: CostField = "none") -> None:
        self._cost: CostField = cost
        self._is_open = False
        self._model = ""
        self._opened_as = ""
        """The name of the model as the opening has it."""
        self._is_ended = False
        self._kind: _Kind | None = None
        """The kind of the open part; None if none is open. `_key` is its key."""
        self._key = ""
        self._expects_text = False
        """Whether the open part is text, and no frame since it began held anything else."""
        self._part_count = 0
        self._calls = CallAssembler()
        self._finish_reason = ""
        self._usage: JsonObject | None = None
        self._reasoning_field = ""
        self._details: list[JsonObject] = []
        """The reasoning details of the open reasoning part."""
        self._detached_details: list[JsonObject] = []
        """Reasoning details that came without any readable reasoning."""
        self._annotations: list[Json] = []
        self._refusal = GrowingText()
        self._audio: JsonObject = {}
        self._executed_tools: dict[int, JsonObject] = {}
        self._extras: JsonObject = {}
        self._extra_content: JsonObject = {}

    def feed(self, frames: Sequence[Frame], out: list[StreamPart]) -> None:
        """Decode `frames` and append their parts to `out`."""
        for frame in frames:
            if self._is_ended:
                return
            if self._expects_text:
                try:
                    # A decoder that refuses everything but text is faster than looking at each
                    # field of a frame.
                    text = decode_text_piece(frame.data).choices[0].delta.content
                except DECODE_ERRORS:
                    text, self._expects_text = "", False
                if text:
                    out.append(PartDelta(self._key, text))
                    continue
            self._take_frame(frame, out)

    def finish(self) -> list[StreamPart]:
        """Return the last parts of the answer; STREAM_INTERRUPTED if it has no finish reason."""
        if self._is_ended:
            return []
        if not self._finish_reason:
            raise cut_off("The provider's stream ended before the answer did.")
        failure = failed_finish(self._finish_reason)
        if failure is not None:
            raise failure
        self._is_ended = True
        out: list[StreamPart] = []
        if not self._is_open:
            self._open(out)
        self._close_part(out)
        has_calls = self._calls.close(out)
        out.extend(PartOpaque(payload=payload) for payload in self._opaque_payloads())
        out.append(
            StreamFinished(
                kind=finish_kind(
                    self._finish_reason, has_calls=has_calls, is_refused=bool(self._refusal.length)
                ),
                reason=self._finish_reason,
                usage=read_usage(self._usage),
                cost=read_cost(self._usage, self._cost),
                native=self._native(),
                # A name that came after the opening is told at the end.
                model="" if self._opened_as else self._model,
            )
        )
        return out

    def resume(self) -> str | None:
        """Return None: servers do not keep a reply that broke off."""
        return None

    def _take_frame(self, frame: Frame, out: list[StreamPart]) -> None:
        """Decode a frame that may hold anything."""
        try:
            piece: AnswerPiece | None = decode_piece(frame.data)
        except DECODE_ERRORS:
            piece = decode_unusual(frame.data)
        # `[DONE]`. Where a server leaves it out, the end of the body completes the answer.
        if piece is None:
            out.extend(self.finish())
        # Groq names the event `error`; OpenRouter sends a piece with a field `error`.
        elif is_error(piece) or frame.event == "error":
            raise ERRORS.error_in_stream(decode_lenient(frame.data))
        else:
            self._take(piece, out)

    def _take(self, piece: AnswerPiece, out: list[StreamPart]) -> None:
        # Some servers begin with frames of their own, without choices, id or model.
        if piece.choices and self._is_open:
            self._take_choices(piece.choices, out)
        elif piece.choices:
            self._model = self._model or piece.model or ""
            self._calls.response_id = self._calls.response_id or piece.id or ""
            # A choice may report an error after content, which is passed on first.
            parts: list[StreamPart] = []
            try:
                self._take_choices(piece.choices, parts)
            finally:
                # Without content there is time to wait for a frame that names the model.
                if parts or self._model:
                    self._open(out)
                out.extend(parts)
        if self._is_open and not self._model:
            self._model = piece.model or ""
        if piece.usage:
            self._usage = piece.usage
        # Groq repeats the usage here. Some of its models have it nowhere else.
        elif piece.x_groq is not None and piece.x_groq.usage:
            self._usage = piece.x_groq.usage
        if piece.citations or piece.search_results:
            self._keep_sources(piece)

    def _open(self, out: list[StreamPart]) -> None:
        self._is_open, self._opened_as = True, self._model
        response_id = self._calls.response_id or None
        out.append(StreamOpened(model=self._model, response_id=response_id))

    def _take_choices(self, choices: Sequence[Choice], out: list[StreamPart]) -> None:
        for choice in choices:
            if not choice.index:
                self._take_choice(choice, out)

    def _take_choice(self, choice: Choice, out: list[StreamPart]) -> None:
        delta = choice.delta
        if choice.message is not None and (delta is None or self._is_nothing(delta)):
            delta = choice.message
        if delta is not None:
            self._take_delta(delta, out)
        if choice.error is not None:
            raise ERRORS.error_in_stream({"error": choice.error})
        if choice.finish_reason:
            self._finish_reason = choice.finish_reason
        if choice.usage:
            self._usage = choice.usage
        if choice.logprobs:
            self._keep_logprobs(choice.logprobs)

    def _is_nothing(self, delta: Delta) -> bool:
        """Whether neither a delta nor any before it has content.

        Some servers send an empty delta beside a complete message. In a stream the message repeats
        what was streamed.
        """
        return delta in _EMPTY_DELTAS and not self._part_count and not self._calls.has_calls

    def _take_delta(self, delta: Delta, out: list[StreamPart]) -> None:
        """Take everything that a delta holds: reasoning, then text, then calls."""
        self._take_reasoning(delta, out)
        if delta.annotations:
            self._annotations.extend(delta.annotations)
        if isinstance(delta.content, str):
            self._say("text", delta.content, out)
        elif delta.content:
            for item in delta.content:
                self._take_item(item, out)
        if delta.refusal:
            self._refusal.add(delta.refusal)
        if delta.tool_calls or delta.function_call is not None:
            self._close_part(out)
            self._calls.take(delta, out, is_finished=bool(self._finish_reason))
        if delta.audio or delta.executed_tools or delta.extra_content:
            self._keep_opaque(delta)

    def _take_reasoning(self, delta: Delta, out: list[StreamPart]) -> None:
        text = delta.reasoning_content or delta.reasoning or ""
        if text:
            self._reasoning_field = "reasoning_content" if delta.reasoning_content else "reasoning"
        # OpenRouter sends the text of the reasoning twice: in `reasoning`, and in the details.
        details = delta.reasoning_details or ()
        for detail in details if not text else ():
            text += text_of_detail(detail)
        self._say("reasoning", text, out)
        joined = self._details if self._kind == "reasoning" else self._detached_details
        for detail in details:
            merge_detail(joined, detail)

    def _take_item(self, item: Json, out: list[StreamPart]) -> None:
        """Take one item of a content array: text, thinking (text or an array), or a citation."""
        if isinstance(item, str):
            self._say("text", item, out)
            return
        if not isinstance(item, dict):
            return
        thinking = item.get("thinking")
        if item.get("type") == "thinking" and thinking is not None:
            self._reasoning_field = "thinking_parts"
            for inner in thinking if isinstance(thinking, list) else [{"text": thinking}]:
                text = inner.get("text") if isinstance(inner, dict) else inner
                self._say("reasoning", text if isinstance(text, str) else "", out)
        elif isinstance(item.get("text"), str):
            self._say("text", item["text"], out)
        else:
            self._annotations.append(item)

    def _say(self, kind: _Kind, text: str, out: list[StreamPart]) -> None:
        if not text:
            return
        if self._kind != kind:
            self._close_part(out)
            self._kind = kind
            self._expects_text = kind == "text"
            self._key = f"{kind}-{self._part_count}"
            self._part_count += 1
            out.append(PartOpened(key=self._key, kind=kind))
        out.append(PartDelta(key=self._key, text=text))

    def _close_part(self, out: list[StreamPart]) -> None:
        if self._kind is None:
            return
        native: JsonObject = {}
        if self._kind == "text" and self._annotations:
            native["annotations"] = self._annotations
            self._annotations = []
        if self._kind == "reasoning":
            if self._reasoning_field:
                native["field"] = self._reasoning_field
            if self._details:
                native["reasoning_details"] = self._details
                self._details = []
        out.append(PartClosed(key=self._key, native=native or None))
        self._kind = None
        self._expects_text = False

    def _keep_sources(self, piece: AnswerPiece) -> None:
        if piece.citations:
            self._extras["citations"] = piece.citations
        if piece.search_results:
            self._extras["search_results"] = piece.search_results

    def _keep_logprobs(self, logprobs: JsonObject) -> None:
        for name, tokens in logprobs.items():
            if isinstance(tokens, list):
                self._extras.setdefault("logprobs", {}).setdefault(name, []).extend(tokens)

    def _keep_opaque(self, delta: Delta) -> None:
        self._extra_content |= delta.extra_content or {}
        for name, value in (delta.audio or {}).items():
            grows = name in {"data", "transcript"} and isinstance(value, str)
            self._audio[name] = as_text(self._audio.get(name)) + value if grows else value
        for position, tool in enumerate(delta.executed_tools or ()):
            # The server sends a tool of its own again when it has run; the last version counts.
            index = tool.get("index")
            self._executed_tools[index if isinstance(index, int) else position] = tool

    def _opaque_payloads(self) -> list[JsonObject]:
        payloads: list[JsonObject] = []
        if self._detached_details:
            payloads.append(
                {"type": "reasoning_details", "reasoning_details": self._detached_details}
            )
        if self._executed_tools:
            tools = list(self._executed_tools.values())
            payloads.append({"type": "executed_tools", "executed_tools": tools})
        if self._refusal.length:
            payloads.append({"type": "refusal", "refusal": self._refusal.whole()})
        if self._audio:
            payloads.append({"type": "audio", "audio": self._audio})
        if self._extra_content:
            payloads.append({"type": "extra_content", "extra_content": self._extra_content})
        return payloads

    def _native(self) -> JsonObject | None:
        native = dict(self._extras)
        if self._annotations:
            native["annotations"] = self._annotations
        if self._refusal.length:
            native["refusal"] = self._refusal.whole()
        return native or None
