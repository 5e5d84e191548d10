"""The OpenAPI document explains what clients send, in the words of the options where it is one."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from haptera.access.descriptions import (
    SessionChanges,
)
from haptera.agent.agent_options import CONFIGURE
from haptera.agent.query_options import AdmissionOptions
from haptera.model.operations.session import RewindSession
from haptera.model.operations.sessions import ExportSession, ListSessions, ShareSession
from haptera.options.declarations import Declared, Shown, options_of
from haptera.options.operations import given_fields
from haptera.server.app import OPERATIONS
from haptera.server.openapi import document
from haptera.server.operations import ServedOperation
from haptera.server.rpc_aliases import RPC_ALIASES
from haptera.server.rpc_methods import RpcParams

DOCUMENT = document(OPERATIONS)
SETTINGS = options_of(CONFIGURE)
CHANGES = options_of(SessionChanges)
OPTIONS: dict[str, Mapping[str, Declared]] = {
    "send_message": options_of(AdmissionOptions),
    "rewind_session": given_fields(RewindSession),
    "share_session": given_fields(ShareSession),
    "export_session": options_of(ExportSession),
    "list_sessions": options_of(ListSessions),
    "create_session": {**CHANGES, **SETTINGS},
    "change_session": {**CHANGES, **SETTINGS},
    "resume_session": SETTINGS,
}
"""The operations that hand options of the library on."""
ANOTHER_NAME = {
    ("send_message", "id"): "message_id",
    ("export_session", "format"): "to",
    ("list_sessions", "parent_id"): "parent",
    ("list_sessions", "archived"): "",  # "too", and not "or the others"
}


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that is named by a reference."""
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = DOCUMENT["components"]["schemas"][name] if name else schema
    return found


def sent_to(operation: ServedOperation) -> Iterator[tuple[str, dict[str, Any], str | None]]:
    """Yield what a client can send to an operation: name, schema and sentence."""
    told = DOCUMENT["paths"][operation.path][operation.method.lower()]
    for each in told["parameters"]:
        yield each["name"], each["schema"], each.get("description")
    content = told.get("requestBody", {}).get("content", {})
    if "application/json" in content and operation.body is not bytes:
        for name, schema in resolved(content["application/json"]["schema"])["properties"].items():
            yield name, schema, schema.get("description")


def test_every_field_that_a_client_sends_over_http_is_explained() -> None:
    sent = [
        (operation.name, name, told)
        for operation in OPERATIONS
        for name, _, told in sent_to(operation)
    ]
    assert len(sent) > 60
    assert [(where, name) for where, name, told in sent if not (told or "").endswith(".")] == []


def test_every_parameter_of_every_method_of_json_rpc_is_explained() -> None:
    methods = DOCUMENT["x-json-rpc"]
    known = {each.rpc: each for each in OPERATIONS if each.rpc is not None}
    assert set(methods) == {*known, *RPC_ALIASES}
    for name, method in methods.items():
        params = resolved(method["params"])
        assert method["summary"], name
        silent = [each for each, it in params["properties"].items() if not it.get("description")]
        assert silent == [], name
        if name in known:
            assert set(params["properties"]) == set(RpcParams.of(known[name]).names)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_a_field_that_is_an_option_has_its_sentence_bounds_and_default(
    operation: ServedOperation,
) -> None:
    options = OPTIONS.get(operation.name, {})
    found = 0
    for name, schema, told in sent_to(operation):
        option = options.get(ANOTHER_NAME.get((operation.name, name), name))
        if option is None:
            continue
        found += 1
        said = option.option
        brief = option.brief().option.sentence
        assert told == said.sentence or (told or "").startswith(brief), name
        assert schema.get("exclusiveMinimum") == said.above
        assert said.most is None or schema["maximum"] == said.most
        if schema.get("default") is not None and not isinstance(option.default, Shown):
            assert schema["default"] == option.default
    assert bool(found) == bool(options)


def test_a_field_with_the_name_of_a_setting_is_one() -> None:
    """Another operation that takes a setting has to say where it comes from, too."""
    for operation in OPERATIONS:
        if operation.name not in OPTIONS:
            shared = {name for name, _, _ in sent_to(operation)} & set(SETTINGS)
            assert shared == set(), operation.name


def test_what_is_decoded_without_a_field_is_the_default_of_the_option() -> None:
    for operation in OPERATIONS:
        options = OPTIONS.get(operation.name, {})
        for kind in (operation.query, operation.body):
            if kind in {None, bytes}:
                continue
            for field in msgspec.structs.fields(kind):
                name = ANOTHER_NAME.get((operation.name, field.name), field.name)
                is_said = name in options and not isinstance(options[name].default, Shown)
                if is_said and field.default not in {None, msgspec.UNSET}:
                    assert field.default == options[name].default
