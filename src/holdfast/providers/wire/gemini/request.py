"""Lowers a neutral request to the body of a Gemini generateContent call."""

from collections.abc import Iterator
from functools import partial

import msgspec

from holdfast.providers.wire.gemini.dialects import GEMINI_API, GeminiDialect
from holdfast.providers.wire.gemini.messages import named_calls, parts_of
from holdfast.providers.wire.gemini.schemas import json_schema, openapi_schema, takes_json_schema
from holdfast.providers.wire.gemini.thinking import is_gemini_3, thinking_config
from holdfast.providers.wire.message_bytes import MessageBytes, body_with
from holdfast.providers.wire.neutral_forms import described
from holdfast.providers.wire.protocol import WireRequest
from holdfast.providers.wire.token_count import read_token_count
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.messages import UserMessage
from holdfast.vocabulary.requests import ModelRequest
from holdfast.vocabulary.tools import ToolSpec

SERVER_TOOLS: dict[str, JsonObject] = {
    "google_search": {"googleSearch": {}},
    "url_context": {"urlContext": {}},
    "code_execution": {"codeExecution": {}},
}
"""Tools that the provider runs itself, by the switch that turns each on."""


class RequestEncoder:
    """Encodes one request after another for one endpoint, each message only once."""

    def __init__(self, dialect: GeminiDialect = GEMINI_API) -> None:
        self._dialect = dialect
        self._messages: dict[str, MessageBytes] = {}

    def __call__(self, request: ModelRequest) -> WireRequest:
        """Return the request that asks for a streamed answer."""
        path = _path(request.model, self._dialect, "streamGenerateContent?alt=sse")
        return WireRequest(path=path, body=self._body(request))

    def count(self, request: ModelRequest) -> WireRequest:
        """Return the request that counts tokens."""
        body = self._body(request)
        if self._dialect.count_wraps_request:
            name = msgspec.json.encode(f"models/{request.model}")
            body = b'{"generateContentRequest":{"model":%b,%b}' % (name, body[1:])
        return WireRequest(path=_path(request.model, self._dialect, "countTokens"), body=body)

    def _body(self, request: ModelRequest) -> bytes:
        memo = self._messages.setdefault(request.model, MessageBytes())
        make = partial(parts_of, model=request.model, named=named_calls(request.messages))
        contents: list[tuple[str, list[bytes]]] = []
        pieces = memo.of(request.messages, make)
        for message, parts in zip(request.messages, pieces, strict=True):
            role = "user" if isinstance(message, UserMessage) else "model"
            if not parts:
                continue
            # Neighbours of one role become one.
            if contents and contents[-1][0] == role:
                contents[-1][1].append(parts)
            else:
                contents.append((role, [parts]))
        made = [body_with({"role": role}, "parts", parts) for role, parts in contents]
        return body_with(_fields(request), "contents", made)


def encode_request(request: ModelRequest, dialect: GeminiDialect = GEMINI_API) -> WireRequest:
    """Lower `request`, whose history already meets the protocol's rules."""
    return RequestEncoder(dialect)(request)


def encode_count(request: ModelRequest, dialect: GeminiDialect = GEMINI_API) -> WireRequest:
    """Lower `request` to the call that counts its tokens."""
    return RequestEncoder(dialect).count(request)


def decode_count(body: bytes) -> int:
    """Return how many tokens the provider counted."""
    return read_token_count(body, "totalTokens")


def _path(model: str, dialect: GeminiDialect, method: str) -> str:
    # A tuned model, or one of another publisher, is named with its own path.
    if "/" in model:
        return f"{dialect.models.partition('models')[0]}{model}:{method}"
    return f"{dialect.models}/{model}:{method}"


def _fields(request: ModelRequest) -> JsonObject:
    """Return everything but the contents; the settings are there even when they are empty."""
    body: JsonObject = {"generationConfig": _generation_config(request)}
    system = [*request.system, *_schema_in_words(request)]
    if system:
        body["systemInstruction"] = {"parts": [{"text": text} for text in system]}
    return body | _tools(request)


# Settings


def _generation_config(request: ModelRequest) -> JsonObject:
    values: JsonObject = {
        "maxOutputTokens": request.max_tokens or None,
        "temperature": request.temperature,
        "stopSequences": list(request.stop) or None,
        "seed": request.seed,
        "thinkingConfig": thinking_config(request.model, request.thinking),
    }
    settings = {name: value for name, value in values.items() if value is not None}
    if request.output_schema is not None and _takes_schema(request):
        settings["responseMimeType"] = "application/json"
        if takes_json_schema(request.model):
            settings["responseJsonSchema"] = json_schema(request.output_schema.schema)
        else:
            schema = openapi_schema(request.output_schema.schema)
            # An object that names nothing is refused, and says no more than the media type does.
            if schema.get("type") != "object" or "properties" in schema:
                settings["responseSchema"] = schema
    return settings


def _takes_schema(request: ModelRequest) -> bool:
    """Whether an answer's schema can be sent: before Gemini 3 not together with tools."""
    has_tools = bool(request.tools) or any(request.betas.get(name) for name in SERVER_TOOLS)
    return is_gemini_3(request.model) or not has_tools


def _schema_in_words(request: ModelRequest) -> Iterator[str]:
    if request.output_schema is not None and not _takes_schema(request):
        schema = msgspec.json.encode(request.output_schema.schema).decode()
        yield f"Answer with nothing but JSON that meets this JSON Schema: {schema}"


def _tools(request: ModelRequest) -> JsonObject:
    tools: list[JsonObject] = []
    config: JsonObject = {}
    served = [tool for name, tool in SERVER_TOOLS.items() if request.betas.get(name)]
    if request.tools:
        declared = [_declaration(tool, request.model) for tool in request.tools]
        tools.append({"functionDeclarations": declared})
        if served and is_gemini_3(request.model):
            config["includeServerSideToolInvocations"] = True
        elif served:
            # Before Gemini 3 it is one or the other, and the user's own tools cannot be spared.
            served = []
    tools += served
    if request.require_tool is not None:
        wish = {"mode": "ANY", "allowedFunctionNames": [request.require_tool]}
        config["functionCallingConfig"] = wish
    body: JsonObject = {"tools": tools} if tools else {}
    return body | ({"toolConfig": config} if config else {})


def _declaration(tool: ToolSpec, model: str) -> JsonObject:
    declaration: JsonObject = {"name": tool.name, "description": described(tool) or tool.name}
    if not tool.input_schema.get("properties") and "$ref" not in tool.input_schema:
        return declaration
    if takes_json_schema(model):
        return declaration | {"parametersJsonSchema": json_schema(tool.input_schema)}
    return declaration | {"parameters": openapi_schema(tool.input_schema)}
