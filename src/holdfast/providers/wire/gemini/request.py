"""Gemini generateContent: the encoder of requests and of token counts.

Models from 2.5 on accept a large part of JSON Schema in fields of their own. Older ones accept a
subset of OpenAPI's, to which `providers.schema_targets` has already adapted the schemas.
"""

import re
from collections.abc import Iterator
from functools import partial

import msgspec

from holdfast.providers.wire.gemini.dialects import (
    GEMINI_API,
    GeminiDialect,
    is_gemini_3,
    thinking_config,
)
from holdfast.providers.wire.gemini.messages import named_calls, parts_of
from holdfast.providers.wire.lenient_decoding import read_token_count
from holdfast.providers.wire.message_forms import tool_description
from holdfast.providers.wire.prefix_cache import EncodedMessages, body_with_array
from holdfast.providers.wire.protocol import WireRequest
from holdfast.vocabulary.json_types import Json, JsonObject
from holdfast.vocabulary.messages import UserMessage
from holdfast.vocabulary.requests import ModelRequest
from holdfast.vocabulary.tools import ToolSpec

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
        self._messages: dict[str, EncodedMessages] = {}

    def __call__(self, request: ModelRequest) -> WireRequest:
        """Return the request that asks for a streamed answer."""
        path = _path(request.model, self._dialect, "streamGenerateContent?alt=sse")
        return WireRequest(path=path, body=self._body(request))

    def count(self, request: ModelRequest) -> WireRequest:
        """Return the request that counts tokens."""
        body = self._body(request)
        if self._dialect.count_wraps_request:
            name = msgspec.json.encode(f"models/{request.model}")
            # The body without its first brace: its last one closes the inner object, and the one
            # here the outer.
            body = b'{"generateContentRequest":{"model":%b,%b}' % (name, body[1:])
        return WireRequest(path=_path(request.model, self._dialect, "countTokens"), body=body)

    def _body(self, request: ModelRequest) -> bytes:
        encoded = self._messages.setdefault(request.model, EncodedMessages())
        lower = partial(parts_of, model=request.model, named=named_calls(request.messages))
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
        made = [body_with_array({"role": role}, "parts", parts) for role, parts in contents]
        return body_with_array(_fields(request), "contents", made)


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
            settings["responseJsonSchema"] = json_schema(request.output_schema.schema)
        else:
            schema = request.output_schema.schema
            # An object without properties is refused, and adds nothing to the media type.
            if schema.get("type") != "object" or "properties" in schema:
                settings["responseSchema"] = schema
    return settings


def _takes_schema(request: ModelRequest) -> bool:
    """Whether an output schema can be sent: before Gemini 3 not together with tools."""
    has_tools = bool(request.tools) or any(request.betas.get(name) for name in SERVER_TOOLS)
    return is_gemini_3(request.model) or not has_tools


def _schema_instruction(request: ModelRequest) -> Iterator[str]:
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
            # Before Gemini 3 both cannot be sent; the user's own tools are more important.
            served = []
    tools += served
    if request.require_tool is not None:
        wish = {"mode": "ANY", "allowedFunctionNames": [request.require_tool]}
        config["functionCallingConfig"] = wish
    body: JsonObject = {"tools": tools} if tools else {}
    return body | ({"toolConfig": config} if config else {})


def _declaration(tool: ToolSpec, model: str) -> JsonObject:
    declaration: JsonObject = {
        "name": tool.name,
        "description": tool_description(tool) or tool.name,
    }
    # An object without properties is refused.
    if not tool.input_schema.get("properties") and "$ref" not in tool.input_schema:
        return declaration
    if takes_json_schema(model):
        return declaration | {"parametersJsonSchema": json_schema(tool.input_schema)}
    return declaration | {"parameters": tool.input_schema}


# JSON Schema

_JSON_SCHEMA_KEYWORDS = frozenset(
    {
        *("$id", "$defs", "$ref", "$anchor", "type", "format", "title", "description", "enum"),
        *("items", "prefixItems", "minItems", "maxItems", "minimum", "maximum", "anyOf", "oneOf"),
        *("properties", "additionalProperties", "required", "propertyOrdering"),
    }
)
_OLDER = re.compile(r"gemini-(1|2\.0)|gemma|learnlm")


def takes_json_schema(model: str) -> bool:
    """Whether `model` accepts JSON Schema rather than the older subset of OpenAPI's."""
    return _OLDER.search(model) is None


def json_schema(schema: JsonObject) -> JsonObject:
    """Return `schema` without keywords that are refused; `const` and `allOf` are rewritten."""
    narrowed: JsonObject = _narrowed(_with_definitions_renamed(schema))
    return narrowed


def _with_definitions_renamed(schema: JsonObject) -> JsonObject:
    if "definitions" not in schema:
        return schema
    definitions = {**schema["definitions"], **schema.get("$defs", {})}
    renamed = {name: value for name, value in schema.items() if name != "definitions"}
    moved: JsonObject = _with_references_renamed(renamed | {"$defs": definitions})
    return moved


def _with_references_renamed(value: Json) -> Json:
    if isinstance(value, list):
        return [_with_references_renamed(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: each.replace("#/definitions/", "#/$defs/")
        if name == "$ref" and isinstance(each, str)
        else _with_references_renamed(each)
        for name, each in value.items()
    }


def _narrowed(schema: Json) -> Json:
    if not isinstance(schema, dict):
        # The schemas `true` and `false`; the second cannot be expressed.
        return {} if isinstance(schema, bool) else schema
    narrowed: JsonObject = {}
    for name, value in _rewritten(schema).items():
        if name in {"properties", "$defs"} and isinstance(value, dict):
            narrowed[name] = {key: _narrowed(each) for key, each in value.items()}
        elif name in {"anyOf", "oneOf", "prefixItems"} and isinstance(value, list):
            narrowed[name] = [_narrowed(each) for each in value]
        elif name == "items":
            narrowed[name] = _narrowed(value)
        elif name == "additionalProperties":
            narrowed[name] = value if isinstance(value, bool) else _narrowed(value)
        elif name in _JSON_SCHEMA_KEYWORDS:
            narrowed[name] = value
    return narrowed


def _rewritten(schema: JsonObject) -> JsonObject:
    """Express `const` and `allOf` with keywords that are accepted."""
    rewritten = dict(schema)
    if not isinstance(rewritten.get("type", ""), str | list):
        # Some libraries write the number of an enumeration. No type is better than a wrong one.
        del rewritten["type"]
    if "const" in rewritten:
        rewritten["enum"] = [rewritten.pop("const")]
    for part in rewritten.pop("allOf", ()):
        if isinstance(part, dict):
            rewritten = _merged(rewritten, _rewritten(part))
    return rewritten


def _merged(first: JsonObject, second: JsonObject) -> JsonObject:
    merged = {**second, **first}
    for name in ("properties", "$defs"):
        if name in first or name in second:
            merged[name] = {**second.get(name, {}), **first.get(name, {})}
    if "required" in first or "required" in second:
        merged["required"] = sorted({*first.get("required", ()), *second.get("required", ())})
    return merged
