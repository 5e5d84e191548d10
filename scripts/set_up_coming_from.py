"""Builds .cache/coming-from: the packages of docs/coming-from, from uv.lock, and this project.

    python -m scripts.set_up_coming_from

An environment of its own, because these packages and our tools do not agree on versions.
"""

import hashlib
import sys

from scripts.set_up_environment import (
    CACHE,
    ROOT,
    UV,
    fingerprint,
    install_uv,
    pip_settings,
    run,
    say,
    uv_environment,
)

PLACE = CACHE / "coming-from"


def main() -> None:
    """Install the packages, unless they are there."""
    stamp = PLACE / ".set-up-for"
    wanted = hashlib.sha256(f"{PLACE}\n{fingerprint()}".encode()).hexdigest()
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    say("installing the packages of docs/coming-from into .cache")
    install_uv()
    environment, python = uv_environment(pip_settings()), PLACE / "bin" / "python"
    requirements = CACHE / "coming-from.txt"
    CACHE.mkdir(exist_ok=True)
    run([UV, "venv", "--quiet", "--clear", "--python", sys.executable, PLACE], environment)
    export = ["export", "--quiet", "--frozen", "--no-emit-project", "--no-header", "--no-dev"]
    wanted_group = ["--group", "coming-from", "--output-file", str(requirements)]
    run([UV, *export, *wanted_group], environment)
    install = ["pip", "install", "--quiet", "--python", str(python)]
    run([UV, *install, "--require-hashes", "-r", requirements], environment)
    # What hatchling would write, without hatchling.
    site = next((PLACE / "lib").glob("python*/site-packages"))
    (site / "haptera.pth").write_text(f"{ROOT / 'src'}\n", encoding="utf-8")
    stamp.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()
