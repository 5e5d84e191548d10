"""Privileges that a command does not need, given up for good; and limits on what it may use.

Standard library only: the launcher imports this without the rest of the package.
"""

import contextlib
import os
import resource
import signal
import struct
from importlib import import_module

from haptera.system.process_tree import prctl
from haptera.tools.sandbox.kernel import call

_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_SECUREBITS = 4, 24, 28
_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 38, 47
_CLEAR_AMBIENT = 4
_NO_ROOT_LOCKED = 0xEF
"""Being root gives no capabilities, nor does changing the user id; and so it stays."""
_HIGHEST_CAPABILITY = 63
_CAPSET_CALL = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION = 0x20080522
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def hide_from_others() -> None:
    """Let no process of the same user look into this one."""
    prctl(_PR_SET_DUMPABLE, 0)


def refuse_new_privileges() -> None:
    """Let no program that is started have more privileges than this process."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Give up every capability, and being root as a way to get them."""
    with contextlib.suppress(OSError):  # who may not do this has no capability to lose
        prctl(_PR_SET_SECUREBITS, _NO_ROOT_LOCKED)
        for capability in range(_HIGHEST_CAPABILITY + 1):
            # The first number that the kernel does not know is an error, and ends the loop.
            prctl(_PR_CAPBSET_DROP, capability)
    with contextlib.suppress(OSError):
        prctl(_PR_CAP_AMBIENT, _CLEAR_AMBIENT)
    # Last, because the calls before need a capability themselves.
    number = _CAPSET_CALL.get(os.uname().machine)
    if number is not None:
        # Two words of 32 bits for each of the three sets, all of them zero.
        header, none = struct.pack("Ii", _CAPABILITY_VERSION, 0), bytes(24)
        call("capset", number, header, none)


def write_file(path: str, content: str) -> None:
    """Write to a file of the kernel's, which takes it in one go."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, content.encode())
    finally:
        os.close(descriptor)


def map_user(user: int, group: int) -> None:
    """Keep user and group what they were, in a user namespace that knows no others."""
    maps = {
        # First: without privileges the map of groups can be written only after this.
        "setgroups": "deny",
        "uid_map": f"{user} {user} 1",
        "gid_map": f"{group} {group} 1",
    }
    for name, content in maps.items():
        write_file(f"/proc/self/{name}", content)


def raise_loopback() -> None:
    """Switch on the loopback interface of a new network namespace; it leads nowhere else."""
    # The launcher starts faster without them.
    fcntl, socket = import_module("fcntl"), import_module("socket")
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened,
    ):
        request = struct.pack("16sH22x", b"lo", 0)
        flags = struct.unpack("16sH22x", fcntl.ioctl(opened, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(opened, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | _IFF_UP))


def set_limits(limits: dict[str, int]) -> None:
    """Limit memory, files, processes and time by the names of RLIMIT_ constants."""
    for name, wanted in limits.items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        # A hard limit cannot be raised without privileges.
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(number, (value, value))


def restore_signals() -> None:
    """Undo what Python does to signals: a command expects to end when its reader is gone."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
