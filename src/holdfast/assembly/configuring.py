"""Configuring: reads configuration when an agent is made, not when the package is imported."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.vocabulary.json_types import JsonObject

if TYPE_CHECKING:
    from holdfast.assembly.configuration import Configuration


class ConfigurationPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """Where configuration is looked for; everything has the usual default."""

    environment: Mapping[str, str] | None = None
    config_dir: str | Path | None = None
    config_path: str | Path | None = None
    cwd: str | Path | None = None


def configure(arguments: JsonObject, places: ConfigurationPlaces) -> "Configuration":
    """Return what arguments, environment and the user's file come to."""
    from holdfast.assembly.configuration import Configuration  # noqa: PLC0415 - see above

    return Configuration(arguments, places)
