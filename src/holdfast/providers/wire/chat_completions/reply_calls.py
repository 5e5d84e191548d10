"""Puts streamed tool calls together, from servers that agree on little more than the field."""

from hashlib import blake2s

import msgspec

from holdfast.blocks.stream_processor.aggregators import GrowingText
from holdfast.providers.wire.chat_completions.reply_types import Delta, Function, ToolCall
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.stream_parts import PartClosed, PartDelta, PartOpened, StreamPart

_LEGACY_INDEX = -1
"""Where the one call of the old `function_call` field is kept."""


class _Call:
    """One call while it grows. It is announced once its name is known."""

    __slots__ = ("call_id", "extra", "fragments", "is_announced", "key", "name")

    def __init__(self, key: str) -> None:
        self.key = key
        self.call_id = ""
        self.name = ""
        self.fragments = GrowingText()
        self.extra: JsonObject | None = None
        self.is_announced = False

    def is_whole(self) -> bool:
        """Whether the arguments are JSON as they stand."""
        try:
            msgspec.json.decode(self.fragments.whole().encode())
        except msgspec.DecodeError:
            return False
        return True


class CallAssembler:
    """Sorts pieces of tool calls by their index, or by their id where there is none.

    Names and ids that are repeated in later pieces are not joined. `response_id` serves to make
    ids for servers that send none.
    """

    def __init__(self) -> None:
        self.response_id = ""
        self._calls: list[_Call] = []
        self._at: dict[int, _Call] = {}

    def take(self, delta: Delta, out: list[StreamPart], *, is_finished: bool) -> None:
        """Take the pieces of one piece; `is_finished` once a finish reason was seen."""
        for piece in delta.tool_calls or ():
            self._take(piece, out, is_finished=is_finished)
        if delta.function_call is not None:
            legacy = ToolCall(index=_LEGACY_INDEX, function=delta.function_call)
            self._take(legacy, out, is_finished=is_finished)

    def close(self, out: list[StreamPart]) -> bool:
        """Close every call, because the answer is complete; return whether there were any."""
        for call in self._calls:
            if not call.is_announced:
                self._announce(call, out)
            native = None if call.extra is None else {"extra_content": call.extra}
            out.append(PartClosed(key=call.key, native=native))
        return bool(self._calls)

    def _take(self, piece: ToolCall, out: list[StreamPart], *, is_finished: bool) -> None:
        function = piece.function or Function()
        call = self._call_of(piece, is_finished=is_finished)
        call.call_id = call.call_id or piece.id or ""
        call.name = call.name or function.name or ""
        call.extra = piece.extra_content or call.extra
        fragment = _text(function)
        if fragment:
            call.fragments.add(fragment)
        if call.is_announced:
            if fragment:
                out.append(PartDelta(key=call.key, text=fragment))
        elif call.name:
            self._announce(call, out)

    def _call_of(self, piece: ToolCall, *, is_finished: bool) -> _Call:
        """Find the call that `piece` belongs to, or begin one."""
        index = self._index_of(piece)
        call = self._at.get(index)
        if call is None or (not is_finished and _is_another(call, piece)):
            call = _Call(f"call-{len(self._calls)}")
            self._calls.append(call)
            self._at[index] = call
        return call

    def _index_of(self, piece: ToolCall) -> int:
        if piece.index is not None:
            return piece.index
        if not piece.id and self._calls:
            return max(self._at)
        known = (index for index, call in self._at.items() if call.call_id == piece.id)
        return next(known, len(self._calls))

    def _announce(self, call: _Call, out: list[StreamPart]) -> None:
        call.is_announced = True
        call_id = call.call_id or self._made_id(call)
        out.append(PartOpened(key=call.key, kind="tool_call", call_id=call_id, name=call.name))
        arguments = call.fragments.whole()
        if arguments:
            out.append(PartDelta(key=call.key, text=arguments))

    def _made_id(self, call: _Call) -> str:
        seed = f"{self.response_id}/{call.key}".encode()
        return f"call_{blake2s(seed, digest_size=8).hexdigest()}"


def _is_another(call: _Call, piece: ToolCall) -> bool:
    """Whether `piece` begins a call of its own at an index that is taken.

    Some servers number every call 0. Others change the id of one call from piece to piece, so a
    new id is not enough: a name has to come with it, and the call before has to be whole. Without
    any id, a name with arguments of its own begins a call after one that is whole. After
    the finish reason this is not asked any more: two answers were spliced then, it is unknown
    which call was meant, and joined arguments that are not JSON keep it from being run.
    """
    function = piece.function or Function()
    if not function.name:
        return False
    if not piece.id:
        return not call.call_id and bool(_text(function).strip()) and call.is_whole()
    is_new_id = bool(call.call_id and piece.id != call.call_id)
    return is_new_id and (function.name != call.name or call.is_whole())


def _text(function: Function) -> str:
    """Return the arguments as text; some servers send the object itself."""
    if isinstance(function.arguments, dict | list):
        return msgspec.json.encode(function.arguments).decode()
    return function.arguments or ""
