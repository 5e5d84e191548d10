"""Which runner answers a query, and what happens around it.

`WatchedRunner` has context files, snapshots of files, and the end of a query without progress.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from haptera.kernel.engine.file_snapshots import FileSnapshots
from haptera.kernel.engine.query_scope import QueryScope
from haptera.kernel.engine.turn_guards import TurnGuards
from haptera.model.log.workspace import ContextLoaded
from haptera.ports.context_source import NO_CONTEXT, ContextSource, FoundContext
from haptera.ports.runner import QueryOutcome, Runner
from haptera.system.clock import Clock

_LOOKS = 4
"""How often progress is looked for in the time that a query may be without it."""
_CANCEL_SECONDS = 0.5


class RunnerChoice:
    """Hands a query to the runner for models or to that for native agents. Implements `Runner`.

    Owns which of the two it is. The one for native agents is made for the first session that has
    one: most programs have none.
    """

    def __init__(
        self,
        models: Runner[QueryScope],
        *,
        is_native: Callable[[str], bool],
        make_native: Callable[[], Runner[QueryScope]],
    ) -> None:
        self._models = models
        self._is_native = is_native
        self._make_native = make_native
        self._native: Runner[QueryScope] | None = None

    async def start(self, scope: QueryScope) -> None:
        """Record the prompt."""
        await self._runner_of(scope).start(scope)

    def run(self, scope: QueryScope) -> Coroutine[Any, Any, QueryOutcome]:
        """Answer it."""
        # Not a coroutine of its own: each delta would pass through it once more.
        return self._runner_of(scope).run(scope)

    def _runner_of(self, scope: QueryScope) -> Runner[QueryScope]:
        native_id, live = scope.fold.native.session_id, scope.session.native.live
        is_new = native_id is None and live is None
        if is_new and not self._is_native(scope.settings.model):
            return self._models
        if self._native is None:
            self._native = self._make_native()
        return self._native


class Watch(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a query is watched with."""

    guards: TurnGuards
    files: FileSnapshots
    is_native: Callable[[str], bool]
    clock: Clock
    context: ContextSource | None = None


class WatchedRunner:
    """The outermost `Runner`. Owns what surrounds a query, nothing of what happens in it.

    Progress is what is recorded or reported, looked at from time to time: nothing is done per
    event. A native agent reads context files itself, and runs tools inside its turn, so files are
    recorded around its whole query.
    """

    def __init__(self, runner: Runner[QueryScope], watch: Watch) -> None:
        self.runner = runner
        """What it watches."""
        self._watch = watch

    async def start(self, scope: QueryScope) -> None:
        """Record the prompt, and before it the context files if they are others than before."""
        context = self._watch.context
        if context is not None and not self._watch.is_native(scope.settings.model):
            found, known = await context.find(), scope.fold.context
            before = FoundContext(files=known.files, skills=known.skills) if known else NO_CONTEXT
            if found != before:
                loaded = ContextLoaded(**scope.stamp(), files=found.files, skills=found.skills)
                await scope.recorder.record([loaded])
        await self.runner.start(scope)

    def run(self, scope: QueryScope) -> Coroutine[Any, Any, QueryOutcome]:
        """Answer it."""
        # Not a coroutine of its own: each delta would pass through it once more.
        seconds = scope.settings.watchdogs.idle_seconds
        work = self._run_native if self._watch.is_native(scope.settings.model) else self.runner.run
        if seconds is None:
            return work(scope)
        return self._run_watched(scope, work(scope), seconds)

    async def _run_native(self, scope: QueryScope) -> QueryOutcome:
        refused = await self._watch.guards.before_turn(scope)
        if refused is not None:
            return refused
        # The agent does not say beforehand which of its tools write.
        await self._watch.files.before_tool(scope, "external")
        outcome = await self.runner.run(scope)
        await self._watch.files.after_tools(scope)
        return outcome

    async def _run_watched(
        self, scope: QueryScope, work: Coroutine[Any, Any, QueryOutcome], seconds: float
    ) -> QueryOutcome:
        tasks = scope.session.tasks
        worker = tasks.start(work, name="haptera-watched")
        seen, silent = _progress_of(scope), 0
        try:
            while silent < _LOOKS:
                # By the agent's clock and not by a timeout of `asyncio.wait`: tests hold that clock
                # still.
                timer = tasks.start(self._watch.clock.sleep(seconds / _LOOKS), name="haptera-watch")
                try:
                    await asyncio.wait({worker, timer}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    timer.cancel()
                if worker.done():
                    return worker.result()
                now = _progress_of(scope)
                # While a person is asked, the query waits for the person.
                silent = 0 if now != seen or scope.fold.approvals else silent + 1
                seen = now
        finally:
            worker.cancel()
        scope.abort.abort("it made no progress")  # what ignores its cancellation can do no more
        await asyncio.wait({worker}, timeout=_CANCEL_SECONDS)
        told = f"idle_seconds={seconds:g}: there was no progress"
        return QueryOutcome(stop_reason="limit", stop_detail=told)


def _progress_of(scope: QueryScope) -> tuple[int, int]:
    """Return what changes with every progress: the log grows, or a tool reports something."""
    return scope.fold.head, scope.tool_reports
