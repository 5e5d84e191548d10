"""Where configuration is looked for."""

import os
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

PathInput: TypeAlias = str | os.PathLike[str]
"""A place on the disk, as users name it."""


class ConfigurationPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """Where configuration is looked for; everything has the usual default."""

    environment: Mapping[str, str] | None = None
    config_dir: PathInput | None = None
    config_path: PathInput | None = None
    cwd: PathInput | None = None
