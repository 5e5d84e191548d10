"""Answers of a type: taken from what a model said, or from a call that is named like the type."""

from haptera.kernel.calls.tool_execution import record_end, record_failure
from haptera.kernel.query.query import Query
from haptera.model.canonical import canonical_json
from haptera.model.errors import ErrorCode, ProviderError, ToolError
from haptera.model.messages import AssistantMessage
from haptera.model.parts import TextPart, ToolCallPart
from haptera.ports.runner import OutputSpec


async def take_output_call(query: Query, *, tries: int, provider: str) -> bool | None:
    """Take the answer from a call named after its schema: some models can only answer so.

    Returns None without such a call, and False when its arguments do not fit: it is answered as a
    failed call then, and the model tries again, as often as with any answer that does not fit.

    Raises:
        ProviderError: PROTOCOL when it does not fit and was the last of the tries.

    """
    call, output = _output_call(query), query.input.output
    if call is None or output is None:
        return None
    try:
        query.progress.output = output.parse(canonical_json(call.arguments).decode())
    except ValueError as error:
        failure = ToolError(ErrorCode.TOOL_INVALID_INPUT, f"the answer does not fit: {error}")
        # First the record: the call must have its end also when this was the last try.
        await record_failure(query, call, failure)
        _refuse_last_try(output, error, tries=tries, provider=provider)
        return False
    taken = (TextPart(text="The answer was taken."),)
    await record_end(query, call, outcome="ok", content=taken)
    return True


def take_output(query: Query, *, tries: int, provider: str) -> str | None:
    """Take the last answer as the type that was asked for; returns what to say if it does not fit.

    Raises:
        ProviderError: PROTOCOL when it does not fit and was the last of the tries.

    """
    output, tip = query.input.output, query.fold.conversation.tip
    if output is None:
        return None
    try:
        query.progress.output = output.parse(tip.text if isinstance(tip, AssistantMessage) else "")
    except ValueError as error:
        _refuse_last_try(output, error, tries=tries, provider=provider)
        return f"Your answer does not fit the schema: {error}. Answer again."
    return None


def _output_call(query: Query) -> ToolCallPart | None:
    """Find the only call of a turn if it is named after the answer's schema, and no tool is."""
    output = query.input.output
    named = [call.part for call in query.fold.calls.values() if call.ended is None]
    if output is None or len(named) != 1 or named[0].name != output.schema.name:
        return None
    return None if named[0].name in query.offer.tools else named[0]


def _refuse_last_try(output: OutputSpec, error: ValueError, *, tries: int, provider: str) -> None:
    if tries > output.max_repairs:
        raise ProviderError(
            ErrorCode.PROTOCOL,
            f"the answer does not match the schema {output.schema.name!r} after {tries} tries: "
            f"{error}",
            provider=provider,
        ) from error
