"""The ports to models: one request in, one stream of parts out; and what is known of a model."""

from collections.abc import AsyncGenerator, Sequence
from decimal import Decimal
from typing import Protocol

from haptera.model.requests import ModelRequest, TokenCount
from haptera.model.stream_parts import StreamPart
from haptera.model.usage import Usage


class ModelClient(Protocol):
    """Asks a model.

    - A stream yields non-empty lists, one per read, and keeps to the grammar of `stream_parts`.
    - It ends with exactly one `StreamFinished`, or raises exactly one `AgentError`. What was
      decoded before a failure is yielded first.
    - An answer that breaks off raises STREAM_INTERRUPTED; it never looks complete.
    - Closing the generator, or cancelling the task in it, closes the connection.
    - It never repeats a request by itself, knows no conversation and no tools, and holds nothing
      of one request when the next one starts.
    """

    @property
    def provider(self) -> str:
        """The provider's name, as in `provider/model`."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        """Send `request` when first iterated, and yield the answer."""
        ...

    async def count_tokens(self, request: ModelRequest) -> TokenCount:
        """Count the tokens that `request` would send."""
        ...

    async def close(self) -> None:
        """Close connections; later streams raise."""
        ...


def missing_members(client: object) -> list[str]:
    """Return what an object lacks to be a model client."""
    return [
        name
        for name in ("provider", "stream", "count_tokens", "close")
        if not hasattr(client, name)
    ]


class ModelCatalogue(Protocol):
    """Knows models. What it does not know is None, never a guess."""

    def cost(self, provider: str, model: str, usage: Usage) -> Decimal | None:
        """Return what a call costs in US dollars."""
        ...

    def context_window(self, provider: str, model: str) -> int | None:
        """Return how many tokens a model can hold."""
        ...
