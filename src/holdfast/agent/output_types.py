"""Output types: a Python type to the schema a model must meet and the parser of its answer."""

import re
from typing import Any

import msgspec

from holdfast.blocks.tool_registry.foreign_types import (
    describe_type,
    parse_json,
    understood,
)
from holdfast.ports.runner import OutputSpec
from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.requests import OutputSchema

_FENCED = r"(?is)^\s*```(?:json)?\s*(.*?)\s*```\s*$"


def output_spec(output_type: Any) -> OutputSpec | None:  # noqa: ANN401 - a type hint is any value
    """Return what an answer of this type needs; None when plain text is fine.

    Raises:
        ConfigError: CONFIG_INVALID when the type cannot be described to a model.

    """
    if output_type is None or output_type is str:
        return None
    name = re.sub(r"[^A-Za-z0-9_-]", "_", getattr(output_type, "__name__", "answer"))[:64]
    try:
        kind = understood(output_type)
        described, components = describe_type(kind)
    except TypeError as error:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, f"output_type {output_type!r}: {error}"
        ) from error

    def parse(text: str) -> object:
        try:
            return parse_json(_bare(text), kind)
        except Exception as error:  # a type of the user's may raise anything
            raise ValueError(str(error)) from error

    schema = OutputSchema(name=name, schema=_inlined(described, components))
    return OutputSpec(schema=schema, parse=parse)


def _inlined(described: JsonObject, components: JsonObject) -> JsonObject:
    """Put the type itself at the top, where providers want it, and its parts into `$defs`."""
    reference = described.get("$ref", "")
    own = reference.removeprefix("#/$defs/")
    top = components.get(own, described)
    if own and reference not in msgspec.json.encode(components).decode():
        components = {key: value for key, value in components.items() if key != own}
    return {**top, "$defs": components} if components else top


def _bare(text: str) -> str:
    """Return JSON text without the fence that some models put around it."""
    fenced = re.match(_FENCED, text)
    return fenced[1] if fenced else text
