"""What attempts to get out of the sandbox are made of: the row of the table, targets, raw calls.

Standard library only: a copy of this folder runs in the sandbox.
"""

import ctypes
import os
from collections.abc import Callable
from typing import NamedTuple

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

_X86_64 = {
    "add_key": 248, "bpf": 321, "clone": 56, "creat": 85, "finit_module": 313, "fchmodat": 268,
    "get_robust_list": 274, "init_module": 175, "ioctl": 16, "iopl": 172, "ioprio_set": 251,
    "kcmp": 312, "keyctl": 250, "mknodat": 259, "move_pages": 279, "mq_open": 240,
    "migrate_pages": 256, "msgrcv": 70, "open_by_handle_at": 304, "name_to_handle_at": 303,
    "perf_event_open": 298, "pivot_root": 155, "prlimit64": 302, "process_vm_readv": 310,
    "process_vm_writev": 311, "ptrace": 101, "reboot": 169, "renameat2": 316, "request_key": 249,
    "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297, "sched_setattr": 314, "semctl": 66,
    "semget": 64, "semop": 65, "shmat": 30, "shmctl": 31, "shmget": 29, "msgget": 68,
    "sethostname": 170, "swapon": 167, "syslog": 103, "tgkill": 234, "umount2": 166,
    "userfaultfd": 323, "mount": 165, "chroot": 161, "setns": 308, "unshare": 272, "msgsnd": 69,
    "clock_settime": 227,
}  # fmt: skip
_AARCH64 = {
    "add_key": 217, "bpf": 280, "clone": 220, "finit_module": 273, "fchmodat": 53,
    "get_robust_list": 100, "init_module": 105, "ioctl": 29, "ioprio_set": 30, "kcmp": 272,
    "keyctl": 219, "mknodat": 33, "move_pages": 239, "mq_open": 180, "migrate_pages": 238,
    "msgrcv": 188, "open_by_handle_at": 265, "name_to_handle_at": 264, "perf_event_open": 241,
    "pivot_root": 41, "prlimit64": 261, "process_vm_readv": 270, "process_vm_writev": 271,
    "ptrace": 117, "reboot": 142, "renameat2": 276, "request_key": 218, "rt_sigqueueinfo": 138,
    "rt_tgsigqueueinfo": 240, "sched_setattr": 274, "semctl": 191, "semget": 190, "semop": 193,
    "shmat": 196, "shmctl": 195, "shmget": 194, "msgget": 186, "sethostname": 161, "swapon": 224,
    "syslog": 116, "tgkill": 131, "umount2": 39, "userfaultfd": 282, "mount": 40, "chroot": 51,
    "setns": 268, "unshare": 97, "msgsnd": 189, "clock_settime": 112,
}  # fmt: skip
_EVERYWHERE = {
    "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fspick": 433, "pidfd_open": 434, "clone3": 435,
    "openat2": 437, "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442,
    "fchmodat2": 452,
}  # fmt: skip
_NUMBERS = {**{"x86_64": _X86_64, "aarch64": _AARCH64}[os.uname().machine], **_EVERYWHERE}

OUTCOMES = "outcomes.json"
HERE = -100
"""AT_FDCWD."""


class Target(NamedTuple):
    """What attempts aim at; all of it was made by the test, outside of the sandbox."""

    outside: str
    """A folder that holds one for each attempt, with a file in it."""
    temporary: str
    """A folder beneath the machine's own `/tmp`."""
    secret: str
    root: str
    sockets: dict[str, str]
    """Where programs listen, by the kind of socket or of place."""
    name: str
    """The abstract socket's, and of everything else that has a name."""
    addresses: list[str]
    """The machine's own, beside the loopback's."""
    tcp: int
    udp: int
    victim: int
    address: int
    """Where the victim keeps `name` in its memory."""
    terminal: str
    shm: int
    key: int
    queue: int
    semaphore: int
    row: str = ""

    @property
    def folder(self) -> str:
        """The folder outside that only this attempt aims at."""
        return f"{self.outside}/{self.row}"

    @property
    def file(self) -> str:
        """The file outside that only this attempt aims at."""
        return f"{self.folder}/file"

    @property
    def git_file(self) -> str:
        """The file in the root's `.git` that only this attempt aims at."""
        return f"{self.root}/.git/{self.row}"


class Escape(NamedTuple):
    """One row of the table: an attempt, and what is expected of each backend."""

    family: str
    name: str
    attempt: Callable[[Target], object]
    """Raises OSError where it was refused, or where what it aims at is not there."""
    gap: str | None = None
    """What the report says is not held where it succeeds with Landlock and seccomp alone."""
    needs: str | None = None
    """What a machine must have for the attempt to succeed without a sandbox; None: nothing."""
    is_judged_outside: bool = False
    """Whether only what is found outside afterwards tells that it succeeded."""

    @property
    def row(self) -> str:
        """The name of the attempt as that of a file."""
        return f"{self.family} {self.name}".replace(" ", "-").replace("/", "-")


def call(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Make a system call; bytes are given as a pointer to them."""
    if name not in _NUMBERS:
        raise NotImplementedError(name)
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result = int(_libc.syscall(ctypes.c_long(_NUMBERS[name]), *words))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def reached(attempt: Callable[[], object], *codes: int) -> None:
    """Count an attempt as made where the kernel only found fault with its arguments."""
    try:
        attempt()
    except OSError as error:
        if error.errno not in codes:
            raise


def found(what: object) -> None:
    """Refuse an attempt that ran and found nothing of what it aims at."""
    if not what:
        raise FileNotFoundError("it found nothing")


def write(path: str, *, flags: int = 0, folder: int | None = None) -> None:
    """Open a file for writing and write to it."""
    opened = os.open(path, os.O_WRONLY | flags, 0o644, dir_fd=folder)
    os.write(opened, b"escaped")
    os.close(opened)


def give_name(descriptor: int, path: str) -> None:
    """Link a file that has no name."""
    # Only with a folder's descriptor does Python follow the link.
    os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)


def make(path: str) -> str:
    """Make a file of the attempt's own."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
    return path
