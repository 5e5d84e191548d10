"""Seccomp: system calls that a command has no use for and an escape would need.

Standard library only: the launcher imports this without the rest of the package.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable

from haptera.system.process_tree import prctl
from haptera.tools.sandbox.kernel import NEW_ANY

_PR_SET_SECCOMP, _FILTER_MODE = 22, 2
_LOAD, _JUMP_EQUAL, _JUMP_BITS, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_MASK = 0x54
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT, _ARGUMENT_SIZE = 0, 4, 16, 8
_ALLOW, _FAIL_WITH = 0x7FFF0000, 0x00050000
_X32_BIT = 0x40000000

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
_STREAM, _DATAGRAM, _SEQUENCED, _TYPE_MASK = 1, 2, 5, 0xF
# Both can type into the terminal on behalf of its user.
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

_REFUSED = (
    "acct", "add_key", "adjtimex", "bpf", "chroot", "clock_adjtime", "clock_settime",
    "delete_module", "finit_module", "init_module", "iopl", "ioperm", "kcmp", "kexec_file_load",
    "kexec_load", "keyctl", "mount", "open_by_handle_at", "perf_event_open", "pivot_root",
    "process_vm_readv", "process_vm_writev", "ptrace", "quotactl", "reboot", "request_key",
    "setns", "settimeofday", "swapoff", "swapon", "syslog", "umount2", "userfaultfd", "vhangup",
)  # fmt: skip
_REFUSED_WITHOUT_NAMESPACES = (
    "mq_open", "mq_unlink", "msgctl", "msgget", "msgrcv", "msgsnd", "semctl", "semget", "semop",
    "semtimedop", "shmat", "shmctl", "shmget",
)  # fmt: skip
"""Shared memory, semaphores and queues are the machine's unless there is an IPC namespace."""
_REFUSED_EVERYWHERE = (428, 429, 430, 431, 432, 433, 438, 442, 467)
"""The mount calls by descriptor, and pidfd_getfd."""
_UNKNOWN_EVERYWHERE = (425, 426, 427, 435, 437)
"""io_uring goes around filters; clone3 and openat2 hide flags from them. Programs fall back."""
_FCHMODAT2 = 452
_MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "creat": 1, "mknod": 1, "mknodat": 2}
"""Calls that give a file its mode, and which argument that is."""
_OPTIONAL_MODES = {"open": 2, "openat": 3}
"""The same for calls that take a mode only if they make a file; the flags come just before it."""
_SET_ID_BITS = 0o6000
_MAKES_FILE = 0o20000000 | 0o100
"""O_TMPFILE's own bit, and O_CREAT."""

_X86_64 = {
    "chmod": 90, "creat": 85, "fchmod": 91, "fchmodat": 268, "mknod": 133, "mknodat": 259,
    "open": 2, "openat": 257,
    "acct": 163, "add_key": 248, "adjtimex": 159, "bpf": 321, "chroot": 161,
    "clock_adjtime": 305, "clock_settime": 227, "clone": 56, "delete_module": 176,
    "finit_module": 313, "init_module": 175, "ioctl": 16, "ioperm": 173, "iopl": 172,
    "kcmp": 312, "kexec_file_load": 320, "kexec_load": 246, "keyctl": 250, "mount": 165,
    "open_by_handle_at": 304, "perf_event_open": 298, "pivot_root": 155, "process_vm_readv": 310,
    "process_vm_writev": 311, "ptrace": 101, "quotactl": 179, "reboot": 169, "request_key": 249,
    "setns": 308, "settimeofday": 164, "socket": 41, "socketpair": 53, "swapoff": 168,
    "swapon": 167, "syslog": 103, "umount2": 166, "unshare": 272, "userfaultfd": 323,
    "vhangup": 153,
    "mq_open": 240, "mq_unlink": 241, "msgctl": 71, "msgget": 68, "msgrcv": 70, "msgsnd": 69,
    "prlimit64": 302, "semctl": 66, "semget": 64, "semop": 65, "semtimedop": 220, "shmat": 30,
    "shmctl": 31, "shmget": 29,
}  # fmt: skip
_AARCH64 = {
    "fchmod": 52, "fchmodat": 53, "mknodat": 33, "openat": 56,
    "acct": 89, "add_key": 217, "adjtimex": 171, "bpf": 280, "chroot": 51, "clock_adjtime": 266,
    "clock_settime": 112, "clone": 220, "delete_module": 106, "finit_module": 273,
    "init_module": 105, "ioctl": 29, "kcmp": 272, "kexec_file_load": 294, "kexec_load": 104,
    "keyctl": 219, "mount": 40, "open_by_handle_at": 265, "perf_event_open": 241,
    "pivot_root": 41, "process_vm_readv": 270, "process_vm_writev": 271, "ptrace": 117,
    "quotactl": 60, "reboot": 142, "request_key": 218, "setns": 268, "settimeofday": 170,
    "socket": 198, "socketpair": 199, "swapoff": 225, "swapon": 224, "syslog": 116,
    "umount2": 39, "unshare": 97, "userfaultfd": 282, "vhangup": 58,
    "mq_open": 180, "mq_unlink": 181, "msgctl": 187, "msgget": 186, "msgrcv": 188, "msgsnd": 189,
    "prlimit64": 261, "semctl": 191, "semget": 190, "semop": 193, "semtimedop": 192, "shmat": 196,
    "shmctl": 195, "shmget": 194,
}  # fmt: skip
_ARCHITECTURES = {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _AARCH64)}


def is_known_here() -> bool:
    """Whether the filter has been written for this machine's architecture."""
    return os.uname().machine in _ARCHITECTURES


def install(*, families: Iterable[int], has_namespaces: bool) -> None:
    """Filter the system calls of this process, for good; needs no_new_privs.

    `families` are the kinds of sockets that may be opened. Without namespaces more is refused, as
    far as a filter can tell: it sees numbers and no path.
    """
    code = _program(families, has_namespaces=has_namespaces)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    )
    prctl(_PR_SET_SECCOMP, _FILTER_MODE, ctypes.addressof(header))


def _program(families: Iterable[int], *, has_namespaces: bool) -> bytes:
    architecture, numbers = _ARCHITECTURES[os.uname().machine]
    steps = [
        # Numbers of calls mean something only together with the architecture: a program of 32 bits
        # has others.
        _step(_LOAD, _ARCHITECTURE_AT),
        _step(_JUMP_EQUAL, architecture, skip_if=1),
        _fail(errno.ENOSYS),
        _step(_LOAD, _NUMBER_AT),
    ]
    if os.uname().machine == "x86_64":
        # The same calls under other numbers.
        steps += [_step(_JUMP_AT_LEAST, _X32_BIT, skip_unless=1), _fail(errno.ENOSYS)]
    for number in _UNKNOWN_EVERYWHERE:
        steps += [_step(_JUMP_EQUAL, number, skip_unless=1), _fail(errno.ENOSYS)]
    names = _REFUSED if has_namespaces else _REFUSED + _REFUSED_WITHOUT_NAMESPACES
    refused = [numbers[name] for name in names if name in numbers]
    for number in (*refused, *_REFUSED_EVERYWHERE):
        steps += [_step(_JUMP_EQUAL, number, skip_unless=1), _fail(errno.EPERM)]
    # The flags are the first argument of both, on these architectures.
    for name in ("clone", "unshare"):
        test = [_step(_JUMP_BITS, NEW_ANY, skip_unless=1), _fail(errno.EPERM)]
        steps += _looking_at(0, numbers[name], test)
    test = [
        line
        for request in (_TIOCSTI, _TIOCLINUX)
        for line in (_step(_JUMP_EQUAL, request, skip_unless=1), _fail(errno.EPERM))
    ]
    steps += _looking_at(1, numbers["ioctl"], test)
    steps += _without_set_id(numbers)
    steps += _looking_at(0, numbers["socket"], _one_of(families))
    # Without namespaces no pair of datagram sockets: it can send to any path.
    kinds = (_STREAM, _SEQUENCED, *((_DATAGRAM,) if has_namespaces else ()))
    steps += _looking_at(0, numbers["socketpair"], [
        _step(_JUMP_EQUAL, AF_UNIX, skip_if=1),
        _fail(errno.EACCES),
        _load_argument(1),
        _step(_MASK, _TYPE_MASK),
        *_one_of(kinds),
    ])  # fmt: skip
    if not has_namespaces:
        # Zero is the process itself; any other number may be one outside.
        test = [_step(_JUMP_EQUAL, 0, skip_if=1), _fail(errno.EPERM)]
        steps += _looking_at(0, numbers["prlimit64"], test)
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def _one_of(values: Iterable[int]) -> list[bytes]:
    """Let a call through if what was loaded is one of the values; else refuse it."""
    test = [
        line
        for value in values
        for line in (_step(_JUMP_EQUAL, value, skip_unless=1), _step(_RETURN, _ALLOW))
    ]
    return [*test, _fail(errno.EACCES)]


def _without_set_id(numbers: dict[str, int]) -> list[bytes]:
    """Refuse files that run as their owner: outside of the sandbox, others could run them."""
    refuse = [_step(_JUMP_BITS, _SET_ID_BITS, skip_unless=1), _fail(errno.EPERM)]
    steps = _looking_at(2, _FCHMODAT2, refuse)
    for name, argument in _MODES.items():
        if name in numbers:
            steps += _looking_at(argument, numbers[name], refuse)
    for name, argument in _OPTIONAL_MODES.items():
        if name in numbers:
            test = [
                _step(_JUMP_BITS, _MAKES_FILE, skip_unless=3),
                _load_argument(argument),
                *refuse,
            ]
            steps += _looking_at(argument - 1, numbers[name], test)
    return steps


def _looking_at(argument: int, number: int, test: list[bytes]) -> list[bytes]:
    """Run `test` on an argument of the call `number`; let it through if the test does not end."""
    inside = [_load_argument(argument), *test, _step(_RETURN, _ALLOW)]
    return [_step(_JUMP_EQUAL, number, skip_unless=len(inside)), *inside]


def _load_argument(argument: int) -> bytes:
    # The lower half: both architectures are little-endian, and what is tested has no bits above it.
    return _step(_LOAD, _ARGUMENTS_AT + argument * _ARGUMENT_SIZE)


def _step(code: int, operand: int, *, skip_if: int = 0, skip_unless: int = 0) -> bytes:
    return struct.pack("HBBI", code, skip_if, skip_unless, operand)


def _fail(code: int) -> bytes:
    return _step(_RETURN, _FAIL_WITH | code)
