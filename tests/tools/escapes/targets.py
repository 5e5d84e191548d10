"""What attempts to get out of the sandbox aim at, made outside of it; and what became of it."""

import contextlib
import ctypes
import fcntl
import json
import os
import secrets
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.tools.escapes.attempt import Target, call
from tests.tools.escapes.table import ESCAPES

_VICTIM = """
import ctypes, os, signal, socket, sys
libc = ctypes.CDLL(None)
if libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()):
    sys.exit("the capabilities of root would hide that others have none")
buffer = ctypes.create_string_buffer(sys.argv[1].encode())
def write(number, frame):
    with open(sys.argv[2], "w") as file:
        file.write("signalled")
signal.signal(signal.SIGUSR1, write)
server = socket.socket(socket.AF_UNIX)
server.bind("src/relative")
server.listen()
print(ctypes.addressof(buffer), flush=True)
while True:
    signal.pause()
"""
_MODULES = Path(__file__).parent
_CREATE = 0o1000
_REMOVE = 0


@contextlib.contextmanager
def made_targets(place: Path) -> Iterator[Target]:
    """Make everything that attempts aim at, and take it away afterwards."""
    name = f"canary-{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(_folder(place)))
        temporary = stack.enter_context(_folder(None))
        _make_files(folder, Path(temporary), name)
        sockets = stack.enter_context(_sockets(folder, temporary, name))
        tcp, udp = stack.enter_context(_servers())
        victim, address = stack.enter_context(_victim(folder, name))
        shm, queue, semaphore, key = stack.enter_context(_shared(name))
        master, terminal = os.openpty()
        for descriptor in (master, terminal):
            stack.callback(os.close, descriptor)
        yield Target(
            outside=str(folder / "outside"),
            temporary=temporary,
            secret=str(folder / "home/.ssh/id"),
            root=str(folder / "root"),
            sockets=sockets,
            name=name,
            addresses=_addresses(),
            tcp=tcp,
            udp=udp,
            victim=victim,
            address=address,
            terminal=os.ttyname(terminal),
            shm=shm,
            key=key,
            queue=queue,
            semaphore=semaphore,
        )


def look_at(target: Target) -> dict[str, object]:
    """Return what is found outside for each attempt."""
    return {
        row: (_tree(Path(target.outside) / row), _tree(Path(target.root) / ".git" / row))
        for row in (escape.row for escape in ESCAPES)
    }


def survivors(target: Target) -> set[str]:
    """Return the attempts whose processes still hold their locks."""
    return {lock.parent.name for lock in Path(target.root).glob("src/rows/*/lock") if _held(lock)}


def end_survivors(target: Target) -> None:
    """End what ran without a sandbox; there each wrote the number that it really has."""
    for row in survivors(target):
        pid = int((Path(target.root) / "src/rows" / row / "pid").read_text())
        os.kill(pid, signal.SIGKILL)


def _held(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _tree(path: Path) -> object:
    """Return all that can be seen of a file or folder but when it was read."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    about = (found.st_mode, found.st_ino, found.st_nlink, found.st_mtime_ns, found.st_ctime_ns)
    if path.is_dir():
        return (about, {each.name: _tree(each) for each in sorted(path.iterdir())})
    return (about, path.read_bytes() if path.is_file() else None)


@contextlib.contextmanager
def _folder(place: Path | None) -> Iterator[str]:
    folder = os.path.realpath(tempfile.mkdtemp(prefix="e-", dir=place))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_files(folder: Path, temporary: Path, name: str) -> None:
    for made in ("root/.git", "root/src/tests/tools/escapes", "outside", "home/.ssh"):
        (folder / made).mkdir(parents=True)
    (folder / "home/.ssh/id").write_text(name)
    (temporary / "file").write_text("kept")
    for module in _MODULES.glob("*.py"):
        shutil.copy(module, folder / "root/src/tests/tools/escapes")
    for row in (escape.row for escape in ESCAPES):
        own = folder / "outside" / row
        (own / "folder").mkdir(parents=True)
        for file in (own / "file", folder / "root/.git" / row):
            file.write_text("kept")
        with contextlib.suppress(OSError):  # a file system without them
            os.setxattr(own / "file", "user.kept", b"x")


@contextlib.contextmanager
def _sockets(folder: Path, temporary: str, name: str) -> Iterator[dict[str, str]]:
    (folder / "outside/link").symlink_to(".")
    kinds = {
        "stream": socket.SOCK_STREAM, "packets": socket.SOCK_SEQPACKET,
        "datagram": socket.SOCK_DGRAM,
    }  # fmt: skip
    paths = {kind: str(folder / "outside" / kind[0]) for kind in kinds}
    bound = {
        **{kind: (path, kinds[kind]) for kind, path in paths.items()},
        **{f"abstract {kind}": (f"\0{name}-{kind}", number) for kind, number in kinds.items()},
        "root": (str(folder / "root/src/r"), socket.SOCK_STREAM),
        "linked": (str(folder / "outside/link/l"), socket.SOCK_STREAM),
        "temporary": (f"{temporary}/t", socket.SOCK_STREAM),
        "run": (f"/run/{name}", socket.SOCK_STREAM),
    }
    with contextlib.ExitStack() as stack:
        for address, kind in bound.values():
            opened = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
            with contextlib.suppress(PermissionError):  # in /run, for who is not root
                opened.bind(address)
                if kind != socket.SOCK_DGRAM:
                    opened.listen(20)
        stack.callback(Path(f"/run/{name}").unlink, missing_ok=True)
        told = {kind: address for kind, (address, _) in bound.items()}
        told["linked"] = str(folder / "outside/l")
        told["relative"] = str(folder / "root/src/relative")
        yield told


@contextlib.contextmanager
def _servers() -> Iterator[tuple[int, int]]:
    """Listen at TCP; send back what comes by UDP."""
    has_both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if has_both else socket.AF_INET
    stop, stopped = os.pipe()
    with (
        socket.create_server(("", 0), family=family, dualstack_ipv6=has_both, backlog=50) as tcp,
        socket.socket(family, socket.SOCK_DGRAM) as udp,
    ):
        if has_both:
            udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        udp.bind(("", 0))

        def answer() -> None:
            while stop not in select.select([udp.fileno(), stop], [], [])[0]:
                told, sender = udp.recvfrom(100)
                udp.sendto(told, sender)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield tcp.getsockname()[1], udp.getsockname()[1]
        finally:
            os.close(stopped)
            thread.join()
            os.close(stop)


@contextlib.contextmanager
def _victim(folder: Path, name: str) -> Iterator[tuple[int, int]]:
    file = folder / "outside/signals-owner-of-a-pipe/file"
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _VICTIM, name, str(file)],
        env={"CANARY": name},
        cwd=folder / "root",
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as victim:
        assert victim.stdout is not None
        try:
            yield victim.pid, int(victim.stdout.readline())
        finally:
            victim.kill()


@contextlib.contextmanager
def _shared(name: str) -> Iterator[tuple[int, int, int, int]]:
    """Make shared memory, queues and a semaphore of the machine's own."""
    key = secrets.randbelow(1 << 30)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    libc.shmdt.argtypes = [ctypes.c_void_p]
    shm = call("shmget", key, 4096, _CREATE | 0o600)
    address = libc.shmat(shm, None, 0)
    ctypes.memmove(address, name.encode(), len(name))
    libc.shmdt(address)
    queue = call("msgget", key, _CREATE | 0o600)
    call("msgsnd", queue, struct.pack("=q", 1) + name.encode(), len(name), 0)
    semaphore = call("semget", key, 1, _CREATE | 0o600)
    os.close(call("mq_open", name.encode(), os.O_CREAT | os.O_RDWR, 0o600, None))
    shared = Path("/dev/shm") / name
    shared.write_text("kept")
    try:
        yield shm, queue, semaphore, key
    finally:
        libc.shmctl(shm, _REMOVE, None)
        libc.msgctl(queue, _REMOVE, None)
        libc.semctl(semaphore, 0, _REMOVE)
        libc.mq_unlink(f"/{name}".encode())
        shared.unlink()


def _addresses() -> list[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        try:
            opened.connect(("203.0.113.1", 9))  # nothing is sent
        except OSError:
            return []
        return [opened.getsockname()[0]]


def as_argument(target: Target) -> str:
    """Write it as the attempts read it."""
    return json.dumps(target._asdict())
