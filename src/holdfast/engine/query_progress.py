"""Progress of a query: what it remembers from turn to turn, its limits, and answers of a type."""

import msgspec

from holdfast.blocks.request_builder import RequestExtras
from holdfast.engine.query_scope import QueryScope, say
from holdfast.engine.tool_execution import record_end, record_failure
from holdfast.engine.turn_runner import TurnOutcome
from holdfast.ports.runner import OutputSpec
from holdfast.serialization.canonical import canonical_json
from holdfast.vocabulary.errors import ErrorCode, ProviderError, ToolError
from holdfast.vocabulary.events import QuerySummary
from holdfast.vocabulary.messages import AssistantMessage, UserMessage
from holdfast.vocabulary.parts import MediaPart, TextPart, ToolCallPart


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


async def took_output_call(scope: QueryScope, turn: TurnOutcome, progress: Progress) -> bool:
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


async def is_output_good(scope: QueryScope, turn: TurnOutcome, progress: Progress) -> bool:
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


def _output_call(scope: QueryScope) -> ToolCallPart | None:
    """Find the only call of a turn if it is named after the answer's schema, and no tool is."""
    output = scope.input.output
    named = [call.part for call in scope.fold.calls.values() if call.ended is None]
    if output is None or len(named) != 1 or named[0].name != output.schema.name:
        return None
    return None if named[0].name in scope.tools else named[0]


def _count_repair(
    progress: Progress, output: OutputSpec, error: ValueError, *, provider: str
) -> None:
    """Count an answer that does not fit; after the last try it is an error."""
    progress.repairs += 1
    if progress.repairs > output.max_repairs:
        raise ProviderError(
            ErrorCode.PROTOCOL,
            f"the answer does not fit {output.schema.name} after {progress.repairs} tries: {error}",
            provider=provider,
        ) from error
