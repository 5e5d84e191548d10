"""Media of a message in the forms that several protocols share: a data URL, plain text."""

import base64
import binascii

from holdfast.vocabulary.parts import MediaPart


def data_url(part: MediaPart) -> str:
    """Return a URL that holds the content itself."""
    return f"data:{part.mime};base64,{part.data or ''}"


def media_text(part: MediaPart) -> str:
    """Return the text of a medium that is text; what is not encoded is taken as it is."""
    data = part.data or ""
    try:
        return base64.b64decode(data, validate=True).decode("utf-8", "replace")
    except binascii.Error:
        return data
