"""The policy of the sandbox: what a command may do, as settings, and the plan that follows."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from haptera.model.own_name import FORMER_NAME
from haptera.system.own_places import UserFolders, own_places
from haptera.tools.sandbox.home_secrets import Home, shown_paths
from haptera.tools.sandbox.plan import LASTING_TEMPORARY, LAYERS, TEMPORARY, Plan, is_beneath
from haptera.tools.sandbox.private_paths import (
    hidden_paths,
    hold_names_of_databases,
    known_users,
    user_of,
)

_SYSTEM = (
    "/bin", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/opt", "/proc", "/sbin", "/sys", "/usr",
)  # fmt: skip
_GIB = 1 << 30
_LIMITS: Mapping[str, int] = {
    "RLIMIT_CORE": 0,
    "RLIMIT_DATA": 4 * _GIB,
    "RLIMIT_FSIZE": 4 * _GIB,
    "RLIMIT_NOFILE": 4096,
    "RLIMIT_NPROC": 2048,
}


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """How shell commands are confined.

    A command reads the system, and writes beneath the root and in a temporary folder. It does not
    see the home's secrets, has no network but a loopback of its own, and gets no new privileges.
    """

    network: bool = False
    """Whether it reaches the network."""
    protected: tuple[str, ...] = (".git", ".haptera", f".{FORMER_NAME}")
    """Names in the root that it can read and not write, whether they exist or not."""
    writable: tuple[str, ...] = ()
    """More folders that it may write."""
    hidden: tuple[str, ...] = ()
    """More paths that it cannot look into."""
    readable: tuple[str, ...] = ()
    """More that it may read where there are no namespaces, and so only what is named can be."""
    home: str | None = None
    """The home folder whose secrets are hidden; by default those of the user and of `$HOME`."""
    limits: dict[str, int] = {}
    """Resource limits by their RLIMIT_ names, in the place of the defaults."""
    layers: tuple[str, ...] = LAYERS
    """Which layers may be used: namespaces, landlock, seccomp."""


class SandboxError(Exception):
    """A command cannot be confined, so it is not run."""


def can_confine(layers: tuple[str, ...]) -> bool:
    """Whether these layers keep a command from reading and writing what is outside."""
    return "namespaces" in layers or {"landlock", "seccomp"} <= set(layers)


def is_enough(layers: tuple[str, ...]) -> bool:
    """Whether these layers hold well enough for a command to run without an approval."""
    return {"namespaces", "seccomp"} <= set(layers)


class ConfinedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run, and where."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    root: str
    root_identity: tuple[int, int]
    folder: str = "."
    temporary: str


def make_plan(
    command: ConfinedCommand, sandbox: Sandbox, *, layers: tuple[str, ...], protected: list[str]
) -> Plan:
    """Return what the launcher is told; looks at the home folder and at `/etc`.

    Raises:
        SandboxError: something is to be hidden that these layers cannot hide.

    """
    users = _users(command, sandbox)
    writable = [os.path.realpath(path) for path in sandbox.writable]
    paths = [os.path.realpath(path) for path in sandbox.readable]
    hidden: list[str] = []
    if layers:
        hold_names_of_databases([command.root, *writable])
        hidden = hidden_paths(users, root=command.root, opened=[*writable, *paths])
        hidden += [os.path.realpath(path) for path in sandbox.hidden]
    has_view = "namespaces" in layers
    readable = [] if has_view or not layers else [*_readable(users, hidden), *paths]
    if layers and not has_view:
        _check_hidden(hidden, [*readable, command.root, *writable])
    limits = {**_LIMITS, **sandbox.limits} if layers else dict(sandbox.limits)
    if not has_view and "RLIMIT_NPROC" not in sandbox.limits:
        limits.pop("RLIMIT_NPROC", None)  # it would count what the user runs elsewhere, too
    return Plan(
        argv=list(command.argv),
        environment=dict(command.environment),
        root=command.root,
        root_identity=list(command.root_identity),
        folder=command.folder,
        temporary=command.temporary,
        writable=writable,
        protected=protected,
        hidden=hidden if has_view else [],
        exposed=_exposed(sandbox) if has_view else [],
        readable=readable,
        network=sandbox.network,
        layers=list(layers),
        limits=limits,
    )


def _users(command: ConfinedCommand, sandbox: Sandbox) -> tuple[UserFolders, ...]:
    if sandbox.home is not None:
        return (UserFolders(home=sandbox.home),)
    return known_users(own_places(), *user_of(command.environment))


def _exposed(sandbox: Sandbox) -> list[str]:
    """Return what is to be read although the view covers the folder that it is in.

    What names are looked up by may be among the hidden sockets, and what the user lets commands
    read may be in a temporary folder, for which a command gets one of its own.
    """
    names = os.path.realpath("/etc/resolv.conf")
    exposed = [names] if sandbox.network and names.startswith("/run/") else []
    covered = [os.path.realpath(folder) for folder in (TEMPORARY, LASTING_TEMPORARY)]
    wanted = [os.path.realpath(path) for path in sandbox.readable]
    return exposed + [
        path for path in wanted if any(is_beneath(path, folder) for folder in covered)
    ]


def _readable(users: Iterable[UserFolders], hidden: list[str]) -> list[str]:
    """Return what may be read where nothing can be hidden: only what is not secret."""
    try:
        of_etc = [str(path) for path in Path("/etc").iterdir() if not path.is_symlink()]
    except OSError:
        of_etc = []
    shown = [path for user in users for path in shown_paths(Home.of(user))]
    readable = [*_SYSTEM, *of_etc, *(path for path in shown if os.path.lexists(path))]
    return [part for path in readable for part in _without(os.path.realpath(path), hidden)]


def _without(path: str, hidden: list[str]) -> Iterator[str]:
    """Yield a path, or what is in it, so that nothing that is hidden is beneath what is yielded."""
    if any(is_beneath(path, secret) for secret in hidden):
        return
    if not any(is_beneath(secret, path) for secret in hidden):
        yield path
        return
    try:
        entries = list(os.scandir(path))
    except OSError:
        return
    for entry in entries:
        # What a link leads to would be opened.
        if not entry.is_symlink():
            yield from _without(entry.path, hidden)


def _check_hidden(hidden: list[str], open_paths: list[str]) -> None:
    for secret in hidden:
        for path in open_paths:
            if is_beneath(secret, path):
                raise SandboxError(
                    f"{secret} cannot be hidden beneath {path}: that needs namespaces, which this "
                    "kernel does not give. Move it out of the folder, or work in another one"
                )
