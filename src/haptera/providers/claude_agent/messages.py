"""MessageDecoder: the lines of the Claude Code CLI in, native messages out. Pure; one per process.

An answer comes twice: in pieces (`stream_event`, the events of the Messages API) and whole
(`assistant`, one frame for each block). The pieces are used where there are any; the whole message
where there are none, as after a failed stream that the CLI repeats without streaming.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import ClassVar, Literal

import msgspec

from haptera.model.json_types import Json, JsonObject
from haptera.model.native_messages import (
    NativeAnswer,
    NativeBoundary,
    NativeMessage,
    NativeNotice,
    NativeReset,
    NativeResult,
    NativeRetry,
    NativeStarted,
    NativeSubagent,
    NativeToolResult,
)
from haptera.model.parts import MediaPart, ResultContent, TextPart
from haptera.model.stream_parts import PartOpened, StreamFinished, StreamPart
from haptera.providers.claude_agent.frames import (
    AgentMessage,
    MessageFrame,
    ResultFrame,
    SystemFrame,
    decode_line,
    own_name,
    read_head,
    read_stream_frame,
)
from haptera.providers.wire.anthropic_messages.reply import MessagesDecoder
from haptera.providers.wire.anthropic_messages.reply_format import WireUsage, read_usage
from haptera.providers.wire.lenient_decoding import as_text, convert_leniently
from haptera.providers.wire.protocol import Frame

_SYNTHETIC = "<synthetic>"
"""The model of answers that the CLI made up."""
_ENDED = frozenset({"completed", "failed", "stopped", "killed"})
_OTHER_FACTS = frozenset({"type", "subtype", "session_id", "uuid"})
"""What each line has, and no fact of how the CLI runs."""
_encode = msgspec.json.encode


class _Streamed:
    """An answer that comes in pieces."""

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        self.decoder = MessagesDecoder()


class _Whole:
    """An answer that comes as whole blocks; it ends with the next frame that is not its own."""

    def __init__(self, message: AgentMessage) -> None:
        self.message_id = message.id or ""
        self.decoder = MessagesDecoder()
        self.stop_reason = message.stop_reason
        self.has_calls = False
        self.blocks = 0
        start = {"id": message.id, "model": message.model, "usage": message.usage or {}}
        self._head: JsonObject | None = {"type": "message_start", "message": start}

    def take(self, message: AgentMessage, out: list[StreamPart]) -> None:
        """Add the blocks of one frame."""
        events: list[JsonObject] = [] if self._head is None else [self._head]
        self._head = None
        for block in message.content if isinstance(message.content, list) else ():
            if isinstance(block, dict):
                self.has_calls = self.has_calls or block.get("type") == "tool_use"
                index = self.blocks
                self.blocks += 1
                events.append(
                    {"type": "content_block_start", "index": index, "content_block": block}
                )
                events.append({"type": "content_block_stop", "index": index})
        self.stop_reason = message.stop_reason or self.stop_reason
        usage = {"type": "message_delta", "delta": {}, "usage": message.usage or {}}
        self.decoder.feed([Frame(_encode(event)) for event in (*events, usage)], out)

    def finish(self, out: list[StreamPart]) -> None:
        """End the answer."""
        reason = self.stop_reason or ("tool_use" if self.has_calls else "end_turn")
        end = {"type": "message_delta", "delta": {"stop_reason": reason}}
        frames = [Frame(_encode(event)) for event in (end, {"type": "message_stop"})]
        self.decoder.feed(frames, out)


class MessageDecoder:
    """Decodes the lines of one process."""

    def __init__(self) -> None:
        self._streams: dict[str | None, _Streamed] = {}
        self._streamed_ids: set[str] = set()
        self._whole: dict[str | None, _Whole] = {}
        self._error: str | None = None
        self._session_id: str | None = None

    def feed(self, line: bytes) -> list[NativeMessage]:
        """Decode one line.

        Raises:
            ProviderError: PROTOCOL when it is no message at all.

        """
        out: list[NativeMessage] = []
        head = read_head(line)
        if head.type == "stream_event":
            self._take_event(line, out)
        elif (step := self._steps.get(head.type)) is not None:
            step(self, decode_line(line), out)
        if head.session_id and head.session_id != self._session_id and head.type != "result":
            self._note_session(head.session_id, out)
        return out

    def _note_session(self, session_id: str, out: list[NativeMessage]) -> None:
        """Report an id that changes without an `init` frame, as after a reset."""
        if self._session_id is not None and not any(isinstance(m, NativeStarted) for m in out):
            out.append(NativeStarted(session_id=session_id))
        self._session_id = session_id

    def _take_event(self, line: bytes, out: list[NativeMessage]) -> None:
        frame = read_stream_frame(line)
        parent, parts = frame.parent_tool_use_id, list[StreamPart]()
        stream = self._streams.get(parent)
        message_id = frame.api_message_id or ""
        # Nearly all events are deltas. They are decoded once, by the decoder, and not for their
        # type here.
        if b'"message_start"' in bytes(frame.event)[:200]:
            self._finish_whole(parent, out)
            start: Json = msgspec.json.decode(frame.event)
            head = start.get("message") if isinstance(start, dict) else None
            named = as_text(head.get("id")) if isinstance(head, dict) else ""
            stream = self._streams[parent] = _Streamed(named or message_id)
            self._streamed_ids.add(stream.message_id)
        if stream is None:
            return
        stream.decoder.feed([Frame(bytes(frame.event))], parts)
        if parts:
            out.append(_answer(stream.message_id, parts, parent))
            if isinstance(parts[-1], StreamFinished):
                self._streams.pop(parent, None)

    def _take_answer(self, frame: JsonObject, out: list[NativeMessage]) -> None:
        decoded = convert_leniently(frame, MessageFrame)
        message, parent = decoded.message or AgentMessage(), decoded.parent_tool_use_id
        if decoded.error or message.model == _SYNTHETIC:
            self._error = decoded.error or self._error
            facts = {"error": decoded.error, "text": _text_in(message.content)}
            out.append(NativeNotice(name="api_error", facts=facts))
            return
        if message.id in self._streamed_ids:
            return  # it came in pieces
        whole = self._whole.get(parent)
        if whole is None or whole.message_id != (message.id or ""):
            self._finish_whole(parent, out)
            whole = self._whole[parent] = _Whole(message)
        parts: list[StreamPart] = []
        whole.take(message, parts)
        if parts:
            out.append(_answer(whole.message_id, parts, parent, whole=True))

    def _take_user(self, frame: JsonObject, out: list[NativeMessage]) -> None:
        decoded = convert_leniently(frame, MessageFrame)
        parent, content = decoded.parent_tool_use_id, decoded.message and decoded.message.content
        self._finish_whole(parent, out)
        refused = {
            as_text(meta.get("id"))
            for meta in decoded.tool_result_meta or ()
            if isinstance(decision := meta.get("permission_decision"), dict)
            and decision.get("decision") == "reject"
        }
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_result":
                call_id = as_text(block.get("tool_use_id"))
                failed: Literal["error", "denied"] = "denied" if call_id in refused else "error"
                out.append(
                    NativeToolResult(
                        call_id=call_id,
                        outcome=failed if block.get("is_error") else "ok",
                        content=_content_of(block.get("content")),
                        parent=parent,
                    )
                )

    def _take_system(self, frame: JsonObject, out: list[NativeMessage]) -> None:
        system = convert_leniently(frame, SystemFrame)
        match system.subtype:
            case "init":
                self._session_id = system.session_id or self._session_id
                tools = tuple(own_name(tool) for tool in system.tools or ())
                out.append(
                    NativeStarted(
                        session_id=system.session_id or "",
                        model=system.model or "",
                        tools=tools,
                        facts={name: frame[name] for name in frame if name not in _OTHER_FACTS},
                    )
                )
            case "compact_boundary":
                if system.compact_metadata is not None:
                    out.append(_boundary(system.compact_metadata))
            case "api_retry":
                out.append(
                    NativeRetry(
                        attempt=system.attempt or 1,
                        delay=(system.retry_delay_ms or 0) / 1000,
                        max_retries=system.max_retries,
                        status=system.error_status,
                        error=as_text(system.error),
                    )
                )
            case "task_started" | "task_progress" | "task_notification" | "task_updated":
                out.append(_subagent(system))
            case "session_state_changed":
                pass  # the session reads it itself
            case _:
                out.append(NativeNotice(name=system.subtype, facts=frame))

    def _take_reset(self, _frame: JsonObject, out: list[NativeMessage]) -> None:
        # The frame names the session that ended; the next frame has the new id.
        out.append(NativeReset())

    def _take_result(self, frame: JsonObject, out: list[NativeMessage]) -> None:
        for parent in tuple(self._whole):
            self._finish_whole(parent, out)
        self._streams.clear()
        result = convert_leniently(frame, ResultFrame)
        total = result.total_cost_usd
        bases = [as_text(used.get("costBasis")) for used in (result.model_usage or {}).values()]
        errors = result.errors if isinstance(result.errors, list) else ()
        out.append(
            NativeResult(
                subtype=result.subtype,
                # One that says `success` can be an error, too.
                is_error=result.is_error or result.subtype.startswith("error"),
                session_id=result.session_id,
                text=result.result or "",
                turns=result.num_turns or 0,
                stop_reason=result.stop_reason,
                terminal_reason=result.terminal_reason,
                usage=None
                if result.usage is None
                else read_usage(convert_leniently(result.usage, WireUsage)),
                model_usage=result.model_usage,
                total_cost_usd=None if total is None else Decimal(str(total)),
                cost_is_known="unknown" not in bases,
                status=result.api_error_status,
                error=self._error,
                errors=tuple(as_text(each) for each in errors),
            )
        )
        self._error = None

    def _finish_whole(self, parent: str | None, out: list[NativeMessage]) -> None:
        if (whole := self._whole.pop(parent, None)) is not None:
            parts: list[StreamPart] = []
            whole.finish(parts)
            out.append(_answer(whole.message_id, parts, parent, whole=True))

    _steps: ClassVar[dict[str, Callable[..., None]]] = {
        "assistant": _take_answer,
        "user": _take_user,
        "system": _take_system,
        "conversation_reset": _take_reset,
        "result": _take_result,
    }


def _answer(
    message_id: str, parts: list[StreamPart], parent: str | None, *, whole: bool = False
) -> NativeAnswer:
    named = tuple(
        msgspec.structs.replace(part, name=own_name(part.name))
        if isinstance(part, PartOpened) and part.name
        else part
        for part in parts
    )
    return NativeAnswer(message_id=message_id, parts=named, parent=parent, whole=whole)


def _boundary(facts: JsonObject) -> NativeBoundary:
    before, after = facts.get("pre_tokens"), facts.get("post_tokens")
    return NativeBoundary(
        trigger="manual" if facts.get("trigger") == "manual" else "auto",
        pre_tokens=before if isinstance(before, int) else None,
        post_tokens=after if isinstance(after, int) else None,
        details=facts,
    )


def _subagent(said: SystemFrame) -> NativeSubagent:
    patched = as_text((said.patch or {}).get("status"))
    status = said.status or patched
    change: Literal["joined", "status", "left"] = "status"
    if said.subtype == "task_started":
        change = "joined"
    elif said.subtype == "task_notification" or status in _ENDED:
        change = "left"
    return NativeSubagent(
        change=change,
        agent=said.task_id or "",
        call_id=said.tool_use_id,
        status=status,
        description=said.description or said.summary or "",
    )


def _text_in(content: Json) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else ()
    return "".join(as_text(block.get("text")) for block in blocks if isinstance(block, dict))


def _content_of(content: Json) -> tuple[ResultContent, ...]:
    """Return what a tool answered; what is neither text nor an image is told as JSON."""
    if content is None:
        return ()
    if isinstance(content, str):
        return (TextPart(text=content),) if content else ()
    pieces: list[ResultContent] = []
    for block in content if isinstance(content, list) else [content]:
        source = block.get("source") if isinstance(block, dict) else None
        if isinstance(block, dict) and block.get("type") == "text":
            pieces.append(TextPart(text=as_text(block.get("text"))))
        elif isinstance(source, dict) and source.get("type") == "base64":
            media = MediaPart(mime=as_text(source.get("media_type")), data=as_text(source["data"]))
            pieces.append(media if media.is_readable else TextPart(text="[unreadable media]"))
        else:
            pieces.append(TextPart(text=_encode(block).decode()))
    return tuple(pieces)
