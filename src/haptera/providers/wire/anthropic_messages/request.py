"""Anthropic Messages: the encoder of requests and of token counts."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from haptera.formats.anthropic_messages.encoding import blocks_of, can_be_marked, marked
from haptera.formats.lenient_json import encode_lenient
from haptera.model.json_types import JsonObject
from haptera.model.messages import Message, UserMessage
from haptera.model.parts import ProviderPart, ReminderPart, ToolResultPart
from haptera.model.requests import ModelRequest
from haptera.model.tools import ToolSpec
from haptera.providers.wire.anthropic_messages.models import Features, features_of
from haptera.providers.wire.lenient_decoding import read_token_count
from haptera.providers.wire.prefix_cache import (
    PrefixCache,
    append_joined,
    body_with_array,
    stable_length,
)
from haptera.providers.wire.protocol import WireRequest

PATH = "/v1/messages"
COUNT_PATH = "/v1/messages/count_tokens"

_PLACEHOLDER: JsonObject = {"type": "text", "text": "(nothing)"}
_NOT_COUNTED = ("max_tokens", "stream", "temperature", "stop_sequences")


class RequestEncoder:
    """Encodes requests, each message of a conversation once.

    Owns the cache of encoded messages.
    """

    def __init__(self) -> None:
        self._caches: dict[tuple[str | None, bool], PrefixCache[tuple[bytes, ...]]] = {}

    def __call__(self, request: ModelRequest) -> WireRequest:
        """Return the request that asks for a streamed answer."""
        features = features_of(request)
        return WireRequest(
            path=PATH,
            headers=features.headers,
            body=self._body(_fields(request, features), request, features),
        )

    def count(self, request: ModelRequest) -> WireRequest:
        """Return the request that counts tokens."""
        features = features_of(request)
        fields = _fields(request, features)
        for name in _NOT_COUNTED:
            fields.pop(name, None)
        return WireRequest(
            path=COUNT_PATH,
            headers=features.headers,
            body=self._body(fields, request, features),
        )

    def _body(self, fields: JsonObject, request: ModelRequest, features: Features) -> bytes:
        # The bytes of a message depend on these two, so they are cached for each pair.
        cache = self._caches.setdefault((request.cache_ttl, features.compacts), PrefixCache())
        messages = request.messages
        settled = stable_length(messages)
        length, head = cache.get(messages)
        # After a rewind, the last user message may be inside what is cached, without its cache
        # mark.
        if head is None or length > settled:
            length, head = 0, ()
        head = append_joined(head, _encode_messages(messages, range(length, settled), features))
        cache.put(messages[:settled], head, weight=sum(map(len, head)))
        rest = _encode_messages(messages, range(settled, len(messages)), features)
        return body_with_array(fields, "messages", [*head, *rest])


def encode_count(request: ModelRequest) -> WireRequest:
    """Return the request that counts tokens."""
    return RequestEncoder().count(request)


def decode_count(body: bytes) -> int:
    """Return how many tokens the provider counted."""
    return read_token_count(body, "input_tokens")


def _fields(request: ModelRequest, features: Features) -> JsonObject:
    """Return everything but the messages."""
    fields: JsonObject = {
        "model": request.model,
        "max_tokens": features.max_tokens,
        "stream": True,
    }
    if system := _system(request.system, features):
        fields["system"] = system
    if tools := _tools(request, features):
        fields["tools"] = tools
        if features.tool_choice:
            fields["tool_choice"] = features.tool_choice
    if features.thinking:
        fields["thinking"] = features.thinking
    if output := _output_config(request, features):
        fields["output_config"] = output
    if features.edits:
        fields["context_management"] = {"edits": features.edits}
    if features.temperature is not None:
        fields["temperature"] = features.temperature
    # The API refuses a stop sequence that is only white space, and a system prompt like that.
    if stop := [text for text in request.stop if text.strip()]:
        fields["stop_sequences"] = stop
    return fields


def _system(prompts: Sequence[str], features: Features) -> list[JsonObject]:
    blocks: list[JsonObject] = [{"type": "text", "text": text} for text in prompts if text.strip()]
    if blocks and features.system_mark:
        blocks[-1] = marked(blocks[-1], features.system_mark)
    return blocks


def _tools(request: ModelRequest, features: Features) -> list[JsonObject]:
    tools = [_tool(tool) for tool in request.tools]
    if features.output_tool is not None:
        tools.append(_tool(features.output_tool))
    if tools and features.mark:
        tools[-1] = marked(tools[-1], features.mark)
    return tools


def _tool(tool: ToolSpec) -> JsonObject:
    fields: JsonObject = {"name": tool.name, "input_schema": tool.input_schema}
    if tool.description:
        fields["description"] = tool.description
    if tool.input_examples:
        fields["input_examples"] = list(tool.input_examples)
    return fields


def _output_config(request: ModelRequest, features: Features) -> JsonObject:
    output: JsonObject = {}
    if features.effort:
        output["effort"] = features.effort
    if request.output_schema is not None and features.output_tool is None:
        output["format"] = {"type": "json_schema", "schema": request.output_schema.schema}
    return output


def _encode_messages(
    messages: tuple[Message, ...], indexes: range, features: Features
) -> Iterator[bytes]:
    """Encode the messages at `indexes`; assistant messages without content are not sent.

    There are two cache marks: one after the leading reminders, which several conversations may
    share, and one in the last user message, before reminders that are for this request only,
    unless no later request repeats it. With the marks of the system prompt and the tools that makes
    four, the most a request may have.
    """
    last = stable_length(messages)
    for index in indexes:
        message = messages[index]
        if features.mark and (index in {0, last}) and isinstance(message, UserMessage):
            is_tail = index == last and features.marks_tail
            blocks = _marked_blocks(message, features, is_first=index == 0, is_last=is_tail)
        else:
            is_open = _goes_on(messages[index + 1 : index + 3])
            blocks = blocks_of(message, keeps_compaction=features.compacts, is_open=is_open)
        if not blocks and isinstance(message, UserMessage):
            # Without it, two assistant messages would follow each other, or one would come first.
            blocks = [_PLACEHOLDER]
        if blocks:
            role = "user" if isinstance(message, UserMessage) else "assistant"
            yield encode_lenient({"role": role, "content": blocks})


def _goes_on(following: tuple[Message, ...]) -> bool:
    """Whether an answer is continued by the next one: nothing but results comes between.

    A server tool that was called beside a tool of the client ends in the answer to its results, if
    there is one yet.
    """
    if not following:
        return True
    has_results = any(isinstance(part, ToolResultPart) for part in following[0].parts)
    return has_results and all(map(_ends_server_tool, following[1:]))


def _ends_server_tool(message: Message) -> bool:
    return any(
        isinstance(part, ProviderPart) and "tool_use_id" in part.payload for part in message.parts
    )


def _marked_blocks(
    message: Message, features: Features, *, is_first: bool, is_last: bool
) -> list[JsonObject]:
    end = len(message.parts)
    while end and _is_reminder(message, end - 1, persisted=False):
        end -= 1
    stored = replace(message, parts=message.parts[:end])
    reminders = replace(message, parts=message.parts[end:])
    blocks = blocks_of(stored, keeps_compaction=features.compacts)
    if is_last:
        last = next((at for at in range(len(blocks) - 1, -1, -1) if can_be_marked(blocks[at])), -1)
        if last >= 0:
            blocks[last] = marked(blocks[last], features.mark)
    leading = 0
    while is_first and leading < end and _is_reminder(message, leading, persisted=True):
        leading += 1
    # Blocks that were left out as empty make the blocks fewer than the parts.
    if leading and leading <= len(blocks):
        blocks[leading - 1] = marked(blocks[leading - 1], features.mark)
    return blocks + blocks_of(reminders, keeps_compaction=features.compacts)


def _is_reminder(message: Message, index: int, *, persisted: bool) -> bool:
    part = message.parts[index]
    return isinstance(part, ReminderPart) and part.persisted is persisted
