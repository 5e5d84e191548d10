"""Commands as stores keep them: read when they can be, reported when they are damaged."""

import msgspec

from holdfast.vocabulary.commands import Command

_decoder = msgspec.json.Decoder(Command)


def decoded_command(body: bytes) -> Command | None:
    """Read a command; None for a damaged one, and for one of a newer version.

    The latter waits for a holder that knows it.
    """
    try:
        command: Command = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return command


def damage_to_command(body: bytes) -> str | None:
    """Return what is wrong with a command that no version can read; None for any other."""
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"a command cannot be read: {error}"
    return None
