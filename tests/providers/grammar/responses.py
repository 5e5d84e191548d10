"""What OpenAI Responses refuses, as rules over a request body."""

import re
from collections.abc import Iterator
from itertools import pairwise

from haptera.model.json_types import Json, JsonObject
from tests.providers.grammar.rules import Rule, words

DOCUMENTED = "OpenAI API reference, POST /v1/responses"
_FIELDS = words(
    "background context_management conversation include input instructions max_output_tokens"
    " max_tool_calls metadata model parallel_tool_calls previous_response_id prompt"
    " prompt_cache_key prompt_cache_retention reasoning safety_identifier service_tier store stream"
    " stream_options temperature text tool_choice tools top_logprobs top_p truncation user"
)
_ITEMS: dict[str, frozenset[str]] = {
    "message": frozenset({"role", "content"}),
    "reasoning": frozenset({"id", "summary"}),
    "function_call": frozenset({"call_id", "name", "arguments"}),
    "function_call_output": frozenset({"call_id", "output"}),
    "custom_tool_call": frozenset({"call_id", "name", "input"}),
    "custom_tool_call_output": frozenset({"call_id", "output"}),
}
_OUTPUT_OF = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_REASONS = re.compile(r"\bo[1-9]\b|gpt-5|codex")


def items(body: JsonObject) -> list[JsonObject]:
    """Return the items of a body, whatever else is in its input."""
    found = body.get("input")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def kind(item: JsonObject) -> str:
    """Return an item's type; a message may leave it out."""
    return str(item.get("type") or "message")


def unknown_fields(body: JsonObject) -> Iterator[str]:
    yield from (name for name in body if name not in _FIELDS)


def required_fields(body: JsonObject) -> Iterator[str]:
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "model"
    if not body.get("input") and "previous_response_id" not in body:
        yield "input"


def item_fields(body: JsonObject) -> Iterator[str]:
    for item in items(body):
        for name in _ITEMS.get(kind(item), frozenset()):
            if name not in item:
                yield f"{kind(item)} lacks {name}"


def item_types(body: JsonObject) -> Iterator[str]:
    known = re.compile(r"[a-z]+(_[a-z]+)*_(call|output|tools|request|response|reference)")
    plain = {*_ITEMS, "compaction", "program"}
    for item in items(body):
        if kind(item) not in plain and not known.fullmatch(kind(item)):
            yield kind(item)


def roles(body: JsonObject) -> Iterator[str]:
    for item in items(body):
        if kind(item) == "message" and item.get("role") not in {
            *("user", "assistant", "system", "developer"),
        }:
            yield str(item.get("role"))


def content_types(body: JsonObject) -> Iterator[str]:
    allowed = {
        "assistant": {"output_text", "refusal"},
        "user": {"input_text", "input_image", "input_file"},
    }
    for item in items(body):
        content = item.get("content")
        if kind(item) == "message" and isinstance(content, list):
            known = allowed.get(str(item.get("role")), allowed["user"])
            yield from (str(each.get("type")) for each in content if each.get("type") not in known)


def content_not_empty(body: JsonObject) -> Iterator[str]:
    for item in items(body):
        if kind(item) == "message" and not item.get("content"):
            yield str(item.get("role"))


def images(body: JsonObject) -> Iterator[str]:
    for item in items(body):
        for each in _pieces(item):
            if each.get("type") == "input_image" and not (
                each.get("file_id")
                or re.match(r"https?://|data:image/[\w.+-]+;base64,", each.get("image_url") or "")
            ):
                yield str(each.get("image_url"))[:40]


def files(body: JsonObject) -> Iterator[str]:
    for item in items(body):
        for each in _pieces(item):
            if each.get("type") == "input_file":
                if "file_data" in each and not each.get("filename"):
                    yield "file_data without filename"
                if not {"file_data", "file_url", "file_id"} & each.keys():
                    yield "no file"


def _pieces(item: JsonObject) -> list[JsonObject]:
    for name in ("content", "output"):
        if isinstance(item.get(name), list):
            return [each for each in item[name] if isinstance(each, dict)]
    return []


def calls_are_answered(body: JsonObject) -> Iterator[str]:
    for call, output in _OUTPUT_OF.items():
        answered = {item.get("call_id") for item in items(body) if kind(item) == output}
        for item in items(body):
            if kind(item) == call and item.get("call_id") not in answered:
                yield str(item.get("call_id"))


def outputs_have_calls(body: JsonObject) -> Iterator[str]:
    if "previous_response_id" in body:
        return
    for call, output in _OUTPUT_OF.items():
        seen: set[Json] = set()
        for item in items(body):
            if kind(item) == call:
                seen.add(item.get("call_id"))
            elif kind(item) == output and item.get("call_id") not in seen:
                yield str(item.get("call_id"))


def calls_before_outputs(body: JsonObject) -> Iterator[str]:
    """DeepSeek wants nothing but calls between a call and the outputs."""
    if "deepseek" not in str(body.get("model")):
        return
    for item, following in pairwise(items(body)):
        if kind(item) in _OUTPUT_OF and kind(following) not in {
            *_OUTPUT_OF,
            *_OUTPUT_OF.values(),
        }:
            yield str(item.get("call_id"))


def call_ids(body: JsonObject) -> Iterator[str]:
    for item in items(body):
        if "call_id" in item and kind(item) in _OUTPUT_OF:
            call_id = item["call_id"]
            if not isinstance(call_id, str) or not 1 <= len(call_id) <= 64:
                yield str(call_id)


def ids_once(body: JsonObject) -> Iterator[str]:
    seen: set[Json] = set()
    for item in items(body):
        if item.get("id") is not None:
            if item["id"] in seen:
                yield str(item["id"])
            seen.add(item["id"])


def arguments_are_text(body: JsonObject) -> Iterator[str]:
    for item in items(body):
        if kind(item) == "function_call" and not isinstance(item.get("arguments"), str):
            yield str(item.get("arguments"))


def reasoning_is_followed(body: JsonObject) -> Iterator[str]:
    found = items(body)
    for item, following in pairwise([*found, {}]):
        if kind(item) == "reasoning":
            is_users = not following or following.get("role") == "user"
            if is_users or kind(following).endswith("_output"):
                yield str(item.get("id"))


def reasoning_is_sealed(body: JsonObject) -> Iterator[str]:
    if body.get("store"):
        return
    for item in items(body):
        if kind(item) == "reasoning" and not (item.get("encrypted_content") or item.get("content")):
            yield str(item.get("id"))


def seal_only_for_reasoning(body: JsonObject) -> Iterator[str]:
    model = str(body.get("model"))
    is_asked = "reasoning.encrypted_content" in (body.get("include") or ())
    if is_asked and (not _REASONS.search(model) or "-chat" in model):
        yield model


def temperature(body: JsonObject) -> Iterator[str]:
    value = body.get("temperature")
    if value is None:
        return
    if not 0 <= value <= 2:
        yield str(value)
    if _REASONS.search(str(body.get("model"))) and "-chat" not in str(body.get("model")):
        yield "not with a reasoning model"


def efforts(body: JsonObject) -> Iterator[str]:
    reasoning = body.get("reasoning")
    if reasoning is None:
        return
    if not _REASONS.search(str(body.get("model"))):
        yield "not with this model"
    known = {"none", "minimal", "low", "medium", "high", "xhigh"}
    if reasoning.get("effort", "low") not in known:
        yield str(reasoning.get("effort"))
    if reasoning.get("summary", "auto") not in {"auto", "concise", "detailed"}:
        yield str(reasoning.get("summary"))


def output_limit(body: JsonObject) -> Iterator[str]:
    value = body.get("max_output_tokens", 16)
    if not isinstance(value, int) or value < 16:
        yield str(value)


def tool_shape(body: JsonObject) -> Iterator[str]:
    for tool in body.get("tools") or ():
        if tool.get("type") != "function":
            continue
        if not _NAME.fullmatch(str(tool.get("name") or "")):
            yield f"name {tool.get('name')!r}"
        schema = tool.get("parameters")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            yield "parameters are no object schema"
        if tool.get("strict") is not False:
            yield "strict is not said"


def tool_choice(body: JsonObject) -> Iterator[str]:
    choice = body.get("tool_choice")
    if choice is None:
        return
    names = {tool.get("name") for tool in body.get("tools") or ()}
    if isinstance(choice, str):
        if choice not in {"auto", "none", "required"}:
            yield choice
    elif choice.get("name") not in names:
        yield str(choice.get("name"))


def output_format(body: JsonObject) -> Iterator[str]:
    shape = (body.get("text") or {}).get("format")
    if not shape or shape.get("type") != "json_schema":
        return
    if not _NAME.fullmatch(str(shape.get("name") or "")):
        yield f"name {shape.get('name')!r}"
    schema = shape.get("schema")
    if not isinstance(schema, dict):
        yield "no schema"
    elif shape.get("strict") and not _is_closed(schema):
        yield "strict, but an object is open"


def _is_closed(schema: Json) -> bool:
    if isinstance(schema, list):
        return all(map(_is_closed, schema))
    if not isinstance(schema, dict):
        return True
    if "properties" in schema:
        is_open = schema.get("additionalProperties") is not False
        if is_open or set(schema.get("required") or ()) != set(schema["properties"]):
            return False
    return all(map(_is_closed, schema.values()))


def background_is_stored(body: JsonObject) -> Iterator[str]:
    if body.get("background") and body.get("store") is False:
        yield "background without store"


def chain_is_new(body: JsonObject) -> Iterator[str]:
    """What a previous response holds must not be sent again."""
    if "previous_response_id" in body:
        for item in items(body):
            if kind(item) in {"reasoning", "function_call"} and "id" in item:
                yield str(item["id"])


RULES = (
    Rule("unknown field", DOCUMENTED + ", body parameters", unknown_fields),
    Rule("required field", DOCUMENTED, required_fields),
    Rule("item field", DOCUMENTED + ", input items", item_fields),
    Rule("item type", DOCUMENTED + ", input items", item_types),
    Rule("role", DOCUMENTED + ", EasyInputMessage", roles),
    Rule("content type", DOCUMENTED + ": user input_*, assistant output_text", content_types),
    Rule("empty content", DOCUMENTED + ", input message content list", content_not_empty),
    Rule("image", "OpenAI guide, images and vision: a URL or a data URL", images),
    Rule("file", "OpenAI guide, file inputs: filename with file_data", files),
    Rule("call without output", "issue symgraph/GhidrAssist#78", calls_are_answered),
    Rule("output without call", "issue continuedev/continue#10092", outputs_have_calls),
    Rule(
        "interleaved calls", "recorded 400 of DeepSeek: No tool output found", calls_before_outputs
    ),
    Rule("call id", "OpenAI API reference: call_id of 1 to 64 characters", call_ids),
    Rule("duplicate id", "issue MacPaw/OpenAI#432: Duplicate item", ids_once),
    Rule(
        "arguments", DOCUMENTED + ", function_call.arguments is a JSON string", arguments_are_text
    ),
    Rule(
        "reasoning alone", "issues vercel/ai#7099, openai/openai-node#1567", reasoning_is_followed
    ),
    Rule("reasoning unsealed", "issue openai/openai-agents-python#2020", reasoning_is_sealed),
    Rule("seal not offered", "issue pydantic/pydantic-ai#2865", seal_only_for_reasoning),
    Rule("temperature", "issues appatalks/eva-agent#83, decolua/9router#560", temperature),
    Rule("effort", "OpenAI guide, reasoning models: reasoning.effort", efforts),
    Rule("output limit", "issue vectorize-io/hindsight#58: Expected a value >= 16", output_limit),
    Rule("tool shape", DOCUMENTED + ", tools[].name ^[a-zA-Z0-9_-]+$", tool_shape),
    Rule("tool choice", DOCUMENTED + ", tool_choice names one of tools", tool_choice),
    Rule("output format", "OpenAI guide, structured outputs: strict schemas", output_format),
    Rule("background", "OpenAI guide, background mode: requires store", background_is_stored),
    Rule("chain", "issue MacPaw/OpenAI#432", chain_is_new),
)
