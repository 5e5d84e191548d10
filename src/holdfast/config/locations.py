"""Where files are on this machine: the user's folders, and the configuration file in one."""

import os
from pathlib import Path

import msgspec

from holdfast.config.environment import Environment
from holdfast.config.file import ConfigFile, load_config

APPLICATION = "holdfast"
CONFIG_FILE = "config.toml"


class Locations(msgspec.Struct, frozen=True, kw_only=True):
    """The user's folders; none of them need exist."""

    config: Path
    data: Path
    """What must be kept: sessions."""
    state: Path
    """What may be lost without harm: logs, history of a prompt."""
    cache: Path
    """What can be had again: models, downloads."""

    @property
    def config_file(self) -> Path:
        """The user's configuration file."""
        return self.config / CONFIG_FILE


def locate(
    environment: Environment, *, home: Path, platform: str, config_dir: Path | None = None
) -> Locations:
    """Return the folders: those asked for, else those the platform's custom names.

    `config_dir` goes before HOLDFAST_CONFIG_DIR; HOLDFAST_HOME puts everything under one roof.
    `platform` is `sys.platform`.
    """
    single = environment.get("HOLDFAST_HOME")
    if single is not None:
        found = _under(Path(single).expanduser())
    elif platform == "win32":
        found = _windows(environment, home)
    else:
        found = _unix(environment, home, platform=platform)
    chosen = config_dir or environment.get("HOLDFAST_CONFIG_DIR")
    if chosen is None:
        return found
    return msgspec.structs.replace(found, config=Path(chosen).expanduser())


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
    folders = locate(environment, home=home, platform=platform, config_dir=folder)
    return load_config(cwd / folders.config_file)


def _under(roof: Path) -> Locations:
    return Locations(config=roof, data=roof / "data", state=roof / "state", cache=roof / "cache")


def _unix(environment: Environment, home: Path, *, platform: str) -> Locations:
    library = home / "Library"
    support = library / "Application Support"
    usual = {
        "CONFIG": support if platform == "darwin" else home / ".config",
        "DATA": support if platform == "darwin" else home / ".local" / "share",
        "STATE": support if platform == "darwin" else home / ".local" / "state",
        "CACHE": library / "Caches" if platform == "darwin" else home / ".cache",
    }
    folders = {
        kind.lower(): _absolute(environment.get(f"XDG_{kind}_HOME"), default) / APPLICATION
        for kind, default in usual.items()
    }
    return Locations(**folders)


def _windows(environment: Environment, home: Path) -> Locations:
    roaming = _absolute(environment.get("APPDATA"), home / "AppData" / "Roaming") / APPLICATION
    local = _absolute(environment.get("LOCALAPPDATA"), home / "AppData" / "Local") / APPLICATION
    return Locations(
        config=roaming, data=local / "data", state=local / "state", cache=local / "cache"
    )


def _absolute(value: str | None, default: Path) -> Path:
    """Take a folder from a variable; a relative one would mean another folder in each place."""
    return Path(value) if value is not None and Path(value).is_absolute() else default
