"""What tools must not look into in a home folder: where people and programs keep credentials.

Of the names that begin with a dot in the home folder only those are shown that toolchains need;
whatever else is there may hold a token, and shell profiles often do. A file beneath a shown folder
that is known to hold one is hidden by its path. Everywhere else in a home folder, keys, credentials
and tokens are found by their names, by a walk that is bounded.
"""

import os
import pwd
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from haptera.system.logs import scrubbed_logger
from haptera.system.own_places import UserFolders
from haptera.tools.sandbox.plan import is_beneath

_SHOWN = frozenset({
    ".asdf", ".bun", ".cabal", ".cache", ".cargo", ".conda", ".cpan", ".deno", ".dotnet",
    ".editorconfig", ".elan", ".fnm", ".gem", ".ghcup", ".gitignore", ".gitignore_global",
    ".goenv", ".gradle", ".inputrc", ".ivy2", ".jenv", ".julia", ".local", ".m2", ".nodenv",
    ".npm", ".nuget", ".nvm", ".opam", ".pnpm-store", ".poetry", ".pyenv", ".python-version",
    ".rbenv", ".rustup", ".sbt", ".sdkman", ".stack", ".tool-versions", ".uv", ".vimrc",
    ".virtualenvs", ".volta", ".yarn",
})  # fmt: skip
_SHOWN_SHARED = frozenset({
    "bash-completion", "cargo", "fnm", "fonts", "gem", "icons", "man", "mise", "pipx", "pnpm",
    "rustup", "uv", "virtualenv", "virtualenvs", "zsh",
})  # fmt: skip
"""What is shown of `.local/share`, where keyrings and sessions of programs are, too."""
_SECRET = (
    ".cargo/config", ".cargo/config.toml", ".cargo/credentials", ".cargo/credentials.toml",
    ".gem/credentials", ".gradle/gradle.properties", ".gradle/init.d", ".gradle/init.gradle",
    ".ivy2/.credentials", ".julia/config", ".m2/settings-security.xml", ".m2/settings.xml",
    ".nuget/NuGet", ".sbt/.credentials", ".sbt/credentials", ".stack/upload", ".yarn/credentials",
)  # fmt: skip
_SECRET_IN_CACHE = ("gh", "huggingface", "keyring")
_SECRET_IN_ROOT = (
    ".1password", ".aliyun", ".anthropic", ".aws", ".azure", ".bash_aliases", ".bash_history",
    ".bash_login", ".bash_logout", ".bash_profile", ".bashrc", ".boto", ".claude", ".claude.json",
    ".codex", ".condarc", ".condarc.d", ".config", ".cshrc", ".curlrc", ".databrickscfg",
    ".docker", ".dockercfg", ".fly", ".gemini", ".git-credentials", ".gitconfig", ".gnupg",
    ".heroku", ".hgrc", ".kaggle", ".kde", ".kshrc", ".kube", ".lesshst", ".login", ".minikube",
    ".mozilla", ".my.cnf", ".mylogin.cnf", ".mysql_history", ".netlify", ".netrc",
    ".node_repl_history", ".npmrc", ".oci", ".op", ".password-store", ".pgpass", ".pki",
    ".profile", ".psql_history", ".pypirc", ".python_history", ".rediscli_auth", ".s3cfg",
    ".selected_editor", ".snowsql", ".sqlite_history", ".ssh", ".subversion", ".tcshrc",
    ".terraform.d", ".terraformrc", ".thunderbird", ".tsh", ".vagrant.d", ".vault-token",
    ".viminfo", ".wget-hsts", ".wgetrc", ".xprofile", ".xsession", ".xsessionrc", ".yarnrc.yml",
    ".zlogin", ".zlogout", ".zprofile", ".zsh_history", ".zshenv", ".zshrc",
)  # fmt: skip
"""What is hidden where the home folder is in the root: there everything else is the work."""
_EXTENSION = r"(?:\.(?:bak|cfg|conf|csv|db|enc|env|ini|json|old|properties|toml|txt|xml|ya?ml))"
_TOKENS = (
    r"(?:access|api|auth|bearer|bot|gh|github|gitlab|hf|npm|oauth|personal|pypi|refresh|secret|"
    r"session|slack|vault)"
)
SECRET_NAMES = (
    rf"(?:.*[._-])?id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?(?:[._-].*)?(?<!\.pub)"
    rf"|[._]?netrc(?:\.gpg)?"
    rf"|(?:.*[._-])?credentials?{_EXTENSION}*"
    rf"|\.?(?:{_TOKENS}[._-]?)*tokens?{_EXTENSION}*"
    rf"|(?:.*[._-])?secrets?{_EXTENSION}+"
    rf"|auth\.(?:json|toml)"
    rf"|.*\.(?:agekey|jks|kdbx?|key|keystore|p12|pfx|pkcs8|ppk)"
    rf"|(?:.*[._-])?(?:(?:api|priv|private|secret)[._-]?)?keys?\.(?:asc|csv|json|pem|toml|txt|ya?ml)"
    rf"|(?:.*[._-])?service[._-]?account(?:[._-].*)?\.json"
    rf"|\.(?:boto|dockercfg|git-credentials|htpasswd|my\.cnf|npmrc|pgpass|pypirc|s3cfg)"
    rf"|\.(?:aws|azure|docker|gnupg|kube|password-store|ssh|vault-token)|keyrings"
)
"""Names of keys, credentials and tokens; what is public, or source code, does not fit."""
_NOT_WALKED = frozenset({
    ".git", ".hg", ".svn", ".tox", ".venv", "__pycache__", "_cacache", "dist-packages",
    "node_modules", "registry", "repository", "site-packages", "toolchains", "venv", "versions",
})  # fmt: skip
"""Folders of what was installed or recorded. They hold many files, and names that only look so."""
_MOST_ENTRIES = 10_000
_MOST_SECONDS = 1.0
_logger = scrubbed_logger(__name__)


def home_folder() -> str:
    """Return the user's home folder, whatever the environment says."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/"


class Home(NamedTuple):
    """A home folder and the folders of its programs: real paths, which need not exist."""

    path: str
    config: str
    data: str
    state: str
    cache: str

    @classmethod
    def of(cls, user: UserFolders) -> "Home":
        """Resolve the folders. What a variable may not name is taken for not set, as it is."""
        home = os.path.realpath(user.home)
        usual = {"config": ".config", "data": ".local/share", "state": ".local/state"}
        usual["cache"] = ".cache"
        folders = {}
        for kind, default in usual.items():
            named = getattr(user, kind) or ""
            path = os.path.realpath(named if named.startswith("/") else f"{home}/{default}")
            # Who keeps configuration in the home folder itself does not mean to hide all of it.
            folders[kind] = f"{home}/{default}" if is_beneath(home, path) else path
        return cls(path=home, **folders)


def known_secrets(home: Home, root: str) -> list[str]:
    """Return what is secret by its path alone; it need not exist, and may be a link."""
    paths = [f"{home.path}/{name}" for name in (*_SECRET, *_SECRET_IN_ROOT)]
    paths += [f"{home.cache}/{name}" for name in _SECRET_IN_CACHE]
    paths += [home.config, home.state]
    if home.data != root:
        paths += [f"{home.data}/{name}" for name in _names(home.data) if name not in _SHOWN_SHARED]
    if not is_beneath(home.path, root):
        paths += [
            f"{home.path}/{name}"
            for name in _names(home.path)
            if name.startswith(".") and name not in _SHOWN
        ]
    return paths


def shown_paths(home: Home) -> list[str]:
    """Return what of the home folder toolchains need."""
    names = (*sorted(_SHOWN - {".cache", ".local"}), ".local/bin", ".local/lib")
    return [f"{home.path}/{name}" for name in names] + [
        f"{home.data}/{name}" for name in sorted(_SHOWN_SHARED)
    ]


def found_by_name(
    homes: Iterable[Home], *, closed: Iterable[str], left: Iterable[str]
) -> list[str]:
    """Return what is secret by its name; looks near the top first, no deeper than the bounds allow.

    What is `closed` is hidden as a whole, and what is `left` is the work: neither is looked into.
    """
    # Of a machine whose user lives in `/` every folder would be looked at.
    tops = [top for home in homes for top in (home.path, home.data, home.cache) if top != "/"]
    skipped = {*closed, *left}
    waiting = deque(dict.fromkeys(top for top in tops if top not in skipped))
    seen, secrets, number = {*waiting}, list[str](), 0
    fits = re.compile(SECRET_NAMES, re.IGNORECASE | re.DOTALL).fullmatch
    end = time.perf_counter() + _MOST_SECONDS
    while waiting:
        folder = waiting.popleft()
        for entry in _entries(folder):
            number += 1
            if entry.path in skipped or entry.path in seen or entry.is_symlink():
                continue
            if fits(entry.name):
                secrets.append(entry.path)
            elif entry.name not in _NOT_WALKED and entry.is_dir(follow_symlinks=False):
                seen.add(entry.path)
                waiting.append(entry.path)
        if number >= _MOST_ENTRIES or time.perf_counter() >= end:
            break
    if waiting:
        _warn_once(", ".join(tops))
    return secrets


@cache
def _warn_once(where: str) -> None:
    _logger.warning(
        "the search for keys and tokens in %s ended at its bounds (%d files and folders, %g s); "
        "commands can read what is deeper. Sandbox(hidden=...) hides more",
        where,
        _MOST_ENTRIES,
        _MOST_SECONDS,
    )


def _entries(folder: str) -> Iterator["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        return


def _names(folder: str) -> list[str]:
    return [entry.name for entry in _entries(folder)]
