"""Confinement: the layers of the sandbox, each entered by the process that it is for.

Standard library only: the launcher imports this without the rest of the package.
"""

import errno
import os

from haptera.tools.sandbox import landlock, privileges, seccomp
from haptera.tools.sandbox.kernel import (
    NEW_IPC,
    NEW_MOUNTS,
    NEW_NETWORK,
    NEW_PROCESSES,
    NEW_USER,
    RESOLVE_BENEATH,
    RESOLVE_NO_MAGICLINKS,
    openat2,
    unshare,
)
from haptera.tools.sandbox.plan import LASTING_TEMPORARY, TEMPORARY, Plan
from haptera.tools.sandbox.view import bound_sockets, build_view

_HELD_BY_NAMESPACES = (
    "files outside: their modes, owners, times and extended attributes can be changed "
    "(needs namespaces)",
    "files and processes outside: names, sizes and command lines are seen (needs namespaces)",
    "processes outside: their priority and processors can be changed (needs namespaces)",
    "the number of processes is not limited (needs namespaces)",
)
"""What neither Landlock nor a filter of calls can keep from a command.

Programs need these calls for their own files and threads, and a filter cannot tell whose they are.
"""
_HELD_BY_SECCOMP = (
    "files that run as their owner can be left behind (needs seccomp)",
    "keyrings, vsock, io_uring and other calls of the kernel can be used (needs seccomp)",
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")


class LayerError(Exception):
    """A layer of the sandbox could not be set up."""

    def __init__(self, layer: str, reason: str) -> None:
        super().__init__(f"{layer}: {reason}")
        self.layer = layer
        self.reason = reason


def enter_namespaces(plan: Plan) -> list[str] | None:
    """Leave the machine's users, mounts, network and IPC; children have processes of their own.

    Returns the sockets that programs outside listen at, which a new network namespace does not
    list; None where the kernel does not say.
    """
    if "namespaces" not in plan.layers:
        return None
    sockets = bound_sockets(plan.root)
    flags = NEW_USER | NEW_MOUNTS | NEW_PROCESSES | NEW_IPC
    # Asked before: a new user namespace knows no ids until its maps are written.
    user, group = os.getuid(), os.getgid()
    try:
        unshare(flags | (0 if plan.network else NEW_NETWORK))
        privileges.map_user(user, group)
    except OSError as error:
        raise LayerError("namespaces", str(error)) from error
    if not plan.network:
        privileges.raise_loopback()
    return sockets


def enter_view(plan: Plan, sockets: list[str] | None) -> list[str]:
    """Change what is seen of the file system, and go to the command's folder."""
    if "namespaces" not in plan.layers:
        _enter_folder(plan)
        return []
    missing = [] if sockets is not None else ["sockets outside are not hidden: they are not listed"]
    try:
        return missing + build_view(plan, sockets or [])
    except OSError as error:
        raise LayerError("namespaces", f"mounts: {error}") from error


def confine(plan: Plan) -> list[str]:
    """Give up everything that the command does not need, just before it is started."""
    if plan.layers:
        privileges.drop_capabilities()
    # Landlock and seccomp demand this of a process without capabilities.
    privileges.refuse_new_privileges()
    privileges.set_limits(plan.limits)
    if "landlock" in plan.layers:
        _restrict_files(plan)
    if "seccomp" in plan.layers:
        _filter_calls(plan)
    return not_held(plan, landlock_version=landlock.kernel_version()) if plan.layers else []


def not_held(plan: Plan, *, landlock_version: int) -> list[str]:
    """Say what the layers of a plan do not keep from a command, with this version of Landlock."""
    has_view = "namespaces" in plan.layers
    version = landlock_version if "landlock" in plan.layers else 0
    lacking = [] if has_view else [*_HELD_BY_NAMESPACES]
    if not has_view and version < landlock.TRUNCATION_SINCE:
        lacking.append("files outside: they can be truncated (needs Linux 6.2)")
    if not has_view and version < landlock.SCOPES_SINCE:
        lacking.append("processes outside: those of the user can be signalled (needs Linux 6.12)")
    if has_view and plan.network and version < landlock.SCOPES_SINCE:
        lacking.append("abstract sockets are reached with the network (needs Linux 6.12)")
    return lacking if "seccomp" in plan.layers else [*lacking, *_HELD_BY_SECCOMP]


def _restrict_files(plan: Plan) -> None:
    if not landlock.kernel_version():
        raise LayerError("landlock", "the kernel has none")
    has_view = "namespaces" in plan.layers
    temporary = TEMPORARY if has_view else plan.temporary
    rules = [(path, landlock.WRITE) for path in (temporary, *plan.writable)]
    if has_view:
        rules += [("/", landlock.READ), ("/dev", landlock.USE_DEVICE | landlock.WRITE)]
        rules += [(LASTING_TEMPORARY, landlock.WRITE), (plan.root, landlock.WRITE)]
    else:
        rules += [(path, landlock.READ) for path in plan.readable]
        rules += [(path, landlock.USE_DEVICE) for path in _DEVICES]
        rules += _rules_for_root(plan)
    try:
        # In a network namespace TCP leads no further than the command's own loopback.
        landlock.restrict(rules, tcp=plan.network or has_view)
    except OSError as error:
        raise LayerError("landlock", str(error)) from error


def _rules_for_root(plan: Plan) -> list[tuple[str, int]]:
    """Let everything in the root be written but the protected names.

    Landlock's rights hold for all that is beneath a folder. So the root itself may be read only,
    and what is in it already may be written: nothing new can be made at its top.
    """
    for name in plan.protected:
        if os.path.islink(f"{plan.root}/{name}"):
            reason = f"{name} is a symbolic link, and what it leads to could be written"
            raise LayerError("landlock", reason)
    rules = [(plan.root, landlock.READ)]
    with os.scandir(plan.root) as entries:
        rules += [
            (entry.path, landlock.WRITE)
            for entry in entries
            if entry.name not in plan.protected and not entry.is_symlink()
        ]
    return rules


def _filter_calls(plan: Plan) -> None:
    if not seccomp.is_known_here():
        raise LayerError("seccomp", f"there is no filter for {os.uname().machine}")
    has_namespaces = "namespaces" in plan.layers
    # Without a view every socket of the machine has its path. A pair of sockets needs none.
    families = [seccomp.AF_UNIX] if has_namespaces else []
    if plan.network or has_namespaces:
        # The C library asks over netlink which kinds of addresses there are when it looks up a
        # name.
        families += [seccomp.AF_INET, seccomp.AF_INET6, seccomp.AF_NETLINK]
    try:
        seccomp.install(families=families, has_namespaces=has_namespaces)
    except OSError as error:
        raise LayerError("seccomp", str(error)) from error


def _enter_folder(plan: Plan) -> None:
    root = os.open(plan.root, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    facts = os.fstat(root)
    if [facts.st_dev, facts.st_ino] != plan.root_identity:
        raise OSError(errno.ESTALE, f"{plan.root} is not the folder that it was")
    flags, resolve = os.O_PATH | os.O_DIRECTORY, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS
    os.fchdir(openat2(root, os.fsencode(plan.folder), flags=flags, resolve=resolve))
