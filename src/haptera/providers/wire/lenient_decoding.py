"""Lenient decoding: JSON from providers that do not keep to their own format.

Every decoder tries the strict, typed way first. This module is for what is left: broken UTF-8, lone
surrogates, fields of the wrong type. It also reads token counts and costs out of the objects in
which providers report them.
"""

import json
import math
from decimal import Decimal
from functools import cache
from types import UnionType
from typing import TypeVar, Union, get_args, get_origin

import msgspec

from haptera.formats.lenient_json import without_surrogates
from haptera.model.errors import ErrorCode, ProviderError, RequestError
from haptera.model.json_types import Json, JsonObject

StructT = TypeVar("StructT", bound=msgspec.Struct)

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a strict decoder raises: not JSON, not UTF-8, another type, or nested too deeply."""

_MOST_DIGITS = 300
"""Of an integer; a float holds no more, and a strict decoder refuses more than a few thousand."""
_USD_PER_TICK = Decimal("0.0000000001")
_LARGEST_COST = 10**18


# Errors


def malformed(what: str) -> ProviderError:
    """Make the error of something that a provider should not have sent."""
    return ProviderError(ErrorCode.PROTOCOL, f"the provider {what}", basis="type")


def cut_off(message: str) -> RequestError:
    """Make the error of an answer that ended too early."""
    return RequestError(ErrorCode.STREAM_INTERRUPTED, message, basis="type")


# JSON


def decode_lenient(data: bytes) -> Json:
    """Decode `data`; bytes that are not UTF-8 become U+FFFD, and numbers out of range null.

    Raises PROTOCOL when it is not JSON, or nested too deeply to be read.
    """
    try:
        # The strict decoder is many times faster, and nearly all data needs no other.
        return msgspec.json.decode(data)
    except DECODE_ERRORS:
        pass
    try:
        value = json.loads(
            data.decode("utf-8", "replace"),
            parse_int=_integer,
            parse_float=_finite_float,
            # Python reads NaN and Infinity, which are not JSON: a log could not store them.
            parse_constant=lambda _name: None,
        )
        return without_surrogates(value)
    except (ValueError, RecursionError) as error:
        # The message does not quote the text, which may hold anything.
        words = "nested too deeply" if isinstance(error, RecursionError) else "not JSON"
        raise malformed(f"sent something that is {words}") from error


def _integer(digits: str) -> int | None:
    return int(digits) if len(digits) <= _MOST_DIGITS else None


def _finite_float(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


# Single values


def as_text(value: Json) -> str:
    """Return `value` if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def read_token_count(body: bytes, field: str) -> int:
    """Return the number under `field` of a reply; raises PROTOCOL when there is none."""
    reply = decode_lenient(body)
    count = reply.get(field) if isinstance(reply, dict) else None
    if not isinstance(count, int):
        raise malformed("sent a malformed token count")
    return count


# Structs


def convert_leniently(value: JsonObject, kind: type[StructT]) -> StructT:
    """Make a struct of the fields that have the declared type; the others keep their defaults.

    Every field of `kind` must have a default.
    """
    struct = kind()
    for field in _fields_of(kind):
        if field.encode_name in value:
            try:
                setattr(struct, field.name, _converted(value[field.encode_name], field.type))
            except msgspec.ValidationError:
                continue
    return struct


def decode_object_as(data: bytes, kind: type[StructT]) -> StructT:
    """Decode an object without its fields of the wrong type; anything else counts as an empty one.

    Raises PROTOCOL when it is not JSON.
    """
    value = decode_lenient(data)
    return convert_leniently(value, kind) if isinstance(value, dict) else kind()


@cache
def _fields_of(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    # Once per kind: the annotations are evaluated anew each time.
    return msgspec.structs.fields(kind)


def _converted(value: Json, kind: Json) -> Json:
    if kind is msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(value))
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        if isinstance(value, float) and value.is_integer():
            # Some servers write counts as 3.0.
            return msgspec.convert(int(value), kind)
        for option in get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,):
            if get_origin(option) is list and isinstance(value, list):
                return _converted_items(value, get_args(option)[0])
            is_struct = isinstance(option, type) and issubclass(option, msgspec.Struct)
            if is_struct and isinstance(value, dict):
                return convert_leniently(value, option)
        raise


def _converted_items(values: list[Json], kind: Json) -> list[Json]:
    items = []
    for value in values:
        try:
            items.append(_converted(value, kind))
        except msgspec.ValidationError:
            continue
    return items


# Costs


def cost_in_dollars(usage: JsonObject) -> Decimal | None:
    """Return the cost that a router reports, in US dollars; None if it reports none."""
    cost = usage.get("cost")
    billed = _amount(cost.get("total_cost") if isinstance(cost, dict) else cost)
    if billed is None or not usage.get("is_byok"):
        return billed
    # With the user's own key the router bills its fee only; the model's provider bills the rest.
    details = usage.get("cost_details")
    upstream = details.get("upstream_inference_cost") if isinstance(details, dict) else None
    added = _amount(upstream)
    return None if added is None else billed + added


def cost_in_ticks(usage: JsonObject) -> Decimal | None:
    """Return the cost that xAI reports, converted to US dollars; None if it reports none."""
    ticks = usage.get("cost_in_usd_ticks")
    amount = _amount(ticks) if isinstance(ticks, int) else None
    return None if amount is None else amount * _USD_PER_TICK


def _amount(value: Json) -> Decimal | None:
    """Return an amount of money; None for what is negative, absurdly large or not a number."""
    is_amount = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    # By its text: the exact value of a float has digits that the provider did not send.
    return Decimal(str(value)) if is_amount and value < _LARGEST_COST else None
