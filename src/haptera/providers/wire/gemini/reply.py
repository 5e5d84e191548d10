"""Gemini generateContent: the decoder of one reply.

There is no last event: an answer is complete if its body ends after a finish reason, and more text
may follow one. A signature can be on any part and must be sent back on the same one. So a part with
a signature is never joined with its neighbours, and one that has only a signature is opaque.
"""

import hashlib
from collections.abc import Sequence

import msgspec
from msgspec.structs import asdict, replace

from haptera.model.json_types import Json, JsonObject, objects_in
from haptera.model.parts import PartKind
from haptera.model.stream_parts import (
    FinishKind,
    PartClosed,
    PartDelta,
    PartOpaque,
    PartOpened,
    StreamFinished,
    StreamOpened,
    StreamPart,
)
from haptera.model.usage import Usage
from haptera.providers.wire.gemini.reply_format import (
    ERRORS,
    Candidate,
    ContentPart,
    FunctionCall,
    Reply,
    UsageMetadata,
    put_argument,
)
from haptera.providers.wire.lenient_decoding import (
    DECODE_ERRORS,
    convert_leniently,
    cut_off,
    decode_lenient,
)
from haptera.providers.wire.protocol import Frame

_decode = msgspec.json.Decoder(Reply).decode

_FINISH: dict[str, FinishKind] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(
        (
            *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE"),
            *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "MODEL_ARMOR"),
        ),
        "refusal",
    ),
}


class GeminiDecoder:
    """Decodes one reply; implements `Decoder`."""

    def __init__(self) -> None:
        self._out: list[StreamPart] = []
        self._is_open = False
        self._opened_as = ""
        """The name of the model as the opening has it; `_late_model` is one that came later."""
        self._late_model = ""
        self._count = 0
        self._open: PartOpened | None = None
        self._arguments: JsonObject | None = None
        """The arguments of the open call, as far as they have arrived; None between calls."""
        self._call_native: JsonObject = {}
        self._has_calls = False
        self._sources: JsonObject = {}
        self._reason: str | None = None
        self._blocked: str | None = None
        self._usage = UsageMetadata()
        self._identity = ""
        """What the ids of calls are made from: the response's id, or the first frame."""
        self._response_id: str | None = None

    def feed(self, frames: Sequence[Frame], out: list[StreamPart]) -> None:
        """Decode `frames` and append their parts to `out`."""
        self._out = out
        for frame in frames:
            try:
                reply = _decode(frame.data)
            except DECODE_ERRORS:
                self._feed_leniently(frame)
            else:
                self._on_reply(reply, frame.data)

    def finish(self) -> Sequence[StreamPart]:
        """Return the last parts of the answer; STREAM_INTERRUPTED if it has no finish reason."""
        out = self._out = []
        if self._reason is None and self._blocked is None:
            raise cut_off("the stream ended without a finish reason")
        if not self._is_open:
            self._open_stream("")
        self._end_call(is_cut=True)
        self._close()
        kind = _FINISH.get(self._reason or "", "other") if self._blocked is None else "refusal"
        # There is no finish reason of its own for calls.
        if kind == "stop" and self._has_calls:
            kind = "tool_calls"
        out.append(
            StreamFinished(
                kind=kind,
                reason=self._blocked or self._reason or "",
                usage=_read_usage(self._usage),
                native=self._sources or None,
                model=self._late_model,
            )
        )
        return out

    def resume(self) -> str | None:
        """Return None: the provider does not keep a reply that broke off."""
        return None

    def _feed_leniently(self, frame: Frame) -> None:
        """Decode a frame that is an array of replies, or has fields of the wrong type."""
        if frame.data.strip() == b"[DONE]":
            return
        value = decode_lenient(frame.data)
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, dict):
                self._on_reply(convert_leniently(each, Reply), msgspec.json.encode(each))

    def _on_reply(self, reply: Reply, data: bytes) -> None:
        if bytes(reply.error):
            raise ERRORS.error_in_stream(decode_lenient(data))
        if not self._is_open:
            self._identity = self._identity or reply.response_id or _hash_of(data)
            self._response_id = self._response_id or reply.response_id
            # Without content there is time to wait for a frame that names the model.
            if reply.model_version or reply.candidates:
                self._open_stream(reply.model_version or "")
        elif reply.model_version and not self._opened_as:
            self._late_model = reply.model_version
        if (usage := reply.usage_metadata) is not None:
            # Each frame has the counts so far. One without a prompt count has only what has
            # changed.
            is_whole = usage.prompt_token_count is not None
            self._usage = usage if is_whole else _later_usage(self._usage, usage)
        if reply.prompt_feedback is not None:
            self._blocked = reply.prompt_feedback.block_reason or self._blocked
        if reply.candidates:
            self._on_candidate(reply.candidates[0], data)

    def _open_stream(self, model: str) -> None:
        self._is_open, self._opened_as = True, model
        self._out.append(StreamOpened(model=model, response_id=self._response_id))

    def _on_candidate(self, candidate: Candidate, data: bytes) -> None:
        self._reason = candidate.finish_reason or self._reason
        if candidate.grounding_metadata:
            self._sources["groundingMetadata"] = candidate.grounding_metadata
        if candidate.url_context_metadata:
            self._sources["urlContextMetadata"] = candidate.url_context_metadata
        if candidate.citation_metadata:
            self._sources["citationMetadata"] = candidate.citation_metadata
        parts = candidate.content.parts if candidate.content is not None else None
        for index, part in enumerate(parts or ()):
            if part.function_call is not None:
                self._on_call(part.function_call, part.thought_signature)
            elif part.text is not None:
                self._on_text(part, part.text)
            else:
                self._on_opaque(_part_at(data, index))

    # Text and thoughts

    def _on_text(self, part: ContentPart, text: str) -> None:
        kind: PartKind = "reasoning" if part.thought else "text"
        if part.thought_signature is None:
            if text:
                opened = self._open
                if opened is None or opened.kind != kind:
                    opened = self._begin(kind)
                self._out.append(PartDelta(key=opened.key, text=text))
            return
        self._close()
        if not text:
            # Gemini may sign an empty part at the end, which has to be sent back as it is.
            self._out.append(PartOpaque(payload=msgspec.to_builtins(_bare(part))))
            return
        self._out.append(PartDelta(key=self._begin(kind).key, text=text))
        self._close(part.thought_signature)

    def _begin(self, kind: PartKind) -> PartOpened:
        self._end_call()
        self._close()
        opened = self._open = PartOpened(key=self._next_key(), kind=kind)
        self._out.append(opened)
        return opened

    def _close(self, signature: str | None = None) -> None:
        """Close the open text or reasoning; a text gets the sources that are known so far."""
        if (part := self._open) is None:
            return
        self._open = None
        if part.kind == "reasoning":
            self._out.append(PartClosed(key=part.key, signature=signature))
            return
        native: JsonObject = dict(self._sources)
        if signature is not None:
            native["thoughtSignature"] = signature
        self._out.append(PartClosed(key=part.key, native=native or None))

    def _next_key(self) -> str:
        self._count += 1
        return str(self._count)

    def _on_opaque(self, payload: JsonObject) -> None:
        if payload:
            self._end_call()
            self._close()
            self._out.append(PartOpaque(payload=payload))

    # Calls

    def _on_call(self, call: FunctionCall, signature: str | None) -> None:
        if call.name:
            self._begin_call(call, signature)
        elif signature is not None:
            self._call_native["thoughtSignature"] = signature
        if self._arguments is None:
            return
        if not isinstance(call.args, dict | None):
            self._refuse_arguments(call.args)
            return
        self._arguments |= call.args or {}
        for piece in call.partial_args or ():
            put_argument(self._arguments, piece)
        if not call.will_continue:
            self._end_call()

    def _begin_call(self, call: FunctionCall, signature: str | None) -> None:
        self._end_call()
        self._close()
        self._has_calls = True
        self._arguments = {}
        self._call_native = {"thoughtSignature": signature} if signature else {}
        if call.id:
            self._call_native["id"] = call.id
        key = self._next_key()
        # Not all models send ids. The same bytes give the same id, at every decoding.
        call_id = call.id or f"call_{self._identity}_{key}"
        opened = PartOpened(key=key, kind="tool_call", call_id=call_id, name=call.name)
        self._out.append(opened)
        self._open = opened

    def _refuse_arguments(self, given: Json) -> None:
        """End a call whose arguments are not an object: with that value, so that it never runs."""
        if self._open is not None:
            key, self._open, self._arguments = self._open.key, None, None
            self._out.append(PartDelta(key=key, text=msgspec.json.encode(given).decode()))
            self._out.append(PartClosed(key=key, native=self._call_native or None))

    def _end_call(self, *, is_cut: bool = False) -> None:
        """End the open call; the arguments of one that was cut off must not be valid JSON."""
        if self._arguments is None or self._open is None:
            return
        key, self._open = self._open.key, None
        text = msgspec.json.encode(self._arguments).decode()
        self._arguments = None
        # Without its last brace the text is no JSON, so the call cannot be run.
        self._out.append(PartDelta(key=key, text=text[:-1] if is_cut else text))
        self._out.append(PartClosed(key=key, native=self._call_native or None))


def _hash_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _later_usage(known: UsageMetadata, later: UsageMetadata) -> UsageMetadata:
    """Return counts with those of a later frame, which has no prompt count, in their place."""
    counts = {name: value for name, value in asdict(later).items() if value is not None}
    return replace(known, **counts)


def _read_usage(usage: UsageMetadata) -> Usage:
    """Return inclusive totals."""
    thoughts = usage.thoughts_token_count or 0
    return Usage(
        input=(usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0),
        output=(usage.candidates_token_count or 0) + thoughts,
        cache_read=usage.cached_content_token_count or 0,
        reasoning=thoughts,
    )


def _bare(part: ContentPart) -> JsonObject:
    """Return a part that has a signature and no text, as it was received."""
    bare: JsonObject = {"text": "", "thoughtSignature": part.thought_signature}
    return bare | ({"thought": True} if part.thought else {})


def _part_at(data: bytes, index: int) -> JsonObject:
    """Return a part as it was received; values that are not objects were not counted as parts."""
    # The typed decoder drops what is not declared. Such parts are rare enough to decode them again.
    candidate = objects_in(decode_lenient(data)["candidates"])[0]
    return objects_in(candidate["content"]["parts"])[index]
