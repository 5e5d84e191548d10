"""Decoding: JSON of clients, bounded in depth and checked against a type."""

import re
from array import array
from itertools import accumulate
from typing import TypeVar

import msgspec

from holdfast.server.problems import ProblemError

BodyT = TypeVar("BodyT")
_DEEPEST = 64
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""One deeper, or one less deep: signed bytes."""
_NOT_NESTING = bytes(set(range(256)) - set(b"[]{}"))


def decode_body(content: bytes, kind: type[BodyT]) -> BodyT:
    """Check the JSON body of a request; an absent one is an empty object.

    Raises:
        ProblemError: 400.

    """
    check_depth(content)
    try:
        return msgspec.json.decode(content or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ProblemError(400, "BODY_INVALID", f"the body is not valid: {error}") from error


def check_depth(content: bytes) -> None:
    """Refuse JSON that is nested deeper than any request needs.

    Raises:
        ProblemError: 400.

    """
    if content.count(b"[") + content.count(b"{") > _DEEPEST and _depth(content) > _DEEPEST:
        raise ProblemError(400, "TOO_DEEP", f"a body is nested at most {_DEEPEST} deep")


def _depth(content: bytes) -> int:
    """Return how deep JSON is nested; brackets in strings do not count.

    No line of Python runs for each byte: a large body must not hold up other requests.
    """
    steps = array("b", _STRING.sub(b"", content).translate(_STEPS, _NOT_NESTING))
    return max(accumulate(steps), default=0)
