"""JSON-RPC 2.0 messages: requests as they are read, responses and errors as they are sent."""

from typing import Any

import msgspec

from haptera.model.errors import (
    AgentError,
    ConfigError,
    ErrorCode,
    HookError,
    ProviderError,
    RequestError,
    SessionError,
    StoreError,
    ToolError,
)
from haptera.server.decoding import check_shape
from haptera.server.problems import ProblemBody, ProblemError, problem_of

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
UNKNOWN_METHOD = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
OVERLOADED = -32001
SESSION_ERROR = -32010
NOT_FOUND = -32011
REFUSED = -32012

_BY_STATUS = {
    400: INVALID_PARAMS,
    401: REFUSED,
    403: REFUSED,
    404: NOT_FOUND,
    409: SESSION_ERROR,
    410: SESSION_ERROR,
    412: SESSION_ERROR,
    413: INVALID_PARAMS,
    429: OVERLOADED,
    503: OVERLOADED,
}
_BY_CODE = {
    ErrorCode.NOT_FOUND: NOT_FOUND,
    ErrorCode.MESSAGE_NOT_FOUND: NOT_FOUND,
    ErrorCode.ACCESS_DENIED: REFUSED,
    ErrorCode.POOL_FULL: OVERLOADED,
}
_BY_CLASS: dict[type[AgentError], int] = {
    SessionError: SESSION_ERROR,
    ProviderError: -32013,
    RequestError: -32014,
    ToolError: -32015,
    HookError: -32016,
    StoreError: -32017,
    ConfigError: -32018,
}


class RpcError(Exception):
    """A failure of a call: a code of JSON-RPC, and the problem that HTTP would answer with."""

    def __init__(self, code: int, problem: ProblemError) -> None:
        super().__init__(problem.body.detail)
        self.code = code
        self.body: ProblemBody = problem.body


class RpcRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One call, or what is wrong with it."""

    method: str = ""
    params: dict[str, Any] = {}
    id: str | int | float | None = None
    is_notification: bool = False
    error: RpcError | None = None


class RpcMessage(msgspec.Struct, frozen=True):
    """What a client sent at once: one call, or a batch of them."""

    requests: tuple[RpcRequest, ...]
    is_batch: bool = False

    def joined(self, responses: list[bytes]) -> list[bytes]:
        """Return the messages to answer with; none when all of it were notifications."""
        if self.is_batch and responses:
            return [b"[" + b",".join(responses) + b"]"]
        return responses


def read_rpc_message(content: bytes, *, most: int) -> RpcMessage:
    """Read what a client sent; failures are in the requests.

    A batch of more than `most` calls is one failure: nothing is made for each of them.
    """
    try:
        check_shape(content)
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return _refused(PARSE_ERROR, "JSON_INVALID", f"this is not JSON: {error}")
    except ProblemError as problem:
        return RpcMessage((RpcRequest(error=RpcError(INVALID_REQUEST, problem)),))
    if not isinstance(value, list):
        return RpcMessage((_request_of(value),))
    if not value:
        return _refused(INVALID_REQUEST, "REQUEST_INVALID", "a batch has at least one request")
    if len(value) > most:
        return _refused(INVALID_REQUEST, "BATCH_TOO_LARGE", f"a batch has at most {most} calls")
    return RpcMessage(tuple(map(_request_of, value)), is_batch=True)


def too_large_message(limit: int) -> RpcMessage:
    """Return what stands for a message that was not read because of its size."""
    return _refused(INVALID_REQUEST, "TOO_LARGE", f"a message has at most {limit} bytes")


def response_to(request: RpcRequest, result: object) -> bytes:
    """Return the response to a call that succeeded."""
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request.id, "result": result})


def error_to(request: RpcRequest, error: RpcError) -> bytes:
    """Return the response to a call that failed; `data` has the fields of the problem."""
    fields = {"code": error.code, "message": error.body.detail, "data": error.body}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request.id, "error": fields})


def notification(method: str, params: object) -> bytes:
    """Return a message that wants no answer."""
    return msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params})


def rpc_error(code: int, name: str, detail: str) -> RpcError:
    """Return a failure of the protocol itself."""
    is_overloaded = code == OVERLOADED
    status = 503 if is_overloaded else 500 if code == INTERNAL_ERROR else 400
    problem = ProblemError(
        status, name, detail, retryable=is_overloaded, retry_after=1.0 if is_overloaded else None
    )
    return RpcError(code, problem)


def rpc_error_of(error: Exception) -> RpcError:
    """Return what a handler failed with; an unforeseen error says nothing of what it was."""
    match error:
        case RpcError():
            return error
        case ProblemError():
            return RpcError(_BY_STATUS.get(error.body.status, INTERNAL_ERROR), error)
        case AgentError():
            # Along the classes: errors of the library have subclasses.
            by_class = next((_BY_CLASS[each] for each in type(error).mro() if each in _BY_CLASS), 0)
            code = _BY_CODE.get(error.code) or by_class or INTERNAL_ERROR
            return RpcError(code, problem_of(error))
    return rpc_error(INTERNAL_ERROR, "INTERNAL", "the server failed; its log says why")


def _refused(code: int, name: str, detail: str) -> RpcMessage:
    return RpcMessage((RpcRequest(error=rpc_error(code, name, detail)),))


def _request_of(value: object) -> RpcRequest:
    """Check one request; the id is given back where it can be one."""
    if not isinstance(value, dict):
        return RpcRequest(error=_invalid("a request is an object"))
    request_id = value.get("id")
    # In Python a bool is a number; in JSON-RPC it is no id.
    is_id = request_id is None or (
        isinstance(request_id, str | int | float) and not isinstance(request_id, bool)
    )
    id_ = request_id if is_id else None
    params = value.get("params", {})
    if value.get("jsonrpc") != "2.0" or not isinstance(value.get("method"), str) or not is_id:
        message = 'a request has "jsonrpc": "2.0", a method, and a text or a number as its id'
        return RpcRequest(id=id_, error=_invalid(message))
    if not isinstance(params, dict | list):
        return RpcRequest(id=id_, error=_invalid("params are an object"))
    error = None
    if isinstance(params, list):
        # Some clients that give none send an empty list.
        if params:
            error = rpc_error(INVALID_PARAMS, "PARAMS_INVALID", "params are given by name")
        params = {}
    return RpcRequest(
        method=value["method"],
        params=params,
        id=id_,
        is_notification="id" not in value,
        error=error,
    )


def _invalid(detail: str) -> RpcError:
    return rpc_error(INVALID_REQUEST, "REQUEST_INVALID", detail)
