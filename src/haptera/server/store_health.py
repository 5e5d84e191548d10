"""Whether the store answers: what `/readyz` says, and when requests are refused at once.

A store that cannot be reached lets each operation wait for a while, because most failures are over
soon. A server must not let its callers wait behind each other all that time.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from haptera import AgentError
from haptera.server.limits import ServerSettings
from haptera.server.problems import ProblemError
from haptera.system.owned_tasks import OwnedTasks

_RETRY_AFTER_SECONDS = 2.0
_FRESH_SECONDS = 1.0
"""How long an answer counts: `/readyz` needs no credentials."""
_AGAIN_SECONDS = 0.5
"""How soon a store that did not answer is asked again."""


class StoreHealth:
    """Asks the store a small question, again and again while it does not answer.

    Owns the question that is under way; callers that ask at the same time share it.
    """

    def __init__(self, ask: Callable[[], Awaitable[object]], settings: ServerSettings) -> None:
        self._ask = ask
        self._settings = settings
        self._tasks = OwnedTasks()
        self._asking: asyncio.Task[bool] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._is_watched_for_good = False
        self._answered: float | None = None
        self._closing = asyncio.Event()
        self.is_down = False

    def start(self) -> None:
        """Ask every `resume_seconds` from now on, for a store that is reached over a network."""
        self._is_watched_for_good = True
        self._watch()

    async def close(self) -> None:
        """Ask no more."""
        self._closing.set()
        await self._tasks.cancel(within=None)

    async def check(self) -> bool:
        """Return whether the store answers within `store_seconds`."""
        loop = asyncio.get_running_loop()
        if self._answered is not None and loop.time() - self._answered < _FRESH_SECONDS:
            return not self.is_down
        if self._asking is None:
            self._asking = self._tasks.start(self._answers(), name="haptera-ask-store")
        asking = self._asking
        # `wait` does not cancel at the timeout: a slow question is not asked twice at the same
        # time.
        await asyncio.wait({asking}, timeout=self._settings.store_seconds)
        self.is_down = not asking.done() or asking.cancelled() or not asking.result()
        if asking.done() and self._asking is asking:
            self._asking = None
        if self.is_down:
            self._watch()
        else:
            self._answered = loop.time()
        return not self.is_down

    def refuse(self) -> None:
        """Refuse a request while the store does not answer.

        Raises:
            ProblemError: 503.

        """
        if self.is_down:
            raise ProblemError(
                503,
                "UNAVAILABLE",
                "the store cannot be reached",
                retryable=True,
                retry_after=_RETRY_AFTER_SECONDS,
            )

    def _watch(self) -> None:
        if self._watching is None and not self._closing.is_set():
            self._watching = self._tasks.start(self._ask_on(), name="haptera-watch-store")
            self._watching.add_done_callback(self._forget)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        del task
        self._watching = None

    async def _ask_on(self) -> None:
        while self.is_down or self._is_watched_for_good:
            pause = _AGAIN_SECONDS if self.is_down else self._settings.resume_seconds
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._closing.wait()
            if self._closing.is_set():
                return
            # The watch asks for real; an answer that still counts would make it believe itself.
            self._answered = None
            await self.check()

    async def _answers(self) -> bool:
        try:
            await self._ask()
        except AgentError:
            return False
        return True
