"""Anthropic messages: a request's `system` and `messages` as one JSON document, in and out.

The content blocks are also what Claude Code keeps in its lines.
"""

from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from haptera.formats.anthropic_messages.decoding import (
    NATIVE_BLOCKS,
    PROVIDER,
    answer_facts,
    read_parts,
)
from haptera.formats.anthropic_messages.encoding import IMAGE_TYPES, blocks_of
from haptera.formats.bounded_input import (
    ByteStream,
    checked_count,
    document_of,
    refused,
)
from haptera.formats.export_fitting import ExportFitter
from haptera.formats.forms import (
    text_in,
)
from haptera.formats.message_builder import MessageBuilder
from haptera.formats.values import (
    LIMITS,
    ImportedSession,
    ImportLimits,
    SessionExport,
)
from haptera.model.json_types import Json, JsonObject, objects_in
from haptera.model.messages import AssistantMessage, Message
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    Part,
    ProviderPart,
    ReasoningPart,
    ReminderPart,
    TextPart,
)

FORMAT = "anthropic"


def leaves_out(message: Message, part: Part) -> bool:
    """Whether a part is left out: blank text, reasoning without a signature or of others."""
    is_native = isinstance(message, AssistantMessage) and message.provider == PROVIDER
    match part:
        case TextPart(text=text) | CompactionPart(text=text) | ReminderPart(text=text):
            # The API refuses a text that is only white space.
            return not text.strip()
        case ReasoningPart(signature=signature):
            return not (is_native and signature)
        case ProviderPart(provider=provider, payload=payload):
            return not (provider == PROVIDER and text_in(payload, "type") in NATIVE_BLOCKS)
        case _:
            return False


def write_anthropic_messages(export: SessionExport) -> Iterator[bytes]:
    """Write `{"system": …, "messages": […]}`, ready to be sent with a model and a limit."""
    system = "\n\n".join(filter(None, export.system_prompts))
    begin = b'{"system":' + msgspec.json.encode(system) + b"," if system else b"{"
    yield begin + b'"messages":['
    writer, comma = BlockWriter(export), b"\n"
    for each in export.messages:
        blocks = writer.blocks(each.message, each.message.parts)
        if blocks:
            role = "assistant" if isinstance(each.message, AssistantMessage) else "user"
            yield comma + msgspec.json.encode({"role": role, "content": blocks})
            comma = b",\n"
    yield b"\n]}\n"


class BlockWriter:
    """Writes parts as content blocks. Owns the ids of calls across the conversation."""

    def __init__(self, export: SessionExport) -> None:
        self._fitter = ExportFitter(export, takes_media=_takes)

    def blocks(self, message: Message, parts: Iterable[Part]) -> list[JsonObject]:
        """Return the blocks of some parts of a message, without what the API would refuse."""
        fitted = [self._fitter.fitted(part) for part in parts if not leaves_out(message, part)]
        # What an answer holds is kept whole, as if it were to be continued.
        return blocks_of(
            replace(message, parts=tuple(fitted)), keeps_compaction=False, is_open=True
        )


def _takes(media: MediaPart) -> bool:
    if media.mime in {*IMAGE_TYPES, "application/pdf"}:
        return True
    return media.mime.startswith("text/") and media.url is None


def read_anthropic_messages(stream: ByteStream, limits: ImportLimits = LIMITS) -> ImportedSession:
    """Read a request's body, or the list of its messages alone.

    Raises:
        ConfigError: CONFIG_INVALID if it is no such document, or exceeds a limit.

    """
    document = document_of(stream, limits)
    messages = document.get("messages") if isinstance(document, dict) else document
    if not isinstance(messages, list):
        raise refused("this is not a document of Anthropic messages: it has no list of messages")
    builder = MessageBuilder(FORMAT)
    if isinstance(document, dict):
        builder.facts.model = text_in(document, "model")
        builder.facts.system_prompts = _system_of(document.get("system"))
    for place, message in enumerate(checked_count(messages, limits), start=1):
        builder.records += 1
        role = message.get("role") if isinstance(message, dict) else None
        if role == "user":
            builder.user(read_parts(message.get("content"), builder))
        elif role == "assistant":
            parts = read_parts(message.get("content"), builder)
            builder.assistant(parts, answer_facts(message, model=builder.facts.model))
        else:
            raw = msgspec.json.encode(message)
            builder.opaque(str(role or ""), "not understood", place=place, raw=raw)
    return builder.finish("a document of Anthropic messages")


def _system_of(system: Json) -> tuple[str, ...]:
    if isinstance(system, str):
        return (system,) if system else ()
    texts = [text_in(block, "text") for block in objects_in(system)]
    return tuple(text for text in texts if text)
