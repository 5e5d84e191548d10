"""What a request says of the JSON Schema that the answer must meet."""

import msgspec

from holdfast.providers.wire.chat_completions.dialects import OutputMode
from holdfast.vocabulary.requests import OutputSchema


def asks_for_schema_in_words(mode: OutputMode, wanted: OutputSchema | None) -> str:
    """Return the instruction for servers that cannot be given the schema itself.

    It names JSON in so many words, which such servers demand.
    """
    if wanted is None or mode == "json_schema":
        return ""
    schema = msgspec.json.encode(wanted.schema).decode()
    return f"Give the final answer as one JSON object that meets this JSON Schema: {schema}"
