"""The configuration file of a project: it counts only after its content was trusted.

The author of the workspace wrote this file. So it says nothing before a person trusted exactly this
content, and even then it cannot name providers, endpoints, keys, hooks, tools, programs, or where
sessions are kept.
"""

import os
import stat
from pathlib import Path

import msgspec

from haptera.access.config.file import LARGEST_CONFIG_FILE, ConfigFile, parse_config
from haptera.access.config.kept_decisions import KeptDecisions
from haptera.model.agent_defaults import AgentDefaults
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.late_names import late_module
from haptera.system.logs import scrubbed_logger

PROJECT_FILE = Path(".haptera", "config.toml")
_OF_PROJECTS = frozenset({"permissions"})
"""What a project may say beside settings."""
_logger = scrubbed_logger(__name__)


class ProjectFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file as it is in the folder now."""

    path: Path
    content: bytes
    is_trusted: bool = False

    @property
    def digest(self) -> str:
        """The SHA-256 of the content, by which it is trusted."""
        # It brings OpenSSL's digests, which most agents do not need.
        return str(late_module("hashlib").sha256(self.content).hexdigest())

    def as_trusted(self) -> "ProjectFile":
        """Return the file as if it were trusted."""
        return msgspec.structs.replace(self, is_trusted=True)

    def config(self) -> ConfigFile:
        """Return what a trusted file says; one that is not trusted says nothing.

        Raises:
            ConfigError: CONFIG_INVALID when it is trusted and wrong, or says what it may not.

        """
        if not self.is_trusted:
            return ConfigFile()
        try:
            config = parse_config(self.content.decode("utf-8-sig"), path=self.path)
        except UnicodeDecodeError:
            message = f"{self.path} is not UTF-8 text"
            raise ConfigError(ErrorCode.CONFIG_INVALID, message) from None
        for section in ("providers", "models", "fallbacks", "prices", "runtime", "mcp_servers"):
            if getattr(config, section):
                table = "mcpServers" if section == "mcp_servers" else section
                raise config.error((table,), "cannot be set by the file of a project")
        for name in config.defaults:
            if name in AgentDefaults.__struct_fields__ and name not in _OF_PROJECTS:
                raise config.error(("defaults", name), "cannot be set by the file of a project")
        return config


def find_project_file(folder: Path, decisions: KeptDecisions) -> ProjectFile | None:
    """Read the file of the project in a folder, if there is one, and whether it is trusted.

    What is no regular file, too large or not readable counts as no file.
    """
    path = folder / PROJECT_FILE
    try:
        # Without O_NONBLOCK a named pipe under this name would be waited for.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(LARGEST_CONFIG_FILE + 1)
    if len(content) > LARGEST_CONFIG_FILE:
        _logger.warning("%s is larger than %d bytes and is not used", path, LARGEST_CONFIG_FILE)
        return None
    project = ProjectFile(path=path, content=content)
    return project.as_trusted() if decisions.trusted_digest(folder) == project.digest else project
