"""The OpenAPI 3.1 document, made from the operations and the types that they declare."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from haptera import __version__
from haptera.model.schemas import PUBLIC_TYPES, as_written, later_entry
from haptera.server.access import COOKIE, LOGIN_HEADER
from haptera.server.event_stream import SSE
from haptera.server.operations import FILE_TYPES, JSON, Nothing, ServedOperation
from haptera.server.problems import PROBLEM_TYPE, TITLES, ProblemBody
from haptera.server.rpc_aliases import RPC_ALIASES
from haptera.server.rpc_methods import RpcOptions, RpcParams

_REF = "#/components/schemas/{name}"
_PATH_SCHEMAS: dict[str, dict[str, Any]] = {
    "session_id": {
        "description": "The id of the session.",
        "type": "string",
        "format": "uuid",
    },
    "approval_id": {
        "description": "The id of the question, as `list_approvals` names it.",
        "type": "string",
        "minLength": 1,
        "maxLength": 128,
    },
    "share_id": {
        "description": "The id of the link, as `list_shares` names it.",
        "type": "string",
        "minLength": 1,
        "maxLength": 128,
    },
    "token": {
        "description": "The token of the link.",
        "type": "string",
        "pattern": "^[A-Za-z0-9_-]{44}$",
    },
}
_SECURITY: list[dict[str, list[str]]] = [{"bearer": []}, {"key": []}, {"cookie": [], "login": []}]
_SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
    "cookie": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "Set by `log_in`. A change needs an `Origin` and the header `X-CSRF: 1`.",
    },
    "login": {
        "type": "apiKey",
        "in": "header",
        "name": LOGIN_HEADER,
        "description": "The `secret` that `log_in` answered; the cookie is worth nothing without.",
    },
}
_HEADERS = {
    "wait": (
        "Prefer",
        "`wait=60` waits up to 60 seconds for the end of the query.",
        {"type": "string", "pattern": "^wait=[0-9]{1,3}$"},
    ),
    "if_match": (
        "If-Match",
        "The `ETag` that the session must still have; 412 when it has another.",
        {"type": "string", "pattern": '^("[0-9]{1,15}"|[*])$'},
    ),
    "after": (
        "Last-Event-ID",
        "The `id:` of the last event that the client got; it wins over `after`.",
        {"type": "string", "pattern": "^[0-9]{1,15}$"},
    ),
}
"""The headers of operations that have these options or parameters."""
_EVENT = _REF.format(name="Event")
_EVENT_DATA = "x-event-data"
"""What the `data` of a server-sent event is: OpenAPI 3.1 has no field for it."""
_RPC = "x-json-rpc"
"""The methods of JSON-RPC, by name, with their parameters."""


def document(operations: Sequence[ServedOperation], *, root: str = "") -> dict[str, Any]:
    """Return the document for some operations, of an application that is mounted at `root`."""
    schemas, components = _schemas_of(operations)
    responses = {str(status): _problem(title, schemas) for status, title in TITLES.items()}
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(
            operation, schemas, components
        )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Haptera",
            "version": __version__,
            "description": "Sessions with language models, over HTTP.",
        },
        "servers": [{"url": root or "/"}],
        "paths": paths,
        _RPC: _rpc_methods(operations, schemas, components),
        "components": {
            "schemas": components,
            "responses": responses,
            "securitySchemes": _SECURITY_SCHEMES,
        },
    }


def _rpc_methods(
    operations: Sequence[ServedOperation], schemas: dict[int, Any], components: dict[str, Any]
) -> dict[str, Any]:
    """Return what each method of JSON-RPC takes: of operations, and of the names beside them."""
    methods = {
        each.rpc: {"summary": each.summary, "params": _rpc_params(each, schemas, components)}
        for each in operations
        if each.rpc is not None
    }
    aliases = {
        name: {"summary": (method.__doc__ or "").strip(), "params": schemas[id(kind)]}
        for name, (kind, method) in RPC_ALIASES.items()
    }
    return dict(sorted({**methods, **aliases}.items()))


def _rpc_params(
    operation: ServedOperation, schemas: dict[int, Any], components: dict[str, Any]
) -> dict[str, Any]:
    """Return the parameters of a method: those that HTTP has in four places, in one object."""
    declared = RpcParams.of(operation)
    properties = {name: _PATH_SCHEMAS[name] for name in declared.path}
    required = list(declared.path)
    for kind, names in (
        (operation.query, declared.query),
        (RpcOptions, declared.options),
        (operation.body, declared.body),
    ):
        struct = _resolved(schemas[id(kind)], components) if names else {}
        properties |= {name: struct["properties"][name] for name in names}
        required += [name for name in struct.get("required", ()) if name in names]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


_EVENT_TYPES = (PUBLIC_TYPES["Entry"], PUBLIC_TYPES["LiveEvent"])


def _types_of(operations: Iterable[ServedOperation]) -> list[Any]:
    types: list[Any] = [ProblemBody, *_EVENT_TYPES, RpcOptions]
    types += [kind for kind, _ in RPC_ALIASES.values()]
    for operation in operations:
        kinds = (operation.body, operation.answer, operation.query)
        types += [each for each in kinds if each not in {None, bytes} and each not in types]
    return types


def _schemas_of(operations: Sequence[ServedOperation]) -> tuple[dict[int, Any], dict[str, Any]]:
    types = _types_of(operations)
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    by_type = {id(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    components = as_written(components) | {"UnknownEntry": later_entry()}
    kinds = [kind for each in _EVENT_TYPES for kind in by_type[id(each)]["anyOf"]]
    components["Event"] = {
        "oneOf": [*kinds, {"$ref": _REF.format(name="UnknownEntry")}],
        "description": "An event of a session, by its `kind`. Those with a `seq` are stored.",
    }
    return by_type, components


def _described(
    operation: ServedOperation, schemas: dict[int, Any], components: dict[str, Any]
) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [
            *_path_parameters(operation),
            *_query_parameters(operation.query, schemas, components),
            *_header_parameters(operation),
        ],
        "responses": _responses(operation, schemas),
        "security": [] if operation.scope is None else _SECURITY,
    }
    if operation.body is bytes:
        file = {"schema": {"type": "string", "format": "binary"}}
        content = dict.fromkeys(FILE_TYPES, file)
        described["requestBody"] = {"required": True, "content": content}
    elif operation.body is not None:
        schema = schemas[id(operation.body)]
        has_required = bool(_resolved(schema, components).get("required"))
        content = {JSON: {"schema": schema}}
        described["requestBody"] = {"required": has_required, "content": content}
    return described


def _path_parameters(operation: ServedOperation) -> list[dict[str, Any]]:
    return [
        _parameter(name, _PATH_SCHEMAS[name], location="path", is_required=True)
        for name in operation.path_names
    ]


def _query_parameters(
    kind: type, schemas: dict[int, Any], components: dict[str, Any]
) -> list[dict[str, Any]]:
    if kind is Nothing:
        return []
    struct = _resolved(schemas[id(kind)], components)
    required = struct.get("required", [])
    return [
        _parameter(name, _without_null(schema), location="query", is_required=name in required)
        for name, schema in struct["properties"].items()
    ]


def _parameter(
    name: str, schema: dict[str, Any], *, location: str, is_required: bool
) -> dict[str, Any]:
    """Return a parameter, which has the sentence that its schema would have in a body."""
    plain = {key: value for key, value in schema.items() if key != "description"}
    description = schema["description"]
    return {
        "name": name,
        "in": location,
        "required": is_required,
        "description": description,
        "schema": plain,
    }


def _header_parameters(operation: ServedOperation) -> list[dict[str, Any]]:
    names: list[str] = [name for name in operation.options if name in _HEADERS]
    if operation.media == (SSE,) and operation.query is not Nothing:
        names.append("after")
    return [
        {
            "name": header,
            "in": "header",
            "required": False,
            "description": description,
            "schema": schema,
        }
        for header, description, schema in (_HEADERS[name] for name in names)
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter that may be absent: a query string has no null."""
    rest = {key: value for key, value in schema.items() if key != "default" or value is not None}
    options = [each for each in rest.pop("anyOf", []) if each != {"type": "null"}]
    if len(options) == 1:
        return {**rest, **options[0]}
    return {**rest, "anyOf": options} if options else rest


def _resolved(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    resolved: dict[str, Any] = components[name] if name else schema
    return resolved


def _responses(operation: ServedOperation, schemas: dict[int, Any]) -> dict[str, Any]:
    success: dict[str, Any] = {"description": operation.summary}
    if content := _content(operation, schemas):
        success["content"] = content
    codes = (operation.status, *operation.also)
    problems = {
        str(status): {"$ref": f"#/components/responses/{status}"}
        for status in _problem_statuses(operation)
    }
    default = _problem("Another problem, as RFC 9457 says it.", schemas)
    return {**{str(code): success for code in codes}, **problems, "default": default}


def _problem(description: str, schemas: dict[int, Any]) -> dict[str, Any]:
    content = {PROBLEM_TYPE: {"schema": schemas[id(ProblemBody)]}}
    return {"description": description, "content": content}


def _problem_statuses(operation: ServedOperation) -> list[int]:
    """Return what an operation is refused with, as far as its declaration says it."""
    is_change = operation.method != "GET" and "{session_id}" in operation.path
    statuses = {
        400: operation.query is not Nothing or operation.body is not None,
        401: operation.scope is not None or operation.name == "log_in",
        403: operation.scope is not None,
        404: "{" in operation.path,
        409: is_change or operation.name == "create_session",
        410: operation.media == (SSE,) and operation.query is not Nothing,
        412: "if_match" in operation.options,
        413: operation.body is not None,
        415: operation.body is not None,
        429: operation.scope is not None or "{token}" in operation.path,
        503: operation.scope is not None or operation.name == "readiness",
    }
    return [status for status, is_possible in statuses.items() if is_possible]


def _content(operation: ServedOperation, schemas: dict[int, Any]) -> dict[str, Any]:
    """Return what a successful response holds, by its media type."""
    content: dict[str, Any] = {}
    for media in operation.media:
        if media == SSE:
            content[media] = {"schema": {"type": "string"}, _EVENT_DATA: _event_data(operation)}
        elif media != JSON:
            content[media] = {"schema": {"type": "string"}}
        elif operation.answer is not None:
            content[media] = {"schema": schemas[id(operation.answer)]}
        elif len(operation.media) > 1:
            content[media] = {}
    return content


def _event_data(operation: ServedOperation) -> dict[str, Any]:
    """Return what an event carries; on the stream of all sessions it names its session."""
    event = {"$ref": _EVENT}
    if "{session_id}" in operation.path:
        return event
    named = {"session_id": {"type": "string"}, "event": event}
    return {"type": "object", "properties": named, "required": ["session_id"]}
