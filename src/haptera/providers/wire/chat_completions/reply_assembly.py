"""Chat Completions: tool calls and reasoning details that arrive in pieces.

Servers agree on the names of the fields and little else: some repeat names and ids in every piece,
some number all calls 0, some send no ids.
"""

from hashlib import blake2s

import msgspec

from haptera.formats.tool_texts import CUSTOM_INPUT
from haptera.kernel.blocks.stream_processor.aggregators import GrowingText
from haptera.model.json_types import JsonObject
from haptera.model.stream_parts import PartClosed, PartDelta, PartOpened, StreamPart
from haptera.providers.wire.chat_completions.reply_format import Delta, Function, ToolCall
from haptera.providers.wire.lenient_decoding import as_text

_LEGACY_INDEX = -1
"""The index of the one call in the old `function_call` field."""
_NULL = "null"
"""What some servers send as arguments for a tool without parameters; it means an empty object."""


class _Call:
    """One call while it arrives. It is announced as soon as its name is known."""

    __slots__ = (
        *("call_id", "extra", "fragments", "is_announced", "is_custom", "is_shown", "key", "name"),
    )

    def __init__(self, key: str) -> None:
        self.key = key
        self.call_id = ""
        self.name = ""
        self.fragments = GrowingText()
        self.extra: JsonObject | None = None
        self.is_announced = False
        self.is_shown = False
        """Whether the arguments were passed on. They are not while they may become `null`."""
        self.is_custom = False
        """Whether the input is free text, which is passed on as one argument at the end."""

    def is_whole(self) -> bool:
        """Whether the arguments received so far are complete JSON."""
        try:
            msgspec.json.decode(self.fragments.whole().encode())
        except msgspec.DecodeError:
            return False
        return True


class CallAssembler:
    """Assigns pieces to tool calls, by index, or by id if they have no index.

    Names and ids that later pieces repeat are not joined. `response_id` is used to make ids for
    calls that come without one.
    """

    def __init__(self) -> None:
        self.response_id = ""
        self._calls: list[_Call] = []
        self._at: dict[int, _Call] = {}

    @property
    def has_calls(self) -> bool:
        """Whether any piece of a call was taken."""
        return bool(self._calls)

    def take(self, delta: Delta, out: list[StreamPart], *, is_finished: bool) -> None:
        """Take the calls in one delta; `is_finished` once a finish reason was received."""
        for piece in delta.tool_calls or ():
            self._take(piece, out, is_finished=is_finished)
        if delta.function_call is not None:
            legacy = ToolCall(index=_LEGACY_INDEX, function=delta.function_call)
            self._take(legacy, out, is_finished=is_finished)

    def close(self, out: list[StreamPart]) -> bool:
        """Close every call at the end of the answer; return whether there were any."""
        for call in self._calls:
            if not call.is_announced:
                self._announce(call, out)
            arguments = call.fragments.whole()
            if call.is_custom:
                arguments = msgspec.json.encode({CUSTOM_INPUT: arguments}).decode()
            if not call.is_shown and arguments and arguments.strip() != _NULL:
                out.append(PartDelta(key=call.key, text=arguments))
            native: JsonObject = {"type": "custom"} if call.is_custom else {}
            if call.extra is not None:
                native["extra_content"] = call.extra
            out.append(PartClosed(key=call.key, native=native or None))
        return bool(self._calls)

    def _take(self, piece: ToolCall, out: list[StreamPart], *, is_finished: bool) -> None:
        function = _function_of(piece)
        call = self._call_of(piece, is_finished=is_finished)
        call.is_custom = call.is_custom or piece.custom is not None
        # The first one counts: several servers repeat the id and the name with every piece.
        call.call_id = call.call_id or piece.id or ""
        call.name = call.name or function.name or ""
        call.extra = piece.extra_content or call.extra
        fragment = _text(function)
        if fragment:
            call.fragments.add(fragment)
        if call.name and not call.is_announced:
            self._announce(call, out)
        # An announcement shows all that has arrived, this fragment included.
        elif call.is_announced and fragment:
            self._show(call, fragment, out)

    def _call_of(self, piece: ToolCall, *, is_finished: bool) -> _Call:
        """Return the call that `piece` belongs to; a new one if there is none yet."""
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
            # A piece without index and id continues the last call.
            return max(self._at)
        # Mistral sends whole calls without an index.
        indexes = (index for index, call in self._at.items() if call.call_id == piece.id)
        return next(indexes, len(self._calls))

    def _announce(self, call: _Call, out: list[StreamPart]) -> None:
        call.is_announced = True
        call_id = call.call_id or self._made_id(call)
        out.append(PartOpened(key=call.key, kind="tool_call", call_id=call_id, name=call.name))
        self._show(call, "", out)

    def _show(self, call: _Call, fragment: str, out: list[StreamPart]) -> None:
        """Pass on arguments, unless all of them so far may be the beginning of `null`."""
        if call.is_custom:
            return
        if not call.is_shown:
            fragment = call.fragments.whole()
            if _NULL.startswith(fragment.strip()):
                return
            call.is_shown = True
        out.append(PartDelta(key=call.key, text=fragment))

    def _made_id(self, call: _Call) -> str:
        # The same reply gives the same ids at every decoding.
        seed = f"{self.response_id}/{call.key}".encode()
        return f"call_{blake2s(seed, digest_size=8).hexdigest()}"


def _is_another(call: _Call, piece: ToolCall) -> bool:
    """Whether `piece` begins another call at the index of `call`.

    Some servers number every call 0. Others change the id of one call from piece to piece, so a new
    id is not enough: it must come with a name, and the arguments of the call before must be
    complete. Without ids, a name with arguments begins another call after a complete one.

    This is not asked after a finish reason. Two answers were spliced then, and it is unknown which
    call was meant; their joined arguments are not JSON, which keeps the call from running.
    """
    function = _function_of(piece)
    if not function.name:
        return False
    if not piece.id:
        return not call.call_id and bool(_text(function).strip()) and call.is_whole()
    is_new_id = bool(call.call_id and piece.id != call.call_id)
    return is_new_id and (function.name != call.name or call.is_whole())


def _function_of(piece: ToolCall) -> Function:
    if piece.custom is not None:
        return Function(piece.custom.name, piece.custom.input)
    return piece.function or Function()


def _text(function: Function) -> str:
    """Return the arguments as text; some servers send them as an object."""
    if isinstance(function.arguments, dict | list):
        return msgspec.json.encode(function.arguments).decode()
    return function.arguments or ""


# Reasoning details

_GROWING_FIELDS = ("text", "summary")


def text_of_detail(detail: JsonObject) -> str:
    """Return the readable text of a reasoning detail; encrypted ones have none."""
    for name in _GROWING_FIELDS:
        text = detail.get(name)
        if isinstance(text, str):
            return text
    return ""


def merge_detail(details: list[JsonObject], new: JsonObject) -> None:
    """Append `new` to `details`, or join it to the last one if it continues that."""
    last = details[-1] if details else None
    if last is None or not _continues(last, new):
        details.append(dict(new))
        return
    for name, value in new.items():
        if name in _GROWING_FIELDS and isinstance(value, str):
            last[name] = as_text(last.get(name)) + value
        elif value is not None:
            last[name] = value


def _continues(last: JsonObject, new: JsonObject) -> bool:
    """Whether `new` continues `last`: same type and index; encrypted details are never split."""
    return (
        new.get("type") == last.get("type")
        and new.get("index") == last.get("index")
        and new.get("type") != "reasoning.encrypted"
    )
