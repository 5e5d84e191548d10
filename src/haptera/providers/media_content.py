"""Media content: which media type bytes have, and the message part that they become.

The media type is detected from the first bytes, not from a name. Text becomes a text part; images,
PDF documents and audio become media. Nothing here reads a file or a URL (`assembly.attachments`
does).
"""

import base64
import re
from pathlib import PurePath

import msgspec

from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.parts import MediaPart, TextPart

_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (0, b"BM", "image/bmp"),
    (0, b"II*\x00", "image/tiff"),
    (0, b"MM\x00*", "image/tiff"),
    (4, b"ftypheic", "image/heic"),
    (4, b"ftypheix", "image/heic"),
    (4, b"ftypmif1", "image/heif"),
    (4, b"ftypavif", "image/avif"),
    (0, b"%PDF-", "application/pdf"),
    (8, b"WAVE", "audio/wav"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"\xff\xf3", "audio/mpeg"),
    (0, b"\xff\xf2", "audio/mpeg"),
    (0, b"\xff\xf1", "audio/aac"),
    (0, b"\xff\xf9", "audio/aac"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (4, b"ftypM4A", "audio/mp4"),
    (0, b"FORM", "audio/aiff"),
)
"""The offset of a signature, its bytes, and the media type; the first match applies."""

# Their letters are at offset 8, where those of another format may be by chance: RIFF comes first.
_RIFF_TYPES = frozenset({"image/webp", "audio/wav"})
_SUFFIXES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".heic": "image/heic",
    ".pdf": "application/pdf",
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".aac": "audio/aac",
    ".ogg": "audio/ogg",
    ".flac": "audio/flac",
    ".m4a": "audio/mp4",
    ".aiff": "audio/aiff",
}
"""By the ending of a name, for URLs, whose content is not fetched."""

_UNSUPPORTED: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "an archive or an office document; send a PDF or its text"),
    (b"\xd0\xcf\x11\xe0", "an old office document; send a PDF or its text"),
    (b"\x1f\x8b", "compressed; send what is in it"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
)
_BYTE_ORDER_MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
# A name is written into a tag, whose attribute and end it must not be able to forge.
_UNSAFE_IN_NAMES = re.compile(r'[\x00-\x1f\x7f"<>]')
_UNNAMED = "the attached bytes"


class ContentLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The largest content that is accepted, in bytes."""

    media: int = 20 * 1024 * 1024
    text: int = 1024 * 1024


DEFAULT_LIMITS = ContentLimits()


def content_part(
    content: bytes, *, name: str | None = None, limits: ContentLimits = DEFAULT_LIMITS
) -> TextPart | MediaPart:
    """Return the part for some content; `name` is its file name or path, if it has one.

    Raises:
        ConfigError: CONFIG_INVALID naming the content if it is empty, too large or of no known
            type.

    """
    shown = name or _UNNAMED
    if not content:
        raise refused_attachment(shown, "is empty")
    if len(content) > limits.media:
        raise too_large_attachment(shown, limits.media)
    filename = _UNSAFE_IN_NAMES.sub("_", PurePath(shown).name)
    mime, text = media_type_of(content), _as_text(content)
    # Some signatures are plain letters, such as `BM` and `FORM`: content that is text counts as
    # text.
    if mime is not None and text is None:
        data = base64.b64encode(content).decode()
        return MediaPart(mime=mime, data=data, filename=filename if name else None)
    if text is None:
        raise refused_attachment(shown, _unknown(content))
    if len(content) > limits.text:
        raise too_large_attachment(shown, limits.text, "is a text and ")
    return TextPart(text=f'<attachment name="{filename}">\n{text}\n</attachment>')


def media_type_of(content: bytes) -> str | None:
    """Return the media type that the first bytes show; None for text and unknown types."""
    for offset, signature, mime in _SIGNATURES:
        if content.startswith(signature, offset) and (
            mime not in _RIFF_TYPES or content.startswith(b"RIFF")
        ):
            return mime
    return None


def media_type_of_name(name: str) -> str | None:
    """Return the media type that the ending of a name shows; None if it shows none."""
    return _SUFFIXES.get(PurePath(name).suffix.lower())


def too_large_attachment(name: str, largest: int, what: str = "") -> ConfigError:
    """Return the error for content of more than `largest` bytes."""
    return refused_attachment(name, f"{what}is larger than {largest / 1024 / 1024:g} MiB")


def refused_attachment(name: str, reason: str) -> ConfigError:
    """Return the error for an attachment that cannot be sent."""
    return ConfigError(ErrorCode.CONFIG_INVALID, f"attachment {name!r}: {reason}")


def _as_text(content: bytes) -> str | None:
    """Return the content as text, if it is text in a known encoding."""
    # A PDF can consist of ASCII characters only.
    if content.startswith(b"%PDF-"):
        return None
    marks = (name for mark, name in _BYTE_ORDER_MARKS if content.startswith(mark))
    try:
        text = content.decode(next(marks, "utf-8"))
    except UnicodeDecodeError:
        return None
    # Binary content can be valid UTF-8. A NUL tells it from text.
    return None if "\x00" in text else text


def _unknown(content: bytes) -> str:
    kinds = (kind for signature, kind in _UNSUPPORTED if content.startswith(signature))
    kind = next(kinds, "neither text nor a known picture, PDF or sound")
    return f"is {kind}"
