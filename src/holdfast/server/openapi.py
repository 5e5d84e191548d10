"""The OpenAPI 3.1 document, made from the operations and the types that they declare."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast import __version__
from holdfast.server.operations import FILE_TYPES, JSON, Nothing, Operation
from holdfast.server.problems import PROBLEM_TYPE, ProblemBody

_REF = "#/components/schemas/{name}"
_PATH_NAME = re.compile(r"\{([a-z_]+)\}")
_PATH_SCHEMAS: dict[str, dict[str, Any]] = {
    "session_id": {"type": "string", "format": "uuid"},
    "approval_id": {"type": "string", "minLength": 1, "maxLength": 128},
    "share_id": {"type": "string", "minLength": 1, "maxLength": 128},
    "token": {"type": "string", "pattern": "^[A-Za-z0-9_-]{44}$"},
}
_SECURITY: list[dict[str, list[str]]] = [{"bearer": []}, {"cookie": []}]


def document(operations: Sequence[Operation], *, root: str = "") -> dict[str, Any]:
    """Return the document for some operations, of an application that is mounted at `root`."""
    schemas, components = _schemas_of(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(
            operation, schemas, components
        )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": __version__,
            "description": "Sessions with language models, over HTTP.",
        },
        "servers": [{"url": root or "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "holdfast_session"},
            },
        },
    }


def _types_of(operations: Iterable[Operation]) -> list[Any]:
    types: list[Any] = [ProblemBody]
    for operation in operations:
        given = (operation.body, operation.answer, operation.query)
        types += [each for each in given if each not in {None, bytes} and each not in types]
    return types


def _schemas_of(operations: Sequence[Operation]) -> tuple[dict[int, Any], dict[str, Any]]:
    types = _types_of(operations)
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    return {id(kind): schema for kind, schema in zip(types, schemas, strict=True)}, components


def _described(
    operation: Operation, schemas: dict[int, Any], components: dict[str, Any]
) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [
            *_path_parameters(operation.path),
            *_query_parameters(operation.query, schemas, components),
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


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _PATH_SCHEMAS[name]}
        for name in _PATH_NAME.findall(path)
    ]


def _query_parameters(
    kind: type, schemas: dict[int, Any], components: dict[str, Any]
) -> list[dict[str, Any]]:
    if kind is Nothing:
        return []
    struct = _resolved(schemas[id(kind)], components)
    required = struct.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": _without_null(schema),
        }
        for name, schema in struct["properties"].items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter that may be absent: a query string has no null."""
    kept = {key: value for key, value in schema.items() if key != "default" or value is not None}
    options = [each for each in kept.pop("anyOf", []) if each != {"type": "null"}]
    if len(options) == 1:
        return {**kept, **options[0]}
    return {**kept, "anyOf": options} if options else kept


def _resolved(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = components[name] if name else schema
    return found


def _responses(operation: Operation, schemas: dict[int, Any]) -> dict[str, Any]:
    success: dict[str, Any] = {"description": operation.summary}
    if content := _content(operation, schemas):
        success["content"] = content
    problem = {
        "description": "What is wrong, as RFC 9457 says it.",
        "content": {PROBLEM_TYPE: {"schema": schemas[id(ProblemBody)]}},
    }
    codes = (operation.status, *operation.also)
    return {**{str(code): success for code in codes}, "default": problem}


def _content(operation: Operation, schemas: dict[int, Any]) -> dict[str, Any]:
    """Return what a successful response holds, by its media type."""
    content: dict[str, Any] = {}
    for media in operation.media:
        if media != JSON:
            content[media] = {"schema": {"type": "string"}}
        elif operation.answer is not None:
            content[media] = {"schema": schemas[id(operation.answer)]}
        elif len(operation.media) > 1:
            content[media] = {}
    return content
