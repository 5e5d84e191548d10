"""The end of a query, however it came: what is open is ended, every call has its answer."""

from holdfast.engine.scopes import QueryOutcome, QueryScope
from holdfast.vocabulary.entries import QueryEnded, ToolEnded, TurnEnded
from holdfast.vocabulary.events import Event
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.messages import AssistantMessage, Message
from holdfast.vocabulary.parts import ProviderPart, TextPart
from holdfast.vocabulary.results import AgentResult

_CANCELLED = "This call was cancelled while it ran. It may or may not have taken effect."


def closing_events(scope: QueryScope, outcome: QueryOutcome, *, duration_ms: int) -> list[Event]:
    """Return what is to be recorded so that the query is at rest.

    What was streamed is kept and marked as interrupted. A tool that was running is recorded as
    cancelled. Approvals that wait are cancelled, unless the query rests because of them. Commit it
    before the next wait: an answer that came in between would settle an approval twice.
    """
    out: list[Event] = []
    fold = scope.fold
    stamp = scope.turn_stamp or scope.stamp
    if fold.open_turn is not None:
        if scope.assembly is not None:
            scope.assembly.close(out)
        out.append(
            TurnEnded(**stamp(), message_id=fold.open_turn.started.message_id, interrupted=True)
        )
    rests = outcome.stop_reason == "approval"
    resting = {asked.call_id for asked in fold.approvals.values()} if rests else set()
    out.extend(
        ToolEnded(
            **stamp(),
            call_id=call.part.call_id,
            tool=call.part.name,
            outcome="cancelled",
            content=(TextPart(text=_CANCELLED),),
        )
        for call in fold.calls.values()
        if call.state == "started" and call.part.call_id not in resting
    )
    if not rests:
        reason = f"the query ended: {outcome.stop_reason}"
        out.extend(scope.session.approvals.cancellations(reason))
    out.append(query_ended(scope, outcome, duration_ms=duration_ms))
    return out


def query_ended(scope: QueryScope, outcome: QueryOutcome, *, duration_ms: int) -> QueryEnded:
    """Return the terminal entry of a query."""
    return QueryEnded(
        **scope.stamp(),
        stop_reason=outcome.stop_reason,
        finish_reason=scope.finish_reason,
        usage=scope.usage,
        cost=scope.cost if scope.turns else None,
        turns=scope.turns,
        duration_ms=duration_ms,
        message_id=scope.message_id,
        error=outcome.error.report if outcome.error else None,
    )


def result_of(scope: QueryScope, ended: QueryEnded) -> AgentResult[object]:
    """Return what the caller gets."""
    fold = scope.fold
    messages = _messages_of(scope, fold.messages())
    answers = [item for item in messages if isinstance(item, AssistantMessage)]
    return AgentResult(
        text=_text_of(answers[-1]) if answers else "",
        output=scope.output,
        messages=messages,
        tool_calls=tuple(call for answer in answers for call in answer.tool_calls),
        usage=ended.usage,
        cost=ended.cost,
        provider=scope.provider,
        model=scope.model,
        session_id=scope.session.session_id,
        message_id=answers[-1].id if answers else None,
        stop_reason=ended.stop_reason,
        finish_reason=ended.finish_reason,
        turns=ended.turns,
        duration_ms=ended.duration_ms,
        pending=fold.pending_approvals(),
        resumed=scope.input.resumes is not None,
    )


def _text_of(answer: AssistantMessage) -> str:
    """Return what the model said; where it only refused, the words it refused with."""
    return answer.text or "".join(
        _refusal_in(part.payload) for part in answer.parts if isinstance(part, ProviderPart)
    )


def _refusal_in(payload: JsonObject) -> str:
    """Find a refusal in an opaque part: providers put it on the part, or into its content."""
    places = [payload, *(item for item in payload.get("content") or () if isinstance(item, dict))]
    return "".join(str(place.get("refusal") or "") for place in places)


def _messages_of(scope: QueryScope, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the tail of the conversation that this query, or the one it resumes, added."""
    own = {scope.query_id, scope.input.resumes, *scope.joined}
    first = len(messages)
    while first and messages[first - 1].query_id in own:
        first -= 1
    return messages[first:]
