"""Attachments: what a user sends along, read and checked in a thread, as parts of a prompt."""

import asyncio
import os
from collections.abc import Sequence

from holdfast.assembly.components import AttachmentInput, PathInput
from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.parts import MediaPart, TextPart, check_content


async def read_attachments(
    sources: Sequence[AttachmentInput], *, cwd: PathInput
) -> tuple[TextPart | MediaPart, ...]:
    """Read attachments; relative paths are taken from `cwd`.

    Raises:
        ConfigError: CONFIG_INVALID naming one that is missing, too large or of no known type.

    """
    from holdfast.providers.attachments import attachment_part  # noqa: PLC0415 - only if used

    for source in sources:
        if not isinstance(source, str | bytes | os.PathLike | MediaPart):
            kind = type(source).__name__
            raise _wrong(f"{kind!r} is neither a path, a URL, bytes nor a part")
    return tuple(
        [
            _checked(source)
            if isinstance(source, MediaPart)
            else await asyncio.to_thread(attachment_part, source, cwd=cwd)
            for source in sources
        ]
    )


def _wrong(reason: str) -> ConfigError:
    return ConfigError(ErrorCode.CONFIG_INVALID, f"attachments: {reason}")


def _checked(part: MediaPart) -> MediaPart:
    try:
        return check_content(part)
    except ValueError as error:
        raise _wrong(str(error)) from error
