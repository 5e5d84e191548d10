"""Gemini generateContent: the encoder of requests and of token counts.

Models from 2.5 on accept a large part of JSON Schema in fields of their own, older ones a subset of
OpenAPI's. `providers.schema_targets` has already fitted the schemas to the one or the other.
"""

from collections.abc import Iterator
from functools import partial

from haptera.formats.lenient_json import encode_lenient
from haptera.model.json_types import JsonObject
from haptera.model.messages import UserMessage
from haptera.model.requests import ModelRequest
from haptera.model.tools import ToolSpec
from haptera.providers.wire.accepted_inputs import tool_description
from haptera.providers.wire.gemini.dialects import (
    GEMINI_API,
    GeminiDialect,
    is_gemini_3,
    takes_json_schema,
    thinking_config,
)
from haptera.providers.wire.gemini.messages import encode_parts, named_calls
from haptera.providers.wire.lenient_decoding import read_token_count
from haptera.providers.wire.prefix_cache import EncodedMessages, append_apart, body_with_array
from haptera.providers.wire.protocol import WireRequest

SERVER_TOOLS: dict[str, JsonObject] = {
    "google_search": {"googleSearch": {}},
    "url_context": {"urlContext": {}},
    "code_execution": {"codeExecution": {}},
}
"""Tools that the provider runs, by the name in `betas` that turns each on."""


class RequestEncoder:
    """Encodes requests for one endpoint, each message of a conversation once."""

    def __init__(self, dialect: GeminiDialect = GEMINI_API) -> None:
        self._dialect = dialect
        # By model: signatures are sent to the model that made them only, and media by version.
        self._messages: dict[str, EncodedMessages] = {}

    def __call__(self, request: ModelRequest) -> WireRequest:
        """Return the request that asks for a streamed answer."""
        path = _path(request.model, self._dialect, "streamGenerateContent?alt=sse")
        return WireRequest(path=path, body=self._body(request))

    def count(self, request: ModelRequest) -> WireRequest:
        """Return the request that counts tokens."""
        body = self._body(request)
        if self._dialect.count_wraps_request:
            name = encode_lenient(f"models/{request.model}")
            # The body without its first brace: its last one closes the inner object, and the one
            # here the outer.
            body = b'{"generateContentRequest":{"model":%b,%b}' % (name, body[1:])
        return WireRequest(path=_path(request.model, self._dialect, "countTokens"), body=body)

    def _body(self, request: ModelRequest) -> bytes:
        encoded = self._messages.setdefault(request.model, EncodedMessages(append_apart))
        lower = partial(encode_parts, model=request.model, named=named_calls(request.messages))
        contents: list[tuple[str, list[bytes]]] = []
        pieces = encoded.encode(request.messages, lower)
        for message, parts in zip(request.messages, pieces, strict=True):
            role = "user" if isinstance(message, UserMessage) else "model"
            if not parts:
                continue
            # Neighbours of one role are joined.
            if contents and contents[-1][0] == role:
                contents[-1][1].append(parts)
            else:
                contents.append((role, [parts]))
        bodies = [body_with_array({"role": role}, "parts", parts) for role, parts in contents]
        return body_with_array(_fields(request), "contents", bodies)


def encode_count(request: ModelRequest, dialect: GeminiDialect = GEMINI_API) -> WireRequest:
    """Encode the request that counts the tokens of `request`."""
    return RequestEncoder(dialect).count(request)


def decode_count(body: bytes) -> int:
    """Return how many tokens the provider counted."""
    return read_token_count(body, "totalTokens")


def _path(model: str, dialect: GeminiDialect, method: str) -> str:
    # The name of a tuned model, or of another publisher's, contains its own path.
    if "/" in model:
        return f"{dialect.models.partition('models')[0]}{model}:{method}"
    return f"{dialect.models}/{model}:{method}"


def _fields(request: ModelRequest) -> JsonObject:
    """Return everything but the contents. `generationConfig` is sent even if it is empty."""
    body: JsonObject = {"generationConfig": _generation_config(request)}
    system = [*request.system, *_schema_instruction(request)]
    if system:
        body["systemInstruction"] = {"parts": [{"text": text} for text in system]}
    return body | _tools(request)


# Settings and tools


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
            settings["responseJsonSchema"] = request.output_schema.schema
        elif _has_properties(request.output_schema.schema):
            settings["responseSchema"] = request.output_schema.schema
    return settings


def _has_properties(schema: JsonObject) -> bool:
    """Whether a schema in OpenAPI's subset can be sent: an object without properties is refused."""
    return schema.get("type") != "object" or bool(schema.get("properties"))


def _takes_schema(request: ModelRequest) -> bool:
    """Whether an output schema can be sent: before Gemini 3 not together with tools.

    Older models take only one that was fitted to OpenAPI's subset.
    """
    is_fitted = request.output_schema is not None and request.output_schema.is_strict
    if not (is_fitted or takes_json_schema(request.model)):
        return False
    has_tools = bool(request.tools) or any(request.betas.get(name) for name in SERVER_TOOLS)
    return is_gemini_3(request.model) or not has_tools


def _schema_instruction(request: ModelRequest) -> Iterator[str]:
    """Yield the output schema in words where no field can hold it, and it has something to say."""
    if request.output_schema is None:
        return
    schema = request.output_schema.schema
    has_field = takes_json_schema(request.model) or _has_properties(schema)
    if not _takes_schema(request) or (not has_field and "description" in schema):
        words = encode_lenient(schema).decode()
        yield f"Answer with nothing but JSON that meets this JSON Schema: {words}"


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
            # Before Gemini 3 both cannot be sent; the user's own tools are more important.
            served = []
    tools += served
    if request.require_tool is not None:
        wish = {"mode": "ANY", "allowedFunctionNames": [request.require_tool]}
        config["functionCallingConfig"] = wish
    body: JsonObject = {"tools": tools} if tools else {}
    return body | ({"toolConfig": config} if config else {})


def _declaration(tool: ToolSpec, model: str) -> JsonObject:
    schema = tool.input_schema
    declaration: JsonObject = {
        "name": tool.name,
        "description": tool_description(tool) or tool.name,
    }
    if takes_json_schema(model):
        is_map = isinstance(schema.get("additionalProperties"), dict)
        # Of a tool without arguments there is nothing to say.
        if schema.get("properties") or is_map or "description" in schema:
            declaration["parametersJsonSchema"] = schema
    elif _has_properties(schema):
        declaration["parameters"] = schema
    elif "description" in schema:
        # It may say limits.
        declaration["description"] += f" {schema['description']}"
    return declaration
