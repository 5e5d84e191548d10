"""The twelve probes: a program that tries to get out of the sandbox that it runs in.

Each probe is harmless where it succeeds: it touches what it was told to touch, and puts it back.
Standard library only, run by `python -I -S` without the rest of the package.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import socket
import stat
import struct
import sys
import termios
from collections.abc import Callable

_PTRACE_SEIZE, _PTRACE_DETACH = 0x4206, 17
_NEW_USER = 0x10000000
_TIOCSTI = 0x5412
_OTHER_USER = 65534
_NULL_DEVICE = os.makedev(1, 3)

_libc = ctypes.CDLL(None, use_errno=True)


class Target:
    """What the probes aim at, made for them by the program that checks the sandbox."""

    def __init__(self, told: dict[str, str]) -> None:
        self.system, self.secret, self.outside = told["system"], told["secret"], told["outside"]
        self.tcp, self.udp, self.name = int(told["tcp"]), int(told["udp"]), told["name"]
        self.socket = told["socket"]
        self.victim, self.canary = int(told["victim"]), told["canary"].encode()


def write_system(target: Target) -> str:
    """Write into a folder of the system."""
    path = f"{target.system}/haptera-probe-{os.getpid()}"
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    os.unlink(path)
    return f"made {path}"


def read_secret(target: Target) -> str:
    """Read a key in the home folder."""
    with open(target.secret, "rb") as file:
        return f"read {len(file.read())} bytes" if target.canary else ""


def connect(target: Target) -> str:
    """Reach a server on this machine: by TCP, by UDP, by an abstract socket, by one in a folder."""
    reached = []
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", target.tcp), timeout=2).close()
        reached.append("TCP")
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened,
    ):
        opened.sendto(target.canary, ("127.0.0.1", target.udp))  # the other side says if it came
    sockets = {f"\0{target.name}": "an abstract socket", target.socket: "a socket in a folder"}
    for address, kind in sockets.items():
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as opened:
            opened.connect(address)
            reached.append(kind)
    if not reached:
        raise ConnectionRefusedError("nothing was reached")
    return f"reached it by {' and '.join(reached)}"


def trace(target: Target) -> str:
    """Take control of a process outside."""
    _check(_libc.ptrace(_PTRACE_SEIZE, target.victim, None, None))
    _libc.ptrace(_PTRACE_DETACH, target.victim, None, None)
    return f"traced process {target.victim}"


def look_at_processes(target: Target) -> str:
    """Read the environment or the files of a process outside."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if target.canary in file.read():
                return f"read the environment of process {pid}"
    return f"saw {os.listdir(f'/proc/{target.victim}/root/')[:3]}"


def kill(target: Target) -> str:
    """End a process outside."""
    os.kill(target.victim, signal.SIGKILL)
    return f"killed process {target.victim}"


def follow_link(target: Target) -> str:
    """Write to a file outside through a symbolic link that is made inside."""
    os.symlink(target.outside, "probe-link")
    try:
        with open("probe-link/escaped", "w") as file:
            file.write("out")
    finally:
        os.unlink("probe-link")
    return f"wrote into {target.outside}"


def push_input(_target: Target) -> str:
    """Type into a terminal on behalf of its user."""
    _, terminal = os.openpty()
    if os.getsid(0) != os.getpid():
        os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    fcntl.ioctl(terminal, _TIOCSTI, b"x")
    return "typed into a terminal"


def mount(_target: Target) -> str:
    """Change what is mounted."""
    os.makedirs("probe-mount", exist_ok=True)
    try:
        _check(_libc.mount(b"none", b"probe-mount", b"tmpfs", ctypes.c_ulong(0), None))
        _libc.umount2(b"probe-mount", 2)
    finally:
        os.rmdir("probe-mount")
    return "mounted a file system"


def nest_namespace(_target: Target) -> str:
    """Become root of a user namespace, in which more of the kernel can be reached."""
    _check(_libc.unshare(_NEW_USER))
    return "made a user namespace"


def change_user(_target: Target) -> str:
    """Become another user, or be allowed to start programs that do."""
    with open("/proc/self/status") as file:
        if "NoNewPrivs:\t1" not in file.read():
            return "programs may raise their privileges"
    os.setresuid(_OTHER_USER, _OTHER_USER, _OTHER_USER)
    return "became another user"


def use_device(_target: Target) -> str:
    """Open a device of the machine, or make one."""
    for name in sorted(os.listdir("/dev")):
        path = f"/dev/{name}"
        if stat.S_ISBLK(os.stat(path).st_mode) or name in {"mem", "kmsg", "fuse"}:
            with contextlib.suppress(OSError):
                os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
                return f"opened {path}"
    os.mknod("probe-device", stat.S_IFCHR | 0o600, _NULL_DEVICE)
    try:
        os.close(os.open("probe-device", os.O_RDONLY))
    finally:
        os.unlink("probe-device")
    return "made a device"


PROBES: tuple[Callable[[Target], str], ...] = (
    write_system,
    read_secret,
    connect,
    trace,
    look_at_processes,
    follow_link,
    push_input,
    mount,
    nest_namespace,
    change_user,
    use_device,
    # Last, because other probes need the process that it ends.
    kill,
)


def main() -> None:
    """Try every probe in a process of its own; report each as a line of JSON."""
    target = Target(json.loads(sys.argv[-1]))
    for probe in PROBES:
        reader, writer = os.pipe()
        # A probe may change its process for good, or not survive it.
        child = os.fork()
        if child == 0:
            os.write(writer, json.dumps(_outcome(probe, target)).encode())
            os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        request = os.read(reader, 65536)
        os.close(reader)
        outcome = json.loads(request) if request else {"allowed": False, "detail": "it was killed"}
        sys.stdout.write(json.dumps({"probe": probe.__name__, **outcome}) + "\n")
        sys.stdout.flush()


def _outcome(probe: Callable[[Target], str], target: Target) -> dict[str, object]:
    try:
        return {"allowed": True, "detail": probe(target)}
    except (OSError, ValueError, struct.error) as error:
        return {"allowed": False, "detail": str(error)}


def _check(result: int) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


if __name__ == "__main__":
    main()
