"""The port to what is known of models: their prices and their size."""

from decimal import Decimal
from typing import Protocol

from holdfast.vocabulary.usage import Usage


class ModelCatalogue(Protocol):
    """Knows models. What it does not know is None, never a guess."""

    def cost(self, provider: str, model: str, usage: Usage) -> Decimal | None:
        """Return what a call costs in US dollars."""
        ...

    def context_window(self, provider: str, model: str) -> int | None:
        """Return how many tokens a model can hold."""
        ...
