"""Lenient JSON: encodes what may hold lone surrogates, or ids of another type.

A request and an export must not fail because of what another program or a provider once wrote.
"""

import msgspec

from haptera.model.json_types import Json, JsonObject


def encode_lenient(value: Json) -> bytes:
    """Encode `value` as JSON; what UTF-8 cannot hold becomes U+FFFD."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(without_surrogates(value))


def without_surrogates(value: Json) -> Json:
    """Join surrogate pairs and replace lone surrogates, in every string of a JSON value."""
    match value:
        case str():
            # UTF-16 writes an emoji as two surrogates: encoding them side by side joins the pair
            # again.
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case list() | tuple():
            return [without_surrogates(item) for item in value]
        case dict():
            return {
                without_surrogates(key): without_surrogates(item) for key, item in value.items()
            }
        case _:
            return value


def id_text(value: Json) -> str:
    """Return an id or a name as text; some servers send integers. Empty for any other type."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def with_text_ids(value: JsonObject, *names: str) -> JsonObject:
    """Return an object whose named fields are text; those that cannot be text are left out."""
    if all(isinstance(value[name], str) for name in names if name in value):
        return value
    texts = {name: id_text(value[name]) for name in names if name in value}
    rest = {name: each for name, each in value.items() if name not in texts}
    return rest | {name: text for name, text in texts.items() if text}
