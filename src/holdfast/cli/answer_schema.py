"""`--output-schema FILE`: an answer that has to match a JSON Schema of the user's."""

from pathlib import Path
from typing import Any

import click
import jsonschema
import msgspec

from holdfast.cli.outcomes import SchemaAnswer


def answer_type(path: str) -> type:
    """Return a type for `output_type` whose values are those that the schema in a file allows.

    Raises:
        click.UsageError: when the file is not a JSON Schema of an object.

    """
    try:
        schema = msgspec.json.decode(Path(path).read_bytes(), type=dict[str, Any])
        validator = jsonschema.validators.validator_for(schema)
        validator.check_schema(schema)
    except (OSError, msgspec.DecodeError, jsonschema.SchemaError) as error:
        raise click.UsageError(f"{path} is no JSON Schema: {error}") from error
    checker = validator(schema)

    class Answer(SchemaAnswer):
        """An answer as plain values; has the methods by which a pydantic model is recognised."""

        @classmethod
        def model_json_schema(cls, **_options: object) -> dict[str, Any]:
            """Return the schema as it is in the file."""
            return schema

        @classmethod
        def model_validate_json(cls, text: str | bytes) -> "Answer":
            """Return the value of a JSON text if the schema allows it."""
            value: Any = msgspec.json.decode(text)
            wrong = jsonschema.exceptions.best_match(checker.iter_errors(value))
            if wrong is not None:
                raise ValueError(f"{wrong.json_path}: {wrong.message}")
            return cls(value)

    return Answer
