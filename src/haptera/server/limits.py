"""Limits of a server: the rate of requests, failed credentials, and open streams."""

import asyncio
import contextlib
import re
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable
from typing import Annotated
from weakref import WeakValueDictionary

import msgspec

from haptera.access.pool import PoolLimits, WhenQueueFull
from haptera.model.option import Option
from haptera.model.settings import PoolSettings
from haptera.options.checks import checked_fields
from haptera.options.declarations import declared_fields, is_list
from haptera.server.problems import ProblemError
from haptera.system.clock import Clock

_MOST_CALLERS = 10_000
_ORIGIN = re.compile(r"https?://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:\d{1,5})?", re.IGNORECASE)
_POOL = declared_fields(PoolSettings)
_POOL_LIMITS = declared_fields(PoolLimits)
_LIMITS = PoolLimits()


def _are_origins(value: object) -> bool:
    return is_list(value) and all(
        isinstance(each, str) and _ORIGIN.fullmatch(each) for each in value
    )


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a server is reached, and what it bounds.

    Each field is the one declaration of its type, default, bounds and sentence: the check in
    `create_app`, the flags of `haptera serve` and the table of the documentation derive from it.
    """

    hosts: Annotated[
        frozenset[str],
        Option(
            "Host names that clients use, such as `chat.example`, with the port unless "
            "it is 80 or 443. Without any: `127.0.0.1`, `localhost` and `[::1]` with "
            "the port that it listens on."
        ),
    ] = frozenset()
    origins: Annotated[
        frozenset[str],
        Option(
            "Origins of pages of other sites that may call, such as `https://app.example`.",
            fits=_are_origins,
            wanted="origins such as https://app.example, without a path",
        ),
    ] = frozenset()
    behind_tls: Annotated[
        bool,
        Option(
            "Whether a proxy in front of the server adds TLS; cookies are then for HTTPS only, too."
        ),
    ] = False
    body_bytes: Annotated[
        int,
        Option("The largest body of a request, imports apart.", least=1),
    ] = 4 * 1024 * 1024
    body_seconds: Annotated[
        float,
        Option("How long the body of a request may take as a whole, imports apart.", above=0),
    ] = 60.0
    import_bytes: Annotated[
        int,
        Option("The largest file that may be imported.", least=1),
    ] = 64 * 1024 * 1024
    import_seconds: Annotated[
        float,
        Option(
            "How long a file that is imported may take to come, and then to be imported.", above=0
        ),
    ] = 600.0
    requests_per_second: Annotated[
        float,
        Option(
            "How many requests a second one owner may make, after a burst of twice as many.",
            above=0,
        ),
    ] = 100.0
    requests_per_owner: Annotated[
        int,
        Option(
            "How many requests one owner may have in progress, calls of JSON-RPC included; also "
            "how many one client may have that need no credential.",
            least=1,
        ),
    ] = 200
    failures_per_second: Annotated[
        float,
        Option(
            "How many requests a second with a wrong credential, or a wrong link, are "
            "answered for one client.",
            above=0,
        ),
    ] = 5.0
    readings_per_second: Annotated[
        float,
        Option("How many requests a second one link to a session may get.", above=0),
    ] = 10.0
    streams_per_owner: Annotated[
        int,
        Option(
            "How many streams of events one owner may have open. A WebSocket counts as one, and so "
            "does a request that waits for the end of a query.",
            least=1,
        ),
    ] = 100
    streams: Annotated[
        int, Option("How many streams of events all owners may have open.", least=1)
    ] = 1000
    ping_seconds: Annotated[
        float,
        Option("How long a stream is silent before it sends a `ping`.", above=0),
    ] = 12.0
    calls_per_connection: Annotated[
        int,
        Option(
            "How many calls of JSON-RPC one connection may have in flight, and a batch may have.",
            least=1,
        ),
    ] = 64
    wait_seconds: Annotated[int, Option("The longest `Prefer: wait`.", least=0)] = 600
    sessions: Annotated[
        int,
        Option(
            "Sessions that a server keeps open. `haptera serve` and `haptera rpc` use the "
            "configured `max_concurrent_sessions` instead, if it is set.",
            least=_POOL["max_concurrent_sessions"].option.least,
        ),
    ] = 200
    sessions_per_owner: Annotated[
        int | None,
        Option(
            "How many of them one owner may have; None: three quarters, so that places "
            "are left for the others.",
            least=1,
        ),
    ] = None
    idle_seconds: Annotated[
        float,
        Option(
            "Seconds without use after which a server closes a session. `haptera serve` and "
            "`haptera rpc` use the configured `session_timeout` instead, if it is set.",
            least=_POOL["session_timeout"].option.least,
        ),
    ] = 300.0
    queries: Annotated[
        int | None,
        Option(
            "Queries that run at the same time in sessions that are open here; None: all that are "
            "asked for. A prompt for an idle session waits for its turn before it is stored.",
            least=1,
        ),
    ] = None
    pending_queries: Annotated[int, _POOL_LIMITS["pending"].option] = _LIMITS.pending
    when_queries_full: Annotated[WhenQueueFull, _POOL_LIMITS["when_full"].option] = (
        _LIMITS.when_full
    )
    pending_seconds: Annotated[float, _POOL_LIMITS["pending_seconds"].option] = (
        _LIMITS.pending_seconds
    )
    local_files: Annotated[
        frozenset[str],
        Option(
            "Files that holders of keys may name as models, by `local:PATH` with exactly this "
            "path; without any, only those that the configuration of the server names."
        ),
    ] = frozenset()
    resume: Annotated[
        bool,
        Option(
            "Whether queries that were cut off are carried on: those of servers that "
            "have gone, and those that an earlier server left in a store of one "
            "machine."
        ),
    ] = True
    resume_seconds: Annotated[
        float,
        Option("How often to look for them, and whether the store can be reached.", above=0),
    ] = 5.0
    resume_at_once: Annotated[
        int, Option("How many of them are carried on at the same time.", least=1)
    ] = 8
    store_seconds: Annotated[
        float,
        Option(
            "How long a store may take to answer before requests are refused with 503.", above=0
        ),
    ] = 5.0


def checked_settings(settings: ServerSettings) -> ServerSettings:
    """Return the settings of a server, checked; hosts and origins in lower case, as they are read.

    Raises:
        ConfigError: CONFIG_INVALID naming the field.

    """
    checked = checked_fields(settings)
    return msgspec.structs.replace(
        checked,
        hosts=frozenset(each.lower() for each in checked.hosts),
        origins=frozenset(each.lower() for each in checked.origins),
    )


class RateLimit:
    """A token bucket for each caller: refilled evenly, twice a second's worth deep."""

    def __init__(self, per_second: float, *, clock: Clock) -> None:
        self._per_second = per_second
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> None:
        """Count a request.

        Raises:
            ProblemError: 429 with when to try again.

        """
        now, deepest = self._clock.now(), max(1.0, 2 * self._per_second)
        level, since = self._buckets.pop(caller, (deepest, now))
        level = min(deepest, level + (now - since) * self._per_second)
        is_empty = level < 1
        # At the end again, so that the caller that asked longest ago is forgotten first.
        self._buckets[caller] = (level if is_empty else level - 1, now)
        # Failures are counted by address and readings by link, which clients choose: the table has
        # to be bounded.
        if len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        if is_empty:
            wait = (1 - level) / self._per_second
            raise ProblemError(
                429, "RATE_LIMITED", "too many requests", retryable=True, retry_after=wait
            )


class CallerPlaces:
    """Bounds work that takes long: one of each caller at a time, and so many in all.

    It runs in threads, which share the interpreter with the event loop.
    """

    def __init__(self, total: int) -> None:
        self._total = asyncio.Semaphore(total)
        self._own: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def of(self, caller: str) -> AsyncGenerator[None, None]:
        """Wait until it is the turn of a caller, and keep it while the block runs."""
        async with self._own.setdefault(caller, asyncio.Lock()), self._total:
            yield


class OpenLimit:
    """Counts what each caller has open: streams, or requests in progress."""

    def __init__(self, what: str, *, each: int, total: int | None = None) -> None:
        self._what = what
        self._each = each
        self._total = total
        self._open: Counter[str] = Counter()
        self._ended = asyncio.Event()

    @property
    def open(self) -> int:
        """How many are open."""
        return self._open.total()

    async def all_ended(self) -> None:
        """Wait until none is open."""
        while self.open:
            self._ended.clear()
            await self._ended.wait()

    def begin(self, caller: str) -> Callable[[], None]:
        """Count one; returns the function that ends it, which may be called twice.

        Raises:
            ProblemError: 429 when there are too many.

        """
        is_full = self._total is not None and self.open >= self._total
        if is_full or self._open[caller] >= self._each:
            code, message = f"TOO_MANY_{self._what.upper()}", f"too many {self._what}"
            raise ProblemError(429, code, message, retryable=True, retry_after=1.0)
        self._open[caller] += 1
        is_ended = False

        def end() -> None:
            nonlocal is_ended
            if not is_ended:
                is_ended = True
                self._open[caller] -= 1
                if not self._open[caller]:  # addresses are many
                    del self._open[caller]
                self._ended.set()

        return end
