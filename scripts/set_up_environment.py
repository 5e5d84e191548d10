"""Builds .venv from uv.lock with a pip-installed uv, all inside this clone, unless it is fresh.

It needs only a Python 3.11 with pip: no venv, no ensurepip, nothing in the home folder. The package
index that pip is configured for is handed to uv for the run and written nowhere; uv.lock's hashes
decide what may be installed from it.
"""

import ast
import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS, VENV, CACHE = ROOT / ".tools", ROOT / ".venv", ROOT / ".cache"
UV, PYTHON = TOOLS / "bin" / "uv", VENV / "bin" / "python"
UV_PIN = ROOT / "scripts" / "uv-pinned.txt"
INPUTS = (ROOT / "uv.lock", ROOT / "pyproject.toml", UV_PIN, Path(__file__).resolve())
OLDEST_PYTHON = (3, 11)
PUBLIC_INDEX = "https://pypi.org/simple"


def main() -> None:
    """Set up the environment, or with `lock` resolve uv.lock anew from the public index."""
    if sys.version_info < OLDEST_PYTHON:
        sys.exit(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}: set PYTHON=")
    if sys.argv[1:2] == ["lock"]:
        install_uv()
        # Only the public index, so that no private host can end up in the lock file.
        run([UV, "lock", "--default-index", PUBLIC_INDEX, *sys.argv[2:]], uv_environment({}))
        return
    stamp, wanted = VENV / ".set-up-for", fingerprint()
    if PYTHON.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    stamp.unlink(missing_ok=True)
    install_uv()
    install_packages()
    stamp.write_text(wanted, encoding="utf-8")


def fingerprint() -> str:
    """Name everything .venv was made from; the folder too, as a copied .venv points back at it."""
    digest = hashlib.sha256(f"{ROOT}\n{sys.executable}\n{sys.version}\n".encode())
    for path in INPUTS:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def install_uv() -> None:
    """Put the pinned uv into .tools."""
    stamp, wanted = TOOLS / ".set-up-for", hashlib.sha256(UV_PIN.read_bytes()).hexdigest()
    if UV.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    say("installing uv into .tools")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--no-deps"]
    run([*pip, "--target", TOOLS, "--require-hashes", "-r", UV_PIN], pip_environment())
    stamp.write_text(wanted, encoding="utf-8")


def install_packages() -> None:
    """Make .venv hold exactly what uv.lock names, plus this project in place."""
    say("installing the locked packages into .venv")
    environment = uv_environment(pip_settings())
    requirements = CACHE / "requirements.txt"
    CACHE.mkdir(exist_ok=True)
    run([UV, "venv", "--quiet", "--clear", "--python", sys.executable, VENV], environment)
    # By way of a requirements list, because `uv sync` would insist on the index of the lock file.
    export = ["export", "--quiet", "--frozen", "--no-emit-project", "--no-header"]
    run([UV, *export, "--python", PYTHON, "--output-file", requirements], environment)
    install = ["pip", "install", "--quiet", "--python", str(PYTHON)]
    run([UV, *install, "--require-hashes", "-r", requirements], environment)
    run([UV, *install, "--no-deps", "--no-build-isolation", "--editable", ROOT], environment)


def pip_environment() -> dict[str, str]:
    """Keep pip's cache in the clone, and user-wide pip switches from fighting with --target."""
    return {
        **os.environ,
        "PIP_CACHE_DIR": str(CACHE / "pip"),
        "PIP_BREAK_SYSTEM_PACKAGES": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_REQUIRE_VIRTUALENV": "0",
        "PIP_ROOT_USER_ACTION": "ignore",
        "PIP_USER": "0",
        # pip asks rustc for its version, and a rustup rustc writes to the home folder at that.
        "RUSTUP_HOME": str(CACHE / "rustup"),
    }


def pip_settings() -> dict[str, str]:
    """Read what pip is configured with: its files first, then the environment, which wins."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listing.stdout.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if section in found:
            found[section][key] = str(ast.literal_eval(value))
    return found["global"] | found["install"] | found[":env:"]


def uv_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Translate pip's settings for uv; what the caller has set for uv already stays."""
    translated = {
        "UV_CACHE_DIR": str(CACHE / "uv"),
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_SYSTEM_CERTS": "1",
        "UV_HTTP_TIMEOUT": "120",
        "UV_DEFAULT_INDEX": settings.get("index-url", ""),
        "UV_INDEX": " ".join(settings.get("extra-index-url", "").split()),
        # What pip does; harmless here, since a package must have one of the locked hashes.
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": ",".join(filter(is_there, settings.get("find-links", "").split())),
        "UV_NO_INDEX": "1" if settings.get("no-index") in {"1", "true", "yes", "on"} else "",
        "UV_INSECURE_HOST": " ".join(settings.get("trusted-host", "").split()),
        "SSL_CERT_FILE": settings.get("cert", ""),
        "ALL_PROXY": settings.get("proxy", ""),
    }
    return {name: value for name, value in translated.items() if value} | dict(os.environ)


def is_there(place: str) -> bool:
    """Tell a place that can be looked at from a local folder that is gone."""
    return "://" in place or Path(place).exists()


def run(command: Sequence[str | Path], environment: Mapping[str, str]) -> None:
    """Run one command in the clone; end with its exit code if it fails."""
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    if code:
        sys.exit(f"set-up failed: {Path(command[0]).name} ended with {code}")


def say(text: str) -> None:
    """Tell the person who waits what is going on."""
    print(f"haptera: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
