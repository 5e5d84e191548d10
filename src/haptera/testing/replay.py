"""Replays a recording without its provider: as it was, or with faults in chosen places."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias, assert_never

import msgspec

from haptera.model.canonical import json_digest
from haptera.model.errors import (
    ConfigError,
    ErrorCode,
    ErrorReport,
    RequestError,
    SessionError,
    error_from_report,
)
from haptera.model.requests import ModelRequest, TokenCount
from haptera.model.stream_parts import StreamPart
from haptera.stores.recording import (
    Exchange,
    decode_part,
    first_difference,
    plain_request,
    read_recording,
)
from haptera.system.clock import Clock
from haptera.testing.clocks import LoopClock, one_turn


class _FaultPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a fault happens: after `part` parts of the answer to the `request`-th request."""

    part: int
    request: int = 0
    """Counted from 0 over all requests; one that is repeated counts again."""


class CutAt(_FaultPoint, frozen=True, kw_only=True):
    """The connection breaks: STREAM_INTERRUPTED."""


class FailAt(_FaultPoint, frozen=True, kw_only=True):
    """The provider fails with an error."""

    error: ErrorReport


class StallAt(_FaultPoint, frozen=True, kw_only=True):
    """Nothing comes for a while."""

    seconds: float | None = None
    """None means until the stream is closed."""


class CallAt(_FaultPoint, frozen=True, kw_only=True):
    """Something else happens at this moment: an abort, a kill, a change of settings."""

    action: Callable[[], None]


Fault: TypeAlias = CutAt | FailAt | StallAt | CallAt


class ReplayClient:
    """Answers requests from a recording; see `ModelClient` for what it promises.

    A request gets the first answer not yet given whose recorded request says the same; when none
    does, the error names the first difference. An answer that a fault broke can be asked for again.
    An answer that was recorded up to an abort goes no further: it is silent until it is closed.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        timing: Literal["none", "recorded"] = "none",
        clock: Clock | None = None,
        faults: Iterable[Fault] = (),
        check_requests: bool = True,
    ) -> None:
        self._path = Path(path)
        self._clock = clock or LoopClock()
        self._keeps_time = timing == "recorded"
        self._faults = sorted(faults, key=lambda fault: (fault.request, fault.part))
        self._check_requests = check_requests
        self._played: set[int] = set()
        self._asked = 0
        self._closed = False

    @property
    def provider(self) -> str:
        """The name of the provider that was recorded."""
        return self._recording[0]

    @property
    def unplayed(self) -> int:
        """How many recorded answers were not asked for."""
        answers = [exchange for exchange in self._exchanges if exchange.tokens is None]
        return len(answers) - len(self._played)

    def check(self) -> None:
        """Fail when recorded answers are left."""
        if self.unplayed:
            raise AssertionError(f"{self.unplayed} recorded answers were not asked for")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        """Give the recorded answer to `request`."""
        index = self._find(request)
        faults = [fault for fault in self._faults if fault.request == self._asked]
        self._asked += 1
        self._played.add(index)
        exchange, count = self._exchanges[index], 0
        for read in exchange.reads:
            await self._pass(read.delay)
            parts = [decode_part(part) for part in read.parts]
            # A read is cut where a fault happens in it.
            while faults and faults[0].part <= count + len(parts):
                fault = faults.pop(0)
                before = fault.part - count
                if before:
                    yield parts[:before]
                count, parts = fault.part, parts[before:]
                await self._happen(fault, index)
            if parts:
                yield parts
            count += len(parts)
        # Only an answer without reads has faults left here: those before its first part.
        while faults and faults[0].part <= count:
            await self._happen(faults.pop(0), index)
        if faults:
            message = f"{faults[0]!r} comes after the answer's {count} parts"
            raise ConfigError(ErrorCode.CONFIG_INVALID, message)
        await self._end(exchange)

    async def count_tokens(self, request: ModelRequest) -> TokenCount:
        """Give the recorded count of `request`."""
        digest = json_digest(plain_request(request))
        for exchange in self._exchanges:
            if exchange.tokens is not None and exchange.digest == digest:
                return exchange.tokens
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, f"{self._path} holds no count of this request's tokens"
        )

    async def close(self) -> None:
        """Refuse later requests."""
        self._closed = True

    @cached_property
    def _recording(self) -> tuple[str, tuple[Exchange, ...]]:
        return read_recording(self._path)

    @property
    def _exchanges(self) -> tuple[Exchange, ...]:
        return self._recording[1]

    def _find(self, request: ModelRequest) -> int:
        """Return the place of the exchange that answers `request`."""
        if self._closed:
            raise SessionError(ErrorCode.CLOSED, "the client is closed")
        left = [
            (index, exchange)
            for index, exchange in enumerate(self._exchanges)
            if exchange.tokens is None and index not in self._played
        ]
        if not left:
            raise ConfigError(
                ErrorCode.CONFIG_INVALID, f"all answers of {self._path} have been given"
            )
        if not self._check_requests:
            return left[0][0]
        sent = plain_request(request)
        digest = json_digest(sent)
        for index, exchange in left:
            if exchange.digest == digest:
                return index
        index, expected = left[0]
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"request {self._asked} is not the one that {self._path} has an answer to: "
            f"{first_difference(expected.request, sent)} (exchange {index})",
        )

    async def _pass(self, seconds: float) -> None:
        if self._keeps_time:
            await self._clock.sleep(seconds)

    async def _happen(self, fault: Fault, index: int) -> None:
        match fault:
            case CallAt(action=action):
                action()
                # One turn of the loop: an abort takes effect before anything else comes.
                await one_turn()
            case StallAt(seconds=seconds):
                await self._stall(seconds)
            case CutAt():
                self._played.discard(index)
                raise RequestError(
                    ErrorCode.STREAM_INTERRUPTED, "cut by the replay", provider=self.provider
                )
            case FailAt(error=error):
                self._played.discard(index)
                raise error_from_report(error)
            case _ as never:
                assert_never(never)

    async def _stall(self, seconds: float | None) -> None:
        if seconds is None:
            await _for_ever()
        else:
            await self._clock.sleep(seconds)

    async def _end(self, exchange: Exchange) -> None:
        await self._pass(exchange.delay)
        if exchange.error is not None:
            raise error_from_report(exchange.error)
        if exchange.ended == "closed":
            await _for_ever()


async def _for_ever() -> None:
    await asyncio.Event().wait()
