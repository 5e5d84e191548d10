"""QueryStream, blocking: the events of one query for a plain `for`."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Generic, Self, TypeVar

from holdfast.agent.query_stream import QueryStream as AsyncQueryStream
from holdfast.sync.background_loop import LoopAccess
from holdfast.vocabulary.events import Event, TextDelta
from holdfast.vocabulary.results import AgentResult

OutputT = TypeVar("OutputT")


class QueryStream(Generic[OutputT]):
    """The blocking face of a query's stream; see `holdfast.QueryStream`."""

    def __init__(self, inner: AsyncQueryStream[Any], access: LoopAccess) -> None:
        self._inner = inner
        self._access = access

    @property
    def phase(self) -> str:
        """What the stream is doing."""
        return self._inner.phase

    def __enter__(self) -> Self:
        self._access.call(self._inner.__aenter__())
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        for batch in self.batches():
            yield from batch

    def text(self) -> Iterator[str]:
        """Iterate over the answer's text as it comes."""
        for event in self:
            if isinstance(event, TextDelta):
                yield event.text

    def take(self, count: int) -> Iterator[Event]:
        """Iterate over the first events, then stop the query."""
        if count <= 0:
            return
        events = iter(self)
        try:
            yield from islice(events, count)
        finally:
            self.close()

    def batches(self) -> Iterator[list[Event]]:
        """Iterate over events as they come in, many at a time: one hop to the loop for each."""
        return self._access.iterate(self._inner.batches())

    def result(self) -> AgentResult[OutputT]:
        """Let the query run to its end and return what came of it."""
        return self._access.call(self._inner.result())

    def abort(self, reason: str | None = None) -> None:
        """Stop the query, from any thread; what was streamed is kept."""
        self._inner.abort(reason)

    def close(self) -> None:
        """Leave the stream: a query that still runs is aborted, and its end waited for."""
        self._access.close(self._inner.aclose)
