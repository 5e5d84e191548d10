"""Attempts on the kernel: namespaces, bpf, io_uring, perf, keyrings, terminals, devices."""

import ctypes
import errno
import fcntl
import os
import signal
import stat
import struct
import termios

from tests.tools.escapes.attempt import Escape, Target, call, make, reached

_NEW_USER, _NEW_MOUNTS, _NEW_NETWORK = 0x10000000, 0x00020000, 0x40000000
_NAMESPACES = {
    "user": _NEW_USER, "mount": _NEW_MOUNTS, "network": _NEW_NETWORK, "process": 0x20000000,
    "ipc": 0x08000000, "uts": 0x04000000, "cgroup": 0x02000000, "time": 0x80,
}  # fmt: skip


def _clone(flags: int) -> None:
    if (child := call("clone", flags | signal.SIGCHLD, 0, 0, 0, 0)) == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _clone3(flags: int) -> None:
    how = struct.pack("=11Q", flags, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, 0)
    if (child := call("clone3", how, len(how))) == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _enter(target: Target, name: str, kind: int) -> None:
    opened = os.open(f"/proc/{target.victim}/ns/{name}", os.O_RDONLY)
    call("setns", opened, kind)


NAMESPACES = (
    *(
        Escape(
            "namespaces",
            name,
            lambda _, flags=flags: call("unshare", flags),  # type: ignore[misc]
            needs="namespaces",
        )
        for name, flags in _NAMESPACES.items()
    ),
    Escape("namespaces", "clone user", lambda _: _clone(_NEW_USER), needs="namespaces"),
    Escape("namespaces", "clone mount", lambda _: _clone(_NEW_MOUNTS), needs="root"),
    Escape("namespaces", "clone3 user", lambda _: _clone3(_NEW_USER), needs="namespaces"),
    Escape("namespaces", "enter ipc", lambda t: _enter(t, "ipc", 0x08000000), needs="root"),
    Escape("namespaces", "enter network", lambda t: _enter(t, "net", _NEW_NETWORK), needs="root"),
    Escape("namespaces", "enter by process", lambda t: call(
        "setns", os.pidfd_open(t.victim), _NEW_NETWORK), needs="root"),
)  # fmt: skip


def _load_program() -> None:
    """Load a program that does nothing but return."""
    code = ctypes.create_string_buffer(
        struct.pack("=BBhi", 0xB7, 0, 0, 0) + struct.pack("=BBhi", 0x95, 0, 0, 0), 16
    )
    license_text = ctypes.create_string_buffer(b"GPL")
    attributes = struct.pack("=IIQQ", 1, 2, ctypes.addressof(code), ctypes.addressof(license_text))
    os.close(call("bpf", 5, attributes + bytes(96), 120))


def _count(pid: int, processor: int) -> None:
    attributes = struct.pack("=IIQQ", 1, 112, 0, 0) + bytes(88)
    os.close(call("perf_event_open", attributes, pid, processor, -1, 0))


def _ring() -> None:
    os.close(call("io_uring_setup", 1, ctypes.create_string_buffer(120)))


def _module_of_file() -> None:
    opened = os.open(make("own"), os.O_RDONLY)
    reached(lambda: call("finit_module", opened, b"", 0), errno.ENOEXEC)


def _set_host_name() -> None:
    name = os.uname().nodename.encode()
    call("sethostname", name, len(name))


KERNEL = (
    Escape("bpf", "map", lambda _: os.close(call(
        "bpf", 0, struct.pack("=IIIII", 2, 4, 4, 1, 0) + bytes(100), 120)), needs="root"),
    Escape("bpf", "program", lambda _: _load_program(), needs="root"),
    Escape("io_uring", "set up", lambda _: _ring(), needs="io_uring"),
    Escape("io_uring", "enter", lambda _: reached(
        lambda: call("io_uring_enter", 1023, 0, 0, 0, None, 0), errno.EBADF), needs="io_uring"),
    Escape("perf", "itself", lambda _: _count(0, -1), needs="perf"),
    Escape("perf", "another process", lambda t: _count(t.victim, -1), needs="perf"),
    Escape("perf", "a processor", lambda _: _count(-1, 0), needs="root"),
    Escape("keyrings", "add", lambda t: call(
        "add_key", b"user", t.name.encode(), b"x", 1, -3), needs="keys"),
    Escape("keyrings", "look", lambda _: call("keyctl", 0, -3, 1), needs="keys"),
    Escape("keyrings", "user's", lambda _: call("keyctl", 0, -4, 1), needs="keys"),
    Escape("keyrings", "search", lambda t: reached(lambda: call(
        "request_key", b"user", f"{t.name}-none".encode(), None, -3), errno.ENOKEY),
        needs="keys"),
    Escape("keyrings", "new session", lambda _: call("keyctl", 1, None), needs="keys"),
    Escape("calls of root", "page faults", lambda _: os.close(call("userfaultfd", 0)),
        needs="root"),
    Escape("calls of root", "module", lambda _: reached(
        lambda: call("init_module", bytes(64), 64, b""), errno.ENOEXEC), needs="modules"),
    Escape("calls of root", "module of a file", lambda _: _module_of_file(), needs="modules"),
    Escape("calls of root", "restart", lambda _: reached(
        lambda: call("reboot", 1, 2, 3, None), errno.EINVAL), needs="root"),
    Escape("calls of root", "log of the kernel", lambda _: call(
        "syslog", 3, ctypes.create_string_buffer(64), 64), needs="root"),
    Escape("calls of root", "host name", lambda _: _set_host_name(), needs="root"),
    Escape("calls of root", "clock", lambda _: reached(
        lambda: call("clock_settime", 0, struct.pack("=qq", 1, -1)), errno.EINVAL), needs="root"),
    Escape("calls of root", "ports", lambda _: call("iopl", 0), needs="x86_64"),
    Escape("calls of root", "other user", lambda _: os.setresuid(65534, 65534, 65534),
        needs="root"),
    Escape("calls of root", "other group", lambda _: os.setgroups([0]), needs="root"),
)  # fmt: skip


def _own_terminal() -> int:
    _, terminal = os.openpty()
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    return terminal


def _type_with_high_bits() -> None:
    """Ask for TIOCSTI by a number whose upper half the kernel does not look at."""
    call("ioctl", _own_terminal(), (1 << 32) | termios.TIOCSTI, b"x")


def _take_terminal(target: Target) -> None:
    os.setsid()
    fcntl.ioctl(os.open(target.terminal, os.O_RDWR), termios.TIOCSCTTY, 0)


TERMINALS = (
    Escape("TIOCSTI", "type", lambda _: fcntl.ioctl(_own_terminal(), termios.TIOCSTI, b"x"),
        needs="legacy_tiocsti"),
    Escape("TIOCSTI", "type with high bits", lambda _: _type_with_high_bits(),
        needs="legacy_tiocsti"),
    Escape("TIOCSTI", "paste", lambda _: fcntl.ioctl(
        os.open("/dev/tty0", os.O_RDWR), 0x541C, b"\x0c"), needs="a console"),
    Escape("TIOCSTI", "another's terminal", lambda t: os.write(
        os.open(t.terminal, os.O_WRONLY), b"escaped")),
    Escape("TIOCSTI", "take a terminal", _take_terminal),
)  # fmt: skip


def _make_device(kind: int, major: int, minor: int) -> None:
    os.mknod("device", kind | 0o600, os.makedev(major, minor))
    os.close(os.open("device", os.O_RDONLY))


DEVICES = (
    *(
        Escape(
            "devices",
            name,
            lambda _, name=name: os.open(  # type: ignore[misc]
                f"/dev/{name}", os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY
            ),
            needs=f"/dev/{name}",
        )
        for name in ("mem", "kmsg", "loop0", "loop-control", "fuse", "kvm", "net/tun", "tty0",
            "console", "hwrng", "btrfs-control", "autofs", "input/event0", "dri/card0")
    ),
    Escape("devices", "make character", lambda _: _make_device(stat.S_IFCHR, 1, 3), needs="root"),
    Escape("devices", "make block", lambda _: _make_device(stat.S_IFBLK, 7, 0), needs="root"),
)  # fmt: skip
