"""Progress of a query: what it remembers, its next turn, and answers of a type."""

from collections.abc import Awaitable, Iterable

import msgspec

from haptera.kernel.blocks.request_builder import RequestExtras
from haptera.kernel.engine.query_scope import ModelPlan, QueryScope, Turn, say
from haptera.kernel.engine.tool_execution import record_end, record_failure
from haptera.kernel.engine.turn_runner import TurnOutcome, TurnRunnerInterface
from haptera.model.canonical import canonical_json
from haptera.model.errors import AgentError, ErrorCode, ProviderError, ToolError
from haptera.model.events import QuerySummary
from haptera.model.log.queries import InputQueued
from haptera.model.log.turns import TurnDiscarded
from haptera.model.messages import AssistantMessage, UserMessage
from haptera.model.parts import MediaPart, TextPart, ToolCallPart, media_of
from haptera.ports.runner import OutputSpec


class Progress(msgspec.Struct):
    """What the loop remembers from turn to turn."""

    reminders: tuple[str, ...]
    fresh_media: tuple[MediaPart, ...]
    """What the user handed in and no model has answered yet."""
    require_tool: str | None
    empty_turns: int = 0
    repairs: int = 0
    limit: str | None = None
    """The limit that makes this turn the last one."""

    def add_media(self, prompts: Iterable[InputQueued]) -> None:
        """Take in what was handed in with prompts that joined the query."""
        for item in prompts:
            self.fresh_media += media_of(item.message.parts)


class NextTurn:
    """The next turn of a query, to be run on any model and as often as it takes (`ModelWork`).

    Owns what becomes of an attempt that failed: it is measured, and its turn is discarded in the
    log before another attempt, so that a consumer can drop what it showed.
    """

    def __init__(
        self, scope: QueryScope, turns: TurnRunnerInterface, extras: RequestExtras
    ) -> None:
        self._scope = scope
        self._turns = turns
        self._extras = extras
        self._before = scope.turn

    # Not async: a coroutine here would be resumed once more with every read of the answer.
    def attempt(self, plan: ModelPlan) -> Awaitable[TurnOutcome]:
        """Run the turn once."""
        self._before = self._scope.turn
        return self._turns.run(self._scope, plan, self._extras)

    def note_failure(self, failure: AgentError) -> bool:
        """Show that the attempt failed; True when too many turns in a row failed like this."""
        scope, turn = self._scope, self._begun()
        if turn is not None and not scope.abort.signal.aborted:
            scope.recorder.show(turn.measurement.fail(failure))
        if not scope.errors.fail_turn(scope.turns, f"{failure.code} {failure.message}"):
            return False
        failure.add_note("it is not repeated: several turns in a row failed with this error")
        return True

    async def discard(
        self, failure: AgentError, reason: str = "it failed and is tried again"
    ) -> None:
        """Void the turn of the failed attempt, if it left one open."""
        turn = self._open()
        if turn is not None:
            await discard_turn(self._scope, turn, reason=reason, failure=failure)

    @property
    def has_answer(self) -> bool:
        """Whether part of an answer came before the attempt failed."""
        turn = self._open()
        return turn is not None and bool(turn.answer.parts or turn.answer.unsaved_bytes)

    def _begun(self) -> Turn | None:
        """Return the turn of the last attempt; None if that failed before it began one."""
        return None if self._scope.turn is self._before else self._scope.turn

    def _open(self) -> Turn | None:
        return self._begun() if self._scope.fold.open_turn is not None else None


async def discard_turn(
    scope: QueryScope, turn: Turn, *, reason: str, failure: AgentError | None = None
) -> None:
    """Void a turn: what was shown of it is not part of the conversation."""
    discarded = TurnDiscarded(
        **turn.stamp(),
        message_id=turn.message_id,
        reason=reason,
        error=failure.report if failure is not None else None,
    )
    await scope.recorder.record([discarded])


def summary_of(scope: QueryScope, extras: RequestExtras) -> QuerySummary:
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


async def took_output_call(scope: QueryScope, outcome: TurnOutcome, progress: Progress) -> bool:
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
        # First the record: the call must have its end also when this was the last try.
        await record_failure(scope, call, failure)
        progress.repairs += 1
        _refuse_last_try(output, error, tries=progress.repairs, provider=outcome.turn.provider)
        return False
    taken = (TextPart(text="The answer was taken."),)
    await record_end(scope, call, outcome="ok", content=taken)
    return True


async def is_output_good(scope: QueryScope, outcome: TurnOutcome, progress: Progress) -> bool:
    """Parse the answer as the type that was asked for; False when the model is to try again."""
    provider = outcome.turn.provider
    correction = take_output(scope, tries=progress.repairs + 1, provider=provider)
    if correction is None:
        return True
    progress.repairs += 1
    # At a limit no turn follows that could correct it.
    if progress.limit is None:
        await say(scope, correction)
    return False


def take_output(scope: QueryScope, *, tries: int, provider: str) -> str | None:
    """Take the last answer as the type that was asked for; returns what to say if it does not fit.

    Raises:
        ProviderError: PROTOCOL when it does not fit and was the last of the tries.

    """
    output, tip = scope.input.output, scope.fold.conversation.tip
    if output is None:
        return None
    try:
        scope.output = output.parse(tip.text if isinstance(tip, AssistantMessage) else "")
    except ValueError as error:
        _refuse_last_try(output, error, tries=tries, provider=provider)
        return f"Your answer does not fit the schema: {error}. Answer again."
    return None


def _output_call(scope: QueryScope) -> ToolCallPart | None:
    """Find the only call of a turn if it is named after the answer's schema, and no tool is."""
    output = scope.input.output
    named = [call.part for call in scope.fold.calls.values() if call.ended is None]
    if output is None or len(named) != 1 or named[0].name != output.schema.name:
        return None
    return None if named[0].name in scope.tools else named[0]


def _refuse_last_try(output: OutputSpec, error: ValueError, *, tries: int, provider: str) -> None:
    if tries > output.max_repairs:
        raise ProviderError(
            ErrorCode.PROTOCOL,
            f"the answer does not match the schema {output.schema.name!r} after {tries} tries: "
            f"{error}",
            provider=provider,
        ) from error
