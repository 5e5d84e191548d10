"""Accepted media: what a protocol takes of them, and what becomes of the rest.

What the user has just handed in is refused, because an answer that passes over it helps nobody.
What is older was said to another model, and is replaced by a line that says what was there.
"""

from collections.abc import Iterable

from holdfast.providers.wire.media import media_text
from holdfast.providers.wire.protocol import HistoryRules
from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.parts import MediaPart, TextPart


def refuse_unaccepted(
    media: Iterable[MediaPart], *, rules: HistoryRules, provider: str, model: str
) -> None:
    """Refuse the first medium that would not reach the model.

    Raises:
        ConfigError: CONFIG_INVALID naming the attachment, and what the model takes.

    """
    for part in media:
        fault = _fault(part, accepted=rules.media, linked=rules.linked_media)
        if fault is not None and not _is_text(part):
            name = part.filename or part.url or "an attachment"
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                f"attachment {name!r}: {provider}/{model} {fault}",
                provider=provider,
            )


def shown(
    part: MediaPart, accepted: tuple[str, ...], linked: tuple[str, ...]
) -> MediaPart | TextPart:
    """Return a medium, its text if it is one, or a line that says what was there."""
    if _fault(part, accepted=accepted, linked=linked) is None:
        return part
    name = part.url or part.filename
    if _is_text(part):
        return TextPart(text=f"{name}:\n{media_text(part)}" if name else media_text(part))
    return TextPart(
        text=f"[{part.mime}{f' {name}' if name else ''}: not shown, this model cannot read it]"
    )


def _fault(part: MediaPart, *, accepted: tuple[str, ...], linked: tuple[str, ...]) -> str | None:
    """Say why a medium cannot be sent; None if it can."""
    if not part.mime.startswith(accepted):
        return f"does not take {part.mime}; it takes {_in_words(accepted)}"
    if part.data is not None:
        return None
    if part.url is None:
        return f"cannot be sent {part.mime} without content"
    if not part.mime.startswith(linked):
        return f"does not take {part.mime} by its address; attach the content"
    return None


def _is_text(part: MediaPart) -> bool:
    """Whether everybody can be sent the content, in words."""
    return part.mime.startswith("text/") and part.data is not None


def _in_words(accepted: tuple[str, ...]) -> str:
    """Return what is accepted; a prefix stands for all that begin with it."""
    names = [f"{each}*" if each.endswith("/") else each for each in accepted if each != "text/"]
    return ", ".join(["text", *names])
