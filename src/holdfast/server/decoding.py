"""Decoding: JSON of clients, bounded in depth and checked against a type."""

import re
from array import array
from functools import cache
from itertools import accumulate
from typing import Any, TypeVar

import msgspec

from holdfast.server.problems import ProblemError
from holdfast.vocabulary.option_declarations import Declared, allowed_words

BodyT = TypeVar("BodyT")
_DEEPEST = 64
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
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


def decode_body(content: bytes, kind: type[BodyT]) -> BodyT:
    """Check the JSON body of a request; an absent one is an empty object.

    Raises:
        ProblemError: 400.

    """
    check_depth(content)
    try:
        return msgspec.json.decode(content or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        told = f"the body is not valid: {error}{_choices(kind, str(error))}"
        raise ProblemError(400, "BODY_INVALID", told) from error


def _choices(kind: type, told: str) -> str:
    """Return what a field may be, when the error is about a word that is none of them."""
    found = _WRONG_WORD.search(told)
    if found is None:
        return ""
    for field in msgspec.structs.fields(kind) if issubclass(kind, msgspec.Struct) else ():
        if field.encode_name == found[1] and (words := allowed_words(field.type)):
            return f"; it is one of {', '.join(sorted(words))}"
    return ""


def check_depth(content: bytes) -> None:
    """Refuse JSON that is nested deeper than any request needs.

    Raises:
        ProblemError: 400.

    """
    # The count is cheap and is enough for almost every body; brackets in strings only make it
    # higher.
    if content.count(b"[") + content.count(b"{") > _DEEPEST and _depth(content) > _DEEPEST:
        raise ProblemError(400, "TOO_DEEP", f"a body is nested at most {_DEEPEST} deep")


def _depth(content: bytes) -> int:
    """Return how deep JSON is nested; brackets in strings do not count.

    No line of Python runs for each byte: a large body must not hold up other requests.
    """
    steps = array("b", _STRING.sub(b"", content).translate(_STEPS, _NOT_NESTING))
    return max(accumulate(steps), default=0)
