"""What Anthropic Messages refuses, as rules over a request body."""

import base64
import binascii
import re
from collections import Counter
from collections.abc import Iterator

from haptera.model.json_types import Json, JsonObject
from tests.providers.grammar.rules import Rule, words

DOCUMENTED = "Anthropic API reference, POST /v1/messages"
THINKING = "Anthropic documentation, Extended thinking"
TOOLS = "Anthropic documentation, Tool use"
CACHING = "Anthropic documentation, Prompt caching"

_FIELDS = words(
    "cache_control container context_management inference_geo max_tokens mcp_servers messages"
    " metadata model output_config service_tier stop_sequences stream system temperature thinking"
    " tool_choice tools top_k top_p"
)
_ROLES = {"user", "assistant"}
_RESULTS = words("tool_result web_search_tool_result web_fetch_tool_result")
_THOUGHT = {"thinking", "redacted_thinking"}
_FIELDS_OF: dict[str, frozenset[str]] = {
    "text": words("type text cache_control citations"),
    "thinking": words("type thinking signature"),
    "redacted_thinking": words("type data"),
    "tool_use": words("type id name input cache_control caller"),
    "tool_result": words("type tool_use_id content is_error cache_control"),
    "image": words("type source cache_control"),
    "document": words("type source title context citations cache_control"),
    "fallback": words("type from to trigger"),
    "compaction": words("type content cache_control signature encrypted_content"),
}
_IN_RESULTS = {"text", "image", "document", "search_result", "tool_reference"}
_IMAGES = words("image/jpeg image/png image/gif image/webp")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_MOST_MARKS = 4
_LEAST_BUDGET = 1024


def messages(body: JsonObject) -> list[JsonObject]:
    """Return the messages of a body."""
    found = body.get("messages")
    return found if isinstance(found, list) else []


def blocks(message: JsonObject) -> list[JsonObject]:
    """Return the content of a message as a list."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def all_blocks(body: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Yield every block with the role it is said in."""
    for message in messages(body):
        for block in blocks(message):
            yield str(message.get("role")), block


def unknown_fields(body: JsonObject) -> Iterator[str]:
    yield from (name for name in body if name not in _FIELDS)
    for _, block in all_blocks(body):
        known = _FIELDS_OF.get(str(block.get("type")))
        yield from (name for name in block if known is not None and name not in known)


def required_fields(body: JsonObject) -> Iterator[str]:
    if not body.get("model"):
        yield "model"
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        yield "max_tokens"
    if not messages(body):
        yield "messages"


def roles(body: JsonObject) -> Iterator[str]:
    yield from (str(each.get("role")) for each in messages(body) if each.get("role") not in _ROLES)


def first_is_users(body: JsonObject) -> Iterator[str]:
    first = (messages(body) or [{}])[0]
    is_summary = (blocks(first) or [{}])[0].get("type") == "compaction"
    if messages(body) and first.get("role") != "user" and not is_summary:
        yield str(first.get("role"))


def last_is_users(body: JsonObject) -> Iterator[str]:
    if messages(body) and messages(body)[-1].get("role") != "user":
        yield "an answer that is begun already"


def empty_messages(body: JsonObject) -> Iterator[str]:
    yield from (str(each.get("role")) for each in messages(body) if not blocks(each))


def empty_texts(body: JsonObject) -> Iterator[str]:
    system = body.get("system")
    found = [block for _, block in all_blocks(body)] + (system if isinstance(system, list) else [])
    for block in found:
        if block.get("type") == "text" and not str(block.get("text") or "").strip():
            yield repr(block.get("text"))


def block_types(body: JsonObject) -> Iterator[str]:
    of_server = re.compile(r"server_tool_use|mcp_tool_use|\w+_tool_result|container_upload")
    for role, block in all_blocks(body):
        kind = str(block.get("type"))
        if kind not in _FIELDS_OF and not of_server.fullmatch(kind):
            yield kind
        if role == "user" and kind in {*_THOUGHT, "tool_use", "server_tool_use"}:
            yield f"{kind} of the user"
        if role == "assistant" and kind in {"tool_result", "image", "document"}:
            yield f"{kind} of the assistant"


def calls_answered(body: JsonObject) -> Iterator[str]:
    asked: set[str] = set()
    for message in [*messages(body), {"role": "end"}]:
        given = {
            str(block.get("tool_use_id"))
            for block in blocks(message)
            if block.get("type") == "tool_result"
        }
        yield from asked - given
        asked = {str(b.get("id")) for b in blocks(message) if b.get("type") == "tool_use"}


def results_asked(body: JsonObject) -> Iterator[str]:
    asked: set[str] = set()
    for message in messages(body):
        given = Counter(
            str(block.get("tool_use_id"))
            for block in blocks(message)
            if block.get("type") == "tool_result"
        )
        yield from (call for call, count in given.items() if call not in asked or count > 1)
        asked = {str(b.get("id")) for b in blocks(message) if b.get("type") == "tool_use"}


def results_first(body: JsonObject) -> Iterator[str]:
    for message in messages(body):
        kinds = [block.get("type") == "tool_result" for block in blocks(message)]
        if kinds != sorted(kinds, reverse=True):
            yield "something stands before a result"


def call_ids(body: JsonObject) -> Iterator[str]:
    ids = [str(block.get("id")) for _, block in all_blocks(body) if block.get("type") == "tool_use"]
    yield from (each for each in ids if not _ID.fullmatch(each))


def call_ids_unique(body: JsonObject) -> Iterator[str]:
    ids = Counter(block.get("id") for _, block in all_blocks(body) if block["type"] == "tool_use")
    yield from (str(each) for each, count in ids.items() if count > 1)


def call_values(body: JsonObject) -> Iterator[str]:
    for _, block in all_blocks(body):
        if block.get("type") == "tool_use":
            if not isinstance(block.get("input"), dict):
                yield f"input {block.get('input')!r}"
            if not _TOOL_NAME.fullmatch(str(block.get("name") or "")):
                yield f"name {block.get('name')!r}"


def result_content(body: JsonObject) -> Iterator[str]:
    for _, block in all_blocks(body):
        if block.get("type") == "tool_result" and isinstance(block.get("content"), list):
            for piece in block["content"]:
                if piece.get("type") not in _IN_RESULTS:
                    yield str(piece.get("type"))
                if piece.get("type") == "text" and not piece.get("text"):
                    yield "an empty text"


def server_calls_answered(body: JsonObject) -> Iterator[str]:
    sent = messages(body)
    for at, message in enumerate(sent):
        # Beside a call of ours it may still run: its result begins the next answer.
        later = sent[at + 2 : at + 3]
        runs = any(b.get("type") == "tool_use" for b in blocks(message)) and all(
            "tool_use_id" in block for each in later for block in blocks(each)[:1]
        )
        if runs:
            continue
        asked = {b.get("id") for b in blocks(message) if b.get("type") == "server_tool_use"}
        given = {b.get("tool_use_id") for b in blocks(message)}
        yield from (str(each) for each in asked - given)


def thinking_sealed(body: JsonObject) -> Iterator[str]:
    for _, block in all_blocks(body):
        if block.get("type") == "thinking" and not block.get("signature"):
            yield "thinking without a signature"


def thinking_last(body: JsonObject) -> Iterator[str]:
    for message in messages(body):
        if blocks(message) and blocks(message)[-1].get("type") in _THOUGHT:
            yield "an answer that ends with thinking"


def thinking_first(body: JsonObject) -> Iterator[str]:
    """With a budget, an answer whose calls were just answered must have begun with thinking."""
    if (body.get("thinking") or {}).get("type") != "enabled":
        return
    for message in reversed(messages(body)):
        kinds = [block.get("type") for block in blocks(message)]
        if message.get("role") == "user" and "tool_result" not in kinds:
            return
        if message.get("role") == "assistant" and kinds and kinds[0] not in _THOUGHT:
            yield f"an answer that begins with {kinds[0]}"
            return


def thinking_options(body: JsonObject) -> Iterator[str]:
    thinking = body.get("thinking") or {}
    if thinking.get("type") not in {None, "enabled", "disabled", "adaptive", "between_tools"}:
        yield str(thinking.get("type"))
    if thinking.get("type") == "enabled":
        budget = thinking.get("budget_tokens")
        if not isinstance(budget, int) or not _LEAST_BUDGET <= budget < body.get("max_tokens", 0):
            yield f"a budget of {budget}"
    if thinking.get("type") in {"enabled", "adaptive"}:
        if body.get("temperature", 1) != 1:
            yield "a temperature beside thinking"
        if (body.get("tool_choice") or {}).get("type") in {"tool", "any"}:
            yield "a forced call beside thinking"


def sampling(body: JsonObject) -> Iterator[str]:
    if not 0 <= body.get("temperature", 1) <= 1:
        yield f"temperature {body['temperature']}"
    yield from (repr(each) for each in body.get("stop_sequences") or () if not each.strip())


def tools(body: JsonObject) -> list[JsonObject]:
    """Return the tools that run on our side."""
    return [
        tool for tool in body.get("tools") or () if "input_schema" in tool or "type" not in tool
    ]


def tool_names(body: JsonObject) -> Iterator[str]:
    names = Counter(str(tool.get("name")) for tool in body.get("tools") or ())
    yield from (name for name, count in names.items() if count > 1)
    yield from (name for name in names if not _TOOL_NAME.fullmatch(name))


def tool_schemas(body: JsonObject) -> Iterator[str]:
    for tool in tools(body):
        schema = tool.get("input_schema")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            yield f"{tool.get('name')}: no object"
            continue
        yield from (key for key in ("oneOf", "anyOf", "allOf") if key in schema)
        yield from (name for name in schema.get("properties", {}) if not _PROPERTY.fullmatch(name))


def tool_choices(body: JsonObject) -> Iterator[str]:
    choice = body.get("tool_choice")
    if choice is None:
        return
    if choice.get("type") not in {"auto", "any", "tool", "none"}:
        yield str(choice.get("type"))
    if not body.get("tools"):
        yield "no tools to choose from"
    if choice.get("type") == "tool" and choice.get("name") not in {
        tool.get("name") for tool in body.get("tools") or ()
    }:
        yield f"{choice.get('name')!r} is not among the tools"


def _marked(body: JsonObject) -> Iterator[JsonObject]:
    system = body.get("system")
    yield from (tool for tool in body.get("tools") or () if "cache_control" in tool)
    yield from (b for b in (system if isinstance(system, list) else ()) if "cache_control" in b)
    yield from (block for _, block in all_blocks(body) if "cache_control" in block)


def cache_marks(body: JsonObject) -> Iterator[str]:
    marked = list(_marked(body))
    if len(marked) > _MOST_MARKS:
        yield f"{len(marked)} marks"
    yield from ("a mark on thinking" for block in marked if block.get("type") in _THOUGHT)
    lifetimes = [block["cache_control"].get("ttl", "5m") for block in marked]
    if lifetimes != sorted(lifetimes):
        yield "a longer lifetime after a shorter one"


def media(body: JsonObject) -> Iterator[str]:
    for _, block in all_blocks(body):
        for piece in (block, *_pieces(block)):
            if piece.get("type") in {"image", "document"}:
                yield from _source_faults(str(piece["type"]), piece.get("source") or {})


def _pieces(block: JsonObject) -> list[JsonObject]:
    content = block.get("content") if block.get("type") == "tool_result" else None
    return content if isinstance(content, list) else []


def _source_faults(kind: str, source: JsonObject) -> Iterator[str]:
    match source.get("type"):
        case "url":
            if not str(source.get("url")).startswith(("https://", "http://")):
                yield str(source.get("url"))[:40]
        case "text":
            if source.get("media_type") != "text/plain" or not source.get("data"):
                yield "a text that is none"
        case "base64":
            allowed = _IMAGES if kind == "image" else {"application/pdf"}
            if source.get("media_type") not in allowed:
                yield str(source.get("media_type"))
            if not _is_base64(source.get("data")):
                yield "data that is not base64"
        case other:
            yield f"a source of type {other!r}"


def _is_base64(data: Json) -> bool:
    try:
        return bool(base64.b64decode(data, validate=True))
    except (binascii.Error, TypeError, ValueError):
        return False


def output_formats(body: JsonObject) -> Iterator[str]:
    form = (body.get("output_config") or {}).get("format")
    if form is None:
        return
    if form.get("type") != "json_schema":
        yield str(form.get("type"))
    yield from _closed(form.get("schema"))


def _closed(schema: Json) -> Iterator[str]:
    if isinstance(schema, list):
        for each in schema:
            yield from _closed(each)
    elif isinstance(schema, dict):
        if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
            yield "an object that is not closed"
        if schema.keys() & words("minimum maximum multipleOf minLength maxLength maxItems"):
            yield "a limit that is not taken"
        for each in schema.values():
            yield from _closed(each)


def summaries(body: JsonObject) -> Iterator[str]:
    edits = (body.get("context_management") or {}).get("edits") or ()
    compacts = any(str(edit.get("type")).startswith("compact_") for edit in edits)
    for role, block in all_blocks(body):
        if block.get("type") == "compaction" and (role != "assistant" or not compacts):
            yield "a summary that was not asked for"


RULES = (
    Rule("unknown field", DOCUMENTED, unknown_fields),
    Rule("required field", DOCUMENTED, required_fields),
    Rule("role", DOCUMENTED, roles),
    Rule("first message", "https://github.com/lobehub/lobehub/issues/1601", first_is_users),
    Rule("last message", "Anthropic documentation, Migration guide, on prefilling", last_is_users),
    Rule("empty message", "https://github.com/anthropics/claude-code/issues/3196", empty_messages),
    Rule("empty text", "https://github.com/anthropics/claude-code/issues/23440", empty_texts),
    Rule("block type", DOCUMENTED, block_types),
    Rule("call without result", TOOLS, calls_answered),
    Rule("result without call", TOOLS, results_asked),
    Rule("results first", TOOLS, results_first),
    Rule("call id", "https://github.com/HKUDS/nanobot/pull/4356", call_ids),
    Rule("call id twice", "https://github.com/anomalyco/opencode/issues/1150", call_ids_unique),
    Rule("call values", DOCUMENTED, call_values),
    Rule("result content", DOCUMENTED, result_content),
    Rule("server call", "Anthropic documentation, Web search tool", server_calls_answered),
    Rule("unsealed thinking", THINKING, thinking_sealed),
    Rule("thinking last", "https://github.com/tailcallhq/forgecode/issues/2107", thinking_last),
    Rule("thinking first", "https://github.com/n8n-io/n8n/issues/22550", thinking_first),
    Rule("thinking", THINKING, thinking_options),
    Rule("sampling", DOCUMENTED, sampling),
    Rule("tool name", TOOLS, tool_names),
    Rule("tool schema", TOOLS, tool_schemas),
    Rule("tool choice", TOOLS, tool_choices),
    Rule("cache mark", CACHING, cache_marks),
    Rule("media", "Anthropic documentation, Vision and PDF support", media),
    Rule("output format", "Anthropic documentation, Structured outputs", output_formats),
    Rule("summary", "Anthropic documentation, Compaction", summaries),
)
