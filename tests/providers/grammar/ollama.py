"""What Ollama's /api/chat refuses or passes over without a word, as rules over a request body."""

import base64
import binascii
from collections.abc import Iterator

from haptera.model.json_types import JsonObject
from tests.providers.grammar.rules import Rule, words

DOCUMENTED = "Ollama API documentation (docs.ollama.com/openapi.yaml), POST /api/chat"
_FIELDS = words(
    "model messages tools format options stream think keep_alive logprobs top_logprobs truncate"
    " shift"
)
_MESSAGE = words("role content thinking images tool_calls tool_name tool_call_id")
_OPTIONS: dict[str, type | tuple[type, ...]] = {
    "num_predict": int,
    "num_ctx": int,
    "seed": int,
    "top_k": int,
    "temperature": (int, float),
    "top_p": (int, float),
    "min_p": (int, float),
    "stop": list,
}


def messages(body: JsonObject) -> list[JsonObject]:
    """Return the messages of a body."""
    found = body.get("messages")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def unknown_fields(body: JsonObject) -> Iterator[str]:
    yield from (name for name in body if name not in _FIELDS)
    for message in messages(body):
        yield from (name for name in message if name not in _MESSAGE)


def required_fields(body: JsonObject) -> Iterator[str]:
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "model"
    if not messages(body):
        yield "messages"


def roles(body: JsonObject) -> Iterator[str]:
    for message in messages(body):
        if message.get("role") not in {"system", "user", "assistant", "tool"}:
            yield str(message.get("role"))


def content_is_text(body: JsonObject) -> Iterator[str]:
    for message in messages(body):
        if not isinstance(message.get("content", ""), str):
            yield str(message.get("role"))


def not_empty(body: JsonObject) -> Iterator[str]:
    for message in messages(body):
        said = {
            name for name in ("content", "images", "tool_calls", "thinking") if message.get(name)
        }
        if not said and message.get("role") != "tool":
            yield str(message.get("role"))


def images(body: JsonObject) -> Iterator[str]:
    for message in messages(body):
        for image in message.get("images") or ():
            try:
                if not base64.b64decode(str(image), validate=True):
                    yield "empty"
            except binascii.Error:
                yield str(image)[:20]


def images_are_the_users(body: JsonObject) -> Iterator[str]:
    for message in messages(body):
        if "images" in message and (message.get("role") != "user" or not message["images"]):
            yield str(message.get("role"))


def calls(body: JsonObject) -> Iterator[str]:
    for message in messages(body):
        for call in message.get("tool_calls") or ():
            function = call.get("function")
            if not isinstance(function, dict) or not function.get("name"):
                yield "no name"
            elif not isinstance(function.get("arguments"), dict):
                yield "arguments are no object"


def calls_are_the_models(body: JsonObject) -> Iterator[str]:
    for message in messages(body):
        if "tool_calls" in message and message.get("role") != "assistant":
            yield str(message.get("role"))


def results(body: JsonObject) -> Iterator[str]:
    waiting: list[str] = []
    for message in messages(body):
        if message.get("role") == "assistant":
            yield from (f"{name} is not answered" for name in waiting)
            made = message.get("tool_calls") or ()
            waiting = [str((call.get("function") or {}).get("name")) for call in made]
        elif message.get("role") == "tool":
            if message.get("tool_name") not in waiting:
                yield f"{message.get('tool_name')} was not called"
            else:
                waiting.remove(message["tool_name"])


def tools(body: JsonObject) -> Iterator[str]:
    for tool in body.get("tools") or ():
        function = tool.get("function")
        if tool.get("type") != "function" or not isinstance(function, dict):
            yield "no function"
        elif not function.get("name"):
            yield "no name"
        elif not isinstance(function.get("parameters"), dict):
            yield "no parameters"


def think(body: JsonObject) -> Iterator[str]:
    value = body.get("think", False)
    if not isinstance(value, bool) and value not in {"low", "medium", "high"}:
        yield str(value)
    if isinstance(value, str) and "gpt-oss" not in str(body.get("model")):
        yield f"{value} for {body.get('model')}"


def output_format(body: JsonObject) -> Iterator[str]:
    value = body.get("format", {})
    if value != "json" and not isinstance(value, dict):
        yield str(value)


def options(body: JsonObject) -> Iterator[str]:
    found = body.get("options", {})
    if not isinstance(found, dict):
        yield "no object"
        return
    for name, value in found.items():
        kind = _OPTIONS.get(name)
        if kind is None:
            yield name
        elif not isinstance(value, kind) or isinstance(value, bool):
            yield f"{name}={value!r}"


def sampling_is_inside(body: JsonObject) -> Iterator[str]:
    yield from (name for name in _OPTIONS if name in body)


def streams(body: JsonObject) -> Iterator[str]:
    if body.get("stream") is False:
        yield "stream"


RULES = (
    Rule("unknown field", DOCUMENTED, unknown_fields),
    Rule("required field", DOCUMENTED + ": model, messages", required_fields),
    Rule("role", DOCUMENTED + ", messages[].role", roles),
    Rule("content", "issue ollama/ollama#6451: cannot unmarshal array", content_is_text),
    Rule("empty message", DOCUMENTED + ", messages[].content", not_empty),
    Rule("image", "issue BerriAI/litellm#18338: illegal base64 data", images),
    Rule("image place", "pull request rikkichy/ollama-telegram#35", images_are_the_users),
    Rule("call", "issue aliasrobotics/cai#76: cannot unmarshal string", calls),
    Rule("call role", DOCUMENTED + ", messages[].tool_calls", calls_are_the_models),
    Rule("result", "Ollama guide, tool calling: tool_name of the call", results),
    Rule("tool", DOCUMENTED + ", tools[]", tools),
    Rule("think", "Ollama guide, thinking; issue ollama/ollama#12561", think),
    Rule("format", DOCUMENTED + ", format: json or a schema", output_format),
    Rule("options", DOCUMENTED + ", ModelOptions", options),
    Rule("options place", DOCUMENTED + ", options", sampling_is_inside),
    Rule("stream", DOCUMENTED + ", stream", streams),
)
