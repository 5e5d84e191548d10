"""Limits of a server: the rate of requests, failed credentials, and open streams."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable

import msgspec

from holdfast.server.problems import ProblemError

_MOST_CALLERS = 10_000


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a server is reached, and what it bounds."""

    hosts: frozenset[str] = frozenset()
    """Values of the Host header to answer to, with the port unless it is 80 or 443, such as
    `chat.example`. Empty: `127.0.0.1`, `localhost` and `[::1]` with the port that it listens on."""
    origins: frozenset[str] = frozenset()
    """Origins of pages of other sites that may call, such as `https://app.example`."""
    behind_tls: bool = False
    """Whether a proxy in front of the server adds TLS: cookies are for HTTPS only then, too."""
    body_bytes: int = 4 * 1024 * 1024
    body_seconds: float = 30.0
    """How long a client may stop in the middle of a body."""
    import_bytes: int = 64 * 1024 * 1024
    """The largest file that may be imported."""
    requests_per_second: float = 100.0
    """How many requests one owner may make, after a burst of twice as many."""
    failures_per_second: float = 5.0
    """How many requests with a wrong credential, or a wrong link, are answered for one client."""
    readings_per_second: float = 10.0
    """How many requests one link to a session may get."""
    streams_per_owner: int = 100
    streams: int = 1000
    ping_seconds: float = 12.0
    """How long a stream is silent before it sends a `ping`."""
    calls_per_connection: int = 64
    """How many calls of JSON-RPC one connection may have in flight."""
    wait_seconds: int = 600
    """The longest `Prefer: wait`."""
    sessions: int = 200
    """How many sessions are kept open at once."""
    sessions_per_owner: int | None = None
    """How many of them one owner may have; None: three quarters, so that places are left for the
    others."""
    idle_seconds: float = 300.0
    """How long a session without a query is kept open."""
    resume: bool = True
    """Whether queries that were cut off are carried on: those of servers that have gone, and those
    that an earlier server left in a store of one machine."""
    resume_seconds: float = 5.0
    """How often to look for them, and whether the store can be reached."""
    resume_at_once: int = 8
    """How many of them are carried on at the same time."""
    store_seconds: float = 5.0
    """How long a store may take to answer before requests are refused with 503."""


class RateLimit:
    """A token bucket for each caller: refilled evenly, twice a second's worth deep."""

    def __init__(self, per_second: float, *, now: Callable[[], float] | None = None) -> None:
        self._per_second = per_second
        self._now = now or (lambda: asyncio.get_running_loop().time())
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> None:
        """Count a request.

        Raises:
            ProblemError: 429 with when to try again.

        """
        now, deepest = self._now(), max(1.0, 2 * self._per_second)
        level, since = self._buckets.pop(caller, (deepest, now))
        level = min(deepest, level + (now - since) * self._per_second)
        is_empty = level < 1
        self._buckets[caller] = (level if is_empty else level - 1, now)
        if len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        if is_empty:
            wait = (1 - level) / self._per_second
            raise ProblemError(
                429, "RATE_LIMITED", "too many requests", retryable=True, retry_after=wait
            )


class StreamLimit:
    """Counts the open streams of each owner."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._open: Counter[str] = Counter()
        self._ended = asyncio.Event()

    @property
    def open(self) -> int:
        """How many streams are open."""
        return self._open.total()

    async def all_ended(self) -> None:
        """Wait until no stream is open."""
        while self.open:
            self._ended.clear()
            await self._ended.wait()

    def begin(self, owner: str) -> Callable[[], None]:
        """Count a stream; returns the function that ends it, which may be called twice.

        Raises:
            ProblemError: 429 when there are too many.

        """
        is_full = self.open >= self._settings.streams
        if is_full or self._open[owner] >= self._settings.streams_per_owner:
            raise ProblemError(
                429, "TOO_MANY_STREAMS", "too many streams", retryable=True, retry_after=1.0
            )
        self._open[owner] += 1
        is_ended = False

        def end() -> None:
            nonlocal is_ended
            if not is_ended:
                is_ended = True
                self._open[owner] -= 1
                self._ended.set()

        return end
