"""Writes a request in the words of one Chat Completions dialect."""

import re
from urllib.parse import quote

import msgspec

from holdfast.providers.wire.chat_completions.dialects import Dialect
from holdfast.providers.wire.chat_completions.messages import lower_messages
from holdfast.providers.wire.chat_completions.schemas import (
    asks_for_schema_in_words,
    is_strict_schema,
)
from holdfast.providers.wire.chat_completions.thinking import ask_for_thinking
from holdfast.providers.wire.protocol import WireRequest
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.requests import ModelRequest
from holdfast.vocabulary.tools import ToolSpec


def encode_request(dialect: Dialect, request: ModelRequest) -> WireRequest:
    """Lower `request`, whose history already meets the dialect's rules."""
    words = asks_for_schema_in_words(dialect.output, request.output_schema)
    body: JsonObject = {
        "model": request.model,
        "messages": lower_messages(dialect, request, instructions=words),
        "stream": True,
        **({"stream_options": {"include_usage": True}} if dialect.include_usage else {}),
        **_sampling(dialect, request),
        **ask_for_thinking(dialect, request.model, request.thinking),
        **_tools(dialect, request),
        **_output(dialect, request),
        **{name: value for name, value in request.betas.items() if name in dialect.switches},
    }
    return WireRequest(
        path=dialect.path.replace("{model}", quote(request.model, safe="")),
        body=msgspec.json.encode(body),
    )


def _sampling(dialect: Dialect, request: ModelRequest) -> JsonObject:
    fields = {
        dialect.max_tokens_field: request.max_tokens,
        "temperature": request.temperature,
        "stop": list(request.stop) or None,
        dialect.seed_field: request.seed,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _tools(dialect: Dialect, request: ModelRequest) -> JsonObject:
    if not request.tools:
        return {}
    tools = request.tools
    fields: JsonObject = {}
    if request.require_tool is not None:
        if dialect.tool_choice == "named":
            wanted = {"type": "function", "function": {"name": request.require_tool}}
            fields["tool_choice"] = wanted
        else:
            fields["tool_choice"] = "required"
            tools = tuple(tool for tool in tools if tool.name == request.require_tool)
    if not request.parallel_tool_calls and _knows_parallel_field(dialect, request.model):
        fields["parallel_tool_calls"] = False
    return {"tools": [_tool(tool) for tool in tools], **fields}


def _knows_parallel_field(dialect: Dialect, model: str) -> bool:
    refused = dialect.no_parallel_field_models
    return dialect.parallel_tool_calls and not (refused and re.search(refused, model.lower()))


def _tool(tool: ToolSpec) -> JsonObject:
    examples = "".join(
        f"\nExample input: {msgspec.json.encode(example).decode()}"
        for example in tool.input_examples
    )
    function: JsonObject = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description or examples:
        function["description"] = f"{tool.description}{examples}".strip()
    return {"type": "function", "function": function}


def _output(dialect: Dialect, request: ModelRequest) -> JsonObject:
    wanted = request.output_schema
    if wanted is None or dialect.output == "prompt":
        return {}
    if dialect.output == "json_object":
        # Servers with this mode refuse it beside tools, or never call them; words must do then.
        return {} if request.tools else {"response_format": {"type": "json_object"}}
    schema: JsonObject = {"name": wanted.name, "schema": wanted.schema}
    if dialect.strict_output and is_strict_schema(wanted.schema):
        schema["strict"] = True
    return {"response_format": {"type": "json_schema", "json_schema": schema}}
