"""RPC methods: operations by their names in JSON-RPC, with all parameters in one object.

The names, parameters and results come from the operations that HTTP has, and from nothing else. The
source names are the exception: they translate fields, and then call operations, too.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, Any

import msgspec

from haptera.server.access import Principal
from haptera.server.decoding import convert_body, described, field_names
from haptera.server.event_stream import SSE
from haptera.server.operations import (
    AnyAnswer,
    Call,
    FileAnswer,
    OperationAnswer,
    ServedOperation,
    Server,
)
from haptera.server.rpc_aliases import RPC_ALIASES, AliasCall
from haptera.server.rpc_messages import INVALID_PARAMS, UNKNOWN_METHOD, rpc_error


class RpcCaller(msgspec.Struct, frozen=True):
    """The client of a call."""

    principal: Principal
    left: asyncio.Event
    """Set when it has gone."""


class RpcOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What HTTP sends as headers or as a file."""

    wait: Annotated[
        int | None, described("Seconds to wait for the end of the query; without it, no wait.")
    ] = None
    stream: Annotated[bool, described("Whether the events of the query follow.")] = False
    if_match: Annotated[int | None, described("The `head` that the session must still have.")] = (
        None
    )
    content: Annotated[str, described("The file to import, as text.")] = ""


class RpcParams(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the parameters of an operation, by where HTTP has them."""

    path: tuple[str, ...]
    query: tuple[str, ...]
    options: tuple[str, ...]
    body: tuple[str, ...]

    @classmethod
    def of(cls, operation: ServedOperation) -> "RpcParams":
        """Return the parameters that an operation declares."""
        is_file = operation.body is bytes
        return cls(
            path=tuple(operation.path_names),
            query=field_names(operation.query),
            options=(*operation.options, *(("content",) if is_file else ())),
            body=() if operation.body is None or is_file else field_names(operation.body),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.path, *self.query, *self.options, *self.body)


class RpcMethods:
    """Calls operations by name."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._operations = {each.rpc: each for each in server.operations if each.rpc is not None}
        self._params = {name: RpcParams.of(each) for name, each in self._operations.items()}

    async def call(
        self, name: str, params: dict[str, Any], client: RpcCaller, *, can_stream: bool
    ) -> AnyAnswer:
        """Call a method.

        Raises:
            RpcError: when there is no such method, or a parameter is wrong.
            ProblemError: as in HTTP.
            AgentError: what the library refuses.

        """
        if name in RPC_ALIASES:
            return await self._call_source(name, params, client)
        operation = self._operations.get(name)
        if operation is None:
            raise rpc_error(UNKNOWN_METHOD, "METHOD_UNKNOWN", f"there is no method {name[:60]!r}")
        # Public operations do without, as in HTTP: health is answered while the server shuts down.
        if operation.scope is not None:
            self.server.authorise(operation, client.principal)
            self.server.check_open()
        call = self._call_of(operation, params, client)
        if (operation.media == (SSE,) or call.wants_stream) and not can_stream:
            message = "events need a connection that stays open: WebSocket or `haptera rpc`"
            raise rpc_error(INVALID_PARAMS, "STREAM_REFUSED", message)
        return await operation.handler(call)

    def _call_of(
        self, operation: ServedOperation, params: dict[str, Any], client: RpcCaller
    ) -> Call:
        names = self._params[operation.rpc or ""]
        _check_names(params, names)
        query = {name: _query_value(params[name]) for name in names.query if name in params}
        options = convert_body(_given(params, names.options), RpcOptions)
        body: object = None
        if operation.body not in {None, bytes}:
            body = convert_body(_given(params, names.body), operation.body)
        return Call(
            principal=client.principal,
            server=self.server,
            path={name: params[name] for name in names.path},
            query=convert_body(query, operation.query),
            body=body,
            file=_pieces(options.content),
            if_match=None if options.if_match is None else f'"{options.if_match}"',
            wait=None if options.wait is None else max(0, options.wait),
            wants_stream=options.stream,
            left=client.left,
        )

    async def _call_source(self, name: str, params: dict[str, Any], client: RpcCaller) -> AnyAnswer:
        async def invoke(method: str, **named: object) -> object:
            answer = await self.call(method, named, client, can_stream=False)
            return answer.value if isinstance(answer, OperationAnswer) else None

        kind, method = RPC_ALIASES[name]
        fields = convert_body(params, kind)
        sessions = self.server.hub.owner(client.principal.owner)
        return OperationAnswer(await method(AliasCall(invoke=invoke, sessions=sessions), fields))


async def file_result(answer: FileAnswer) -> dict[str, str]:
    """Return a file as the result of a call; all formats are text."""
    content = b"".join([piece async for piece in answer.pieces])
    return {"name": answer.name, "media_type": answer.media_type, "content": content.decode()}


def _check_names(params: dict[str, Any], declared: RpcParams) -> None:
    for name in params:
        if name not in declared.names:
            message = f"there is no parameter {name[:60]!r} here"
            raise rpc_error(INVALID_PARAMS, "PARAMS_INVALID", message)
    for name in declared.path:
        if not isinstance(params.get(name), str):
            raise rpc_error(INVALID_PARAMS, "PARAMS_INVALID", f"{name} is required: a text")


def _query_value(value: object) -> object:
    """Return a list as HTTP has it, separated by commas; an object as its JSON."""
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    return ",".join(map(str, value)) if isinstance(value, list) else value


def _given(params: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: params[name] for name in names if name in params}


async def _pieces(content: str) -> AsyncGenerator[bytes, None]:
    yield content.encode("utf-8", "surrogatepass")
