"""Runs one resolved tool call: recorded before it starts, bounded in time, recorded at its end."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from haptera.kernel.blocks.error_classification import to_agent_error
from haptera.kernel.blocks.retry_policy import (
    FailureCount,
    GiveUp,
    RetryAfter,
    RetryDecision,
    decide_wait,
)
from haptera.kernel.blocks.tool_registry.registry import FunctionFailed, Ready, Succeeded
from haptera.kernel.blocks.tool_registry.running import to_content
from haptera.kernel.calls.child_calls import CallOfChild
from haptera.kernel.calls.file_snapshots import NO_SNAPSHOTS, FileSnapshots
from haptera.kernel.query.progress import NO_SPAN
from haptera.kernel.query.query import Query
from haptera.model.approvals import Ruling
from haptera.model.errors import AgentError, ErrorCode, ErrorReport, ToolError
from haptera.model.events import Event, ToolFailed, ToolProgress
from haptera.model.json_types import Json
from haptera.model.log.tools import ToolEnded, ToolStarted, ToolWaiting
from haptera.model.log.turns import RetryScheduled
from haptera.model.parts import ResultContent, TextPart, ToolCallPart
from haptera.options.json_schemas import schema_check
from haptera.ports.permissions import NO_SURROUNDINGS, ToolSurroundings
from haptera.ports.telemetry import ToolBegun
from haptera.ports.tools import Later, Resting, ToolContext
from haptera.system.abort import AbortController, AbortSignal
from haptera.system.clock import Clock, Random
from haptera.system.logs import scrubbed_logger

_LONGEST_REF = 200
_logger = scrubbed_logger(__name__)


class _Failure(NamedTuple):
    """A run that failed: what the model is told, and what the tool raised, if it raised."""

    told: ToolError
    raised: Exception | None = None
    is_meant: bool = True
    """Whether it is the tool's word to the model, and not a mistake in a program."""

    def classify(self) -> AgentError:
        """Return what it was, for the retry policy; without an error nothing is known of it."""
        if self.raised is None:
            return ToolError(self.told.code, self.told.message, basis="fallback")
        return to_agent_error(self.raised, ToolError)


class Clearance(msgspec.Struct, frozen=True, kw_only=True):
    """Why a call may run, and on which terms."""

    arguments_hash: str
    ruling: Ruling | None = None
    is_unconfined: bool = False
    """Whether a person approved that it runs without a sandbox."""
    feedback: str | None = None
    """What the approver has to say to the model."""

    @property
    def note(self) -> tuple[ResultContent, ...]:
        """The feedback, as the model gets it with the result."""
        if self.feedback is None:
            return ()
        return (TextPart(text=f"[note from the person who approved this call: {self.feedback}]"),)


class ToolExecution:
    """Runs tools. Owns time limits and repeats; does not decide whether a call may run."""

    def __init__(
        self,
        *,
        clock: Clock,
        random: Random,
        surroundings: ToolSurroundings = NO_SURROUNDINGS,
        files: FileSnapshots = NO_SNAPSHOTS,
    ) -> None:
        self._files = files
        self._clock = clock
        self._random = random
        self._surroundings = surroundings

    async def run(
        self, query: Query, call: ToolCallPart, ready: Ready, *, clearance: Clearance
    ) -> None:
        """Run a call and record its end. A cancelled run leaves the call without one."""
        await self._files.before_tool(query, ready.rules.effect)
        query.progress.tool_calls += 1
        started_at = self._clock.now()
        # Before it runs: after a crash, a call that was started and has no end is `unknown`.
        await query.recorder.record(
            [
                ToolStarted(
                    **query.turn_stamp(),
                    call_id=call.call_id,
                    tool=call.name,
                    arguments_hash=clearance.arguments_hash,
                    idempotent=ready.rules.idempotent,
                    ruling=clearance.ruling,
                )
            ]
        )
        # Set here and not at resolving: it holds for this run, which a person has approved.
        ready = replace(ready, is_unconfined=clearance.is_unconfined)
        measurement = query.measurement.begin_tool(_begun(query, call, ready))
        with measurement.span or NO_SPAN:
            outcome = await self._run_with_repeats(query, call, ready)
        # Only what this call has noted: other calls run beside it.
        if query.checks.trouble is not None and query.checks.trouble.startswith(_repeating(call)):
            query.checks.trouble = None
        duration_ms = int((self._clock.now() - started_at) * 1000)
        if isinstance(outcome, Resting):
            return  # a sub-agent waits for an answer: the call is run again with it
        if isinstance(outcome, Later):
            refusal = await _let_wait(query, call, outcome)
            if refusal is None:
                return
            outcome = refusal
        if isinstance(outcome, Succeeded):
            ended = ToolEnded(
                **query.turn_stamp(),
                call_id=call.call_id,
                tool=call.name,
                outcome="ok",
                content=(*outcome.content, *clearance.note),
                duration_ms=duration_ms,
            )
            await _record_ended(query, [ended], ended)
        else:
            ended = await record_failure(
                query,
                call,
                outcome,
                duration_ms=duration_ms,
                arguments=ready.arguments,
                note=clearance.note,
            )
        query.recorder.show(measurement.end(ended))

    async def _run_with_repeats(
        self, query: Query, call: ToolCallPart, ready: Ready
    ) -> Succeeded | Resting | Later | ToolError:
        attempt, failures = 1, FailureCount()
        while True:
            outcome = await self._run_once(query, call, ready)
            if isinstance(outcome, Succeeded | Resting | Later):
                return outcome
            cause = outcome.classify()
            failures = failures.after(cause)
            decision = self._decide(query, ready, cause, failures=failures)
            if isinstance(decision, GiveUp):
                _log_failure(call, outcome)
                return outcome.told
            await self._wait(query, call, decision, attempt=attempt, cause=cause)
            attempt, ready = attempt + 1, ready.afresh()

    def _decide(
        self, query: Query, ready: Ready, cause: AgentError, *, failures: FailureCount
    ) -> RetryDecision:
        """Apply the session's retry policy, with as many repeats as the tool allows.

        What is known to fail again (a mistake in the tool, a refused key) is not repeated. What
        nothing is known of is: the tool says itself that it may be run again.
        """
        if not ready.rules.retries:
            return GiveUp("the tool may not be run again")
        if cause.basis != "fallback" and not cause.retryable:
            return GiveUp(f"{cause.code} does not go away")
        allowed = replace(
            query.settings.retry,
            max_retries=ready.rules.retries,
            interruption_retries=ready.rules.retries,
        )
        return decide_wait(cause, failures, allowed, jitter=self._random.random())

    async def _wait(
        self,
        query: Query,
        call: ToolCallPart,
        decision: RetryAfter,
        *,
        attempt: int,
        cause: AgentError,
    ) -> None:
        _logger.warning(
            "tool %s failed (%s); retrying in %.1f s, attempt %d",
            *(call.name, cause.code, decision.seconds, attempt + 1),
        )
        scheduled = RetryScheduled(
            **query.turn_stamp(),
            attempt=attempt,
            delay=decision.seconds,
            next_at=self._clock.time_ms() + int(decision.seconds * 1000),
            error=cause.report,
            account_limited=decision.account_limited,
            call_id=call.call_id,
            tool=call.name,
        )
        await query.recorder.record([scheduled])
        query.checks.trouble = f"{_repeating(call)} {cause.code}"
        await self._clock.sleep(decision.seconds)

    async def _run_once(
        self, query: Query, call: ToolCallPart, ready: Ready
    ) -> Succeeded | Resting | Later | _Failure:
        query.measurement.count_run(call.call_id)
        # A signal for each run: the end of this one must not stop its repeat.
        abort, child = AbortController(), CallOfChild(query, call, clock=self._clock)
        stopped = query.abort.signal
        forget = stopped.add_listener(
            lambda: abort.abort(stopped.reason, suspends=stopped.suspends)
        )
        context: ToolContext[object] = ToolContext(
            session_id=query.session.session_id,
            call_id=call.call_id,
            signal=abort.signal,
            report=_reporter(query, call, abort.signal),
            caller=replace(query.caller, child_call=child),
            surroundings=replace(self._surroundings, may_run_unconfined=ready.is_unconfined),
        )
        limit = ready.rules.timeout or None
        # A task of its own, so that the query goes on when a tool ignores its cancellation.
        running = query.session.tasks.start(
            ready.run(context, transform=query.input.transform), name=f"haptera-tool-{call.name}"
        )
        try:
            async with asyncio.timeout(limit):
                await asyncio.wait({running})
            # Seen only because `wait` does not pass it on: awaited directly, it would look like the
            # cancellation of the query.
            if running.cancelled():
                return _Failure(ToolError(ErrorCode.TOOL_FAILED, "the tool cancelled itself"))
            outcome = running.result()
        # Only that of the limit: what the tool itself raises is in its outcome.
        except TimeoutError:
            message = f"the tool took longer than {limit:g} s"
            return _Failure(ToolError(ErrorCode.TOOL_TIMEOUT, message))
        finally:
            # What still works for this call, in a thread perhaps, sees that it has ended.
            abort.abort("the call has ended")
            forget()
            running.cancel()
            await child.ended(running)
        if isinstance(outcome, FunctionFailed):
            told = ToolError(ErrorCode.TOOL_FAILED, outcome.message)
            return _Failure(told, outcome.error, outcome.is_meant)
        return outcome


async def _let_wait(query: Query, call: ToolCallPart, later: Later) -> ToolError | None:
    """Record that a call waits; returns why it cannot, if so."""
    try:
        waiting = _waiting(query, call, later)
    except (AgentError, ValueError, TypeError, OverflowError) as error:
        message = error.message if isinstance(error, AgentError) else str(error)
        return ToolError(ErrorCode.TOOL_FAILED, f"the call cannot wait: {message}")
    # Nothing was awaited since the refs in use were looked at.
    await query.recorder.record([waiting])
    return None


def _waiting(query: Query, call: ToolCallPart, later: Later) -> ToolWaiting:
    opened = query.fold.opened
    if opened is not None and opened.spawned_by is not None:
        raise ValueError("a sub-agent answers its caller at once")
    if query.native.is_asked:
        raise ValueError("an agent with a session of its own gets every result at once")
    if later.schema is not None:
        schema_check(later.schema, of="schema")
    if later.ref is not None:
        _check_ref(later.ref, call.arguments)
        if any(later.ref == each.ref for each in query.session.recorder.waits()):
            raise ValueError(f"another call that waits has the ref {later.ref!r}")
    return ToolWaiting(
        **query.turn_stamp(),
        call_id=call.call_id,
        tool=call.name,
        ref=later.ref,
        schema=later.schema,
        until=_moment(later.until, now=query.stamp.clock.time_ms()),
        otherwise=None if later.otherwise is None else to_content(later.otherwise),
    )


def _check_ref(ref: object, arguments: Json) -> None:
    """Refuse a ref that is no name, or that the model has chosen."""
    if not isinstance(ref, str) or not 0 < len(ref) <= _LONGEST_REF or not ref.isprintable():
        raise ValueError(f"a ref is a text of 1 to {_LONGEST_REF} printable characters")
    values = arguments.values() if isinstance(arguments, Mapping) else ()
    if ref in [value for value in values if isinstance(value, str)]:
        raise ValueError("its ref is an argument of the call, which the model has chosen")


def _moment(until: "float | datetime | None", *, now: int) -> int | None:
    """Return when a call waits no longer, in wall-clock milliseconds."""
    if until is None:
        return None
    if not isinstance(until, datetime):
        return now + int(until * 1000)
    if until.tzinfo is None:
        raise ValueError("`until` needs a time zone")
    return int(until.timestamp() * 1000)


def _log_failure(call: ToolCallPart, failure: _Failure) -> None:
    """Say that a call failed; of an exception that was not raised for the model, say where."""
    if failure.is_meant:
        _logger.info("tool %s failed (%s)", call.name, failure.told.code)
    else:
        _logger.warning(
            "tool %s raised an exception, which the model is told",
            call.name,
            exc_info=failure.raised,
        )


def _repeating(call: ToolCallPart) -> str:
    """Say which tool is being repeated; the code of its error follows."""
    return f"while tool {call.name} was being retried after"


async def record_end(
    query: Query,
    call: ToolCallPart,
    *,
    outcome: Literal["ok", "denied"],
    content: tuple[ResultContent, ...],
    ruling: Ruling | None = None,
) -> None:
    """Record the end of a call that is answered without running its tool."""
    ended = ToolEnded(
        **query.turn_stamp(),
        call_id=call.call_id,
        tool=call.name,
        outcome=outcome,
        content=content,
        ruling=ruling,
    )
    await _record_ended(query, [ended], ended)


async def record_failure(
    query: Query,
    call: ToolCallPart,
    error: ToolError,
    *,
    duration_ms: int = 0,
    arguments: Json = None,
    note: tuple[ResultContent, ...] = (),
) -> ToolEnded:
    """Record that a call failed: for the model, and for consumers.

    A tool that does not exist is the model's own mistake: only the model gets the error.
    `arguments` are those that the tool got, if they are not the model's.
    """
    ended = ToolEnded(
        **query.turn_stamp(),
        call_id=call.call_id,
        tool=call.name,
        outcome="timed_out" if error.code is ErrorCode.TOOL_TIMEOUT else "error",
        content=(*failure_content(error.report), *note),
        error=error.report,
        duration_ms=duration_ms,
    )
    events: list[Event] = [ended]
    if error.code is not ErrorCode.TOOL_NOT_FOUND:
        # Arguments that could not be parsed are shown as the model wrote them.
        said = call.arguments if call.invalid is None else call.invalid
        events.append(
            ToolFailed(
                call_id=call.call_id,
                tool=call.name,
                error=error.report,
                arguments=msgspec.to_builtins(said if arguments is None else arguments),
            )
        )
    await _record_ended(query, events, ended)
    return ended


async def _record_ended(query: Query, events: Sequence[Event], ended: ToolEnded) -> None:
    await query.recorder.record(events)
    if query.hooks is not None:
        await query.hooks.after_tool(ended)


def _begun(query: Query, call: ToolCallPart, ready: Ready) -> ToolBegun:
    return ToolBegun(
        session_id=query.session.session_id,
        query_id=query.query_id,
        turn_id=query.turn_stamp.turn_id,
        call_id=call.call_id,
        tool=call.name,
        description=ready.tool.spec.description,
        arguments=ready.arguments,
    )


def failure_content(error: ErrorReport) -> tuple[ResultContent, ...]:
    """Return what a model is told of a failed call."""
    return (TextPart(text=error.message),)


def _reporter(query: Query, call: ToolCallPart, ended: AbortSignal) -> Callable[[Json], None]:
    """Return the function by which a tool reports progress, from the loop or from its thread."""
    loop = asyncio.get_running_loop()

    def report(value: Json) -> None:
        if ended.aborted:
            return  # a thread that was left behind: its call has ended
        query.progress.tool_reports += 1
        event = ToolProgress(call_id=call.call_id, tool=call.name, progress=value)
        try:
            # A thread of the tool's may run a loop of its own.
            inside = asyncio.get_running_loop() is loop
        except RuntimeError:
            inside = False
        if inside:
            query.recorder.show([event])
        elif not loop.is_closed():
            loop.call_soon_threadsafe(query.recorder.show, [event])

    return report
