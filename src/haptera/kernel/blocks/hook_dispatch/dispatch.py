"""HookDispatch: calls hooks in their order, limits their time, and checks what they return."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from haptera.kernel.blocks.hook_dispatch.registration import POINTS, Hooks
from haptera.model.errors import ErrorCode, HookError
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import check_content
from haptera.model.requests import ModelRequest
from haptera.model.secrets import without_secrets
from haptera.model.settings import RuntimeSettings
from haptera.ports.hooks import (
    Answer,
    BeforeTool,
    Block,
    HookInput,
    HookPoint,
    Proceed,
    TransformMessages,
    TransformRequest,
    Verdict,
)
from haptera.system.owned_tasks import OwnedTasks
from haptera.system.threads import as_exception, run_in_thread

_TRANSFORMS: tuple[HookPoint, ...] = ("transform_messages", "transform_request")

ValueT = TypeVar("ValueT")


class WaitLimits(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """How long observers are waited for, where that is less than hooks are given."""

    seconds: float | None = None
    unless: "tuple[asyncio.Future[None], ...]" = ()
    """Nothing is waited for once one of these is done."""

    def limit(self, usual: float) -> float | None:
        """Return the seconds that one hook has; None is without end, and so is 0 usually."""
        if self.seconds is None:
            return usual or None
        return min(self.seconds, usual or self.seconds)


_USUAL = WaitLimits()


class HookDispatch:
    """Calls hooks. Constructed once per agent; keeps nothing of any query.

    - A function is called in a task of its own; one that is not async, in a thread.
    - A hook fails when it raises, takes longer than `seconds`, or returns what it may not return. A
      gate or a transform that fails is HOOK_FAILED; the observers after one that fails are called
      all the same.
    - The first `Block` or `Answer` of a gate stands, and the hooks after it are not asked. Each
      transform gets what the one before it returned, and so do gates of a tool call that change
      its arguments.
    - A hook that was cancelled is waited for, as long as its caller is.

    Owns the order, the time and the checks. Does not own the functions (`Hooks`), what a verdict
    means (the engine), or what is recorded of it.
    """

    def __init__(
        self, hooks: Hooks | None = None, *, seconds: float = RuntimeSettings().hook_seconds
    ) -> None:
        self.hooks = Hooks() if hooks is None else hooks
        self._seconds = seconds

    @property
    def is_empty(self) -> bool:
        """Whether no hook is registered."""
        return self.hooks.is_empty

    def as_it_is(self) -> "HookDispatch":
        """Return one whose hooks stay as they are now, for a query that begins."""
        return HookDispatch(self.hooks.only(*POINTS), seconds=self._seconds)

    def transforms_only(self) -> "HookDispatch":
        """Return one for what a program asks a model beside a conversation.

        Gates and observers are not called. Transforms are: what they take out reaches no model.
        """
        return HookDispatch(self.hooks.only(*_TRANSFORMS), seconds=self._seconds)

    async def gate(self, point: HookPoint, given: HookInput, tasks: OwnedTasks) -> Verdict:
        """Ask the gates of a point.

        Raises:
            HookError: HOOK_FAILED when one fails.

        """
        changed = None
        for function in self.hooks.at(point):
            check = _check_verdict if isinstance(given, BeforeTool) else _check_gate_verdict
            verdict = await self._call(point, function, given, tasks=tasks, check=check)
            if not isinstance(verdict, Proceed):
                return verdict
            if verdict.arguments is not None and isinstance(given, BeforeTool):
                changed = verdict.arguments
                # A copy for the next hook, which may change it: the caller gets `changed`.
                own = msgspec.structs.replace(
                    given.call, arguments=msgspec.to_builtins(changed), invalid=None
                )
                given = msgspec.structs.replace(given, call=own)
        return Proceed(arguments=changed)

    async def transform_messages(
        self, given: TransformMessages, tasks: OwnedTasks
    ) -> tuple[Message, ...]:
        """Let the transforms change messages.

        Raises:
            HookError: HOOK_FAILED when one fails, or leaves nothing that could be sent.

        """
        for function in self.hooks.at("transform_messages"):
            before = given.messages
            after = await self._call(
                *("transform_messages", function, given),
                tasks=tasks,
                check=partial(_check_messages, known=before),
            )
            given = msgspec.structs.replace(given, messages=after)
        return given.messages

    async def transform_request(self, given: TransformRequest, tasks: OwnedTasks) -> ModelRequest:
        """Let the transforms change a request.

        Raises:
            HookError: HOOK_FAILED when one fails, or changes the model.

        """
        for function in self.hooks.at("transform_request"):
            before = given.request
            after = await self._call(
                *("transform_request", function, given),
                tasks=tasks,
                check=partial(_check_request, before=before),
            )
            given = msgspec.structs.replace(given, request=after)
        return given.request

    async def observe(
        self,
        point: HookPoint,
        given: HookInput,
        tasks: OwnedTasks,
        *,
        limits: WaitLimits = _USUAL,
    ) -> list[HookError]:
        """Call the observers of a point, one after the other; returns how some of them failed."""
        failures: list[HookError] = []
        for function in self.hooks.at(point):
            try:
                await self._call(point, function, given, tasks=tasks, check=_ignore, limits=limits)
            except HookError as error:
                failures.append(error)
        return failures

    async def _call(
        self,
        point: HookPoint,
        function: Callable[[Any], Any],
        given: HookInput,
        *,
        tasks: OwnedTasks,
        check: Callable[[Any], ValueT],
        limits: WaitLimits = _USUAL,
    ) -> ValueT:
        name = f"the {point} hook {_name_of(function)!r}"
        limit = limits.limit(self._seconds)
        running = tasks.start(_run(function, given), name=f"haptera-hook-{point}")
        ends: set[asyncio.Future[Any]] = {running, *limits.unless}
        try:
            await asyncio.wait(ends, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            running.cancel()
            # No limit here: what has cancelled the caller decides how long it waits for that.
            await asyncio.wait({running})
            _look_at(running)
            raise
        if not running.done():
            running.cancel()
            # It may go on and fail later; asyncio would log that nothing retrieved its exception.
            running.add_done_callback(_look_at)
            why = "was not waited for" if limit is None else f"took longer than {limit:g} s"
            raise HookError(ErrorCode.HOOK_FAILED, f"{name} {why}")
        if running.cancelled():
            raise HookError(ErrorCode.HOOK_FAILED, f"{name} cancelled itself")
        try:
            return check(running.result())
        except Exception as error:  # noqa: BLE001 - the user's, and may raise anything
            message = f"{name} failed: {type(error).__name__}"
            if isinstance(error, _NonsenseError):
                message = f"{name} returned an invalid value: {error}"
            raise HookError(ErrorCode.HOOK_FAILED, message) from without_secrets(error)


class _NonsenseError(TypeError):
    """What a hook returned is not what a hook of its point returns."""


async def _run(function: Callable[[Any], Any], given: HookInput) -> object:
    try:
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            type(function).__call__
        ):
            value: object = await function(given)
        else:
            value = await run_in_thread(lambda: function(given))
        return await value if inspect.isawaitable(value) else value
    except (Exception, asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
        raise
    except BaseException as raised:  # it would end the query, or the event loop
        raise as_exception(raised) from raised


def _look_at(running: "asyncio.Task[object]") -> None:
    """Take note of how a hook ended that is not waited for any more."""
    if not running.cancelled():
        running.exception()


def _name_of(function: object) -> str:
    return str(getattr(function, "__name__", None) or type(function).__name__)


def _ignore(_value: object) -> None:
    """Leave what an observer returns alone."""


def _check_verdict(verdict: object) -> Verdict:
    """Return a verdict that is one: what a hook says goes into the log and to the model."""
    if not isinstance(verdict, Proceed | Block | Answer):
        raise _NonsenseError(f"a verdict is Proceed, Block or Answer, not {type(verdict).__name__}")
    try:
        # Structs do not check their fields. What is converted here can be read back from the log.
        for piece in verdict.content if isinstance(verdict, Answer) else ():
            check_content(piece)
        return msgspec.convert(msgspec.to_builtins(verdict), type(verdict))
    except (ValueError, TypeError) as error:
        raise _NonsenseError(str(error)) from error


def _check_gate_verdict(verdict: object) -> Verdict:
    """Return the verdict of a gate that is not about a tool call."""
    checked = _check_verdict(verdict)
    if isinstance(checked, Answer) or (
        isinstance(checked, Proceed) and checked.arguments is not None
    ):
        raise _NonsenseError("only a tool call can be answered or get other arguments")
    return checked


def _check_messages(value: object, *, known: Sequence[Message]) -> tuple[Message, ...]:
    """Return messages that a transform made, checked; those that it was given are `known`."""
    if not isinstance(value, list | tuple):
        raise _NonsenseError(f"expected a list of messages, not {type(value).__name__}")
    # By identity: what the hook was given needs no check. `known` keeps the objects alive, so that
    # no new one has the same id.
    same = {id(message) for message in known}
    checked: list[Message] = []
    for message in value:
        if not isinstance(message, UserMessage | AssistantMessage):
            raise _NonsenseError(f"expected messages in the list, not {type(message).__name__}")
        try:
            is_known = id(message) in same
            checked.append(
                message
                if is_known
                else msgspec.convert(msgspec.to_builtins(message), type(message))
            )
        except (ValueError, TypeError) as error:
            raise _NonsenseError(str(error)) from error
    if not any(isinstance(message, UserMessage) for message in checked):
        raise _NonsenseError("it leaves no message of the user")
    return tuple(checked)


def _check_request(value: object, *, before: ModelRequest) -> ModelRequest:
    """Return a request that a transform made, checked."""
    if not isinstance(value, ModelRequest):
        raise _NonsenseError(f"expected a ModelRequest, not {type(value).__name__}")
    if value.model != before.model:
        raise _NonsenseError("it changes the model, which is asked under its own name")
    messages = _check_messages(value.messages, known=before.messages)
    try:
        # The messages apart: those that the hook was given are the most of a request and need no
        # check.
        bare = msgspec.structs.replace(value, messages=())
        checked = msgspec.convert(msgspec.to_builtins(bare), ModelRequest)
    except (ValueError, TypeError) as error:
        raise _NonsenseError(str(error)) from error
    return msgspec.structs.replace(checked, messages=messages)
