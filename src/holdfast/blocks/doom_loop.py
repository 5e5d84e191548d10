"""The loop detector: notices a model that makes the same tool call again and again."""

from collections import Counter


class LoopDetector:
    """Counts identical tool calls of one query. Made anew for each query."""

    def __init__(self, threshold: int | None) -> None:
        self._threshold = threshold
        self._seen: Counter[str] = Counter()

    def is_loop(self, arguments_hash: str) -> bool:
        """Count this call, known by its tool and arguments; True once it reaches the threshold."""
        if self._threshold is None:
            return False
        self._seen[arguments_hash] += 1
        return self._seen[arguments_hash] >= self._threshold
