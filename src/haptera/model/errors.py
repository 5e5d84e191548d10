"""Every deliberate error: a family says who failed, a code says why.

AgentError
├── ConfigError     CONFIG_MISSING, CONFIG_INVALID
├── ProviderError   AUTH, RATE_LIMITED, OVERLOADED, MODEL_NOT_FOUND, SERVER_ERROR, QUOTA,
│                   BAD_REQUEST, CONTENT_FILTER, PROTOCOL, OUTPUT_INVALID
├── RequestError    TIMEOUT, ABORTED, CONTEXT_LENGTH, NETWORK, STREAM_INTERRUPTED
├── HookError       HOOK_FAILED
├── ToolError       TOOL_FAILED, TOOL_NOT_FOUND, TOOL_INVALID_INPUT, TOOL_TIMEOUT
├── SessionError    CLOSED, BUSY, STREAM_BUSY, NOT_FOUND, MESSAGE_NOT_FOUND, POOL_FULL,
│                   ACCESS_DENIED, NOTHING_TO_SEND
└── StoreError      CONFLICT, FENCED, CORRUPT, FULL, VERSION_UNSUPPORTED, UNAVAILABLE
"""

from enum import StrEnum
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
)

import msgspec

from haptera.model.json_types import writable
from haptera.model.secrets import scrub
from haptera.model.source_names import error_name

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from haptera.model.results import AgentResult

Basis: TypeAlias = Literal["type", "status", "code", "pattern", "fallback", "explicit"]
"""What an error was recognised by; a `fallback` is a guess and is never retried by itself."""


class ErrorCode(StrEnum):
    """Why something failed."""

    CONFIG_MISSING = "CONFIG_MISSING"
    CONFIG_INVALID = "CONFIG_INVALID"
    AUTH = "AUTH"
    RATE_LIMITED = "RATE_LIMITED"
    OVERLOADED = "OVERLOADED"
    MODEL_NOT_FOUND = "MODEL_NOT_FOUND"
    SERVER_ERROR = "SERVER_ERROR"
    QUOTA = "QUOTA"
    BAD_REQUEST = "BAD_REQUEST"
    CONTENT_FILTER = "CONTENT_FILTER"
    PROTOCOL = "PROTOCOL"
    OUTPUT_INVALID = "OUTPUT_INVALID"
    TIMEOUT = "TIMEOUT"
    ABORTED = "ABORTED"
    CONTEXT_LENGTH = "CONTEXT_LENGTH"
    NETWORK = "NETWORK"
    STREAM_INTERRUPTED = "STREAM_INTERRUPTED"
    HOOK_FAILED = "HOOK_FAILED"
    TOOL_FAILED = "TOOL_FAILED"
    TOOL_NOT_FOUND = "TOOL_NOT_FOUND"
    TOOL_INVALID_INPUT = "TOOL_INVALID_INPUT"
    TOOL_TIMEOUT = "TOOL_TIMEOUT"
    CLOSED = "CLOSED"
    BUSY = "BUSY"
    STREAM_BUSY = "STREAM_BUSY"
    NOT_FOUND = "NOT_FOUND"
    MESSAGE_NOT_FOUND = "MESSAGE_NOT_FOUND"
    POOL_FULL = "POOL_FULL"
    ACCESS_DENIED = "ACCESS_DENIED"
    NOTHING_TO_SEND = "NOTHING_TO_SEND"
    CONFLICT = "CONFLICT"
    FENCED = "FENCED"
    CORRUPT = "CORRUPT"
    FULL = "FULL"
    VERSION_UNSUPPORTED = "VERSION_UNSUPPORTED"
    UNAVAILABLE = "UNAVAILABLE"


# The codes of each family, for type checkers, too.
ConfigCode: TypeAlias = Literal[ErrorCode.CONFIG_MISSING, ErrorCode.CONFIG_INVALID]
ProviderCode: TypeAlias = Literal[
    ErrorCode.AUTH,
    ErrorCode.RATE_LIMITED,
    ErrorCode.OVERLOADED,
    ErrorCode.MODEL_NOT_FOUND,
    ErrorCode.SERVER_ERROR,
    ErrorCode.QUOTA,
    ErrorCode.BAD_REQUEST,
    ErrorCode.CONTENT_FILTER,
    ErrorCode.PROTOCOL,
    ErrorCode.OUTPUT_INVALID,
]
RequestCode: TypeAlias = Literal[
    ErrorCode.TIMEOUT,
    ErrorCode.ABORTED,
    ErrorCode.CONTEXT_LENGTH,
    ErrorCode.NETWORK,
    ErrorCode.STREAM_INTERRUPTED,
]
HookCode: TypeAlias = Literal[ErrorCode.HOOK_FAILED]
ToolCode: TypeAlias = Literal[
    ErrorCode.TOOL_FAILED,
    ErrorCode.TOOL_NOT_FOUND,
    ErrorCode.TOOL_INVALID_INPUT,
    ErrorCode.TOOL_TIMEOUT,
]
SessionCode: TypeAlias = Literal[
    ErrorCode.CLOSED,
    ErrorCode.BUSY,
    ErrorCode.STREAM_BUSY,
    ErrorCode.NOT_FOUND,
    ErrorCode.MESSAGE_NOT_FOUND,
    ErrorCode.POOL_FULL,
    ErrorCode.ACCESS_DENIED,
    ErrorCode.NOTHING_TO_SEND,
]
StoreCode: TypeAlias = Literal[
    ErrorCode.CONFLICT,
    ErrorCode.FENCED,
    ErrorCode.CORRUPT,
    ErrorCode.FULL,
    ErrorCode.VERSION_UNSUPPORTED,
    ErrorCode.UNAVAILABLE,
]

RETRYABLE_CODES = frozenset(
    {
        ErrorCode.RATE_LIMITED,
        ErrorCode.OVERLOADED,
        ErrorCode.SERVER_ERROR,
        ErrorCode.TIMEOUT,
        ErrorCode.NETWORK,
        ErrorCode.STREAM_INTERRUPTED,
        ErrorCode.POOL_FULL,
        ErrorCode.UNAVAILABLE,
    }
)


class ErrorReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An error as a value: what a log keeps and a wire carries."""

    tag: str
    code: ErrorCode
    message: str
    retryable: bool
    basis: Basis = "explicit"
    status: int | None = None
    provider: str | None = None
    request_id: str | None = None
    retry_after: float | None = None
    refused_locally: bool = False
    """Whether a port of this machine refused the connection: nothing listens there."""

    @property
    def alias(self) -> str:
        """The type of a session's error that users of other systems know this by."""
        return error_name(self.code)


class ErrorFacts(TypedDict, total=False):
    """What may be known of an error beside its code and message."""

    basis: Basis
    status: int | None
    provider: str | None
    request_id: str | None
    retry_after: float | None
    refused_locally: bool


class AgentError(Exception):
    """Base of every error that Haptera raises on purpose. Its facts do not change.

    Its message and request id may come from outside: secrets are taken out of both.
    """

    codes: ClassVar[frozenset[ErrorCode]] = frozenset()

    report: ErrorReport
    """The error as a value; the attributes below are its fields."""
    tag: str
    message: str
    retryable: bool
    basis: Basis
    status: int | None
    provider: str | None
    request_id: str | None
    retry_after: float | None
    refused_locally: bool
    result: "AgentResult[Any] | None" = None
    """What was kept of the query that failed; attached once, by the session."""

    if TYPE_CHECKING:  # a subclass has fewer codes, so that `match` and `==` are checked

        @property
        def code(self) -> ErrorCode:
            """Why it failed."""

    def __init__(self, code: ErrorCode, message: str, **facts: Unpack[ErrorFacts]) -> None:
        if code not in self.codes:
            raise TypeError(f"{type(self).__name__} has no code {code}")
        message = scrub(writable(message))
        if facts.get("request_id"):
            facts["request_id"] = scrub(facts["request_id"] or "")
        super().__init__(message)
        report = ErrorReport(
            tag=type(self).__name__,
            code=code,
            message=message,
            retryable=code in RETRYABLE_CODES,
            **facts,
        )
        # Past its own `__setattr__`, which refuses to change facts.
        for name in ErrorReport.__struct_fields__:
            object.__setattr__(self, name, getattr(report, name))
        object.__setattr__(self, "report", report)

    def __setattr__(self, name: str, value: object) -> None:
        if name in _FACTS or (name == "result" and self.result is not None):
            raise AttributeError(f"{name} of an error cannot be changed")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if name in _FACTS or name == "result":
            raise AttributeError(f"{name} of an error cannot be removed")
        super().__delattr__(name)

    def __str__(self) -> str:
        """Return the code and the message: a traceback ends with it."""
        return f"{self.code}: {self.message}"

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, pickle would call the class with the message as its only argument.
        return error_from_report, (self.report,)

    @property
    def alias(self) -> str:
        """The type of a session's error that users of other systems know this by."""
        return self.report.alias

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain JSON values."""
        facts: dict[str, Any] = msgspec.to_builtins(self.report)
        return facts

    @staticmethod
    def from_dict(facts: dict[str, Any]) -> "AgentError":
        """Rebuild an error from `to_dict`."""
        return error_from_report(msgspec.convert(facts, ErrorReport))


_FACTS = frozenset({*ErrorReport.__struct_fields__, "report"})


CodeT = TypeVar("CodeT", bound=ErrorCode)


class _FamilyError(AgentError, Generic[CodeT]):
    """An error whose code is one of its family, for type checkers, too."""

    if TYPE_CHECKING:

        def __init__(self, code: CodeT, message: str, **facts: Unpack[ErrorFacts]) -> None: ...

        @property
        def code(self) -> CodeT:
            """Why it failed."""


class ConfigError(_FamilyError[ConfigCode]):
    """What the program was told is missing or wrong."""

    codes = frozenset(get_args(ConfigCode))


class ProviderError(_FamilyError[ProviderCode]):
    """The provider refused or failed a request."""

    codes = frozenset(get_args(ProviderCode))


class RequestError(_FamilyError[RequestCode]):
    """A request did not come through."""

    codes = frozenset(get_args(RequestCode))


class HookError(_FamilyError[HookCode]):
    """A hook of the user's failed."""

    codes = frozenset(get_args(HookCode))


class ToolError(_FamilyError[ToolCode]):
    """A tool could not be run or failed."""

    codes = frozenset(get_args(ToolCode))


class SessionError(_FamilyError[SessionCode]):
    """The session cannot do that now."""

    codes = frozenset(get_args(SessionCode))


class StoreError(_FamilyError[StoreCode]):
    """The log could not be read or written."""

    codes = frozenset(get_args(StoreCode))


FAMILIES: tuple[type[AgentError], ...] = (
    ConfigError,
    ProviderError,
    RequestError,
    HookError,
    ToolError,
    SessionError,
    StoreError,
)

for _kind in (AgentError, *FAMILIES):
    _kind.__module__ = "haptera"  # where users import them from, and what a traceback shows

_FAMILY_OF: dict[ErrorCode, type[AgentError]] = {
    code: family for family in FAMILIES for code in family.codes
}


def error_with_code(code: ErrorCode, message: str, **facts: Unpack[ErrorFacts]) -> AgentError:
    """Make the error of the family that `code` belongs to."""
    return _FAMILY_OF[code](code, message, **facts)


def error_from_report(report: ErrorReport) -> AgentError:
    """Rebuild an exception from its value."""
    return error_with_code(
        report.code,
        report.message,
        basis=report.basis,
        status=report.status,
        provider=report.provider,
        request_id=report.request_id,
        retry_after=report.retry_after,
        refused_locally=report.refused_locally,
    )


def is_agent_error(value: object) -> "TypeIs[AgentError]":
    """Whether `value` is an error that Haptera raised on purpose."""
    return isinstance(value, AgentError)


def without_frames(error: AgentError) -> AgentError:
    """Return an error without the frames it came through: they say nothing to the caller.

    Raise it `from error.__cause__`: what caused it keeps its own traceback.
    """
    return error.with_traceback(None)
