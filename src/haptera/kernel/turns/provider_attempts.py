"""ProviderAttempts: repeats a model call that failed, and goes on to the next model of a plan."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from haptera.kernel.blocks.error_classification import to_agent_error
from haptera.kernel.blocks.retry_policy import FailureCount, GiveUp, RetryAfter, decide_retry
from haptera.kernel.query.query import ModelPlan, Query
from haptera.model.errors import AgentError, ErrorCode, RequestError, StoreError
from haptera.model.events import Busy, Retrying
from haptera.model.log.turns import RetryScheduled
from haptera.model.settings import ModelStep, RetrySettings, Settings
from haptera.ports.model_client import ModelClient
from haptera.system.clock import Clock, Random
from haptera.system.logs import scrubbed_logger

ResultT = TypeVar("ResultT")
ResultT_co = TypeVar("ResultT_co", covariant=True)

_logger = scrubbed_logger(__name__)

ModelRouter: TypeAlias = Callable[[str], Awaitable[tuple[ModelClient, str]]]
"""Finds the client for `provider/model`, and the model's name without its provider."""

# What another model would not change, or what was not the model's failure.
_NO_FALLBACK = frozenset(
    {
        ErrorCode.ABORTED,
        ErrorCode.BAD_REQUEST,
        ErrorCode.CONTENT_FILTER,
        ErrorCode.HOOK_FAILED,
        ErrorCode.NOTHING_TO_SEND,
    }
)


class ModelWork(Protocol[ResultT_co]):
    """What is done with a model, such as a turn or a summary: tried as often as it takes."""

    def attempt(self, plan: ModelPlan) -> Awaitable[ResultT_co]:
        """Try it once."""
        ...

    def note_failure(self, failure: AgentError) -> bool:
        """Take note that the attempt failed; returns whether no other attempt may follow."""
        ...

    async def discard(self, failure: AgentError) -> None:
        """Void what the failed attempt recorded, because another one follows."""
        ...


class _AttemptState(msgspec.Struct, kw_only=True, eq=False):
    """How far the attempts have come."""

    settings: Settings
    """Of the model that is asked."""
    later: Iterator[Settings]
    """Of the models that are left."""
    plan: ModelPlan | None = None
    """The last attempt on this model; None when it was not asked yet."""
    failures: FailureCount = FailureCount()
    """On this model."""
    notes: list[str] = msgspec.field(default_factory=list)
    """What became of the models before it."""

    def next_model(self, failure: AgentError) -> bool:
        """Go on to the next model, if there is one and the failure may be this model's."""
        if failure.code in _NO_FALLBACK or not self.settings.fallbacks:
            return False
        self.notes.append(f"before it, {self.settings.model}: {failure.message}")
        # There is a next one: `fallbacks` of the current settings lists what is left.
        self.settings = next(self.later)
        self.plan, self.failures = None, FailureCount()
        return True


class ProviderAttempts:
    """Gets one model call done, whatever it takes within the settings.

    Owns waiting and repeating. Does not own the decision (retry_policy), what is done with the
    model, or what becomes of a failed attempt (`ModelWork`).
    """

    def __init__(self, *, route: ModelRouter, clock: Clock, random: Random) -> None:
        self._route = route
        self._clock = clock
        self._random = random

    async def run(
        self,
        query: Query,
        work: ModelWork[ResultT],
        *,
        settings: Settings | None = None,
    ) -> ResultT:
        """Do `work` with the first model of the plan that answers.

        The models and retries are those of `settings`, or else those of the query.

        Raises:
            AgentError: the last error, when every attempt on every model failed.

        """
        settings = settings or query.settings
        models = _models_to_try(settings) if settings.fallbacks else iter((settings,))
        state = _AttemptState(settings=next(models), later=models)
        while True:
            try:
                result = await work.attempt(await self._next_attempt(state))
            except Exception as error:  # noqa: BLE001 - a client of the user's may raise anything
                failure = _failure_of(error, query, state.plan)
            else:
                query.checks.trouble = None
                return result
            # Out here, so that nothing leads back to the frames of a client with its headers.
            # A store that fails is no fault of the model: neither it nor another one is asked.
            if work.note_failure(failure) or isinstance(failure, StoreError):
                raise failure
            # Before `_next_wait`, which forgets the plan when it goes on to another model.
            attempt = state.plan.attempt if state.plan is not None else 0
            wait = self._next_wait(query, state, failure)
            # Before the wait, which may be long: consumers drop what they showed of the failed
            # attempt.
            await work.discard(failure)
            if wait is not None:
                await self._wait(query, wait, attempt=attempt, error=failure)

    async def _next_attempt(self, state: _AttemptState) -> ModelPlan:
        settings, last = state.settings, state.plan
        if last is None:
            client, model = await self._route(settings.model)
            state.plan = ModelPlan(client=client, model=model, settings=settings)
        else:
            state.plan = msgspec.structs.replace(last, attempt=last.attempt + 1)
        return state.plan

    def _next_wait(
        self, query: Query, state: _AttemptState, failure: AgentError
    ) -> RetryAfter | None:
        """Return how long to wait for the same model, or None to go on to the next one at once.

        Raises:
            AgentError: the failure, when nothing is left to try.

        """
        decision = self._retry_of(query, state, failure)
        if decision is not None:
            query.checks.trouble = f"while {failure.code}: {failure.message} was being retried"
            return decision
        for note in state.notes:
            failure.add_note(note)
        failed = state.settings.model
        if not state.next_model(failure):
            raise failure
        _logger.warning(
            "%s failed (%s: %s); falling back to %s",
            *(failed, failure.code, failure.message, state.settings.model),
        )
        query.checks.trouble = f"after {failed} failed with {failure.code}: {failure.message}"
        return None

    def _retry_of(
        self, query: Query, state: _AttemptState, failure: AgentError
    ) -> RetryAfter | None:
        """Decide whether the same model is asked again; one that was not found is not."""
        if state.plan is None:
            return None
        if _is_absent(failure, state.plan, query):
            _logger.warning(
                "%s failed (%s: %s); not retrying, nothing listens there",
                *(state.settings.model, failure.code, failure.message),
            )
            return None
        state.failures = state.failures.after(failure)
        decision = decide_retry(
            failure, state.failures, state.settings.retry, jitter=self._random.random()
        )
        if isinstance(decision, GiveUp):
            return None
        _logger.warning(
            "%s failed (%s: %s); retrying in %.1f s, attempt %d",
            *(state.settings.model, failure.code, failure.message),
            *(decision.seconds, state.plan.attempt + 1),
        )
        return decision

    async def _wait(
        self, query: Query, decision: RetryAfter, *, attempt: int, error: AgentError
    ) -> None:
        next_at = self._clock.time_ms() + int(decision.seconds * 1000)
        scheduled = RetryScheduled(
            **query.stamp(),
            attempt=attempt,
            delay=decision.seconds,
            next_at=next_at,
            error=error.report,
            account_limited=decision.account_limited,
        )
        await query.recorder.record([scheduled])
        query.handle.phase = "reconnecting"
        query.session.set_status(
            Retrying(
                attempt=attempt,
                message=error.message,
                next_at=next_at,
                account_limited=decision.account_limited,
            )
        )
        await self._clock.sleep(decision.seconds)
        query.session.set_status(Busy())


def _is_absent(failure: AgentError, plan: ModelPlan, query: Query) -> bool:
    """Whether a server on this machine was never there: waiting for it would not help.

    One that has answered in this query may be starting again.
    """
    return failure.refused_locally and plan.attempt == 1 and not query.progress.turns


def _failure_of(error: Exception, query: Query, plan: ModelPlan | None) -> AgentError:
    """Return the typed error of an attempt."""
    if not isinstance(error, TimeoutError):
        return to_agent_error(error)
    limit = query.input.timeout or None
    message = f"the model took longer than {limit:g} s" if limit else str(error)
    provider = plan.client.provider if plan is not None else None
    return RequestError(ErrorCode.TIMEOUT, message, provider=provider, basis="type")


def _models_to_try(settings: Settings) -> Iterator[Settings]:
    """Yield the settings for each model to try; the last one has no fallbacks left."""
    steps = settings.fallbacks
    yield settings
    for index, step in enumerate(steps):
        yield msgspec.structs.replace(
            settings,
            model=step.model,
            thinking=step.thinking if step.thinking is not None else settings.thinking,
            retry=_limited(settings.retry, step),
            fallbacks=steps[index + 1 :],
        )


def next_model(settings: Settings) -> Settings | None:
    """Return the settings for the model that is tried after the one of `settings`."""
    models = _models_to_try(settings)
    next(models)
    return next(models, None)


def _limited(retry: RetrySettings, step: ModelStep) -> RetrySettings:
    """Return the retries of a fallback: its attempts count the first call, too."""
    attempts = step.max_attempts or ModelStep(model=step.model).max_attempts
    return msgspec.structs.replace(
        retry,
        max_retries=attempts - 1,
        interruption_retries=min(retry.interruption_retries, attempts - 1),
    )
