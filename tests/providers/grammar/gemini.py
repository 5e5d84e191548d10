"""What Gemini generateContent refuses, as rules over a request body; `model` is put beside it."""

import base64
import binascii
import re
from collections.abc import Iterator
from itertools import pairwise

from haptera.model.json_types import Json, JsonObject
from tests.providers.grammar.rules import Rule, words

DOCUMENTED = "Gemini API reference, models.generateContent"
_FIELDS = words(
    "contents systemInstruction tools toolConfig generationConfig safetySettings cachedContent"
    " labels model"
)
_SETTINGS = words(
    "stopSequences responseMimeType responseSchema responseJsonSchema responseModalities"
    " candidateCount maxOutputTokens temperature topP topK seed presencePenalty frequencyPenalty"
    " responseLogprobs logprobs thinkingConfig mediaResolution speechConfig imageConfig"
)
_DATA = words(
    "text inlineData functionCall functionResponse fileData executableCode codeExecutionResult"
    " toolCall toolResponse"
)
_SCHEMA = words(
    "type format title description nullable enum items minItems maxItems properties required"
    " minProperties maxProperties minLength maxLength pattern example anyOf propertyOrdering"
    " default minimum maximum"
)
_JSON_SCHEMA = words(
    "$id $defs $ref $anchor type format title description enum items prefixItems minItems maxItems"
    " minimum maximum anyOf oneOf properties additionalProperties required propertyOrdering"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")


def contents(body: JsonObject) -> list[JsonObject]:
    """Return the contents of a body."""
    found = body.get("contents")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def parts(body: JsonObject) -> Iterator[JsonObject]:
    """Yield every part of every content."""
    for content in contents(body):
        yield from (each for each in content.get("parts") or () if isinstance(each, dict))


def named(content: JsonObject, field: str) -> list[JsonObject]:
    """Return the values of one kind of part in a content."""
    return [part[field] for part in content.get("parts") or () if field in part]


def is_3(body: JsonObject) -> bool:
    return re.search(r"gemini-[3-9]", str(body.get("model"))) is not None


def declarations(body: JsonObject) -> list[JsonObject]:
    return [
        each for tool in body.get("tools") or () for each in tool.get("functionDeclarations") or ()
    ]


def settings(body: JsonObject) -> JsonObject:
    found = body.get("generationConfig")
    return found if isinstance(found, dict) else {}


def unknown_fields(body: JsonObject) -> Iterator[str]:
    yield from (name for name in body if name not in _FIELDS)
    yield from (name for name in settings(body) if name not in _SETTINGS)


def contents_exist(body: JsonObject) -> Iterator[str]:
    if not contents(body):
        yield "contents"


def roles(body: JsonObject) -> Iterator[str]:
    for content in contents(body):
        if content.get("role") not in {"user", "model"}:
            yield str(content.get("role"))


def parts_exist(body: JsonObject) -> Iterator[str]:
    for content in contents(body):
        if not content.get("parts"):
            yield str(content.get("role"))


def one_kind(body: JsonObject) -> Iterator[str]:
    system: list[JsonObject] = (body.get("systemInstruction") or {}).get("parts") or []
    for part in (*parts(body), *system):
        kinds = _DATA & part.keys()
        if len(kinds) != 1:
            yield str(sorted(kinds))
        elif part.get("text") == "" and not part.get("thoughtSignature"):
            yield "empty text"


def system_is_text(body: JsonObject) -> Iterator[str]:
    system = body.get("systemInstruction")
    if system is not None:
        said: list[JsonObject] = system.get("parts") or [{}]
        for part in said:
            if not isinstance(part.get("text"), str):
                yield str(part)[:40]


def ends_with_user(body: JsonObject) -> Iterator[str]:
    found = contents(body)
    if found and found[-1].get("role") == "model":
        yield "the last content is the model's"


def begins_with_user(body: JsonObject) -> Iterator[str]:
    found = contents(body)
    if found and found[0].get("role") == "model":
        yield "the first content is the model's"


def answers_match(body: JsonObject) -> Iterator[str]:
    found = contents(body)
    for content, following in pairwise([*found, {}]):
        calls = named(content, "functionCall")
        answers = named(following, "functionResponse")
        if calls and len(calls) != len(answers):
            yield f"{len(calls)} calls, {len(answers)} responses"


def answers_follow_calls(body: JsonObject) -> Iterator[str]:
    before: JsonObject = {}
    for content in contents(body):
        answers = named(content, "functionResponse")
        if answers and not named(before, "functionCall"):
            yield "a response without a call"
        before = content


def call_names(body: JsonObject) -> Iterator[str]:
    for part in parts(body):
        for field in ("functionCall", "functionResponse"):
            if field in part and not _NAME.fullmatch(str(part[field].get("name") or "")):
                yield str(part[field].get("name"))


def arguments_are_objects(body: JsonObject) -> Iterator[str]:
    for part in parts(body):
        if not isinstance(part.get("functionCall", {}).get("args", {}), dict):
            yield "args"
        if "functionResponse" in part and not isinstance(
            part["functionResponse"].get("response"), dict
        ):
            yield "response"


def calls_are_the_models(body: JsonObject) -> Iterator[str]:
    for content in contents(body):
        if content.get("role") == "user" and named(content, "functionCall"):
            yield "a call of the user"
        if content.get("role") == "model" and named(content, "functionResponse"):
            yield "a response of the model"


def calls_are_signed(body: JsonObject) -> Iterator[str]:
    if is_3(body):
        for content in contents(body):
            calls = [part for part in content.get("parts") or () if "functionCall" in part]
            if calls and not calls[0].get("thoughtSignature"):
                yield str(calls[0]["functionCall"].get("name"))


def blobs(body: JsonObject) -> Iterator[str]:
    for part in parts(body):
        blob = part.get("inlineData")
        if blob is None:
            continue
        if not re.fullmatch(r"[\w.+-]+/[\w.+-]+", str(blob.get("mimeType") or "")):
            yield f"type {blob.get('mimeType')!r}"
        try:
            if not base64.b64decode(str(blob.get("data") or ""), validate=True):
                yield "no data"
        except binascii.Error:
            yield "data is not base64"


def file_uris(body: JsonObject) -> Iterator[str]:
    for part in parts(body):
        if "fileData" in part and not re.match(
            r"https?://|gs://", part["fileData"].get("fileUri") or ""
        ):
            yield str(part["fileData"].get("fileUri"))


def function_names(body: JsonObject) -> Iterator[str]:
    for each in declarations(body):
        if not _NAME.fullmatch(str(each.get("name") or "")):
            yield str(each.get("name"))


def functions_once(body: JsonObject) -> Iterator[str]:
    names = [str(each.get("name")) for each in declarations(body)]
    yield from (name for name in set(names) if names.count(name) > 1)


def one_schema(body: JsonObject) -> Iterator[str]:
    for each in declarations(body):
        if "parameters" in each and "parametersJsonSchema" in each:
            yield str(each.get("name"))
    if {"responseSchema", "responseJsonSchema"} <= settings(body).keys():
        yield "response"


def schema_keywords(body: JsonObject) -> Iterator[str]:
    for schema in _schemas(body, "parameters", "responseSchema"):
        yield from _unknown_keywords(schema, _SCHEMA)
    for schema in _schemas(body, "parametersJsonSchema", "responseJsonSchema"):
        yield from _unknown_keywords(schema, _JSON_SCHEMA)


def _schemas(body: JsonObject, of_tools: str, of_answer: str) -> Iterator[JsonObject]:
    yield from (each[of_tools] for each in declarations(body) if of_tools in each)
    if of_answer in settings(body):
        yield settings(body)[of_answer]


def _nodes(schema: Json) -> Iterator[JsonObject]:
    if isinstance(schema, dict):
        yield schema
        for name, value in schema.items():
            if name in {"properties", "$defs"} and isinstance(value, dict):
                for each in value.values():
                    yield from _nodes(each)
            elif name in {"items", "anyOf", "oneOf", "prefixItems", "additionalProperties"}:
                yield from _nodes(value)
    elif isinstance(schema, list):
        for each in schema:
            yield from _nodes(each)


def _unknown_keywords(schema: JsonObject, known: frozenset[str]) -> Iterator[str]:
    for node in _nodes(schema):
        yield from (name for name in node if name not in known)


def object_schemas(body: JsonObject) -> Iterator[str]:
    for schema in _schemas(body, "parametersJsonSchema", "responseJsonSchema"):
        for node in _nodes(schema):
            if not isinstance(node.get("type", ""), str | list):
                yield f"type {node['type']}"
    for schema in _schemas(body, "parameters", "responseSchema"):
        if not schema.get("properties") and schema.get("type") == "object":
            yield "an object without properties"
        for node in _nodes(schema):
            if not isinstance(node.get("type", ""), str):
                yield f"type {node['type']}"
            if node.get("type") == "array" and "items" not in node:
                yield "an array without items"
            if "properties" in node and node.get("type") != "object":
                yield "properties of no object"


def required_exist(body: JsonObject) -> Iterator[str]:
    for schema in _schemas(body, "parameters", "responseSchema"):
        for node in _nodes(schema):
            unknown = set(node.get("required") or ()) - set(node.get("properties") or ())
            yield from unknown


def tool_choice(body: JsonObject) -> Iterator[str]:
    config = (body.get("toolConfig") or {}).get("functionCallingConfig")
    if config is None:
        return
    names = {each.get("name") for each in declarations(body)}
    allowed = config.get("allowedFunctionNames") or ()
    if config.get("mode") not in {"AUTO", "ANY", "NONE", "VALIDATED"}:
        yield str(config.get("mode"))
    if allowed and config.get("mode") not in {"ANY", "VALIDATED"}:
        yield "names only with ANY"
    yield from (str(name) for name in allowed if name not in names)


def temperature(body: JsonObject) -> Iterator[str]:
    value = settings(body).get("temperature", 1)
    if not 0 <= value <= 2:
        yield str(value)


def limits(body: JsonObject) -> Iterator[str]:
    if settings(body).get("maxOutputTokens", 1) < 1:
        yield "maxOutputTokens"
    if len(settings(body).get("stopSequences") or ()) > 5:
        yield "more than five stop sequences"


def schema_has_type(body: JsonObject) -> Iterator[str]:
    found = settings(body)
    has_schema = {"responseSchema", "responseJsonSchema"} & found.keys()
    if has_schema and found.get("responseMimeType") != "application/json":
        yield str(found.get("responseMimeType"))


def schema_or_tools(body: JsonObject) -> Iterator[str]:
    is_json = settings(body).get("responseMimeType") == "application/json"
    if is_json and body.get("tools") and not is_3(body):
        yield "application/json with tools"


def own_or_served_tools(body: JsonObject) -> Iterator[str]:
    kinds = {name for tool in body.get("tools") or () for name in tool}
    if "functionDeclarations" in kinds and len(kinds) > 1 and not is_3(body):
        yield str(sorted(kinds))


def thinking(body: JsonObject) -> Iterator[str]:
    config = settings(body).get("thinkingConfig")
    if config is None:
        return
    if {"thinkingBudget", "thinkingLevel"} <= config.keys():
        yield "both a budget and a level"
    if "thinkingLevel" in config and not is_3(body):
        yield "a level before Gemini 3"
    known = {"MINIMAL", "LOW", "MEDIUM", "HIGH"}
    if str(config.get("thinkingLevel", "LOW")).upper() not in known:
        yield str(config["thinkingLevel"])
    if config.get("thinkingBudget") == 0 and "pro" in str(body.get("model")):
        yield "Pro cannot be told not to think"


RULES = (
    Rule(
        "unknown field",
        "issue nanbingxyz/5ire#42: Unknown name ... Cannot find field",
        unknown_fields,
    ),
    Rule("no contents", DOCUMENTED + ", contents is required", contents_exist),
    Rule("role", "recorded 400 of Vertex: Please use a valid role: user, model.", roles),
    Rule("no parts", "issue vercel/ai#3775: contents.parts must not be empty", parts_exist),
    Rule(
        "part kind", "issue router-for-me/CLIProxyAPI#1293: required oneof field 'data'", one_kind
    ),
    Rule("system text", "issue songquanpeng/one-api#2243: system_instruction data", system_is_text),
    Rule("ends with model", "pull request crewAIInc/crewAI#6973", ends_with_user),
    Rule("begins with model", "issue google-gemini/gemini-cli#11814", begins_with_user),
    Rule("response count", "issue google-gemini/gemini-cli#16415", answers_match),
    Rule("response order", "issue langchain-ai/langchain#27799", answers_follow_calls),
    Rule("call name", "Gemini API reference, FunctionCall.name", call_names),
    Rule(
        "call values", "Gemini API reference, FunctionCall.args is a Struct", arguments_are_objects
    ),
    Rule("call role", "Gemini guide, function calling: roles", calls_are_the_models),
    Rule("call signature", "Gemini guide, thought signatures; code_puppy#165", calls_are_signed),
    Rule("blob", "Gemini API reference, Blob: mimeType, base64 data", blobs),
    Rule("file uri", "Gemini API reference, FileData.fileUri", file_uris),
    Rule(
        "function name",
        "issue google-gemini/gemini-cli#7869: Invalid function name",
        function_names,
    ),
    Rule(
        "function twice", "issue router-for-me/CLIProxyAPI#4244: Duplicate function", functions_once
    ),
    Rule("two schemas", "Gemini API reference: mutually exclusive with parameters", one_schema),
    Rule("schema keyword", "issue zed-industries/zed#44875: Unknown name const", schema_keywords),
    Rule("object schema", "issues agno-agi/agno#2112, anomalyco/opencode#11889", object_schemas),
    Rule("schema required", "pull request Kilo-Org/kilocode#11955", required_exist),
    Rule("tool choice", "Gemini API reference, FunctionCallingConfig", tool_choice),
    Rule("temperature", "recorded 400 of Vertex: supported range is from 0 to 2.0001", temperature),
    Rule("limits", "Gemini API reference, GenerationConfig: up to 5 stopSequences", limits),
    Rule(
        "schema type",
        "Gemini API reference: responseSchema needs a compatible type",
        schema_has_type,
    ),
    Rule("schema and tools", "issue googleapis/python-genai#867", schema_or_tools),
    Rule("tool mix", "issue symfony/ai#803: Tool use with function calling", own_or_served_tools),
    Rule("thinking", "Gemini guide, thinking: level or budget, never both", thinking),
)
