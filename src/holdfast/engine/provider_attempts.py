"""ProviderAttempts: repeats a turn that failed, and goes on to the next model of a plan."""

from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias

import msgspec

from holdfast.blocks.error_classification import to_agent_error
from holdfast.blocks.request_builder import RequestExtras
from holdfast.blocks.retry_policy import FailureCount, GiveUp, RetryAfter, decide_retry
from holdfast.engine.scopes import QueryScope
from holdfast.engine.turn_runner import TurnOutcome, TurnPlan, TurnRunner
from holdfast.ports.clock import Clock, Random
from holdfast.ports.model_client import ModelClient
from holdfast.vocabulary.entries import RetryScheduled, TurnDiscarded
from holdfast.vocabulary.errors import AgentError, ErrorCode, RequestError
from holdfast.vocabulary.settings import ModelStep, RetrySettings, Settings
from holdfast.vocabulary.status import Busy, Retrying

ModelRouter: TypeAlias = Callable[[str], Awaitable[tuple[ModelClient, str]]]
"""Finds the client for `provider/model`, and the model's name without its provider."""

_NO_FALLBACK = frozenset(
    {
        ErrorCode.ABORTED,
        ErrorCode.BAD_REQUEST,
        ErrorCode.CONTENT_FILTER,
        ErrorCode.NOTHING_TO_SEND,
    }
)


class ProviderAttempts:
    """Gets one turn done, whatever it takes within the settings.

    Owns waiting and repeating. Does not own the decision (retry_policy) or the turn (TurnRunner).
    Each failed attempt that showed something is discarded in the log, so a consumer can drop it.
    """

    def __init__(
        self, *, turns: TurnRunner, route: ModelRouter, clock: Clock, random: Random
    ) -> None:
        self._turns = turns
        self._route = route
        self._clock = clock
        self._random = random

    async def run(self, scope: QueryScope, extras: RequestExtras) -> TurnOutcome:
        """Run one turn on the first model of the plan that answers.

        Raises:
            AgentError: the last error, when every attempt on every model failed.

        """
        last: AgentError | None = None
        tried: list[str] = []
        for settings in _plan(scope.fold.settings):
            try:
                return await self._run_on_model(scope, extras, settings)
            except AgentError as error:
                for earlier in tried:
                    error.add_note(earlier)
                last = error
                tried.append(f"before it, {settings.model}: {error.message}")
                if error.code in _NO_FALLBACK or not settings.fallbacks:
                    break
                await self._discard(scope, error)
        raise last or RequestError(ErrorCode.NETWORK, "no model was asked")

    async def _run_on_model(
        self, scope: QueryScope, extras: RequestExtras, settings: Settings
    ) -> TurnOutcome:
        client, model = await self._route(settings.model)
        extras = msgspec.structs.replace(extras, model=model)
        count, attempt = FailureCount(), 0
        while True:
            attempt += 1
            plan = TurnPlan(client=client, extras=extras, settings=settings, attempt=attempt)
            try:
                return await self._attempt(scope, plan)
            except AgentError as error:
                count = count.after(error)
                decision = decide_retry(error, count, settings.retry, jitter=self._random.random())
                if isinstance(decision, GiveUp):
                    raise
                await self._discard(scope, error)
                await self._wait(scope, decision, attempt=attempt, error=error)

    async def _attempt(self, scope: QueryScope, plan: TurnPlan) -> TurnOutcome:
        limit = scope.input.timeout or None
        try:
            return await self._turns.run(scope, plan)
        except TimeoutError as error:
            message = f"the model took longer than {limit:g} s" if limit else str(error)
            failure: AgentError = RequestError(
                ErrorCode.TIMEOUT, message, provider=plan.client.provider, basis="type"
            )
        except AgentError:
            raise
        except Exception as error:  # noqa: BLE001 - a client of the user's may raise anything
            failure = to_agent_error(error)
        # Raised out here, so that nothing leads back to the frames of a client with its headers.
        raise failure

    async def _discard(self, scope: QueryScope, error: AgentError) -> None:
        """Void what a failed attempt recorded."""
        if scope.turn_stamp is None or scope.message_id is None:
            return
        if scope.fold.open_turn is None:
            return
        scope.assembly = None
        discarded = TurnDiscarded(
            **scope.turn_stamp(),
            message_id=scope.message_id,
            reason="it failed and is tried again",
            error=error.report,
        )
        await scope.recorder.record([discarded])

    async def _wait(
        self, scope: QueryScope, decision: RetryAfter, *, attempt: int, error: AgentError
    ) -> None:
        next_at = self._clock.time_ms() + int(decision.seconds * 1000)
        scheduled = RetryScheduled(
            **scope.stamp(),
            attempt=attempt,
            delay=decision.seconds,
            next_at=next_at,
            error=error.report,
            account_limited=decision.account_limited,
        )
        await scope.recorder.record([scheduled])
        scope.session.set_status(
            Retrying(
                attempt=attempt,
                message=error.message,
                next_at=next_at,
                account_limited=decision.account_limited,
            )
        )
        await self._clock.sleep(decision.seconds)
        scope.session.set_status(Busy())


def _plan(settings: Settings) -> Iterator[Settings]:
    """Yield the settings for each model to try; the last one has no fallbacks left."""
    steps = settings.fallbacks
    yield settings
    for place, step in enumerate(steps):
        yield msgspec.structs.replace(
            settings,
            model=step.model,
            thinking=step.thinking if step.thinking is not None else settings.thinking,
            retry=_limited(settings.retry, step),
            fallbacks=steps[place + 1 :],
        )


def _limited(retry: RetrySettings, step: ModelStep) -> RetrySettings:
    """Return the retries of a fallback: its attempts count the first call, too."""
    attempts = step.max_attempts or ModelStep(model=step.model).max_attempts
    return msgspec.structs.replace(
        retry,
        max_retries=attempts - 1,
        interruption_retries=min(retry.interruption_retries, attempts - 1),
    )
