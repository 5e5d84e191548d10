"""Breaks replies: in their JSON, in the order of their frames and in their bytes."""

import json
import re
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any, NamedTuple, TypeAlias

from haptera.model.json_types import Json
from haptera.providers.wire.protocol import Framing
from haptera.testing.decode_reply import PROTOCOLS
from tests.providers.reply_corpus import Reply

Frames: TypeAlias = list[tuple[str, Any]]

STATUSES = (400, 401, 402, 403, 404, 408, 409, 413, 418, 422, 429, 498, 500, 502, 503, 504, 529)
_OK = 200
_MARK = "@raw:"
"""Begins a string that stands for JSON text which no value of Python's gives."""
_STANDS_FOR_RAW = re.compile(f'"{_MARK}(\\w+)-(\\d+)"')
_TWIN = "\N{ZERO WIDTH SPACE}"
"""Ends a key that is written without it, so that a field is there twice."""

_DEPTHS = (60, 300, 950, 1_200, 20_000)
_VALUES: tuple[Json, ...] = (
    *(None, True, False, 0, -1, 5, 1.5, 2.0, 1e308, 2**63, 2**64, 10**30, -(10**30)),
    *("", "x", "5", "null", "\0", "é😀", [], {}, [None], [[]], {"a": 1}, {"": {}}, [5, "x", None]),
)
_RAW = ("1e999", "-1e999", "NaN", "Infinity", "-0", "9" * 400, "9" * 5_000, "0.1e-400")
_ESCAPES = (r'"\ud800"', r'"a\udfff b"', r'"\ud83d\ude00"', r'{"\ud800": 1}', r'["\udc00"]')
_EVENTS = ("error", "message", "", "ping", "response.completed", "message_stop", "é")
_BYTES = (b"\xff", b"\n", b"\n\n", b"\r", b"\0", b'"', b"{", b"}", b"[", b"data: ", b"\xed\xa0\x80")


class Broken(NamedTuple):
    """A reply as it arrives."""

    api: str
    status: int
    headers: dict[str, str]
    pieces: tuple[bytes, ...]

    @property
    def body(self) -> bytes:
        """All of its bytes."""
        return b"".join(self.pieces)


def break_reply(reply: Reply, chance: Random) -> Broken:
    """Return `reply` with one to three things wrong with it, in one read or in several."""
    frames: Frames = deepcopy(list(reply.frames))
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        if frames:
            chance.choice(_IN_FRAMES)(frames, chance)
    framing = PROTOCOLS[reply.api].framing
    is_whole = reply.is_whole if chance.random() < 0.9 else not reply.is_whole
    body = _written(frames, framing, is_whole=is_whole)
    if chance.random() < 0.25:
        body = _break_bytes(body, chance)
    status = reply.status
    if chance.random() < 0.15:
        status = chance.choice(STATUSES) if status == _OK else _OK
    kind = "application/json" if is_whole else "text/event-stream"
    if chance.random() < 0.05:
        kind = chance.choice(("", "text/plain", "text/html", "application/json"))
    return Broken(reply.api, status, {"content-type": kind}, _cut(body, chance))


def _written(frames: Frames, framing: Framing, *, is_whole: bool) -> bytes:
    if framing == "ndjson" or is_whole:
        return b"\n".join(_json(value) for _, value in frames)
    return b"".join(
        (f"event: {event}\n" if event != "message" else "").encode()
        + b"data: %b\n\n" % _json(value)
        for event, value in frames
    )


def _json(value: Json | bytes) -> bytes:
    """Write JSON, with what stands for raw text put in as it is."""
    if isinstance(value, bytes):
        return value
    text = json.dumps(value, ensure_ascii=False).replace(_TWIN, "")
    text = _STANDS_FOR_RAW.sub(lambda found: _raw_text(found[1], int(found[2])), text)
    return text.encode("utf-8", "surrogatepass")


def _raw_text(kind: str, number: int) -> str:
    if kind == "number":
        return _RAW[number]
    if kind == "escape":
        return _ESCAPES[number]
    depth = _DEPTHS[number]
    opening, closing = ("[", "]") if kind == "deep" else ('{"a":', "}")
    return opening * depth + "1" + closing * depth


def _odd_value(chance: Random) -> Json:
    match chance.randrange(10):
        case 0:
            # The deepest cost much and say little new.
            place = chance.choice((0, 0, 1, 1, 2, 3, 3, 4))
            return f"{_MARK}{chance.choice(('deep', 'deeper'))}-{place}"
        case 1:
            return f"{_MARK}number-{chance.randrange(len(_RAW))}"
        case 2:
            return f"{_MARK}escape-{chance.randrange(len(_ESCAPES))}"
        case _:
            return deepcopy(chance.choice(_VALUES))


# In the JSON of one frame


def _place(frames: Frames, chance: Random) -> tuple[Any, Any] | None:
    """Choose a container anywhere in a frame, and a key in it."""
    index = chance.randrange(len(frames))
    places: list[tuple[Any, Any]] = []
    waiting: list[Any] = [frames[index][1]]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict | list):
            keys = list(here) if isinstance(here, dict) else list(range(len(here)))
            places += [(here, key) for key in keys]
            waiting += [here[key] for key in keys]
    return chance.choice(places) if places else None


def _in_json(
    change: Callable[[Any, Any, Random], None],
) -> Callable[[Frames, Random], None]:
    def apply(frames: Frames, chance: Random) -> None:
        if (found := _place(frames, chance)) is not None:
            change(*found, chance)

    return apply


def _replace(here: Any, key: Any, chance: Random) -> None:
    here[key] = _odd_value(chance)


def _remove(here: Any, key: Any, _chance: Random) -> None:
    del here[key]


def _wrap(here: Any, key: Any, chance: Random) -> None:
    here[key] = [here[key]] if chance.random() < 0.5 else {"value": here[key]}


def _swap(here: Any, key: Any, chance: Random) -> None:
    other = chance.choice(list(here) if isinstance(here, dict) else range(len(here)))
    here[key], here[other] = here[other], here[key]


def _rename(here: Any, key: Any, chance: Random) -> None:
    if isinstance(here, dict):
        here[chance.choice(("type", "id", "index", "text", "error", "", f"{key}_"))] = here.pop(key)


def _repeat(here: Any, key: Any, chance: Random) -> None:
    if isinstance(here, list):
        here.insert(chance.randrange(len(here) + 1), deepcopy(here[key]))
    else:
        here[f"{key}{_TWIN}"] = deepcopy(here[key])


def _as_text(here: Any, key: Any, _chance: Random) -> None:
    here[key] = json.dumps(here[key])


# In the order of frames


def _drop(frames: Frames, chance: Random) -> None:
    del frames[chance.randrange(len(frames))]


def _say_twice(frames: Frames, chance: Random) -> None:
    frames.insert(chance.randrange(len(frames) + 1), deepcopy(chance.choice(frames)))


def _exchange(frames: Frames, chance: Random) -> None:
    first, second = chance.randrange(len(frames)), chance.randrange(len(frames))
    frames[first], frames[second] = frames[second], frames[first]


def _end_early(frames: Frames, chance: Random) -> None:
    del frames[chance.randrange(len(frames)) :]


def _rename_event(frames: Frames, chance: Random) -> None:
    index = chance.randrange(len(frames))
    frames[index] = (chance.choice(_EVENTS), frames[index][1])


def _insert(frames: Frames, chance: Random) -> None:
    value = chance.choice((b"[DONE]", b"", b"{}", b"null", b"[]", b"5", b"{", _odd_value(chance)))
    frames.insert(chance.randrange(len(frames) + 1), (chance.choice(_EVENTS), value))


_IN_FRAMES: tuple[Callable[[Frames, Random], None], ...] = (
    *(_in_json(_replace),) * 8,
    *(_in_json(_remove),) * 3,
    *(_in_json(_wrap), _in_json(_swap), _in_json(_rename), _in_json(_repeat), _in_json(_as_text)),
    *(_drop, _say_twice, _exchange, _end_early, _rename_event, _insert),
)


# In the bytes


def _break_bytes(body: bytes, chance: Random) -> bytes:
    start = chance.randrange(len(body) + 1)
    end = min(len(body), start + chance.randrange(1, 40))
    match chance.randrange(5):
        case 0:
            return body[:start]
        case 1:
            return body[:start] + body[end:]
        case 2:
            return body[:end] + body[start:]
        case 3:
            return body[:start] + bytes([chance.randrange(256)]) + body[start + 1 :]
        case _:
            return body[:start] + chance.choice(_BYTES) + body[start:]


def _cut(body: bytes, chance: Random) -> tuple[bytes, ...]:
    """Cut a body into the reads it arrives in: mostly one."""
    if chance.random() < 0.7 or len(body) < 2:
        return (body,)
    places = sorted(chance.randrange(1, len(body)) for _ in range(chance.randrange(1, 6)))
    cuts = zip([0, *places], [*places, len(body)], strict=True)
    return tuple(body[start:end] for start, end in cuts if start < end)
