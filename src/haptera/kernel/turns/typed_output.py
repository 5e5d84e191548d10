"""Answers of a type: taken from what a model said, or from a call that is named like the type."""

import msgspec

from haptera.kernel.calls.tool_execution import record_end, record_failure
from haptera.kernel.query.query import Query
from haptera.model.canonical import canonical_json
from haptera.model.errors import AgentError, ErrorCode, HookError, ProviderError, ToolError
from haptera.model.ids import CallId
from haptera.model.json_types import writable
from haptera.model.messages import AssistantMessage
from haptera.model.parts import TextPart, ToolCallPart
from haptera.model.secrets import error_text
from haptera.ports.runner import OutputSpec, Retry
from haptera.ports.tools import ToolContext

_SHOWN = 2_000
"""Characters of an answer that its error repeats."""


class WrongAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is not what was asked for."""

    text: str
    reason: str
    correction: str
    """What the model is told."""

    def error(self, output: OutputSpec, *, provider: str) -> ProviderError:
        """Return what the query fails with when no model is left that could answer."""
        wanted = "" if output.schema is None else f" {output.schema.name!r}"
        text = self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]}…"
        times = "attempt" if output.attempts == 1 else "attempts"
        return ProviderError(
            ErrorCode.OUTPUT_INVALID,
            f"the answer is not the output{wanted} that was asked for, after {output.attempts} "
            f"{times}: {self.reason}; the last answer: {text!r}",
            provider=provider,
        )


async def take_output_call(query: Query) -> WrongAnswer | bool:
    """Take the answer from a call named after its schema: some models can only answer so.

    Returns False without such a call. One that does not fit is answered as a failed call.

    Raises:
        AgentError: what the validator of the program raised, unless that is `Retry`.

    """
    call, output = _output_call(query), query.input.output
    if call is None or output is None:
        return False
    text = canonical_json(call.arguments).decode()
    wrong = await _take(query, output, text, call_id=call.call_id)
    if wrong is not None:
        # First the record: the call must have its end also when this was the last attempt.
        failure = ToolError(ErrorCode.TOOL_INVALID_INPUT, wrong.correction)
        await record_failure(query, call, failure)
        return wrong
    taken = (TextPart(text="The answer was taken."),)
    await record_end(query, call, outcome="ok", content=taken)
    return True


async def take_output(query: Query) -> WrongAnswer | None:
    """Take the last answer as what was asked for; returns what is wrong with it.

    Raises:
        AgentError: what the validator of the program raised, unless that is `Retry`.

    """
    output, tip = query.input.output, query.fold.conversation.tip
    if output is None:
        return None
    answer = tip if isinstance(tip, AssistantMessage) else None
    call_id = CallId("" if answer is None else answer.id)
    return await _take(query, output, "" if answer is None else answer.text, call_id=call_id)


async def _take(
    query: Query, output: OutputSpec, text: str, *, call_id: CallId
) -> WrongAnswer | None:
    try:
        value = output.parse(text)
    except ValueError as error:
        correction = f"Your answer does not fit the schema: {error}. Answer again."
        return WrongAnswer(text=text, reason=str(error), correction=correction)
    try:
        query.progress.output = await _validated(query, output, value, call_id=call_id)
    except Retry as error:
        reason = writable(str(error)) or "Your answer was refused. Answer again."
        return WrongAnswer(text=text, reason=reason, correction=reason)
    return None


async def _validated(query: Query, output: OutputSpec, value: object, *, call_id: CallId) -> object:
    """Return what the validator makes of a value; what it fails with is no fault of the model."""
    if output.check is None:
        return value
    context: ToolContext[object] = ToolContext(
        session_id=query.session.session_id,
        call_id=call_id,
        signal=query.abort.signal,
        report=lambda _progress: None,
        caller=query.caller,
    )
    try:
        return await output.check(value, context)
    except (Retry, AgentError):
        raise
    except Exception as error:
        raise HookError(
            ErrorCode.HOOK_FAILED,
            f"output_validator raised {type(error).__name__}: {error_text(error)}",
        ) from error


def _output_call(query: Query) -> ToolCallPart | None:
    """Find the only call of a turn if it is named after the answer's schema, and no tool is."""
    output = query.input.output
    if output is None or output.schema is None:
        return None
    named = [call.part for call in query.fold.calls.values() if call.ended is None]
    if len(named) != 1 or named[0].name != output.schema.name:
        return None
    return None if named[0].name in query.offer.tools else named[0]
