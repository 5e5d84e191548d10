"""System calls that Python does not wrap, by ctypes; each raises OSError with its own name.

Standard library only: the launcher imports this without the rest of the package.
"""

import ctypes
import errno
import os
import struct
from typing import Final

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

# New system calls have the same number on every architecture.
_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT = 428, 429, 430, 431, 432
_CLOSE_RANGE, _OPENAT2, _MOUNT_SETATTR = 436, 437, 442

_AT_EMPTY_PATH, _AT_RECURSIVE = 0x1000, 0x8000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
_MOVE_FROM_EMPTY, _MOVE_TO_EMPTY = 0x4, 0x40
_FSOPEN_CLOEXEC, _FSMOUNT_CLOEXEC = 1, 1
_SET_STRING, _CREATE = 1, 6
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000

RESOLVE_NO_MAGICLINKS: Final = 0x02
RESOLVE_NO_SYMLINKS: Final = 0x04
RESOLVE_BENEATH: Final = 0x08

READ_ONLY: Final = 0x1
NO_SETUID: Final = 0x2
NO_DEVICES: Final = 0x4
NO_PROGRAMS: Final = 0x8

NEW_USER: Final = 0x10000000
NEW_MOUNTS: Final = 0x00020000
NEW_NETWORK: Final = 0x40000000
NEW_PROCESSES: Final = 0x20000000
NEW_IPC: Final = 0x08000000
NEW_ANY: Final = 0x7E020080
"""Every flag that asks for a namespace: user, mount, network, process, IPC, UTS, cgroup, time."""


def call(name: str, number: int, *arguments: int | bytes | None) -> int:
    """Make a system call by its number; bytes are given as a pointer to them."""
    result = int(_libc.syscall(ctypes.c_long(number), *(_as_word(value) for value in arguments)))
    return _check(name, result)


def _as_word(value: int | bytes | None) -> object:
    # A plain int would be passed as a C int, whose upper half is not defined in a variadic call.
    return ctypes.c_long(value) if isinstance(value, int) else ctypes.c_char_p(value)


def _check(name: str, result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def unshare(flags: int) -> None:
    """Move this process into new namespaces."""
    _check("unshare", _libc.unshare(flags))


def openat2(folder: int, path: bytes, *, flags: int, resolve: int = 0) -> int:
    """Open a path from a folder's descriptor, bound by RESOLVE_ flags."""
    # The second number is the mode of a file that is made; none is made.
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, 0, resolve)
    return call("openat2", _OPENAT2, folder, path, how, len(how))


def make_mounts_private() -> None:
    """Keep what is mounted from here on to this mount namespace."""
    flags = ctypes.c_ulong(_MS_REC | _MS_PRIVATE)
    _check("mount", _libc.mount(b"none", b"/", None, flags, None))


def clone_tree(descriptor: int) -> int:
    """Return a detached copy of what is mounted at a descriptor, mounts beneath it included."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_EMPTY_PATH | _AT_RECURSIVE
    return call("open_tree", _OPEN_TREE, descriptor, b"", flags)


def attach_mount(tree: int, target: int) -> None:
    """Mount a detached tree on a descriptor; no path is looked up."""
    flags = _MOVE_FROM_EMPTY | _MOVE_TO_EMPTY
    call("move_mount", _MOVE_MOUNT, tree, b"", target, b"", flags)


def restrict_mount(descriptor: int, attributes: int, *, recursive: bool) -> None:
    """Add restrictions (READ_ONLY and others) to a mount."""
    packed = struct.pack("QQQQ", attributes, 0, 0, 0)
    flags = _AT_EMPTY_PATH | (_AT_RECURSIVE if recursive else 0)
    call("mount_setattr", _MOUNT_SETATTR, descriptor, b"", flags, packed, len(packed))


def make_filesystem(kind: str, settings: dict[str, str], *, attributes: int) -> int:
    """Return a new detached file system: `tmpfs`, `proc`, `devpts`."""
    context = call("fsopen", _FSOPEN, kind.encode(), _FSOPEN_CLOEXEC)
    try:
        for key, value in settings.items():
            call("fsconfig", _FSCONFIG, context, _SET_STRING, key.encode(), value.encode(), 0)
        call("fsconfig", _FSCONFIG, context, _CREATE, None, None, 0)
        return call("fsmount", _FSMOUNT, context, _FSMOUNT_CLOEXEC, attributes)
    finally:
        os.close(context)


def close_from(lowest: int) -> None:
    """Close every descriptor from `lowest` on."""
    try:
        call("close_range", _CLOSE_RANGE, lowest, 0xFFFFFFFF, 0)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        os.closerange(lowest, os.sysconf("SC_OPEN_MAX"))
