"""What a command must not look into: where people and programs keep credentials.

Of the names that begin with a dot in the home folder only those are shown that toolchains need;
whatever else is there may hold a token. A file beneath a shown folder that is known to hold one is
hidden by name. Root can read what others cannot, so for root that is hidden, too.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

_SHOWN = frozenset({
    ".asdf", ".bash_logout", ".bash_profile", ".bashrc", ".bun", ".cabal", ".cache", ".cargo",
    ".conda", ".condarc", ".cpan", ".deno", ".dotnet", ".editorconfig", ".elan", ".fnm", ".gem",
    ".ghcup", ".gitconfig", ".gitignore", ".gitignore_global", ".goenv", ".gradle", ".inputrc",
    ".ivy2", ".jenv", ".julia", ".local", ".m2", ".nodenv", ".npm", ".nuget", ".nvm", ".opam",
    ".pnpm-store", ".poetry", ".profile", ".pyenv", ".python-version", ".rbenv", ".rustup",
    ".sbt", ".sdkman", ".stack", ".tool-versions", ".uv", ".vimrc", ".virtualenvs", ".volta",
    ".yarn", ".zprofile", ".zshenv", ".zshrc",
})  # fmt: skip
_SHOWN_SHARED = frozenset({
    "bash-completion", "cargo", "fnm", "fonts", "gem", "icons", "man", "mise", "pipx", "pnpm",
    "rustup", "uv", "virtualenv", "virtualenvs", "zsh",
})  # fmt: skip
"""What is shown of `.local/share`, where keyrings and sessions of programs are, too."""
_SECRET = (
    ".cache/huggingface", ".cache/keyring", ".cargo/credentials", ".cargo/credentials.toml",
    ".condarc.d", ".gem/credentials", ".gradle/gradle.properties", ".local/state",
    ".m2/settings-security.xml", ".m2/settings.xml", ".nuget/NuGet", ".sbt/credentials",
    ".yarn/credentials",
)  # fmt: skip
_SECRET_IN_ROOT = (
    ".anthropic", ".aws", ".azure", ".claude", ".codex", ".config", ".docker", ".git-credentials",
    ".gnupg", ".kube", ".mozilla", ".netrc", ".npmrc", ".password-store", ".pgpass", ".pypirc",
    ".ssh", ".vault-token", *_SECRET,
)  # fmt: skip
"""What is hidden where the home folder is itself the root: there everything else is the work."""
_OF_ROOT = ("/etc", "/var/lib", "/var/log", "/var/spool")
_FOR_OTHERS = stat.S_IROTH


def secret_paths(home: Path, root: Path) -> list[str]:
    """Return what exists and must be hidden, without symbolic links."""
    found = [*_in_home(home, root)]
    if os.geteuid() == 0:
        found += [path for folder in _OF_ROOT for path in _closed_to_others(Path(folder))]
    return sorted({os.path.realpath(path) for path in found if path.exists()})


def shown_paths(home: Path) -> list[str]:
    """Return what of the home folder toolchains need."""
    return [str(home / name) for name in sorted(_SHOWN - {".cache", ".local"})] + [
        str(home / ".local" / name) for name in ("bin", "lib", *_shared_names())
    ]


def _shared_names() -> list[str]:
    return [f"share/{name}" for name in sorted(_SHOWN_SHARED)]


def _in_home(home: Path, root: Path) -> Iterator[Path]:
    if home == root or root in home.parents:
        yield from (home / name for name in _SECRET_IN_ROOT)
        return
    for path in _entries(home):
        if path.name.startswith(".") and path.name not in _SHOWN:
            yield path
    yield from (home / name for name in _SECRET)
    yield from (path for path in _entries(home / ".local/share") if path.name not in _SHOWN_SHARED)


def _closed_to_others(folder: Path) -> Iterator[Path]:
    """Yield what only root can read in a folder and in the folders in it."""
    for path in _entries(folder):
        try:
            mode = path.lstat().st_mode
        except OSError:
            continue
        if stat.S_ISLNK(mode):
            continue
        if not mode & _FOR_OTHERS:
            yield path
        elif stat.S_ISDIR(mode) and folder == Path("/etc"):
            yield from _closed_to_others(path)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
