"""Operation: one thing that can be asked, as a struct, with the facts that every surface reads.

Its fields say what may be given: type, default, sentence and bounds (`msgspec.Meta`). Its facts say
how each surface asks for it. The methods of faces, HTTP, JSON-RPC, commands and their help derive
from both; what it does is in its one handler.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NewType, TypeVar

import msgspec

from haptera.model.ids import new_id
from haptera.model.source_names import command_name

CommandId = NewType("CommandId", str)
HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])
HANDLERS: "dict[type[Operation], Callable[..., Any]]" = {}
"""What carries each operation out, once the module of its handler was imported."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})


def new_command_id() -> CommandId:
    """Return a new id of a command; later ones sort behind earlier ones."""
    return CommandId(new_id("cmd"))


class Otherwise(msgspec.Struct, frozen=True):
    """Another operation that a surface asks for by the same name, where a field is not given."""

    field: str
    """Empty: the flag alone says it, and both have the same fields."""
    operation: "type[Operation]"
    flag: str = ""
    """The flag of the command line that asks for it."""
    help: str = ""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """How HTTP and JSON-RPC ask for an operation of one session.

    What is not said follows from the method of the face: `rewind` is `POST …/rewind`, called
    `rewind_session` and `session/rewind`, with a `RewindBody`.
    """

    summary: str
    method: Literal["GET", "POST", "PATCH", "DELETE"] = "POST"
    path: str | None = None
    """Below that of the session."""
    name: str = ""
    rpc: str = ""
    scope: Literal["read", "write"] = "write"
    body: str = ""
    """The name of the type of its parameters in the OpenAPI document."""
    about: str = ""
    """The sentence of that type."""
    fields: Mapping[str, tuple[str, Any]] = _NOTHING
    """What fields are called there, and their types, where these are narrower; one without a name
    cannot be given."""
    status: int = 200
    tag: str = "sessions"
    if_match: bool = False
    """Whether a client can say which state of the session it means."""
    unready: str = ""
    """The code of an agent that is not set up for it: a conflict, and no failure of the server."""


class Flag(msgspec.Struct, frozen=True):
    """How the command line gives a field; its help is short, because a screen is."""

    name: str
    help: str | None = None
    metavar: str | None = None
    least: int | None = None
    """The least number; the default is shown then."""


class CommandLine(msgspec.Struct, frozen=True, kw_only=True):
    """How the command line asks for an operation: `haptera sessions NAME`.

    A field that has neither a flag nor a default is given by its place.
    """

    name: str
    help: str
    flags: Mapping[str, Flag] = _NOTHING
    words: str = ""
    """The field that the words behind the session are."""
    metavar: str | None = None
    """What a field is called that is given by its place."""
    lists: bool = False
    """Whether it lists: as a table, or with `--format json` as JSON."""
    question: str = ""
    """What a person is asked before it is done, with the `title` and `id` of the session."""
    done: str = ""
    """What it prints where nothing is returned, with the fields in it."""
    is_exact: bool = False
    """Whether the session is named by its id or name only, and not by words in it."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """How an operation is asked for, wherever that can be done."""

    face: str
    """The method of the face; none for what only this library sends."""
    by_place: int = 0
    """How many of its fields the method takes by their place."""
    rest: str = ""
    """The field that is all further arguments by place."""
    by_hand: bool = False
    """Whether the method does more than make the struct, and so is written by hand."""
    waits: bool = False
    """Whether a sender in another process waits for its `command.ended`."""
    needs_lease: bool = False
    """Whether it is BUSY while another process holds the session."""
    route: Route | None = None
    command: CommandLine | None = None
    slash: tuple[str, str] | None = None
    """The command of the chat, and what its help says."""
    otherwise: Otherwise | None = None


class Operation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """One thing that can be asked. Its docstring is that of the method that asks for it."""

    facts: ClassVar[Facts]


class SessionCommand(Operation, frozen=True, kw_only=True):
    """What a session can be told, also by another process than the one that holds it."""

    id: CommandId
    by: str | None = None
    """Who asks, for the log."""

    @property
    def alias(self) -> str:
        """The name that users of other systems know this command by."""
        return command_name(str(self.__struct_config__.tag))


def handles(kind: type[Operation]) -> Callable[[HandlerT], HandlerT]:
    """Register the one handler of an operation.

    Raises:
        TypeError: when it has one already.

    """

    def register(handler: HandlerT) -> HandlerT:
        if kind in HANDLERS:
            raise TypeError(f"{kind.__name__} has a handler already")
        HANDLERS[kind] = handler
        return handler

    return register


def operations_of(kind: type[Operation] = Operation) -> Iterator[type[Operation]]:
    """Yield every operation, as far as the modules of their structs were imported."""
    for each in kind.__subclasses__():
        if "facts" in vars(each):
            yield each
        yield from operations_of(each)
