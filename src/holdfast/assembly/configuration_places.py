"""Where configuration is looked for."""

from collections.abc import Mapping
from pathlib import Path

import msgspec


class ConfigurationPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """Where configuration is looked for; everything has the usual default."""

    environment: Mapping[str, str] | None = None
    config_dir: str | Path | None = None
    config_path: str | Path | None = None
    cwd: str | Path | None = None
