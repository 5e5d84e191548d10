"""What Chat Completions servers refuse in the options and tools of a request."""

import re
from collections.abc import Iterator
from typing import Any

from tests.providers.grammar.chat_rule import (
    OPENAI_LIKE,
    OPENAI_REFERENCE,
    OPENAI_SCHEMAS,
    Body,
    functions_of,
    pieces_of,
    rule,
)

EFFORTS = {"none", "minimal", "low", "medium", "high", "xhigh", "max", "default"}
SHARED_FIELDS = {"model", "messages", "stream", "temperature", "stop", "tools", "tool_choice"}
SHARED_FIELDS |= {"response_format", "reasoning_effort"}
FIELDS_OF_MISTRAL = SHARED_FIELDS | {"max_tokens", "random_seed", "parallel_tool_calls"}
FIELDS_OF_MISTRAL |= {"safe_prompt", "prompt_mode", "top_p", "n", "presence_penalty"}


@rule("no empty list of tools", "https://github.com/partITech/php-mistral/issues/76")
def a_list_of_tools_holds_one(body: Body) -> Iterator[str]:
    if "tools" in body and not body["tools"]:
        yield "an empty list of tools"


@rule("tool names", OPENAI_REFERENCE)
def tools_have_names_of_their_own(body: Body) -> Iterator[str]:
    names = [function.get("name", "") for function in functions_of(body)]
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
            yield f"a tool called {name!r}"
    if len(names) != len(set(names)):
        yield "two tools of one name"


@rule("tool schemas", OPENAI_REFERENCE)
def a_tool_takes_an_object(body: Body) -> Iterator[str]:
    for function in functions_of(body):
        schema = function.get("parameters")
        if schema is not None and schema.get("type") != "object":
            yield f"parameters of type {schema.get('type')!r}"


@rule("tool choice", OPENAI_REFERENCE)
def a_chosen_tool_is_offered(body: Body) -> Iterator[str]:
    choice = body.get("tool_choice")
    if choice is None:
        return
    if "tools" not in body:
        yield "a choice without tools"
    if isinstance(choice, str):
        if choice not in {"none", "auto", "required", "any"}:
            yield f"choice {choice!r}"
        return
    names = {function["name"] for function in functions_of(body)}
    if choice.get("type") != "function" or choice["function"]["name"] not in names:
        yield f"choice {choice!r}"


@rule(
    "tool choice by word",
    "https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/670",
    "lmstudio",
    "llamacpp",
)
def local_servers_take_a_choice_by_word(body: Body) -> Iterator[str]:
    if isinstance(body.get("tool_choice"), dict):
        yield "a choice by name"


@rule("parallel calls", OPENAI_REFERENCE)
def parallel_calls_need_tools(body: Body) -> Iterator[str]:
    if "parallel_tool_calls" in body and "tools" not in body:
        yield "parallel_tool_calls without tools"


@rule("one limit", OPENAI_REFERENCE)
def there_is_one_limit_and_it_is_positive(body: Body) -> Iterator[str]:
    limits = [body[name] for name in ("max_tokens", "max_completion_tokens") if name in body]
    if len(limits) > 1:
        yield "two limits"
    for limit in limits:
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            yield f"limit {limit!r}"


@rule("limit of OpenAI", "https://github.com/huggingface/smolagents/issues/468", *OPENAI_LIKE)
def openai_limits_completions(body: Body) -> Iterator[str]:
    if "max_tokens" in body:
        yield "max_tokens"


@rule("temperature", "recorded 400: openai-chat/rig.error_identity_edge_chat_completions")
def temperature_is_between_nothing_and_two(body: Body) -> Iterator[str]:
    value = body.get("temperature", 1)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 2:
        yield f"temperature {value!r}"


@rule("sampling of thinkers", "https://github.com/FoundationAgents/OpenManus/issues/555", "openai")
def models_that_think_refuse_temperature(body: Body) -> Iterator[str]:
    if re.match(r"o\d|gpt-5(-mini|-nano)?$", str(body.get("model"))):
        for name in ("temperature", "stop"):
            if name in body:
                yield name


@rule("stop of thinkers", "https://docs.x.ai/docs/guides/reasoning", "xai")
def grok_refuses_stop_when_it_thinks(body: Body) -> Iterator[str]:
    if "stop" in body and re.match(r"grok-(3-mini|4\.3)", str(body.get("model"))):
        yield "stop"


@rule("stop", OPENAI_REFERENCE)
def stop_sequences_are_few_and_not_empty(body: Body) -> Iterator[str]:
    stop = body.get("stop", ["x"])
    if not isinstance(stop, list) or not 1 <= len(stop) <= 4 or not all(stop):
        yield f"stop {stop!r}"


@rule("seed", OPENAI_REFERENCE)
def a_seed_is_a_whole_number(body: Body) -> Iterator[str]:
    for name in ("seed", "random_seed"):
        if name in body and type(body[name]) is not int:
            yield f"{name} {body[name]!r}"


@rule("stream options", OPENAI_REFERENCE)
def stream_options_need_a_stream(body: Body) -> Iterator[str]:
    if "stream_options" in body and body.get("stream") is not True:
        yield "stream_options without a stream"


@rule("effort", "https://openrouter.ai/docs/use-cases/reasoning-tokens")
def efforts_are_known(body: Body) -> Iterator[str]:
    found = [body.get("reasoning_effort"), (body.get("reasoning") or {}).get("effort")]
    for effort in found:
        if effort is not None and effort not in EFFORTS:
            yield f"effort {effort!r}"


@rule("no effort for old models", "https://docs.x.ai/docs/guides/reasoning", *OPENAI_LIKE, "xai")
def models_that_do_not_think_are_not_asked_to(body: Body) -> Iterator[str]:
    asked = "reasoning_effort" in body
    if asked and re.match(r"gpt-[34]|grok-3$|grok-4(-0709|-fast.*)?$", str(body.get("model"))):
        yield f"{body['model']} does not take reasoning_effort"


@rule("no other fields", "https://github.com/mistralai/platform-docs-public/issues/7", "mistral")
def mistral_knows_its_fields_only(body: Body) -> Iterator[str]:
    for name in sorted(body.keys() - FIELDS_OF_MISTRAL):
        yield f"field {name!r}"


@rule("response format", OPENAI_SCHEMAS)
def a_format_is_complete(body: Body) -> Iterator[str]:
    wanted = body.get("response_format")
    if wanted is None:
        return
    if wanted.get("type") not in {"text", "json_object", "json_schema"}:
        yield f"format {wanted.get('type')!r}"
    if wanted.get("type") == "json_schema":
        schema = wanted.get("json_schema") or {}
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", schema.get("name", "")):
            yield f"a schema called {schema.get('name')!r}"
        if not isinstance(schema.get("schema"), dict):
            yield "a format without a schema"


@rule("the word JSON", "https://api-docs.deepseek.com/guides/json_mode")
def an_object_is_asked_for_in_words(body: Body) -> Iterator[str]:
    if (body.get("response_format") or {}).get("type") == "json_object":
        texts = [piece.get("text", "") for m in body["messages"] for piece in pieces_of(m)]
        if not any("json" in text.lower() for text in texts):
            yield "JSON is nowhere mentioned"


@rule("strict schemas", OPENAI_SCHEMAS)
def a_strict_schema_is_closed(body: Body) -> Iterator[str]:
    schema = (body.get("response_format") or {}).get("json_schema") or {}
    if schema.get("strict"):
        yield from open_objects(schema.get("schema"))


def open_objects(schema: Any) -> Iterator[str]:
    """Yield the objects inside a schema that strict mode refuses."""
    if isinstance(schema, list):
        for item in schema:
            yield from open_objects(item)
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            yield "an object that takes more"
        if set(schema.get("properties", {})) != set(schema.get("required", [])):
            yield "an object with optional properties"
    for item in schema.values():
        yield from open_objects(item)
