"""Finds and reads the user's configuration file."""

import os
from pathlib import Path

from holdfast.config.environment import Environment
from holdfast.config.file import ConfigFile, load_config
from holdfast.config.locations import locate


def user_config(
    environment: Environment,
    *,
    cwd: Path,
    home: Path,
    platform: str,
    config_dir: str | os.PathLike[str] | None = None,
    config_path: str | os.PathLike[str] | None = None,
) -> ConfigFile:
    """Read the user's file.

    A file named by `config_path` or HOLDFAST_CONFIG_PATH must exist; the one in the folder of
    `config_dir`, HOLDFAST_CONFIG_DIR or the platform need not. Relative paths are taken from `cwd`.
    """
    # A folder that the caller gives goes before a file that the environment names.
    named = config_path or (None if config_dir else environment.get("HOLDFAST_CONFIG_PATH"))
    if named is not None:
        return load_config(cwd / Path(named).expanduser(), required=True)
    folder = Path(config_dir) if config_dir is not None else None
    places = locate(environment, home=home, platform=platform, config_dir=folder)
    return load_config(cwd / places.config_file)
