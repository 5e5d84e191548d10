"""Decoding: JSON of clients, bounded in depth and in values, and checked against a type.

What a body costs to read is bounded by its size, and no check takes a step of Python for each byte:
other requests wait meanwhile.
"""

import asyncio
import re
from array import array
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import cache
from itertools import accumulate
from typing import Any, TypeVar

import msgspec

from haptera.model.json_types import has_costly_numbers
from haptera.options.declarations import Declared, allowed_words
from haptera.server.problems import ProblemError

ValueT = TypeVar("ValueT")
BodyT = TypeVar("BodyT")
MOST_VALUES = 100_000
"""How many values and names a body has at most: each costs many times what it takes in JSON."""
_DEEPEST = 64
_SMALL = 64 * 1024
"""Below this size, only the depth of a body can cost more than its bytes."""
_LONGEST_NUMBER = 1000
_LONGEST_TOLD = 500
_WHITE_SPACE = b" \t\r\n"
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""One deeper, or one less deep: signed bytes."""
_NOT_NESTING = bytes(set(range(256)) - set(b"[]{}"))
_WRONG_WORD = re.compile(r"^Invalid enum value .* - at `\$\.(\w+)`$")


def described(said: Declared | str) -> msgspec.Meta:
    """Return what is said of a field that clients send: a sentence, or all of a declared option.

    It is in the OpenAPI document, and bounds are checked when a body is decoded.
    """
    if isinstance(said, str):
        return msgspec.Meta(description=said)
    option = said.option
    low: dict[str, Any] = {"gt": option.above} if option.above is not None else {"ge": option.least}
    return msgspec.Meta(description=option.sentence, le=option.most, **low)


@cache
def field_names(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the names that a client uses for the fields of a type; worked out once for each."""
    return tuple(field.encode_name for field in msgspec.structs.fields(kind))


async def decoded_in_turn(
    turn: AbstractAsyncContextManager[None], content: bytes, decode: Callable[[bytes], ValueT]
) -> ValueT:
    """Decode what a client sent; large ones in a thread, when it is their turn."""
    if len(content) <= _SMALL:
        return decode(content)
    async with turn:
        return await asyncio.to_thread(decode, content)


def decode_body(content: bytes, kind: type[BodyT]) -> BodyT:
    """Check the JSON body of a request; an absent one is an empty object.

    Raises:
        ProblemError: 400.

    """
    check_shape(content)
    try:
        return msgspec.json.decode(content or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _wrong_body(error, kind) from error


def convert_body(values: dict[str, Any], kind: type[BodyT]) -> BodyT:
    """Check values that were read from JSON already, as `decode_body` checks its bytes.

    Raises:
        ProblemError: 400.

    """
    try:
        return msgspec.convert(values, kind)
    except (msgspec.ValidationError, UnicodeError, RecursionError) as error:
        raise _wrong_body(error, kind) from error


def _wrong_body(error: Exception, kind: type) -> ProblemError:
    message = f"the body is not valid: {_brief(error)}{_choices(kind, str(error))}"
    return ProblemError(400, "BODY_INVALID", message)


def _brief(error: Exception) -> str:
    """Return what an error says: it may repeat a name of the client's, of any length."""
    text = str(error)
    half = _LONGEST_TOLD // 2
    return text if len(text) <= _LONGEST_TOLD else f"{text[:half]} … {text[-half:]}"


def _choices(kind: type, message: str) -> str:
    """Return what a field may be, when the error is about a word that is none of them."""
    match = _WRONG_WORD.search(message)
    if match is None:
        return ""
    for field in msgspec.structs.fields(kind) if issubclass(kind, msgspec.Struct) else ():
        if field.encode_name == match[1] and (words := allowed_words(field.type)):
            return f"; it is one of {', '.join(sorted(words))}"
    return ""


def check_shape(content: bytes) -> None:
    """Refuse JSON that is nested deeper, or has more values or longer numbers, than any request.

    Raises:
        ProblemError: 400.

    """
    # The counts are cheap and are enough for almost every body; what is in strings only makes them
    # higher.
    is_flat = content.count(b"[") + content.count(b"{") <= _DEEPEST
    has_exponents = content.count(b"e") + content.count(b"E") > _DEEPEST
    if len(content) <= _SMALL and is_flat and not (has_exponents and has_costly_numbers(content)):
        return
    plain = _without_strings(content)
    containers = plain.count(b"[") + plain.count(b"{")
    if plain.count(b",") + containers > MOST_VALUES:
        raise _too_many()
    if plain.count(b"]") + plain.count(b"}") > containers:
        raise ProblemError(400, "BODY_INVALID", "this is not JSON: more is closed than was opened")
    if has_costly_numbers(plain):
        raise ProblemError(400, "TOO_MANY_VALUES", "a body has at most 1,000 large exponents")
    if _depth(plain) > _DEEPEST:
        raise ProblemError(400, "TOO_DEEP", f"a body is nested at most {_DEEPEST} deep")
    # Between two commas there is at most one number, with few brackets around it. The time to read
    # a whole number grows with the square of its digits.
    if max(map(len, plain.translate(None, _WHITE_SPACE).split(b","))) > _LONGEST_NUMBER:
        message = f"this is not JSON, or a number in it has more than {_LONGEST_NUMBER} digits"
        raise ProblemError(400, "NUMBER_TOO_LONG", message)


def _too_many() -> ProblemError:
    return ProblemError(400, "TOO_MANY_VALUES", f"a body has at most {MOST_VALUES} values")


def _without_strings(content: bytes) -> bytes:
    """Return JSON without its strings.

    Raises:
        ProblemError: 400 when there are too many.

    """
    if b"\\" in content:
        # In this order: a quote ends a string unless an odd number of backslashes precedes it.
        content = content.replace(rb"\\", b"").replace(rb"\"", b"")
    if content.count(b'"') > 2 * MOST_VALUES:
        raise _too_many()
    return b"".join(content.split(b'"')[::2])


def _depth(plain: bytes) -> int:
    """Return how deep JSON without strings is nested."""
    steps = array("b", plain.translate(_STEPS, _NOT_NESTING))
    return max(accumulate(steps), default=0)
