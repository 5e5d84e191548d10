"""JSON Schemas that programs give: whether they are some, and whether a value matches one."""

from collections.abc import Callable

import msgspec

from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.json_types import JsonObject
from haptera.model.late_names import late_module


def schema_check(
    schema: JsonObject, *, of: str = "output_schema"
) -> Callable[[object], str | None]:
    """Return what says why a value does not match a JSON Schema; None if it does.

    Raises:
        ConfigError: CONFIG_INVALID when it is no schema, CONFIG_MISSING without `jsonschema`.

    """
    try:
        jsonschema = late_module("jsonschema")  # slow to load, and needed only here
    except ImportError as error:
        message = f"{of} needs the package jsonschema: pip install jsonschema"
        raise ConfigError(ErrorCode.CONFIG_MISSING, message) from error
    kind = jsonschema.validators.validator_for(schema)
    try:
        msgspec.json.encode(schema)  # a model must be told of it
        kind.check_schema(schema)
    except (TypeError, ValueError, jsonschema.SchemaError) as error:
        message = f"{of} is not a JSON Schema: {getattr(error, 'message', error)}"
        raise ConfigError(ErrorCode.CONFIG_INVALID, message) from error
    # With a registry of its own it fetches nothing that a schema refers to.
    checker = kind(schema, registry=late_module("referencing").Registry())

    def fault(value: object) -> str | None:
        wrong = jsonschema.exceptions.best_match(checker.iter_errors(value))
        return None if wrong is None else f"{wrong.json_path}: {wrong.message}"

    return fault
