"""The loop detector: notices a model that makes the same tool call again and again."""

from collections import Counter

from holdfast.serialization.canonical import arguments_hash
from holdfast.vocabulary.json_types import Json


class LoopDetector:
    """Counts identical tool calls of one query. Made anew for each query."""

    def __init__(self, threshold: int | None) -> None:
        self._threshold = threshold
        self._seen: Counter[str] = Counter()

    def is_loop(self, tool: str, arguments: Json) -> bool:
        """Count this call; True from the call on that reaches the threshold."""
        if self._threshold is None:
            return False
        key = arguments_hash(tool, arguments)
        self._seen[key] += 1
        return self._seen[key] >= self._threshold
