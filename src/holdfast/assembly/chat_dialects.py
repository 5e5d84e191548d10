"""Which dialect of Chat Completions a table of the configuration file asks for."""

import difflib

import msgspec

from holdfast.config.connections import Connection
from holdfast.providers.wire.chat_completions.dialects import DIALECTS, Dialect
from holdfast.vocabulary.errors import ConfigError, ErrorCode


def spoken_dialect(connection: Connection, usual: Dialect) -> Dialect:
    """Return the dialect of a connection: the one it names, or `usual` with single differences.

    Raises:
        ConfigError: CONFIG_INVALID for a dialect, a field or a value that there is not.

    """
    wanted = connection.dialect
    if wanted is None:
        return usual
    if isinstance(wanted, str):
        known = DIALECTS.get(wanted)
        if known is None:
            raise _invalid(connection, _unknown(wanted, list(DIALECTS)))
        return known
    fields = [name for name in Dialect.__struct_fields__ if name != "name"]
    for name in wanted:
        if name not in fields:
            raise _invalid(connection, _unknown(name, fields))
    try:
        return msgspec.convert(msgspec.to_builtins(usual) | wanted, Dialect)
    except msgspec.ValidationError as error:
        raise _invalid(connection, str(error)) from None


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"{name!r} is unknown{f'; did you mean {near[0]!r}?' if near else ''}"


def _invalid(connection: Connection, reason: str) -> ConfigError:
    return ConfigError(
        ErrorCode.CONFIG_INVALID,
        f"[providers.{connection.provider}]: dialect: {reason}",
        provider=connection.provider,
    )
