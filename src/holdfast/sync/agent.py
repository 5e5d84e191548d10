"""Agent, blocking: every method is its async twin, waited for."""

from typing import Any, Self, Unpack

from holdfast.agent.agent import Agent as AsyncAgent
from holdfast.agent.keywords import AgentOptions, Prompt, QueryOptions, SessionOptions
from holdfast.sync.doorway import Doorway
from holdfast.sync.query_stream import QueryStream
from holdfast.sync.session import AgentSession
from holdfast.vocabulary.results import AgentResult
from holdfast.vocabulary.settings import Settings


class Agent:
    """The blocking face of an agent; see `holdfast.Agent`."""

    def __init__(self, model: str = "", /, **options: Unpack[AgentOptions]) -> None:
        self._inner = AsyncAgent(model, **options)
        self._door = Doorway()

    @property
    def settings(self) -> Settings:
        """What new sessions start with."""
        return self._inner.settings

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def run(self, prompt: Prompt, **options: Unpack[QueryOptions]) -> AgentResult[Any]:
        """Answer one prompt in a session of its own."""
        return self._door.call(self._inner.run(prompt, **options))

    def stream(self, prompt: Prompt, **options: Unpack[QueryOptions]) -> QueryStream[Any]:
        """Answer one prompt in a session of its own, and watch the answer come."""
        return QueryStream(self._inner.stream(prompt, **options), self._door)

    def session(
        self, reference: str | None = None, **options: Unpack[SessionOptions]
    ) -> AgentSession:
        """Return a session by its name or id: a new one, or as the store has it."""
        return AgentSession(self._inner.session(reference, **options), self._door)

    def close(self) -> None:
        """Close every session, then what they share."""
        self._door.close(self._inner.close)
