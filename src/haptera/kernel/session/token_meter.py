"""TokenMeter: how many tokens the next request of a session holds, before it is sent.

A module of its own because a session keeps one, and the compactor, which reads it, keeps nothing.
"""

import operator
from collections.abc import Sequence

from haptera.kernel.blocks.token_estimate import estimate_message, estimate_tokens
from haptera.model.ids import MessageId
from haptera.model.messages import Message
from haptera.model.requests import ModelRequest
from haptera.model.stream_parts import StreamFinished
from haptera.model.tools import ToolSpec

_UNSETTLED = 2
"""So many messages at the end of a view may still be replaced by longer ones."""
_NEAR_THE_END = 6
"""So many messages at the end of a view may hold the last answer."""


class TokenMeter:
    """Measures requests of one session; each message is estimated once.

    What the provider counted for the last answer, with an estimate of what was added since, is
    better than an estimate of everything, and is used unless it is less than half of that: some
    providers report no usage, or not all of it.
    """

    def __init__(self) -> None:
        self._settled: tuple[Message | None, Message | None] = (None, None)
        """The first and the last message that are in the sum."""
        self._count = self._sum = 0
        self._fixed_of: tuple[Sequence[str], Sequence[ToolSpec]] | None = None
        self._fixed = 0
        self._answer: tuple[MessageId, int] | None = None
        self.waits_until = 0
        """Tokens up to which no summary is asked for again, after one that could not be used."""

    def learn(self, message_id: MessageId, finished: StreamFinished) -> None:
        """Take in what a provider counted for a request and its answer."""
        known = finished.context_tokens
        tokens = finished.usage.total if known is None else known
        self._answer = (message_id, tokens) if tokens else None

    def forget(self) -> None:
        """Take in that something else is sent from now on."""
        self._answer, self.waits_until = None, 0
        self._count = self._sum = 0

    def fixed(self, system: Sequence[str], tools: tuple[ToolSpec, ...]) -> int:
        """Return the tokens that every request holds beside its messages."""
        known = self._fixed_of
        if known is None or known[0] != system or not _are_same(known[1], tools):
            self._fixed_of = (system, tools)
            request = ModelRequest(model="", messages=(), system=tuple(system), tools=tools)
            self._fixed = estimate_tokens(request).tokens
        return self._fixed

    def measure(
        self, view: Sequence[Message], *, system: Sequence[str], tools: tuple[ToolSpec, ...]
    ) -> int:
        """Return the tokens of a request with these messages."""
        settled = max(0, len(view) - _UNSETTLED)
        self._add_up(view, settled)
        estimate = self.fixed(system, tools) + self._sum + estimate_all(view[settled:])
        counted = self._counted(view)
        return counted if 2 * counted >= estimate else estimate

    def _add_up(self, view: Sequence[Message], settled: int) -> None:
        """Let the sum hold the first messages of a view."""
        first, last = self._settled
        count = self._count
        # Messages are frozen and shared between views: if the first and the last one counted are
        # still in place, so is what lies between.
        is_grown = 0 < count <= settled and view[0] is first and view[count - 1] is last
        if not is_grown:
            self._sum = count = 0
        self._sum += estimate_all(view[count:settled])
        self._count = settled
        self._settled = (view[0], view[settled - 1]) if settled else (None, None)

    def _counted(self, view: Sequence[Message]) -> int:
        """Return what the provider counted and what was added since; 0 when it is not known."""
        if self._answer is None:
            return 0
        message_id, tokens = self._answer
        for index in range(len(view) - 1, max(-1, len(view) - 1 - _NEAR_THE_END), -1):
            if view[index].id == message_id:
                return tokens + estimate_all(view[index + 1 :])
        return 0


def _are_same(known: Sequence[ToolSpec], tools: Sequence[ToolSpec]) -> bool:
    """Say whether tools are those that are known.

    By identity, since schemas are slow to compare. One by one, since every view of a registry's
    tools is another tuple of the same specifications.
    """
    return len(known) == len(tools) and all(map(operator.is_, known, tools))


def estimate_all(messages: Sequence[Message]) -> int:
    """Estimate the tokens of several messages."""
    return sum(map(estimate_message, messages))
