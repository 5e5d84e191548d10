"""QueryRunner: one prompt, answered to rest through as many turns as it takes, with a model."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from haptera.kernel.blocks.approval_coordinator import NEW_PROMPT
from haptera.kernel.blocks.request_builder import RequestExtras, lead_with_reminders
from haptera.kernel.blocks.tool_registry.registry import ready_tools
from haptera.kernel.calls.tool_dispatcher import ToolDispatcher
from haptera.kernel.query.query import ModelPlan, Query, Turn
from haptera.kernel.turns.compactor import Compactor, record_provider_summary
from haptera.kernel.turns.provider_attempts import ProviderAttempts, next_model
from haptera.kernel.turns.turn_guards import NO_GUARDS, TurnGuards
from haptera.kernel.turns.turn_runner import TurnOutcome, TurnRunnerInterface
from haptera.kernel.turns.typed_output import WrongAnswer, take_output, take_output_call
from haptera.model.canonical import canonical_json
from haptera.model.errors import (
    AgentError,
    ConfigError,
    ErrorCode,
    ProviderError,
    RequestError,
)
from haptera.model.events import QuerySummary
from haptera.model.ids import InputId
from haptera.model.log.entry import Entry
from haptera.model.log.queries import InputPromoted, QueryStarted
from haptera.model.log.tools import said_at
from haptera.model.log.turns import TurnDiscarded
from haptera.model.log.workspace import ContextLoaded
from haptera.model.messages import (
    AssistantMessage,
    UserMessage,
    kept_options,
)
from haptera.model.parts import CompactionPart, MediaPart, media_of
from haptera.model.results import StopReason
from haptera.model.settings import Settings
from haptera.model.stream_parts import FinishKind
from haptera.model.tools import ToolSpec
from haptera.ports.context_source import NO_CONTEXT, ContextSource, FoundContext
from haptera.ports.runner import QueryOutcome
from haptera.system.clock import Clock
from haptera.system.logs import scrubbed_logger

if TYPE_CHECKING:
    from haptera.kernel.native.native_query import NativeQueries

_logger = scrubbed_logger(__name__)

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


class ModelBlocks(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What queries with models need."""

    attempts: ProviderAttempts
    turns: TurnRunnerInterface
    dispatcher: ToolDispatcher
    compactor: Compactor
    clock: Clock
    guards: TurnGuards = NO_GUARDS


class ModelTurns:
    """The turns of one query with a model. Each is tried as often as it takes (`ModelWork`).

    Owns what is remembered from turn to turn, and when the query comes to rest. Does not own
    requests (TurnRunner), repeats (ProviderAttempts) or tools (ToolDispatcher). A turn that failed
    is measured, and discarded in the log before another attempt, so that a consumer can drop what
    it showed.
    """

    def __init__(self, query: Query, blocks: ModelBlocks) -> None:
        prompt = query.input.message
        self._query = query
        self._blocks = blocks
        self._reminders = query.input.reminders
        self._require_tool = query.input.require_tool
        self._fresh_media: tuple[MediaPart, ...] = media_of(prompt.parts) if prompt else ()
        """What the user handed in and no model has answered yet."""
        self._empty_turns = self._wrong_answers = 0
        self._limit: str | None = None
        """The limit that makes this turn the last one."""
        self._extras = RequestExtras(model="")
        self._before: Turn | None = None
        """The turn before the attempt that runs."""
        self._plan: ModelPlan | None = None
        """The attempt that runs, or ran last."""
        self._fallback: Settings | None = None
        """The settings once the models before a fallback never gave the output asked for."""
        self._passed_over: list[str] = []
        """What became of these models."""

    async def begin(self) -> QueryOutcome | None:
        """Take what is offered; returns how the query rests where there is nothing to answer."""
        query, blocks = self._query, self._blocks
        if query.input.compact is not None:
            await blocks.compactor.compact_now(query)
            return QueryOutcome(stop_reason="complete", stop_detail="compaction")
        if query.input.resumes is not None and query.fold.is_answered():
            return QueryOutcome(stop_reason="complete")  # only its end was not recorded
        settings, offer = query.settings, query.offer
        offer.tools = await ready_tools(offer.registry, settings.allowed_tools)
        blocks.dispatcher.permissions.warn_about_names(query)
        return None

    async def next(self) -> QueryOutcome | None:
        """Run what the last turn calls, then the next turn; returns how the query rests, or None.

        A request that was too long for its model is made once more, of something shorter.
        """
        query, blocks = self._query, self._blocks
        # Calls first: a query that is resumed begins with those of the turn that was cut off.
        if query.fold.calls and (rest := await self._run_tools()) is not None:
            return rest
        for joined in await query.promote_steers():
            self._fresh_media += media_of(joined.message.parts)
        if (rest := await self._prepare()) is not None:
            return rest
        self._make_extras()
        outcome: TurnOutcome | None = None
        try:
            outcome = await blocks.attempts.run(query, self, settings=self._fallback)
        except RequestError as error:
            if not await self._makes_space_after(error):
                raise
        if outcome is None:
            # Outside the `except`, so that an error of this attempt is not chained to the first
            # one.
            self._make_extras()
            outcome = await blocks.attempts.run(query, self, settings=self._fallback)
        # What the provider says of the length of the conversation.
        turn = outcome.turn
        query.session.meter.learn(turn.message_id, outcome.finished)
        if any(isinstance(part, CompactionPart) and part.text for part in turn.answer.parts):
            await record_provider_summary(query, outcome)
        if query.hooks is not None:
            await query.hooks.after_turn(turn.message_id)
        return await self._after_turn(outcome)

    async def _run_tools(self) -> QueryOutcome | None:
        query = self._query
        records = tuple(query.fold.calls.values())
        outcome = await self._blocks.dispatcher.dispatch(query, records)
        for record in records:
            if record.ended is not None:
                result = record.ended.outcome, canonical_json(record.ended.content)
                query.checks.loop.end(record.part.call_id, result)
        # Also for a query that comes to rest: the snapshot after its tools is taken here.
        stopped = await self._blocks.guards.after_tools(query, records)
        if outcome == "done":
            return stopped
        if outcome == "denied":
            return QueryOutcome(stop_reason="refusal", stop_detail=query.checks.denied_call)
        return QueryOutcome(stop_reason=outcome, stop_detail=query.checks.repeated_call)

    async def _prepare(self) -> QueryOutcome | None:
        """Ask guards and hooks, and make space for the next request.

        Returns how the query rests, if it does; a compaction ends it where the settings say so.
        """
        query, blocks = self._query, self._blocks
        guards = blocks.guards
        if guards.has_budget and (refused := await guards.before_turn(query)) is not None:
            return refused
        if query.hooks is not None and (rest := await query.hooks.before_turn()) is not None:
            return rest
        if await blocks.compactor.make_space(query) and query.settings.compaction.pause_after:
            return QueryOutcome(stop_reason="complete", stop_detail="compaction")
        return None

    async def _makes_space_after(self, error: RequestError) -> bool:
        """Compact after a request that was too long, unless part of an answer was shown."""
        turn, compactor = self._open(), self._blocks.compactor
        if turn is not None and (turn.answer.parts or turn.answer.unsaved_bytes):
            return False
        if not compactor.may_shorten(self._query, error):
            return False
        # The refused request left its turn open, and the next attempt begins another.
        await self.discard(error, "the conversation was too long and is compacted")
        return await compactor.after_overflow(self._query) is not None

    def _make_extras(self) -> None:
        """Decide what the next request offers and reminds the model of."""
        query, settings = self._query, self._query.settings
        seconds = self._blocks.clock.now() - query.measurement.started_at
        self._limit = query.progress.limit_reached(settings.limits, seconds=seconds)
        reminders = (*self._reminders, *query.checks.notes)
        offered = query.offer.tools = query.offer.registry.current()
        if settings.allowed_tools is not None or settings.denied_tools:
            offered = offered.view(settings.allowed_tools, settings.denied_tools)
        tools = offered.wire_tools
        if self._limit is not None and tools:
            tools, reminders = (), (*reminders, _WRAP_UP)
        elif self._require_tool is not None:
            _refuse_unknown(self._require_tool, tools)
        self._extras = RequestExtras(
            model=settings.model,
            tools=tools,
            reminders=reminders,
            require_tool=self._require_tool if tools else None,
            output_schema=query.input.output.schema if query.input.output else None,
            fresh_media=self._fresh_media,
            # With tools a later turn repeats the request, also in a session of one query.
            caches_tail=bool(tools) or not query.input.is_only,
        )
        self._before = query.turn
        query.recorder.stage([_summary_of(query, self._extras)])

    # One attempt, for `ProviderAttempts`.

    # Not async: a coroutine here would be resumed once more with every read of the answer.
    def attempt(self, plan: ModelPlan) -> Awaitable[TurnOutcome]:
        """Run the turn once."""
        self._before, self._plan = self._query.turn, plan
        return self._blocks.turns.run(self._query, plan, self._extras)

    def note_failure(self, failure: AgentError) -> bool:
        """Show that the attempt failed; True when too many turns in a row failed like this."""
        query, turn = self._query, self._begun()
        if turn is not None and not query.abort.signal.aborted:
            query.recorder.show(turn.measurement.end(error=failure.report))
        told = f"{failure.code} {failure.message}"
        if not query.checks.errors.fail_turn(query.progress.turns, told):
            return False
        failure.add_note("it is not repeated: several turns in a row failed with this error")
        return True

    async def discard(
        self, failure: AgentError, reason: str = "it failed and is tried again"
    ) -> None:
        """Void the turn of the failed attempt, if it left one open."""
        turn = self._open()
        if turn is not None:
            await _discard_turn(self._query, turn, reason=reason, failure=failure)

    def _begun(self) -> Turn | None:
        """Return the turn of the last attempt; None if that failed before it began one."""
        return None if self._query.turn is self._before else self._query.turn

    def _open(self) -> Turn | None:
        return self._begun() if self._query.fold.open_turn is not None else None

    # What follows from an answer.

    async def _after_turn(self, outcome: TurnOutcome) -> QueryOutcome | None:
        """Return how the query rests now, or None when it goes on."""
        # A turn without the calls that it promised is taken back: the same is asked again.
        is_empty = outcome.finished.kind == "tool_calls" and not self._query.fold.calls
        if not is_empty:
            # They were for the first request that is answered.
            self._reminders, self._fresh_media, self._require_tool = (), (), None
            self._query.checks.notes.clear()
        stop_reason = await self._stop_after(outcome, is_empty=is_empty)
        if stop_reason is None and self._limit is None:
            return None
        stop_reason = stop_reason or "limit"
        detail = self._limit if stop_reason == "limit" else None
        return QueryOutcome(stop_reason=stop_reason, stop_detail=detail)

    async def _stop_after(self, outcome: TurnOutcome, *, is_empty: bool) -> StopReason | None:
        """Return why the query rests after a turn, or None when nothing but a limit can end it."""
        query, finish = self._query, outcome.finished.kind
        if finish in ("pause", "compaction"):
            is_over = finish == "compaction" and query.settings.compaction.pause_after
            return "complete" if is_over else None
        if is_empty:
            await self._take_back(outcome)
            return None
        if finish not in _CUT_OFF and query.fold.calls:
            return await self._after_calls(outcome)
        is_checked = query.input.output is not None and finish in ("stop", "other")
        if is_checked and not await self._is_output_good(outcome):
            return None
        # An answer in the first and only turn is complete, also with `turns=1`.
        if self._limit is not None and query.progress.turns > 1:
            return "limit"
        stop_reason = _STOP_REASONS[finish]
        # The end of an answer is staged only if it has words; the fold does not have them yet. A
        # stop sequence at its beginning leaves none, and is what was asked for.
        is_staged = outcome.turn.is_end_staged
        said = is_staged or bool(query.settings.stop) or _has_answer(query)
        if stop_reason == "complete" and not said:
            raise ProviderError(
                ErrorCode.PROTOCOL,
                f"the model ended its answer ({outcome.finished.reason}) without saying anything",
                provider=outcome.turn.provider,
            )
        return stop_reason

    async def _take_back(self, outcome: TurnOutcome) -> None:
        """Discard a turn that promised tool calls and made none, and let the model try again."""
        self._empty_turns += 1
        reason = "it asked for tools and named none"
        await _discard_turn(self._query, outcome.turn, reason=reason)
        if self._empty_turns > _EMPTY_RETRIES:
            raise ProviderError(
                ErrorCode.PROTOCOL,
                f"the model asked for tools {self._empty_turns} times and named none",
                provider=outcome.turn.provider,
            )

    async def _after_calls(self, outcome: TurnOutcome) -> StopReason | None:
        """Go on with the tools that a turn calls, unless one of the calls is the answer."""
        self._empty_turns = 0
        taken = await take_output_call(self._query)
        if taken is True:
            return "complete"
        if isinstance(taken, WrongAnswer):
            self._count(taken, provider=outcome.turn.provider)
        return "limit" if self._limit is not None else None

    async def _is_output_good(self, outcome: TurnOutcome) -> bool:
        """Take the answer as what was asked for; False when a model is to answer again."""
        wrong = await take_output(self._query)
        if wrong is None:
            return True
        self._count(wrong, provider=outcome.turn.provider)
        # At a limit no turn follows that could correct it.
        if self._limit is None:
            await self._query.say(wrong.correction)
        return False

    def _count(self, wrong: WrongAnswer, *, provider: str) -> None:
        """Count a wrong answer; after the last that a model may give, the next one is asked.

        Raises:
            ProviderError: OUTPUT_INVALID when there is none.

        """
        self._wrong_answers += 1
        output, plan = self._query.input.output, self._plan
        if output is None or plan is None or self._wrong_answers < output.attempts:
            return
        error, following = wrong.error(output, provider=provider), next_model(plan.settings)
        if following is None:
            for note in self._passed_over:
                error.add_note(note)
            raise error
        self._passed_over.append(f"before it, {plan.settings.model}: {error.message}")
        _logger.warning(
            "%s failed (%s); falling back to %s",
            *(plan.settings.model, error.code, following.model),
        )
        self._fallback, self._wrong_answers = following, 0


async def _discard_turn(
    query: Query, turn: Turn, *, reason: str, failure: AgentError | None = None
) -> None:
    """Void a turn: what was shown of it is not part of the conversation."""
    discarded = TurnDiscarded(
        **turn.stamp(),
        message_id=turn.message_id,
        reason=reason,
        error=failure.report if failure is not None else None,
    )
    await query.recorder.record([discarded])


def _summary_of(query: Query, extras: RequestExtras) -> QuerySummary:
    """Count what the next request sends; results of tools are one message of the user's side."""
    counts = query.fold.conversation.counts.update()
    # A prompt after another one joins it.
    is_after_prompt = isinstance(query.fold.conversation.tip, UserMessage)
    is_new = query.staged_prompt is not None and not is_after_prompt
    return QuerySummary(
        session_id=query.session.session_id,
        query_id=query.query_id,
        system_prompts=len(query.settings.system_prompts),
        user_messages=counts.user + (is_new or bool(query.fold.calls)),
        assistant_messages=counts.assistant,
        thinking_blocks=counts.reasoning,
        tools=len(extras.tools),
        system_reminder="\n\n".join(extras.reminders) or None,
    )


def _has_answer(query: Query) -> bool:
    """Whether the model said anything in this query: a turn that holds nothing leaves no message.

    After a tool's result a model may well have nothing to add; its earlier message stands.
    """
    own = {query.query_id, query.input.resumes}
    return any(
        isinstance(message, AssistantMessage) and message.query_id in own
        for message in reversed(query.fold.conversation.messages)
    )


def _refuse_unknown(name: str, tools: tuple[ToolSpec, ...]) -> None:
    """Refuse to require a tool that the model is not offered."""
    if all(tool.name != name for tool in tools):
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"tool {name!r} is required, but it is not among the tools that the model may use",
        )


class Turns(Protocol):
    """The turns of one query: those with a model, or those with a native agent."""

    async def begin(self) -> QueryOutcome | None:
        """Make ready; returns how the query rests where there is nothing to answer."""
        ...

    async def next(self) -> QueryOutcome | None:
        """Run the next turn, with what belongs to it; returns how the query rests, or None."""
        ...


def _never(_model: str) -> bool:
    """Without native agents a model is asked, whatever it is called."""
    return False


class QueryRunner:
    """Runs turns until the prompt is answered, something is asked for, or it may not go on.

    The `Runner` of agents. Owns the loop, and how a query begins: whether a model or a native agent
    is asked is found out once for each. Does not own what happens in a turn (`Turns`) or the
    terminal entry (`Query`).
    """

    def __init__(
        self,
        blocks: ModelBlocks,
        *,
        is_native: Callable[[str], bool] = _never,
        make_native: "Callable[[], NativeQueries] | None" = None,
    ) -> None:
        self._blocks = blocks
        self._is_native = is_native
        self._make_native = make_native
        self._native: NativeQueries | None = None
        """Made for the first session that has an agent: most programs have none."""

    async def start(self, query: Query) -> None:
        """Record the prompt. From here on it is part of the session, whatever happens next.

        It is recorded in one append with the start of the turn that sends it.
        """
        is_native = self._is_native(query.settings.model)
        if is_native or query.fold.native.session_id or query.session.native.live:
            self._native_queries.remember(query)
        if query.session.host.context is not None and not is_native:
            await _load_context(query, query.session.host.context)
        message = query.input.message
        if message is not None:
            reminders = query.settings.cached_reminders
            if reminders:
                message = lead_with_reminders(message, reminders, query.fold.sent_view())
        started, entries = self._begun(query, message)
        # A prompt that settles calls or an open turn is folded before the request is built.
        if message is None or query.fold.calls or query.fold.open_turn is not None:
            await query.recorder.record(entries)
        else:
            query.recorder.stage(entries)
            # As the fold will have it: requests are the same before and after it is recorded.
            query.progress.prompt = said_at(message, started.time)

    async def run(self, query: Query) -> QueryOutcome:
        """Answer the prompt that was put into the conversation by `start`.

        Raises:
            AgentError: when the query cannot go on.

        """
        turns: Turns | None = None
        if query.native.is_remembered:
            turns = await self._native_queries.turns_of(query)
        turns = turns or ModelTurns(query, self._blocks)
        outcome = await turns.begin()
        while outcome is None:
            outcome = await turns.next()
        return outcome

    @property
    def _native_queries(self) -> "NativeQueries":
        if self._native is None:
            if self._make_native is None:
                raise ConfigError(ErrorCode.CONFIG_INVALID, "native agents need a session")
            self._native = self._make_native()
        return self._native

    def _begun(self, query: Query, message: UserMessage | None) -> tuple[QueryStarted, list[Entry]]:
        """Return the start of a query, and all that is recorded with it."""
        entries: list[Entry] = []
        if query.input.resumes is None and query.fold.approvals:
            # After a rewind a prompt that waited may find questions open that it makes void.
            entries += query.session.approvals.cancellations(NEW_PROMPT)
        policy = self._blocks.dispatcher.permissions.policy(query)
        started = QueryStarted(
            **query.stamp(),
            message=message,
            resumes=query.input.resumes,
            # A message names its sender itself.
            options=kept_options(query.input, but=("reminders", *(("sender",) if message else ()))),
            # Only when it has changed: there may be a thousand rules, and most queries have the
            # same.
            policy=None if policy == query.fold.standing.policy else msgspec.to_builtins(policy),
        )
        entries.append(started)
        if query.input.input_id is not None:
            entries.append(InputPromoted(**query.stamp(), input_id=InputId(query.input.input_id)))
        return started, entries


async def _load_context(query: Query, context: ContextSource) -> None:
    """Record the context files and skills if they are others than before."""
    found, known = await context.find(), query.fold.context
    before = FoundContext(files=known.files, skills=known.skills) if known else NO_CONTEXT
    if found != before:
        loaded = ContextLoaded(**query.stamp(), files=found.files, skills=found.skills)
        await query.recorder.record([loaded])
