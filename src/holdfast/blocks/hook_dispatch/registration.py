"""Hooks: the functions that a program registers for the points of a session."""

from collections.abc import Callable
from typing import Any, Literal, TypedDict, TypeVar, Unpack, get_args, overload

from holdfast.ports.hooks import (
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
from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.option_declarations import unknown_name

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


class HookFunctions(TypedDict, total=False):
    """One function for each point, as `Hooks(...)` takes them."""

    session_start: SessionStartHook
    session_resume: SessionResumeHook
    session_end: SessionEndHook
    before_query: BeforeQueryHook
    after_query: AfterQueryHook
    before_turn: BeforeTurnHook
    after_turn: AfterTurnHook
    transform_messages: TransformMessagesHook
    transform_request: TransformRequestHook
    before_tool: BeforeToolHook
    after_tool: AfterToolHook
    before_compaction: BeforeCompactionHook
    after_compaction: AfterCompactionHook


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

    def __init__(self, **functions: Unpack[HookFunctions]) -> None:
        self._functions: dict[str, tuple[Any, ...]] = {}
        for point, function in functions.items():
            _refuse_unknown(point)
            self._add(point, function)

    def at(self, point: HookPoint) -> tuple[Any, ...]:
        """Return the functions of a point, in the order of their registration."""
        return self._functions.get(point, ())

    def only(self, *points: HookPoint) -> "Hooks":
        """Return the hooks of some points as they are now; later ones are not added to them."""
        kept = Hooks()
        kept._functions = {point: self.at(point) for point in points if self.at(point)}
        return kept

    @property
    def is_empty(self) -> bool:
        """Whether nothing is registered."""
        return not self._functions

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
        _refuse_unknown(point)

        def register(function: FunctionT) -> FunctionT:
            self._add(point, function)
            return function

        return register

    def _add(self, point: str, function: object) -> None:
        if not callable(function):
            raise ConfigError(
                ErrorCode.CONFIG_INVALID, f"a hook of {point} is a function, not {function!r}"
            )
        self._functions = {**self._functions, point: (*self._functions.get(point, ()), function)}


def _refuse_unknown(point: str) -> None:
    if point not in POINTS:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, f"the hook {point!r} is {unknown_name(point, POINTS)}"
        )
