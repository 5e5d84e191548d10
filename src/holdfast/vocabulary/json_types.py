"""Names for plain JSON values, used where a value is somebody else's and stays opaque to us."""

from typing import Any, TypeAlias

Json: TypeAlias = Any
"""Any value that JSON can hold."""

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object whose shape is not ours to define."""
