"""Hooks: the functions that a program registers for the points of a session."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar, Unpack, get_args, overload

import msgspec

from haptera.kernel.blocks.hook_dispatch.keywords import HookKeywords
from haptera.model.errors import ConfigError, ErrorCode
from haptera.options.checks import check, check_names
from haptera.options.declarations import function_option
from haptera.options.signatures import takes
from haptera.ports.hooks import (
    AfterCompactionHook,
    AfterQueryHook,
    AfterToolHook,
    AfterTurnHook,
    BeforeCompactionHook,
    BeforeQueryHook,
    BeforeToolHook,
    BeforeTurnHook,
    HookPoint,
    SessionEndHook,
    SessionResumeHook,
    SessionStartHook,
    TransformMessagesHook,
    TransformRequestHook,
)

FunctionT = TypeVar("FunctionT", bound=Callable[..., object])
POINTS: tuple[HookPoint, ...] = get_args(HookPoint)

SessionStartT = TypeVar("SessionStartT", bound=SessionStartHook)
SessionResumeT = TypeVar("SessionResumeT", bound=SessionResumeHook)
SessionEndT = TypeVar("SessionEndT", bound=SessionEndHook)
BeforeQueryT = TypeVar("BeforeQueryT", bound=BeforeQueryHook)
AfterQueryT = TypeVar("AfterQueryT", bound=AfterQueryHook)
BeforeTurnT = TypeVar("BeforeTurnT", bound=BeforeTurnHook)
AfterTurnT = TypeVar("AfterTurnT", bound=AfterTurnHook)
TransformMessagesT = TypeVar("TransformMessagesT", bound=TransformMessagesHook)
TransformRequestT = TypeVar("TransformRequestT", bound=TransformRequestHook)
BeforeToolT = TypeVar("BeforeToolT", bound=BeforeToolHook)
AfterToolT = TypeVar("AfterToolT", bound=AfterToolHook)
BeforeCompactionT = TypeVar("BeforeCompactionT", bound=BeforeCompactionHook)
AfterCompactionT = TypeVar("AfterCompactionT", bound=AfterCompactionHook)


class HookFunctions(msgspec.Struct, frozen=True, kw_only=True):
    """One function for each point, as `Hooks(...)` takes them; None is no function."""

    session_start: Annotated[
        SessionStartHook | None,
        function_option("Called after a new session was opened; a fork is one, too."),
    ] = None
    session_resume: Annotated[
        SessionResumeHook | None,
        function_option("Called after an existing session was opened, also after a crash."),
    ] = None
    session_end: Annotated[
        SessionEndHook | None,
        function_option("Called when a session is closed, after its queries."),
    ] = None
    before_query: Annotated[
        BeforeQueryHook | None,
        function_option("A gate before each query; the prompt is already in the log."),
    ] = None
    after_query: Annotated[
        AfterQueryHook | None, function_option("Called after each query, however it ended.")
    ] = None
    before_turn: Annotated[
        BeforeTurnHook | None,
        function_option(
            "A gate before a model is asked; a retry or a fallback model is not a new turn."
        ),
    ] = None
    after_turn: Annotated[
        AfterTurnHook | None,
        function_option("Called after a model answered, failed or was interrupted."),
    ] = None
    transform_messages: Annotated[
        TransformMessagesHook | None,
        function_option("Changes the messages before each request is built, retries included."),
    ] = None
    transform_request: Annotated[
        TransformRequestHook | None,
        function_option("Changes each request before it is sent, retries included."),
    ] = None
    before_tool: Annotated[
        BeforeToolHook | None,
        function_option("A gate before the arguments of a tool call are parsed."),
    ] = None
    after_tool: Annotated[
        AfterToolHook | None,
        function_option(
            "Called after a tool call ended: it ran, failed, was denied, answered by a hook or "
            "cancelled."
        ),
    ] = None
    before_compaction: Annotated[
        BeforeCompactionHook | None, function_option("A gate before the conversation is compacted.")
    ] = None
    after_compaction: Annotated[
        AfterCompactionHook | None, function_option("Called after the conversation was compacted.")
    ] = None


@takes(HookFunctions)
class Hooks:
    """Registers hooks: by name when it is made, or with `on` as a decorator.

        hooks = Hooks(after_query=print)

        @hooks.on("before_tool")
        async def keep_out(given: BeforeTool) -> Proceed | Block: ...

    A point may have several hooks, which are called in the order of their registration. A query
    that runs keeps the hooks with which it began. Owns the functions; calling them, and what comes
    of it, is not done here.

    Raises:
        ConfigError: CONFIG_INVALID when there is no such point, or a hook is no function.

    """

    def __init__(self, **functions: Unpack[HookKeywords]) -> None:
        self._functions: dict[str, tuple[Any, ...]] = {}
        self.is_empty = True
        """Whether nothing is registered. Only for reading."""
        check(functions, HookFunctions, function="Hooks()")
        for point, function in functions.items():
            if function is not None:
                self._add(point, function)

    def at(self, point: HookPoint) -> tuple[Any, ...]:
        """Return the functions of a point, in the order of their registration."""
        return self._functions.get(point, ())

    def only(self, *points: HookPoint) -> "Hooks":
        """Return the hooks of some points as they are now; later ones are not added to them."""
        hooks = Hooks()
        hooks._functions = {point: self.at(point) for point in points if self.at(point)}
        hooks.is_empty = not hooks._functions
        return hooks

    @overload
    def on(
        self, point: Literal["session_start"], /
    ) -> Callable[[SessionStartT], SessionStartT]: ...
    @overload
    def on(
        self, point: Literal["session_resume"], /
    ) -> Callable[[SessionResumeT], SessionResumeT]: ...
    @overload
    def on(self, point: Literal["session_end"], /) -> Callable[[SessionEndT], SessionEndT]: ...
    @overload
    def on(self, point: Literal["before_query"], /) -> Callable[[BeforeQueryT], BeforeQueryT]: ...
    @overload
    def on(self, point: Literal["after_query"], /) -> Callable[[AfterQueryT], AfterQueryT]: ...
    @overload
    def on(self, point: Literal["before_turn"], /) -> Callable[[BeforeTurnT], BeforeTurnT]: ...
    @overload
    def on(self, point: Literal["after_turn"], /) -> Callable[[AfterTurnT], AfterTurnT]: ...
    @overload
    def on(
        self, point: Literal["transform_messages"], /
    ) -> Callable[[TransformMessagesT], TransformMessagesT]: ...
    @overload
    def on(
        self, point: Literal["transform_request"], /
    ) -> Callable[[TransformRequestT], TransformRequestT]: ...
    @overload
    def on(self, point: Literal["before_tool"], /) -> Callable[[BeforeToolT], BeforeToolT]: ...
    @overload
    def on(self, point: Literal["after_tool"], /) -> Callable[[AfterToolT], AfterToolT]: ...
    @overload
    def on(
        self, point: Literal["before_compaction"], /
    ) -> Callable[[BeforeCompactionT], BeforeCompactionT]: ...
    @overload
    def on(
        self, point: Literal["after_compaction"], /
    ) -> Callable[[AfterCompactionT], AfterCompactionT]: ...
    def on(self, point: HookPoint, /) -> Any:
        """Register the function that follows, as a decorator: `@hooks.on("before_tool")`.

        Raises:
            ConfigError: CONFIG_INVALID when there is no such point, or a hook is no function.

        """
        check_names([str(point)], HookFunctions, function="hooks.on()")

        def register(function: FunctionT) -> FunctionT:
            if not callable(function):
                told = f"a hook of {point} is a function, not {function!r}"
                raise ConfigError(ErrorCode.CONFIG_INVALID, told)
            self._add(point, function)
            return function

        return register

    def _add(self, point: str, function: object) -> None:
        self._functions = {**self._functions, point: (*self._functions.get(point, ()), function)}
        self.is_empty = False
