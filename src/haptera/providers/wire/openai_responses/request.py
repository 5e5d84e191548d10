"""OpenAI Responses: the encoder of requests and of token counts.

The API has no field for stop sequences or a seed, so they are not sent. It caches prompts by
itself, so there are no cache marks.
"""

import re
from functools import partial

from haptera.formats.openai_responses.encoding import custom_calls, items_of
from haptera.model.json_types import JsonObject
from haptera.model.messages import AssistantMessage, Message
from haptera.model.parts import CompactionPart
from haptera.model.requests import ModelRequest, OutputSchema
from haptera.providers.wire.accepted_inputs import tool_description
from haptera.providers.wire.lenient_decoding import read_token_count
from haptera.providers.wire.openai_responses.dialects import OPENAI, ResponsesDialect
from haptera.providers.wire.prefix_cache import EncodedMessages, body_with_array
from haptera.providers.wire.protocol import WireRequest

BODY_SWITCHES = frozenset({"store", "background"})
SERVER_TOOLS: dict[str, JsonObject] = {
    "web_search": {"type": "web_search"},
    "code_interpreter": {"type": "code_interpreter", "container": {"type": "auto"}},
    "image_generation": {"type": "image_generation"},
}
"""Tools that the provider runs, by the name in `betas` that turns each on."""
_NOT_COUNTED = (
    *("stream", "store", "include", "max_output_tokens", "temperature", "background"),
    "context_management",
)
CHAIN = "previous_response_id"
"""The name in `betas` that makes the provider keep the history, so that only new messages are
sent."""

_SCHEMA_NAME = re.compile(r"[^A-Za-z0-9_-]")


class RequestEncoder:
    """Encodes requests for one endpoint, each message of a conversation once."""

    def __init__(self, dialect: ResponsesDialect = OPENAI) -> None:
        self._dialect = dialect
        self._messages = EncodedMessages()

    def __call__(self, request: ModelRequest) -> WireRequest:
        """Return the request that asks for a streamed answer."""
        fields, after = _fields(request, self._dialect)
        names = BODY_SWITCHES | SERVER_TOOLS.keys() | {CHAIN}
        # A beta with a date in its name is Anthropic's.
        betas = [
            name
            for name, is_on in request.betas.items()
            if is_on and name not in names and not re.search(r"-20\d\d", name)
        ]
        return WireRequest(
            path=self._dialect.path,
            body=self._body(request, fields, after),
            headers={"openai-beta": ",".join(betas)} if betas else {},
        )

    def count(self, request: ModelRequest) -> WireRequest:
        """Return the request that counts tokens."""
        fields, after = _fields(request, self._dialect)
        for name in _NOT_COUNTED:
            fields.pop(name, None)
        path = f"{self._dialect.path}/input_tokens"
        return WireRequest(path=path, body=self._body(request, fields, after))

    def _body(self, request: ModelRequest, fields: JsonObject, after: int) -> bytes:
        custom = custom_calls(request.messages)
        make = partial(items_of, custom=custom, rules=self._dialect.items)
        # What the provider keeps is not sent, and the few messages after it have a cache entry of
        # their own.
        return body_with_array(
            fields, "input", self._messages.encode(request.messages[after:], make)
        )


def encode_count(request: ModelRequest, dialect: ResponsesDialect = OPENAI) -> WireRequest:
    """Encode the request that counts the tokens of `request`."""
    return RequestEncoder(dialect).count(request)


def decode_count(body: bytes) -> int:
    """Return how many tokens the provider counted."""
    return read_token_count(body, "input_tokens")


def _fields(request: ModelRequest, dialect: ResponsesDialect) -> tuple[JsonObject, int]:
    """Return everything but the input, and the index of the first message of the input."""
    # An endpoint that keeps no answers would take the end of a conversation for all of it.
    switches = request.betas if dialect.keeps_answers else {}
    chain = switches.get(CHAIN, False)
    after, previous = _last_kept(request.messages) if chain else (0, None)
    body: JsonObject = {
        "model": request.model,
        "stream": True,
        # OpenAI runs a response in the background only if it may keep it.
        "store": chain or switches.get("background", False),
    }
    if previous is not None:
        body["previous_response_id"] = previous
    if request.system:
        body["instructions"] = "\n\n".join(request.system)
    body |= _limits(request, dialect) | _reasoning(request, dialect) | _tools(request)
    if request.output_schema is not None:
        body |= _output(request.output_schema, dialect)
    if request.compaction.enabled and dialect.compacts:
        rule: JsonObject = {"type": "compaction"}
        if request.compaction.input_tokens is not None:
            rule["compact_threshold"] = request.compaction.input_tokens
        body["context_management"] = [rule]
    body |= {name: value for name, value in switches.items() if name in BODY_SWITCHES}
    return body, after


def _last_kept(messages: tuple[Message, ...]) -> tuple[int, str | None]:
    """Return the id of the last response that the provider keeps, after the index behind it."""
    # What the provider keeps is the conversation from before it was compacted here.
    if any(isinstance(part, CompactionPart) for message in messages for part in message.parts):
        return 0, None
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        # An answer that was cut off here may have gone on at the provider.
        if isinstance(message, AssistantMessage) and not message.interrupted:
            for part in message.parts:
                native = getattr(part, "native", None) or {}
                if isinstance(native.get("response_id"), str):
                    return index + 1, native["response_id"]
    return 0, None


# Settings


def _limits(request: ModelRequest, dialect: ResponsesDialect) -> JsonObject:
    body: JsonObject = {}
    if request.max_tokens:
        body["max_output_tokens"] = max(request.max_tokens, dialect.smallest_output)
    levels = dialect.reasoning_of(request.model)
    takes_temperature = levels is None or levels.takes_temperature
    if request.temperature is not None and takes_temperature:
        body["temperature"] = request.temperature
    return body


def _reasoning(request: ModelRequest, dialect: ResponsesDialect) -> JsonObject:
    levels = dialect.reasoning_of(request.model)
    if levels is None:
        return {}
    body: JsonObject = {"include": ["reasoning.encrypted_content"]} if levels.encrypted else {}
    effort = levels.levels.get(request.thinking) if request.thinking else None
    if effort is not None:
        body["reasoning"] = {"effort": effort}
        if dialect.summaries and request.thinking != "off":
            body["reasoning"]["summary"] = "auto"
    return body


def _tools(request: ModelRequest) -> JsonObject:
    tools: list[JsonObject] = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool_description(tool),
            "parameters": tool.input_schema,
            # Explicit, because with the default the provider rewrites the schema.
            "strict": False,
        }
        for tool in request.tools
    ]
    tools += [tool for name, tool in SERVER_TOOLS.items() if request.betas.get(name)]
    if not tools:
        return {}
    body: JsonObject = {"tools": tools, "parallel_tool_calls": request.parallel_tool_calls}
    if request.require_tool is not None:
        body["tool_choice"] = {"type": "function", "name": request.require_tool}
    return body


def _output(output: OutputSchema, dialect: ResponsesDialect) -> JsonObject:
    name = _SCHEMA_NAME.sub("_", output.name)[:64] or "output"
    wanted: JsonObject = {"name": name, "schema": output.schema, "strict": output.is_strict}
    if dialect.output_field == "text":
        return {"text": {"format": {"type": "json_schema", **wanted}}}
    return {"response_format": {"type": "json_schema", "json_schema": wanted}}
