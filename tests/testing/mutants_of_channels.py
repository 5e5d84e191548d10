"""Approval coordinators, control channels and model clients with one mistake each."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import msgspec

from haptera import ErrorCode, SessionError
from haptera.kernel.blocks.approval_coordinator import ApprovalCoordinator
from haptera.kernel.blocks.control_channel import ControlChannel
from haptera.model.approvals import Approve, Decision
from haptera.model.events import Event
from haptera.model.ids import ApprovalId
from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.requests import ModelRequest, TokenCount
from haptera.model.stream_parts import (
    PartClosed,
    PartDelta,
    PartOpened,
    StreamFinished,
    StreamPart,
)
from haptera.testing.contracts import (
    approval_coordinator_contract,
    control_channel_contract,
    model_client_contract,
)


class LastAnswerStands(ApprovalCoordinator):
    """Takes every answer."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._seen: dict[ApprovalId, ApprovalRequested] = {}

    async def settle(self, approval_id: ApprovalId, decision: Decision, **more: Any) -> bool:
        self._seen.update(self._unanswered())
        asked = self._seen.get(approval_id)
        if asked is None:
            return False
        self._unanswered()[approval_id] = asked  # type: ignore[index]
        return await super().settle(approval_id, decision, **more)


class WakesTooEarly(ApprovalCoordinator):
    """Lets a call go on before its answer is written."""

    async def settle(self, approval_id: ApprovalId, decision: Decision, **more: Any) -> bool:
        asked = self._unanswered().get(approval_id)
        future = self._parked.get(approval_id)
        if asked is not None and future is not None and not future.done():
            entry = ApprovalSettled(
                **self._stamp_of(asked)(),
                approval_id=approval_id,
                call_id=asked.call_id,
                decision="approved" if isinstance(decision, Approve) else "denied",
                arguments=getattr(decision, "arguments", None),
                reason=getattr(decision, "reason", None),
                by=decision.by,
            )
            future.set_result(entry)
        return await super().settle(approval_id, decision, **more)


class WakesAll(ApprovalCoordinator):
    """Gives one answer to every call."""

    def wake(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, ApprovalSettled):
                for future in self._parked.values():
                    if not future.done():
                        future.set_result(event)
                self._parked.clear()


class WaitsForEver(ApprovalCoordinator):
    """Does not tell calls that the log failed."""

    def _fail(self, error: Any) -> None:
        pass


class NeverForgets(ApprovalCoordinator):
    """Goes on waiting when the query has ended."""

    def forget(self) -> None:
        pass


class DropsDetails(ApprovalCoordinator):
    """Records neither reasons nor changed arguments."""

    async def settle(self, approval_id: ApprovalId, decision: Decision, **more: Any) -> bool:
        return await super().settle(approval_id, type(decision)(), **more)


class CancelsNothing(ApprovalCoordinator):
    """Leaves questions open."""

    def cancellations(self, reason: str) -> list[ApprovalSettled]:
        return []


class FlushesNothing(ApprovalCoordinator):
    """Leaves staged what was left."""

    async def flush(self) -> None:
        return


class AttachesNothing(ControlChannel):
    """Gives those that pull nothing."""

    def attach(self, subscription: Any) -> Any:
        if type(subscription).__name__ == "Subscription":
            return lambda: None
        return super().attach(subscription)


class WaitsForHandlersOnly(ControlChannel):
    """Does not give a wait up."""

    async def wait_for_space(self, *, unless: Any = ()) -> None:
        await super().wait_for_space()


class ExcusesNone(ControlChannel):
    """Waits for handlers that wait for it."""

    def excuse(self, *, closing: bool = False) -> None:
        return


class Reversed(ControlChannel):
    """Delivers a batch from its end."""

    def publish(self, events: Sequence[Event]) -> None:
        super().publish(events[::-1])


class AllAtOnce(ControlChannel):
    """Starts an async handler on its next event before it is done."""

    def subscribe(self, handler: Any) -> Callable[[], None]:
        started: set[asyncio.Future[Any]] = set()

        def start(event: Event) -> None:
            outcome = handler(event)
            if asyncio.iscoroutine(outcome):
                started.add(asyncio.ensure_future(outcome))

        return super().subscribe(start)


class FragileHandlers(ControlChannel):
    """Lets the failure of a handler reach the publisher."""

    def subscribe(self, handler: Any) -> Callable[[], None]:
        self.plain = [*getattr(self, "plain", []), handler]
        return lambda: None

    def publish(self, events: Sequence[Event]) -> None:
        super().publish(events)
        for event in events:
            for handler in getattr(self, "plain", []):
                outcome = handler(event)
                if asyncio.iscoroutine(outcome):
                    outcome.close()


class NoFilter(ControlChannel):
    """Gives every kind to a handler of one kind."""

    def on(self, kind: Any, handler: Any) -> Callable[[], None]:
        return self.subscribe(handler)


class Unbounded(ControlChannel):
    """Never lets a publisher wait."""

    def __init__(self) -> None:
        super().__init__(limit=10**9)


class LosesCommands(ControlChannel):
    """Says nothing when a command has no receiver."""

    def submit(self, command: Any) -> None:
        if self.receiver is not None:
            self.receiver(command)


class StaysOpen(ControlChannel):
    """Can be published to after its end."""

    async def close(self, **more: Any) -> None:
        await self.drain()


class Echo:
    """A model client that keeps its contract: it says what it was told."""

    provider = "echo"

    def __init__(self) -> None:
        self.closed = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        if self.closed:
            raise SessionError(ErrorCode.CLOSED, "this client is closed")
        yield [PartOpened(key="0", kind="text")]
        yield [PartDelta(key="0", text="You said so.")]
        yield [PartClosed(key="0"), StreamFinished(kind="stop")]

    async def count_tokens(self, request: ModelRequest) -> TokenCount:
        return TokenCount(tokens=len(msgspec.json.encode(request)), exact=False)

    async def close(self) -> None:
        self.closed = True


class NoEnd(Echo):
    """Ends without saying so."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        async for batch in super().stream(request):
            yield [part for part in batch if not isinstance(part, StreamFinished)]


class EmptyLists(Echo):
    """Yields lists without anything in them."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        async for batch in super().stream(request):
            yield batch
            yield []


class NeverCloses(Echo):
    """Leaves its parts open."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        async for batch in super().stream(request):
            if kept := [part for part in batch if not isinstance(part, PartClosed)]:
                yield kept


class OneKeyForAll(Echo):
    """Mixes what runs at the same time: a part is opened for the first request only."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        if not self.is_open:
            self.is_open = True
            yield [PartOpened(key="0", kind="text")]
        yield [PartDelta(key="0", text="You said so.")]
        yield [PartClosed(key="0"), StreamFinished(kind="stop")]


class WorksWhenClosed(Echo):
    """Goes on after it was closed."""

    async def close(self) -> None:
        pass


class CountsNothing(Echo):
    """Does not count."""

    async def count_tokens(self, request: ModelRequest) -> TokenCount:
        return TokenCount(tokens=1, exact=True)


class SlashInName(Echo):
    """Has a name that cannot be told from its model's."""

    provider = "echo/chamber"


MUTANTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "approval coordinator": (
        approval_coordinator_contract,
        {
            kind.__name__: kind
            for kind in (
                *(LastAnswerStands, WakesTooEarly, WakesAll, WaitsForEver),
                *(NeverForgets, DropsDetails, CancelsNothing, FlushesNothing),
            )
        },
    ),
    "control channel": (
        control_channel_contract,
        {
            kind.__name__: kind
            for kind in (
                *(Reversed, AllAtOnce, FragileHandlers, NoFilter),
                *(Unbounded, LosesCommands, StaysOpen),
                *(AttachesNothing, WaitsForHandlersOnly, ExcusesNone),
            )
        },
    ),
    "model client": (
        model_client_contract,
        {
            kind.__name__: kind
            for kind in (
                *(NoEnd, EmptyLists, NeverCloses, OneKeyForAll),
                *(WorksWhenClosed, CountsNothing, SlashInName),
            )
        },
    ),
}
"""The suite of each block, and its mutants by name."""

BLOCKS: dict[str, Any] = {
    "approval coordinator": ApprovalCoordinator,
    "control channel": ControlChannel,
    "model client": Echo,
}
"""The block of each suite, as it is."""
