"""JSON Schemas of the public types, for those who talk to Haptera in another language."""

import msgspec

from haptera.model.schemas import PUBLIC_TYPES, as_written, stream_json_schema
from tests.schema_references import references_in


def test_the_references_in_the_schemas_of_all_public_types_resolve() -> None:
    schemas, components = msgspec.json.schema_components(PUBLIC_TYPES.values())
    defined = {f"#/$defs/{name}" for name in as_written(components)}
    assert references_in([*schemas, as_written(components)]) <= defined


def test_a_schema_names_the_tag_and_what_is_required() -> None:
    turn = stream_json_schema()["$defs"]["TurnStarted"]
    assert turn["properties"]["kind"] == {"enum": ["turn.started"]}
    assert {"kind", "id", "time", "message_id", "provider", "model"} <= set(turn["required"])


def test_the_version_of_a_session_state_is_fixed() -> None:
    state = msgspec.json.schema(PUBLIC_TYPES["SessionState"])["$defs"]["SessionState"]
    assert state["properties"]["version"]["enum"] == [1]
