"""JSON Schemas of the public types, for those who talk to Holdfast in another language."""

from typing import Any

import pytest

from holdfast.serialization.schemas import PUBLIC_TYPES, json_schema_of


def references_in(value: Any) -> set[str]:
    """Return every `$ref` anywhere inside a schema."""
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(references_in(item) for item in value.values()))
    if isinstance(value, list):
        return set().union(*(references_in(item) for item in value))
    return set()


@pytest.mark.parametrize("name", sorted(PUBLIC_TYPES))
def test_a_public_type_has_a_schema_whose_references_resolve(name: str) -> None:
    schema = json_schema_of(name)
    assert schema["$defs"]
    assert references_in(schema) <= {f"#/$defs/{key}" for key in schema["$defs"]}


def test_a_schema_names_the_tag_and_what_is_required() -> None:
    turn = json_schema_of("Entry")["$defs"]["TurnStarted"]
    assert turn["properties"]["kind"] == {"enum": ["turn.started"]}
    assert {"kind", "id", "time", "message_id", "provider", "model"} <= set(turn["required"])


def test_the_version_of_a_session_state_is_fixed() -> None:
    state = json_schema_of("SessionState")["$defs"]["SessionState"]
    assert state["properties"]["version"]["enum"] == [1]
