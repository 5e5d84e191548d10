"""Decoding: JSON of clients, bounded in depth and checked against a type."""

from typing import TypeVar

import msgspec

from holdfast.server.problems import ProblemError

BodyT = TypeVar("BodyT")
_DEEPEST = 64


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
    """Return how deep brackets are nested; brackets in strings count, so it is an upper bound."""
    deepest = depth = 0
    for byte in content:
        if byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest
