"""Attachments: files, bytes and addresses that a user sends along, as parts of a message.

The size is looked at before the content, and the content before the name: what a file is, its
first bytes say. A text becomes text; pictures, PDF documents and sound become media. An address is
handed on as it is and never fetched from here. Reading a file waits for the disk: call
`attachment_part` in a thread.
"""

import base64
import binascii
import os
import re
import stat
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote_to_bytes, urlsplit

import msgspec

from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.parts import MediaPart, TextPart

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
"""Where a signature stands, its bytes, and what they mean; the first that fits counts."""

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
"""For addresses, whose content is not seen here."""

_UNSUPPORTED: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "an archive or an office document; send a PDF or its text"),
    (b"\xd0\xcf\x11\xe0", "an old office document; send a PDF or its text"),
    (b"\x1f\x8b", "compressed; send what is in it"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
)
_TEXT_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_DATA_URL = re.compile(
    r"data:(?P<mime>[^;,]*)(?:;[^;,]+)*?(?P<base64>;base64)?,(?P<data>.*)", re.DOTALL
)
_UNSAFE_IN_NAMES = re.compile(r'[\x00-\x1f\x7f"<>]')


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """Something to send along: exactly one of `path`, `data` and `url`."""

    path: Path | None = None
    data: bytes | None = None
    url: str | None = None
    """`https://…` or `data:…`."""
    mime: str | None = None
    """Only needed where neither content nor name says it: for addresses without an ending."""
    filename: str | None = None


AttachmentSource: TypeAlias = Attachment | os.PathLike[str] | str | bytes
"""A string is an address if it begins like one, else a path."""


class AttachmentLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The largest content that is read, in bytes."""

    media: int = 20 * 1024 * 1024
    text: int = 1024 * 1024


USUAL_LIMITS = AttachmentLimits()


def attachment_part(
    source: AttachmentSource,
    *,
    cwd: str | os.PathLike[str],
    limits: AttachmentLimits = USUAL_LIMITS,
) -> TextPart | MediaPart:
    """Read an attachment; a relative path is taken from `cwd`.

    Raises CONFIG_INVALID, naming the attachment, if it is missing, too large or of no known type.
    """
    attachment = _attachment(source)
    if sum(x is not None for x in (attachment.path, attachment.data, attachment.url)) != 1:
        raise _refused("an attachment", "needs exactly one of path, data and url")
    if attachment.url is not None:
        if not attachment.url.startswith("data:"):
            return _linked(attachment, attachment.url)
        attachment = _inline(attachment, attachment.url, limits)
    name = _name_of(attachment)
    if attachment.path is not None:
        content = _read_file(Path(cwd) / attachment.path.expanduser(), name, largest=limits.media)
    else:
        content = attachment.data or b""
    return _part(content, name=name, attachment=attachment, limits=limits)


def media_type_of(content: bytes) -> str | None:
    """Return the media type that the first bytes show; None for text and for what is not known."""
    for offset, signature, mime in _SIGNATURES:
        if content.startswith(signature, offset) and (
            mime not in _RIFF_TYPES or content.startswith(b"RIFF")
        ):
            return mime
    return None


def _attachment(source: AttachmentSource) -> Attachment:
    match source:
        case Attachment():
            return source
        case bytes():
            return Attachment(data=source)
        case str() if re.match(r"(?i)(https?://|data:)", source):
            return Attachment(url=source)
        case str() | os.PathLike():
            return Attachment(path=Path(source))
        case _:
            raise _refused(repr(source), "is no path, address, content or media")


def _name_of(attachment: Attachment) -> str:
    if attachment.filename is not None:
        return attachment.filename
    return str(attachment.path) if attachment.path is not None else "the attached bytes"


def _linked(attachment: Attachment, url: str) -> MediaPart:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _refused(url, "is not a URL") from None
    if parts.scheme.lower() not in {"http", "https"} or not parts.hostname:
        raise _refused(url, "only http, https and data addresses can be attached")
    if parts.username is not None:
        raise _refused(parts.hostname, "the address holds a user or password")
    ending = Path(parts.path).suffix.lower()
    mime = attachment.mime or _SUFFIXES.get(ending)
    if mime is None:
        raise _refused(url, "the address does not show what it is: say mime=")
    return MediaPart(mime=mime, url=url, filename=attachment.filename or Path(parts.path).name)


def _inline(attachment: Attachment, url: str, limits: AttachmentLimits) -> Attachment:
    name = attachment.filename or "the data address"
    match = _DATA_URL.fullmatch(url)
    if match is None:
        raise _refused(name, "is not a data address")
    text = match["data"]
    # Four characters of base64, or three of one escaped byte, bound the content from above.
    if len(text) > limits.media * 3:
        raise _refused(name, _too_large(limits.media))
    try:
        encoded = unquote_to_bytes(text)
        data = base64.b64decode(encoded, validate=True) if match["base64"] else encoded
    except binascii.Error:
        raise _refused(name, "its base64 is broken") from None
    return msgspec.structs.replace(
        attachment, url=None, data=data, mime=attachment.mime or match["mime"] or None
    )


def _read_file(path: Path, name: str, *, largest: int) -> bytes:
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise _refused(name, "is not a plain file")
            if facts.st_size > largest:
                raise _refused(name, _too_large(largest))
            content = file.read(largest + 1)
    except OSError as error:
        raise _refused(name, f"cannot be read: {error.strerror or 'no such file'}") from error
    except ValueError:
        raise _refused(name, "is not a path") from None
    if len(content) > largest:
        raise _refused(name, _too_large(largest))
    return content


def _open_without_waiting(path: str, flags: int) -> int:
    # Opening a pipe would wait for its writer; a plain file does not mind the flag.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _part(
    content: bytes, *, name: str, attachment: Attachment, limits: AttachmentLimits
) -> TextPart | MediaPart:
    if not content:
        raise _refused(name, "is empty")
    if len(content) > limits.media:
        raise _refused(name, _too_large(limits.media))
    filename = _UNSAFE_IN_NAMES.sub("_", Path(name).name)
    mime = media_type_of(content)
    if mime is not None and _as_text(content) is None:
        data = base64.b64encode(content).decode()
        named = attachment.filename is not None or attachment.path is not None
        return MediaPart(mime=mime, data=data, filename=filename if named else None)
    text = _as_text(content)
    if text is None:
        raise _refused(name, _unknown(content))
    if len(content) > limits.text:
        raise _refused(name, f"is a text and {_too_large(limits.text)}")
    return TextPart(text=f'<attachment name="{filename}">\n{text}\n</attachment>')


def _as_text(content: bytes) -> str | None:
    """Return the content as text, if it is text in a known encoding."""
    if content.startswith(b"%PDF-"):
        return None
    encoding = next((name for mark, name in _TEXT_MARKS if content.startswith(mark)), "utf-8")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if "\x00" in text else text


def _unknown(content: bytes) -> str:
    kinds = (kind for signature, kind in _UNSUPPORTED if content.startswith(signature))
    kind = next(kinds, "neither text nor a known picture, PDF or sound")
    return f"is {kind}"


def _too_large(largest: int) -> str:
    return f"is larger than {largest / 1024 / 1024:g} MiB"


def _refused(name: str, reason: str) -> ConfigError:
    return ConfigError(ErrorCode.CONFIG_INVALID, f"attachment {name!r}: {reason}")
