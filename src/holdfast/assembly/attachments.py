"""Attachments: what a user sends along, read and checked in a thread, as parts of a prompt."""

import asyncio
from collections.abc import Sequence
from typing import TypeAlias

from holdfast.assembly.configuration_places import PathInput
from holdfast.vocabulary.parts import MediaPart, TextPart

AttachmentInput: TypeAlias = MediaPart | PathInput | bytes
"""A part as it is; a file; a path, or an address that begins like one; or content."""


async def read_attachments(
    sources: Sequence[AttachmentInput], *, cwd: PathInput
) -> tuple[TextPart | MediaPart, ...]:
    """Read attachments; relative paths are taken from `cwd`.

    Raises:
        ConfigError: CONFIG_INVALID naming one that is missing, too large or of no known type.

    """
    from holdfast.providers.attachments import attachment_part  # noqa: PLC0415 - only if used

    return tuple(
        [
            source
            if isinstance(source, MediaPart)
            else await asyncio.to_thread(attachment_part, source, cwd=cwd)
            for source in sources
        ]
    )
