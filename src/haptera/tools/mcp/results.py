"""Results of an MCP server as content: text, media, resources and structured values."""

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import mcp_types as types
import msgspec

from haptera.model.json_types import Json, is_too_deep, writable
from haptera.model.parts import MediaPart, ResultContent, TextPart
from haptera.ports.tools import ToolContext
from haptera.tools.mcp.offered_tools import OUTPUTS, READER, clean
from haptera.tools.output import MOST_SHOWN

MOST_MEDIA = 8 << 20
"""Characters of base64 of one image or sound."""
_MOST_PIECES = 100
Contents: TypeAlias = types.TextResourceContents | types.BlobResourceContents
_SHOWABLE = ("image/", "audio/", "video/", "application/pdf")


def content_of(
    blocks: Iterable[types.ContentBlock], structured: Json = None
) -> list[ResultContent]:
    """Return the blocks of a result as parts; a structured value too, unless a text has it."""
    pieces = list(blocks)
    parts = [_part_of(block) for block in pieces[:_MOST_PIECES]]
    if left := len(pieces) - len(parts):
        parts.append(TextPart(text=f"[{left} more pieces are left out]"))
    if structured is not None and not _is_told(structured, parts):
        parts.append(TextPart(text=_written(structured)))
    return parts


async def bounded(context: ToolContext[Any], parts: Sequence[ResultContent]) -> list[ResultContent]:
    """Return what a model is shown at once; a longer text is kept, to be paged through."""
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    if sum(map(len, texts)) <= MOST_SHOWN:
        return list(parts)
    shown = await OUTPUTS.shown(context, "\n".join(texts), reader=READER)
    return [TextPart(text=shown), *(part for part in parts if isinstance(part, MediaPart))]


def resource_content(contents: Iterable[Contents]) -> list[ResultContent]:
    """Return what was read of a resource."""
    return [_of_resource(item) for item in list(contents)[:_MOST_PIECES]]


def _part_of(block: types.ContentBlock) -> ResultContent:
    match block:
        case types.TextContent():
            return TextPart(text=writable(block.text))
        case types.ImageContent() | types.AudioContent():
            return _media(block.mime_type, block.data, what=block.type)
        case types.EmbeddedResource():
            return _of_resource(block.resource)
        case types.ResourceLink():
            named = clean(f"{block.uri} ({block.mime_type or 'unknown type'}): {block.name}")
            return TextPart(text=f"[resource {named}]")
        case _:
            return TextPart(text="[a piece of an unknown kind is left out]")


def _of_resource(resource: Contents) -> ResultContent:
    uri = clean(resource.uri)
    if isinstance(resource, types.TextResourceContents):
        return TextPart(text=f"[resource {uri}]\n{writable(resource.text)}")
    mime = resource.mime_type or "application/octet-stream"
    if mime.startswith(_SHOWABLE):
        return _media(mime, resource.blob, what=f"resource {uri}")
    size = len(resource.blob) * 3 // 4
    return TextPart(text=f"[resource {uri}: {clean(mime)}, about {size} bytes, not shown]")


def _media(mime: str, data: str, *, what: str) -> ResultContent:
    if len(data) > MOST_MEDIA:
        return TextPart(text=f"[{what} of {len(data) * 3 // 4} bytes is left out: too large]")
    try:
        # Some programs break base64 into lines, which the strict mode does not take.
        content = binascii.a2b_base64("".join(data.split()), strict_mode=True)
    except ValueError:
        content = b""
    if not content:
        return TextPart(text=f"[{what} is left out: it is not base64]")
    return MediaPart(mime=clean(mime), data=base64.b64encode(content).decode("ascii"))


def _is_told(structured: Json, parts: Iterable[ResultContent]) -> bool:
    """Whether the texts of the result are the structured value, as servers should write it."""
    texts = {part.text for part in parts if isinstance(part, TextPart)}
    if (
        isinstance(structured, dict)
        and structured
        and texts.issuperset(
            value if isinstance(value, str) else None for value in structured.values()
        )
    ):
        return True  # such as {"content": the text}
    for part in parts:
        if isinstance(part, TextPart) and part.text[:1] in '{["tfn-0123456789':
            try:
                if msgspec.json.decode(part.text) == structured:
                    return True
            except (msgspec.DecodeError, RecursionError):
                continue
    return False


def _written(structured: Json) -> str:
    if is_too_deep(structured):
        return "[a structured value is left out: it is nested too deeply]"
    return msgspec.json.encode(structured).decode()
