"""Running a tool's function, async or not, and turning what it returns into content."""

import asyncio
import base64
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from haptera.model.approvals import ApprovalRequest, Decision
from haptera.model.json_types import Json, writable
from haptera.model.late_names import late_module
from haptera.model.parts import MediaPart, ResultContent, TextPart, check_content
from haptera.ports.tools import Approver, ToolContext
from haptera.system.threads import as_exception, run_in_thread


def as_approver(approver: Callable[[ApprovalRequest], Any]) -> Approver:
    """Let a plain function approve, too: it runs in a thread, because it may wait for a person."""
    call = type(approver).__call__  # an object may be called, too
    if inspect.iscoroutinefunction(approver) or inspect.iscoroutinefunction(call):
        return approver

    async def ask(request: ApprovalRequest) -> Decision:
        answer: Any = await run_in_thread(lambda: approver(request))
        decision: Decision = await answer if inspect.isawaitable(answer) else answer
        return decision

    return ask


async def call_function(
    function: Callable[..., object], arguments: dict[str, object], context: ToolContext
) -> object:
    """Call a function: coroutines here, plain ones in a thread, generators for their progress."""
    try:
        return await _call(function, arguments, context)
    except (Exception, asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
        raise
    except BaseException as raised:  # it would end the query, or the event loop
        raise as_exception(raised) from raised


async def _call(
    function: Callable[..., object], arguments: dict[str, object], context: ToolContext
) -> object:
    if inspect.iscoroutinefunction(function):
        value: object = await function(**arguments)
    elif inspect.isasyncgenfunction(function):
        value = function(**arguments)
    else:
        value = await run_in_thread(lambda: function(**arguments))
    # By the value, not by the function: what wraps a generator function is a plain function.
    if inspect.isasyncgen(value):
        return await _last_of(value, context)
    if inspect.isgenerator(value):
        return await run_in_thread(lambda: _exhaust(value, context))
    return await value if inspect.isawaitable(value) else value


async def _last_of(values: AsyncIterator[Json], context: ToolContext) -> Json:
    """Report every value but the last, which is the result."""
    held: list[Json] = []
    async for value in values:
        # Held back by one: only when the next value comes is it known not to be the last.
        for earlier in held:
            context.progress(earlier)
        held = [value]
    return held[0] if held else None


def _exhaust(values: Iterator[Json], context: ToolContext) -> Json:
    """Report what a generator yields; what it returns is the result."""
    while True:
        try:
            value = next(values)
        except StopIteration as stop:
            return stop.value
        context.progress(value)


def to_content(value: object) -> tuple[ResultContent, ...]:
    """Turn what a tool returned into content: text as it is, media as media, the rest as JSON.

    A list with media or text parts in it is content piece by piece; any other is one value.
    """
    if value is None:
        return ()
    if isinstance(value, list | tuple) and any(_is_content(item) for item in value):
        return tuple(_content_of(item) for item in value)
    return (_content_of(value),)


def _content_of(value: object) -> ResultContent:
    if isinstance(value, TextPart | MediaPart):
        value = check_content(value)
        return replace(value, text=writable(value.text)) if isinstance(value, TextPart) else value
    return TextPart(text=writable(value) if isinstance(value, str) else _to_json(value))


def image(content: bytes, mime: str) -> MediaPart:
    """Make media that a tool can return."""
    return MediaPart(mime=mime, data=base64.b64encode(content).decode("ascii"))


def _is_content(value: object) -> bool:
    return isinstance(value, TextPart | MediaPart)


def _to_json(value: object) -> str:
    """Write a value as JSON; raises TypeError naming what in it has no JSON form."""
    if hasattr(value, "model_dump_json"):
        return str(value.model_dump_json())
    try:
        return msgspec.json.encode(value, enc_hook=_encode_foreign).decode("utf-8")
    except UnicodeEncodeError:
        # Escapes can say what UTF-8 cannot: file names that are no text, for example.
        plain = msgspec.to_builtins(value, enc_hook=_encode_foreign)
        return str(late_module("json").dumps(plain))
    except RecursionError:
        raise TypeError(
            f"the tool returned a {type(value).__qualname__!r} which has no JSON form: "
            "it contains itself, or is nested too deeply"
        ) from None


def _encode_foreign(value: object) -> object:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if hasattr(value, "__fspath__"):  # a path
        return str(value)
    raise TypeError(
        f"the tool returned {type(value).__qualname__!r}, which has no JSON form; "
        "return text, plain values, a dataclass, a struct or a pydantic model"
    )
