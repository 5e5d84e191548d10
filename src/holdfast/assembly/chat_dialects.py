"""Which dialect of Chat Completions a table of the configuration file asks for."""

import msgspec

from holdfast.config.checking import unknown_name
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
        return DIALECTS[wanted]
    fields = [name for name in Dialect.__struct_fields__ if name != "name"]
    for name in wanted:
        if name not in fields:
            raise _invalid(connection, f"{name!r} is {unknown_name(name, dict.fromkeys(fields))}")
    try:
        return msgspec.convert(msgspec.to_builtins(usual) | wanted, Dialect)
    except msgspec.ValidationError as error:
        raise _invalid(connection, str(error)) from None


def _invalid(connection: Connection, reason: str) -> ConfigError:
    return ConfigError(
        ErrorCode.CONFIG_INVALID,
        f"[providers.{connection.provider}]: dialect: {reason}",
        provider=connection.provider,
    )
