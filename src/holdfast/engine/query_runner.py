"""QueryRunner: one prompt, answered to rest through as many turns as it takes."""

from collections.abc import Awaitable, Callable

import msgspec

from holdfast.blocks.approval_coordinator import NEW_PROMPT
from holdfast.blocks.conversation.tool_calls import said_at
from holdfast.blocks.request_builder import RequestExtras, lead_with_reminders
from holdfast.engine.provider_attempts import ProviderAttempts
from holdfast.engine.query_scope import ModelPlan, QueryScope, say
from holdfast.engine.tool_dispatcher import ToolDispatcher
from holdfast.engine.tool_execution import record_end, record_failure
from holdfast.engine.turn_runner import TurnOutcome, TurnRunnerInterface
from holdfast.ports.clock import Clock
from holdfast.ports.runner import OutputSpec, QueryOutcome
from holdfast.serialization.canonical import canonical_json
from holdfast.vocabulary.entries import (
    Entry,
    InputPromoted,
    QueryStarted,
    TurnDiscarded,
)
from holdfast.vocabulary.errors import ConfigError, ErrorCode, ProviderError, ToolError
from holdfast.vocabulary.events import QuerySummary
from holdfast.vocabulary.ids import InputId
from holdfast.vocabulary.messages import (
    AssistantMessage,
    KeptOptions,
    UserMessage,
    without_defaults,
)
from holdfast.vocabulary.parts import MediaPart, TextPart, ToolCallPart, media_of
from holdfast.vocabulary.results import StopReason
from holdfast.vocabulary.settings import Limits
from holdfast.vocabulary.stream_parts import FinishKind
from holdfast.vocabulary.tools import ToolSpec

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


class _Progress(msgspec.Struct):
    """What the loop remembers from turn to turn."""

    reminders: tuple[str, ...]
    fresh_media: tuple[MediaPart, ...]
    """What the user handed in and no model has answered yet."""
    require_tool: str | None
    empty_turns: int = 0
    repairs: int = 0
    limit: str | None = None
    """The limit that makes this turn the last one."""


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
        clock: Clock,
    ) -> None:
        self._attempts = attempts
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
        policy = self._dispatcher.policy(scope)
        started = QueryStarted(
            **scope.stamp(),
            message=message,
            resumes=scope.input.resumes,
            options=without_defaults(
                KeptOptions(
                    settings=scope.input.settings,
                    require_tool=scope.input.require_tool,
                    timeout=scope.input.timeout,
                )
            ),
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
            scope.prompt = said_at(message, started.time)

    async def run(self, scope: QueryScope) -> QueryOutcome:
        """Answer the prompt that was put into the conversation by `start`.

        Raises:
            AgentError: when the query cannot go on.

        """
        if scope.input.resumes is not None and scope.fold.is_answered():
            return QueryOutcome(stop_reason="complete")  # only its end was not recorded
        await scope.ready_tools()
        self._dispatcher.warn_about_names(scope)
        prompt = scope.input.message
        progress = _Progress(
            reminders=scope.input.reminders,
            require_tool=scope.input.require_tool,
            fresh_media=media_of(prompt.parts) if prompt is not None else (),
        )
        while True:
            if scope.fold.calls:
                rest = await self._run_tools(scope)
                if rest is not None:
                    return rest
            await self._promote_steers(scope, progress)
            if scope.hooks is not None and (rest := await scope.hooks.before_turn()) is not None:
                return rest
            turn = await self._attempts.run(scope, self._next_turn(scope, progress))
            if scope.hooks is not None:
                await scope.hooks.after_turn(turn.message_id)
            progress.reminders, progress.fresh_media, progress.require_tool = (), (), None
            stop_reason = await self._after_turn(scope, turn, progress)
            if stop_reason is None and progress.limit is not None:
                stop_reason = "limit"
            if stop_reason is not None:
                detail = progress.limit if stop_reason == "limit" else None
                return QueryOutcome(stop_reason=stop_reason, stop_detail=detail)

    async def _run_tools(self, scope: QueryScope) -> QueryOutcome | None:
        records = tuple(scope.fold.calls.values())
        outcome = await self._dispatcher.dispatch(scope, records)
        for record in records:
            if record.ended is not None:
                result = record.ended.outcome, canonical_json(record.ended.content)
                scope.loop.end(record.part.call_id, result)
        if outcome == "done":
            return None
        if outcome == "denied":
            return QueryOutcome(stop_reason="refusal", stop_detail=scope.denied_call)
        return QueryOutcome(stop_reason=outcome, stop_detail=scope.repeated_call)

    async def _promote_steers(self, scope: QueryScope, progress: _Progress) -> None:
        """Let everything that was said meanwhile into the conversation."""
        steers = [item for item in scope.session.waiting().values() if item.delivery == "steer"]
        if steers:
            scope.joined.update(item.message.query_id for item in steers)
            for item in steers:
                progress.fresh_media += media_of(item.message.parts)
            await scope.recorder.record(
                [InputPromoted(**scope.stamp(), input_id=item.input_id) for item in steers]
            )

    def _next_turn(
        self, scope: QueryScope, progress: _Progress
    ) -> Callable[[ModelPlan], Awaitable[TurnOutcome]]:
        """Return the next turn, to be run on any model and as often as it takes."""
        settings = scope.settings
        progress.limit = _limit_reached(scope, settings.limits, now=self._clock.now())
        reminders = progress.reminders
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
        scope.recorder.stage([_summary_of(scope, extras)])
        return lambda plan: self._turns.run(scope, plan, extras)

    async def _after_turn(
        self, scope: QueryScope, turn: TurnOutcome, progress: _Progress
    ) -> StopReason | None:
        """Return why the query rests now, or None when it goes on."""
        if turn.finish == "compaction" and scope.settings.compaction.pause_after:
            return "complete"
        if turn.finish in ("pause", "compaction"):
            return None
        if turn.finish not in _CUT_OFF and (scope.fold.calls or turn.finish == "tool_calls"):
            return await self._after_tool_turn(scope, turn, progress)
        checked = turn.finish in ("stop", "other")
        if checked and not await self._is_output_good(scope, turn, progress):
            return None
        if progress.limit is not None and scope.turns > 1:
            return "limit"
        stop_reason = _STOP_REASONS[turn.finish]
        if stop_reason == "complete" and not (scope.is_end_staged or _has_answer(scope)):
            raise ProviderError(
                ErrorCode.PROTOCOL,
                f"the model ended its answer ({turn.finish_reason}) without saying anything",
                provider=turn.provider,
            )
        return stop_reason

    async def _after_tool_turn(
        self, scope: QueryScope, turn: TurnOutcome, progress: _Progress
    ) -> StopReason | None:
        """Go on with the tools that a turn asks for, unless it names none or may have none."""
        if not scope.fold.calls:
            await self._take_back(scope, turn, progress)
            return None
        progress.empty_turns = 0
        if await self._took_output_call(scope, turn, progress):
            return "complete"
        return "limit" if progress.limit is not None else None

    async def _took_output_call(
        self, scope: QueryScope, turn: TurnOutcome, progress: _Progress
    ) -> bool:
        """Take the answer from a call named after its schema: some models can only answer so.

        Arguments that do not fit are answered as a failed call, and the model tries again, as often
        as with any answer that does not fit.
        """
        call, output = _output_call(scope), scope.input.output
        if call is None or output is None:
            return False
        try:
            scope.output = output.parse(canonical_json(call.arguments).decode())
        except ValueError as error:
            failure = ToolError(ErrorCode.TOOL_INVALID_INPUT, f"the answer does not fit: {error}")
            await record_failure(scope, call, failure)
            _count_repair(progress, output, error, provider=turn.provider)
            return False
        taken = (TextPart(text="The answer was taken."),)
        await record_end(scope, call, outcome="ok", content=taken)
        return True

    async def _take_back(self, scope: QueryScope, turn: TurnOutcome, progress: _Progress) -> None:
        """Discard a turn that promised tool calls and made none, and let the model try again."""
        progress.empty_turns += 1
        discarded = TurnDiscarded(
            **scope.turn_stamp(),
            message_id=turn.message_id,
            reason="it asked for tools and named none",
        )
        await scope.recorder.record([discarded])
        if progress.empty_turns > _EMPTY_RETRIES:
            raise ProviderError(
                ErrorCode.PROTOCOL,
                f"the model asked for tools {progress.empty_turns} times and named none",
                provider=turn.provider,
            )

    async def _is_output_good(
        self, scope: QueryScope, turn: TurnOutcome, progress: _Progress
    ) -> bool:
        """Parse the answer as the type that was asked for; False when the model is to try again."""
        output = scope.input.output
        tip = scope.fold.conversation.tip
        if output is None:
            return True
        try:
            scope.output = output.parse(tip.text if isinstance(tip, AssistantMessage) else "")
        except ValueError as error:
            _count_repair(progress, output, error, provider=turn.provider)
            if progress.limit is None:
                await say(scope, f"Your answer does not fit the schema: {error}. Answer again.")
            return False
        return True


def _summary_of(scope: QueryScope, extras: RequestExtras) -> QuerySummary:
    """Count what the next request sends; results of tools are one message of the user's side."""
    counts = scope.fold.conversation.counts.update()
    # A prompt after another one joins it.
    is_after_prompt = isinstance(scope.fold.conversation.tip, UserMessage)
    is_new = scope.staged_prompt is not None and not is_after_prompt
    return QuerySummary(
        session_id=scope.session.session_id,
        query_id=scope.query_id,
        system_prompts=len(scope.settings.system_prompts),
        user_messages=counts.user + (is_new or bool(scope.fold.calls)),
        assistant_messages=counts.assistant,
        thinking_blocks=counts.reasoning,
        tools=len(extras.tools),
        system_reminder="\n\n".join(extras.reminders) or None,
    )


def _output_call(scope: QueryScope) -> ToolCallPart | None:
    """Find the only call of a turn if it is named after the answer's schema, and no tool is."""
    output = scope.input.output
    named = [call.part for call in scope.fold.calls.values() if call.ended is None]
    if output is None or len(named) != 1 or named[0].name != output.schema.name:
        return None
    return None if named[0].name in scope.tools else named[0]


def _limit_reached(scope: QueryScope, limits: Limits, *, now: float) -> str | None:
    """Return the limit that allows one more turn and no other after it, as `turns=50`."""
    cost = float(scope.cost or 0) + float(scope.children.cost or 0)
    used: dict[str, float] = {
        "turns": scope.turns + 1,
        "tokens": scope.usage.total + scope.children.usage.total,
        "cost": cost,
        "seconds": now - scope.started_at,
        "tool_calls": scope.tool_calls,
    }
    for name, amount in used.items():
        limit: float | None = getattr(limits, name)
        if limit is not None and amount >= limit:
            return f"{name}={limit:g}"
    return None


def _count_repair(
    progress: _Progress, output: OutputSpec, error: ValueError, *, provider: str
) -> None:
    """Count an answer that does not fit; after the last try it is an error."""
    progress.repairs += 1
    if progress.repairs > output.max_repairs:
        raise ProviderError(
            ErrorCode.PROTOCOL,
            f"the answer does not fit {output.schema.name} after {progress.repairs} tries: {error}",
            provider=provider,
        ) from error


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
