"""One way to write a JSON value, so that equal values have equal bytes and digests."""

import msgspec

from haptera.model.json_types import Json
from haptera.model.late_names import late_module
from haptera.model.tools import Effect, ToolSpec

_encoder = msgspec.json.Encoder(order="deterministic")


def canonical_json(value: Json) -> bytes:
    """Write a value with sorted keys and no spaces."""
    return _encoder.encode(value)


def json_digest(value: Json) -> str:
    """Return the digest that equal values have in common."""
    # It brings OpenSSL's digests, which only tool calls and recordings need.
    sha256 = late_module("hashlib").sha256
    return str(sha256(canonical_json(value)).hexdigest())


def arguments_hash(tool: str, arguments: Json) -> str:
    """Return the digest that binds an approval to one tool and its exact arguments."""
    return json_digest([tool, arguments])


def tool_digest(spec: ToolSpec, effect: Effect) -> str:
    """Return the digest of what a tool says of itself: what an approval of its calls goes by."""
    return json_digest([spec.name, spec.description, spec.input_schema, effect])


def approval_key(
    tool: str,
    arguments: Json,
    folder: str,
    *,
    tool_digest: str | None,
    is_confined: bool = True,
) -> str:
    """Return the digest that binds a lasting approval to a tool, its arguments and a folder.

    The same command in another folder, or without a sandbox around it, is another command; and a
    tool that describes itself in another way is another tool.
    """
    bound: list[Json] = [tool, arguments, folder, tool_digest]
    return json_digest(bound if is_confined else [*bound, "unconfined"])
