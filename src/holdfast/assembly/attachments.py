"""Attachments: what a user sends along, read and checked in a thread, as parts of a prompt."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.parts import MediaPart, TextPart

AttachmentInput: TypeAlias = MediaPart | Path | str | bytes
"""A part as it is; a file; a path, or an address that begins like one; or content."""


async def read_attachments(
    sources: Sequence[AttachmentInput], *, cwd: Path
) -> tuple[TextPart | MediaPart, ...]:
    """Read attachments; relative paths are taken from `cwd`.

    Raises:
        ConfigError: CONFIG_INVALID naming one that is missing, too large or of no known type.

    """
    from holdfast.providers.attachments import attachment_part  # noqa: PLC0415 - only if used

    if isinstance(sources, str | bytes | Path | MediaPart):
        raise _wrong("a list is wanted, also for one")
    for source in sources:
        if not isinstance(source, str | bytes | Path | MediaPart):
            raise _wrong(
                f"{type(source).__name__!r} is neither a path, an address, bytes nor a part"
            )
    return tuple(
        [
            source
            if isinstance(source, MediaPart)
            else await asyncio.to_thread(attachment_part, source, cwd=cwd)
            for source in sources
        ]
    )


def _wrong(reason: str) -> ConfigError:
    return ConfigError(ErrorCode.CONFIG_INVALID, f"attachments: {reason}")
