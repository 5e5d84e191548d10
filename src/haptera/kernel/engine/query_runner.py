"""QueryRunner: one prompt, answered to rest through as many turns as it takes."""

from haptera.kernel.blocks.approval_coordinator import NEW_PROMPT
from haptera.kernel.blocks.request_builder import RequestExtras, lead_with_reminders
from haptera.kernel.engine.compactor import Compactor, record_provider_summary
from haptera.kernel.engine.provider_attempts import ProviderAttempts
from haptera.kernel.engine.query_progress import (
    NextTurn,
    Progress,
    discard_turn,
    is_output_good,
    summary_of,
    took_output_call,
)
from haptera.kernel.engine.query_scope import QueryScope, promote_steers
from haptera.kernel.engine.tool_dispatcher import ToolDispatcher
from haptera.kernel.engine.turn_guards import NO_GUARDS, TurnGuards, limit_reached
from haptera.kernel.engine.turn_runner import TurnOutcome, TurnRunnerInterface
from haptera.model.canonical import canonical_json
from haptera.model.errors import (
    ConfigError,
    ErrorCode,
    ProviderError,
    RequestError,
)
from haptera.model.ids import InputId
from haptera.model.log.entry import Entry
from haptera.model.log.queries import InputPromoted, QueryStarted
from haptera.model.log.tools import said_at
from haptera.model.messages import AssistantMessage, KeptOptions, without_defaults
from haptera.model.parts import CompactionPart, media_of
from haptera.model.results import StopReason
from haptera.model.stream_parts import FinishKind
from haptera.model.tools import ToolSpec
from haptera.ports.runner import QueryOutcome
from haptera.system.clock import Clock

_EMPTY_RETRIES = 2

_WRAP_UP = (
    "This is your last turn: you can use no more tools. Answer now with what you have, and say "
    "briefly what is left undone."
)

_STOP_REASONS: dict[FinishKind, StopReason] = {
    "stop": "complete",
    "tool_calls": "complete",
    "length": "max_tokens",
    "context_window": "max_tokens",
    "refusal": "refusal",
    "other": "complete",
}
"""Why a query rests when a turn ends so; `pause` goes on instead.

So does `compaction`, unless the settings say that an answer ends after it.
"""

_CUT_OFF: frozenset[FinishKind] = frozenset({"length", "context_window", "refusal"})
"""Finishes after which a tool call may be half of one and is not run."""


class QueryRunner:
    """Runs turns until the model has answered, asks for something, or may not go on.

    The `Runner` for models. Owns the loop and its ends. Does not own requests (TurnRunner), repeats
    (ProviderAttempts), tools (ToolDispatcher) or the terminal entry (its caller).
    """

    def __init__(
        self,
        *,
        attempts: ProviderAttempts,
        turns: TurnRunnerInterface,
        dispatcher: ToolDispatcher,
        compactor: Compactor,
        clock: Clock,
        guards: TurnGuards = NO_GUARDS,
    ) -> None:
        self._guards = guards
        self._attempts = attempts
        self._compactor = compactor
        self._turns = turns
        self._dispatcher = dispatcher
        self._clock = clock

    async def start(self, scope: QueryScope) -> None:
        """Record the prompt. From here on it is part of the session, whatever happens next.

        A prompt is recorded in one append with the start of the turn that sends it.
        """
        message = scope.input.message
        if message is not None:
            message = lead_with_reminders(
                message, scope.settings.cached_reminders, scope.fold.sent_view()
            )
        entries: list[Entry] = []
        if scope.input.resumes is None:
            # After a rewind a prompt that waited may find questions open that it makes void.
            entries += scope.session.approvals.cancellations(NEW_PROMPT)
        policy = self._dispatcher.permissions.policy(scope)
        started = QueryStarted(
            **scope.stamp(),
            message=message,
            resumes=scope.input.resumes,
            options=without_defaults(
                KeptOptions(
                    settings=scope.input.settings,
                    require_tool=scope.input.require_tool,
                    timeout=scope.input.timeout,
                    compact=scope.input.compact,
                    # A message names its sender itself.
                    sender=scope.input.sender if message is None else None,
                )
            ),
            # Only when it has changed: there may be a thousand rules, and most queries have the
            # same.
            policy=None if policy == scope.fold.standing.policy else policy,
        )
        entries.append(started)
        if scope.input.input_id is not None:
            entries.append(InputPromoted(**scope.stamp(), input_id=InputId(scope.input.input_id)))
        # A prompt that settles calls or an open turn is folded before the request is built.
        if message is None or scope.fold.calls or scope.fold.open_turn is not None:
            await scope.recorder.record(entries)
        else:
            scope.recorder.stage(entries)
            # As the fold will have it: requests are the same before and after it is recorded.
            scope.prompt = said_at(message, started.time)

    async def run(self, scope: QueryScope) -> QueryOutcome:
        """Answer the prompt that was put into the conversation by `start`.

        Raises:
            AgentError: when the query cannot go on.

        """
        if scope.input.compact is not None:
            await self._compactor.compact_now(scope)
            return QueryOutcome(stop_reason="complete", stop_detail="compaction")
        if scope.input.resumes is not None and scope.fold.is_answered():
            return QueryOutcome(stop_reason="complete")  # only its end was not recorded
        await scope.ready_tools()
        self._dispatcher.permissions.warn_about_names(scope)
        prompt = scope.input.message
        progress = Progress(
            reminders=scope.input.reminders,
            require_tool=scope.input.require_tool,
            fresh_media=media_of(prompt.parts) if prompt is not None else (),
        )
        while True:
            # Calls first: a query that is resumed begins with those of the turn that was cut off.
            if scope.fold.calls:
                rest = await self._run_tools(scope)
                if rest is not None:
                    return rest
            progress.add_media(await promote_steers(scope))
            if (rest := await self._prepare_turn(scope)) is not None:
                return rest
            outcome = await self._answered(scope, progress)
            if scope.hooks is not None:
                await scope.hooks.after_turn(outcome.turn.message_id)
            _forget_told(scope, outcome, progress)
            stop_reason = await self._after_turn(scope, outcome, progress)
            if stop_reason is None and progress.limit is not None:
                stop_reason = "limit"
            if stop_reason is not None:
                detail = progress.limit if stop_reason == "limit" else None
                return QueryOutcome(stop_reason=stop_reason, stop_detail=detail)

    async def _prepare_turn(self, scope: QueryScope) -> QueryOutcome | None:
        """Ask guards and hooks, and make space for the next request.

        Returns how the query rests, if it does; a compaction ends it where the settings say so.
        """
        if (refused := await self._guards.before_turn(scope)) is not None:
            return refused
        if scope.hooks is not None and (rest := await scope.hooks.before_turn()) is not None:
            return rest
        if await self._compactor.make_space(scope) and scope.settings.compaction.pause_after:
            return QueryOutcome(stop_reason="complete", stop_detail="compaction")
        return None

    async def _answered(self, scope: QueryScope, progress: Progress) -> TurnOutcome:
        """Run the next turn; once more, with something shorter, if its request was too long."""
        turn = self._next_turn(scope, progress)
        try:
            outcome = await self._attempts.run(scope, turn)
        except RequestError as error:
            if await self._compactor.after_overflow(scope, turn, error) is None:
                raise
        else:
            return await self._learn(scope, outcome)
        # Outside the `except`, so that an error of this attempt is not chained to the first one.
        outcome = await self._attempts.run(scope, self._next_turn(scope, progress))
        return await self._learn(scope, outcome)

    async def _learn(self, scope: QueryScope, outcome: TurnOutcome) -> TurnOutcome:
        """Take in what the provider says of the length of the conversation."""
        turn = outcome.turn
        scope.session.meter.learn(turn.message_id, outcome.finished)
        if any(isinstance(part, CompactionPart) and part.text for part in turn.answer.parts):
            await record_provider_summary(scope, outcome)
        return outcome

    async def _run_tools(self, scope: QueryScope) -> QueryOutcome | None:
        records = tuple(scope.fold.calls.values())
        outcome = await self._dispatcher.dispatch(scope, records)
        for record in records:
            if record.ended is not None:
                result = record.ended.outcome, canonical_json(record.ended.content)
                scope.loop.end(record.part.call_id, result)
        # Also for a query that comes to rest: the snapshot after its tools is taken here.
        stopped = await self._guards.after_tools(scope, records)
        if outcome == "done":
            return stopped
        if outcome == "denied":
            return QueryOutcome(stop_reason="refusal", stop_detail=scope.denied_call)
        return QueryOutcome(stop_reason=outcome, stop_detail=scope.repeated_call)

    def _next_turn(self, scope: QueryScope, progress: Progress) -> NextTurn:
        """Return the next turn, with what it offers and reminds the model of."""
        settings = scope.settings
        progress.limit = limit_reached(scope, settings.limits, now=self._clock.now())
        reminders = (*progress.reminders, *scope.notes)
        # Kept for the turn: its calls run on these tools, whatever a source offers by then.
        scope.tools = scope.registry.current()
        tools = scope.tools.view(settings.allowed_tools, settings.denied_tools).wire_tools
        if progress.limit is not None and tools:
            tools, reminders = (), (*reminders, _WRAP_UP)
        elif progress.require_tool is not None:
            _refuse_unknown(progress.require_tool, tools)
        extras = RequestExtras(
            model=settings.model,
            tools=tools,
            reminders=reminders,
            require_tool=progress.require_tool if tools else None,
            output_schema=scope.input.output.schema if scope.input.output else None,
            fresh_media=progress.fresh_media,
            # With tools a later turn repeats the request, also in a session of one query.
            caches_tail=bool(tools) or not scope.input.is_only,
        )
        scope.recorder.stage([summary_of(scope, extras)])
        return NextTurn(scope, self._turns, extras)

    async def _after_turn(
        self, scope: QueryScope, outcome: TurnOutcome, progress: Progress
    ) -> StopReason | None:
        """Return why the query rests now, or None when it goes on."""
        finish = outcome.finished.kind
        if finish == "compaction" and scope.settings.compaction.pause_after:
            return "complete"
        if finish in ("pause", "compaction"):
            return None
        if finish not in _CUT_OFF and (scope.fold.calls or finish == "tool_calls"):
            return await self._after_tool_turn(scope, outcome, progress)
        checked = finish in ("stop", "other")
        if checked and not await is_output_good(scope, outcome, progress):
            return None
        # An answer in the first and only turn is complete, also with `turns=1`.
        if progress.limit is not None and scope.turns > 1:
            return "limit"
        stop_reason = _STOP_REASONS[finish]
        # The end of an answer is staged only if it has words; the fold does not have them yet. A
        # stop sequence at its beginning leaves none, and is what was asked for.
        said = scope.is_end_staged or bool(scope.settings.stop) or _has_answer(scope)
        if stop_reason == "complete" and not said:
            raise ProviderError(
                ErrorCode.PROTOCOL,
                f"the model ended its answer ({outcome.finished.reason}) without saying anything",
                provider=outcome.turn.provider,
            )
        return stop_reason

    async def _after_tool_turn(
        self, scope: QueryScope, outcome: TurnOutcome, progress: Progress
    ) -> StopReason | None:
        """Go on with the tools that a turn asks for, unless it names none or may have none."""
        if _lacks_calls(scope, outcome):
            await self._take_back(scope, outcome, progress)
            return None
        progress.empty_turns = 0
        if await took_output_call(scope, outcome, progress):
            return "complete"
        return "limit" if progress.limit is not None else None

    async def _take_back(self, scope: QueryScope, outcome: TurnOutcome, progress: Progress) -> None:
        """Discard a turn that promised tool calls and made none, and let the model try again."""
        progress.empty_turns += 1
        await discard_turn(scope, outcome.turn, reason="it asked for tools and named none")
        if progress.empty_turns > _EMPTY_RETRIES:
            raise ProviderError(
                ErrorCode.PROTOCOL,
                f"the model asked for tools {progress.empty_turns} times and named none",
                provider=outcome.turn.provider,
            )


def _lacks_calls(scope: QueryScope, outcome: TurnOutcome) -> bool:
    """Whether a turn promised tool calls and made none."""
    return outcome.finished.kind == "tool_calls" and not scope.fold.calls


def _forget_told(scope: QueryScope, outcome: TurnOutcome, progress: Progress) -> None:
    """Forget what was for the first request that is answered, once one is."""
    # A turn without the calls that it promised is taken back: the same is asked again.
    if not _lacks_calls(scope, outcome):
        progress.reminders, progress.fresh_media, progress.require_tool = (), (), None
        scope.notes.clear()


def _has_answer(scope: QueryScope) -> bool:
    """Whether the model said anything in this query: a turn that holds nothing leaves no message.

    After a tool's result a model may well have nothing to add; its earlier message stands.
    """
    own = {scope.query_id, scope.input.resumes}
    return any(
        isinstance(message, AssistantMessage) and message.query_id in own
        for message in reversed(scope.fold.conversation.messages)
    )


def _refuse_unknown(name: str, tools: tuple[ToolSpec, ...]) -> None:
    """Refuse to require a tool that the model is not offered."""
    if all(tool.name != name for tool in tools):
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"tool {name!r} is required, but it is not among the tools that the model may use",
        )
