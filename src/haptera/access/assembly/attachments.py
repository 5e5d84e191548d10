"""Attachments: reads the files, URLs and bytes that a user sends along with a prompt.

The size of a file is checked before it is read. An http URL is passed on to the provider and never
fetched. Reading a file blocks: call `attachment_part` in a thread.
"""

import base64
import binascii
import os
import re
import stat
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

from haptera.access.assembly.agent_inputs import PathInput
from haptera.model.parts import MediaPart, TextPart
from haptera.providers.media_content import (
    DEFAULT_LIMITS,
    ContentLimits,
    content_part,
    media_type_of_name,
    refused_attachment,
    too_large_attachment,
)

_URL = re.compile(r"(?i)(https?://|data:)")
_DATA_SCHEME = re.compile(r"(?i)data:")
_DATA_URL = re.compile(
    r"(?i:data):(?P<mime>[^;,]*+)(?P<parameters>;[^,]*+)?+,(?P<data>.*)", re.DOTALL
)


def attachment_part(
    source: PathInput | bytes, *, cwd: PathInput, limits: ContentLimits = DEFAULT_LIMITS
) -> TextPart | MediaPart:
    """Return the part for an attachment: content, a URL, or a path, which may be relative to `cwd`.

    Raises:
        ConfigError: CONFIG_INVALID naming the attachment if it is missing, too large or of no known
            type.

    """
    if isinstance(source, bytes):
        return content_part(source, limits=limits)
    if isinstance(source, str) and _URL.match(source):
        if not _DATA_SCHEME.match(source):
            return _linked(source)
        return content_part(_inline(source, limits), limits=limits)
    name = str(Path(source))
    content = _read_file(Path(cwd) / Path(source).expanduser(), name, largest=limits.media)
    return content_part(content, name=name, limits=limits)


def _linked(url: str) -> MediaPart:
    try:
        parts = urlsplit(url)
    except ValueError:
        # `urlsplit` refuses some hosts, such as an open bracket.
        raise refused_attachment(url, "is not a URL") from None
    if parts.scheme.lower() not in {"http", "https"} or not parts.hostname:
        raise refused_attachment(url, "only http, https and data addresses can be attached")
    # The provider, which fetches it, would get the password.
    if parts.username is not None:
        raise refused_attachment(parts.hostname, "the address holds a user or password")
    mime = media_type_of_name(parts.path)
    if mime is None:
        # A user says it with MediaPart(mime=..., url=...).
        raise refused_attachment(url, "the address does not show what it is: say mime=")
    return MediaPart(mime=mime, url=url, filename=Path(parts.path).name)


def _inline(url: str, limits: ContentLimits) -> bytes:
    name = "the data address"
    match = _DATA_URL.fullmatch(url)
    if match is None:
        raise refused_attachment(name, "is not a data address")
    text = match["data"]
    # A byte takes at most three characters, so this bounds the content before it is decoded.
    if len(text) > limits.media * 3:
        raise too_large_attachment(name, limits.media)
    try:
        encoded = unquote_to_bytes(text)
        is_base64 = (match["parameters"] or "").endswith(";base64")
        return base64.b64decode(encoded, validate=True) if is_base64 else encoded
    except binascii.Error:
        raise refused_attachment(name, "its base64 is broken") from None


def _read_file(path: Path, name: str, *, largest: int) -> bytes:
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise refused_attachment(name, "is not a plain file")
            if facts.st_size > largest:
                raise too_large_attachment(name, largest)
            # One more than allowed: the file may have grown since its size was read.
            content = file.read(largest + 1)
    except OSError as error:
        reason = error.strerror or "no such file"
        raise refused_attachment(name, f"cannot be read: {reason}") from error
    # A null character in a path.
    except ValueError:
        raise refused_attachment(name, "is not a path") from None
    if len(content) > largest:
        raise too_large_attachment(name, largest)
    return content


def _open_without_waiting(path: str, flags: int) -> int:
    # Opening a pipe would wait for its writer; the flag makes no difference for a plain file.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
