"""Attempts on processes: signals, ptrace, /proc, shared memory, limits, and ways to survive."""

import ctypes
import errno
import fcntl
import os
import resource
import select
import signal
import struct
from collections.abc import Callable

from tests.tools.escapes.attempt import Escape, Target, call, found, make, reached

_QUEUED = -1
"""SI_QUEUE, the code of a signal that carries a value."""
_VICTIM_WRITES = signal.SIGUSR1
"""The victim answers it by writing to a file of the row."""
_SEIZE, _DETACH, _ATTACH = 0x4206, 17, 16
_F_SETSIG = 10
_SEEN = "names, sizes and command lines are seen"
_PRIORITY = "their priority and processors can be changed"


def _signal_information(number: int) -> bytes:
    information = struct.pack("=iiiii", number, 0, _QUEUED, 0, os.getpid())
    return information + bytes(128 - len(information))


def _by_descriptor(target: Target) -> None:
    opened = os.pidfd_open(target.victim)
    call("pidfd_send_signal", opened, signal.SIGCONT, None, 0)


def _as_owner_of_pipe(target: Target) -> None:
    """Have the kernel send a signal because of a pipe that is said to belong to the victim."""
    reader, writer = os.pipe()
    fcntl.fcntl(reader, fcntl.F_SETOWN, target.victim)
    fcntl.fcntl(reader, _F_SETSIG, _VICTIM_WRITES)
    fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    os.write(writer, b"x")


SIGNALS = (
    Escape("signals", "kill", lambda t: os.kill(t.victim, signal.SIGCONT)),
    Escape("signals", "kill group", lambda t: os.killpg(t.victim, signal.SIGCONT)),
    Escape("signals", "thread", lambda t: call("tgkill", t.victim, t.victim, signal.SIGCONT)),
    Escape("signals", "queue", lambda t: call(
        "rt_sigqueueinfo", t.victim, signal.SIGCONT, _signal_information(signal.SIGCONT))),
    Escape("signals", "queue thread", lambda t: call("rt_tgsigqueueinfo", t.victim, t.victim,
        signal.SIGCONT, _signal_information(signal.SIGCONT))),
    Escape("signals", "descriptor", _by_descriptor),
    Escape("signals", "owner of a pipe", _as_owner_of_pipe, is_judged_outside=True),
)  # fmt: skip


def _vector(address: int, size: int) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(struct.pack("=QQ", address, size), 16)


def _trace(target: Target, how: int) -> None:
    call("ptrace", how, target.victim, 0, 0)
    if how == _ATTACH:
        os.waitpid(target.victim, 0x40000000)
    reached(lambda: call("ptrace", _DETACH, target.victim, 0, 0), errno.ESRCH)


def _read_memory(target: Target) -> None:
    size = len(target.name)
    taken = ctypes.create_string_buffer(size)
    here, there = _vector(ctypes.addressof(taken), size), _vector(target.address, size)
    call("process_vm_readv", target.victim, here, 1, there, 1, 0)
    found(taken.raw == target.name.encode())


def _write_memory(target: Target) -> None:
    given = ctypes.create_string_buffer(target.name.encode())
    here, there = _vector(ctypes.addressof(given), 4), _vector(target.address, 4)
    call("process_vm_writev", target.victim, here, 1, there, 1, 0)


def _read_memory_file(target: Target) -> None:
    with open(f"/proc/{target.victim}/mem", "rb", buffering=0) as file:
        file.seek(target.address)
        found(file.read(len(target.name)) == target.name.encode())


def _take_descriptor(target: Target) -> None:
    os.close(call("pidfd_getfd", os.pidfd_open(target.victim), 1, 0))


def _advise(target: Target) -> None:
    opened = os.pidfd_open(target.victim)
    call("process_madvise", opened, _vector(target.address & ~4095, 4096), 1, 20, 0)


PTRACE = (
    Escape("ptrace", "seize", lambda t: _trace(t, _SEIZE)),
    Escape("ptrace", "attach", lambda t: _trace(t, _ATTACH)),
    Escape("ptrace", "read memory", _read_memory),
    Escape("ptrace", "write memory", _write_memory),
    Escape("ptrace", "memory file", _read_memory_file),
    Escape("ptrace", "take descriptor", _take_descriptor),
    Escape("ptrace", "compare", lambda t: call("kcmp", os.getpid(), t.victim, 1, 0, 0)),
    Escape("ptrace", "advise", _advise, needs="process_madvise"),
    Escape("ptrace", "move pages", lambda t: call(
        "move_pages", t.victim, 0, None, None, None, 0), needs="NUMA"),
    Escape("ptrace", "migrate pages", lambda t: call(
        "migrate_pages", t.victim, 64, struct.pack("=Q", 1), struct.pack("=Q", 1)), needs="NUMA"),
    Escape("ptrace", "robust list", lambda t: call("get_robust_list", t.victim,
        ctypes.create_string_buffer(8), ctypes.create_string_buffer(8))),
)  # fmt: skip


def _read_of(target: Target, name: str) -> None:
    with open(f"/proc/{target.victim}/{name}", "rb") as file:
        found(target.name.encode() in file.read())


def _write_to(path: str, content: str) -> None:
    opened = os.open(path, os.O_WRONLY)
    os.write(opened, content.encode())


def _writable(path: str) -> None:
    """Open what it would be harmful to write to."""
    os.close(os.open(path, os.O_WRONLY))


PROC = (
    Escape("proc", "environment", lambda t: _read_of(t, "environ")),
    Escape("proc", "command line", lambda t: _read_of(t, "cmdline"), gap=_SEEN),
    Escape("proc", "root", lambda t: os.listdir(f"/proc/{t.victim}/root/")),
    Escape("proc", "folder", lambda t: os.listdir(f"/proc/{t.victim}/cwd/")),
    Escape("proc", "descriptors", lambda t: os.listdir(f"/proc/{t.victim}/fd"), gap=_SEEN),
    Escape("proc", "open file", lambda t: os.open(f"/proc/{t.victim}/fd/1", os.O_WRONLY)),
    Escape("proc", "maps", lambda t: found(open(f"/proc/{t.victim}/maps").read())),
    Escape("proc", "mapped files", lambda t: os.listdir(f"/proc/{t.victim}/map_files")),
    Escape("proc", "out of memory", lambda t: _write_to(f"/proc/{t.victim}/oom_score_adj", "9")),
    Escape("proc", "core filter", lambda t: _write_to(
        f"/proc/{t.victim}/coredump_filter", "0x33")),
    Escape("proc", "core pattern", lambda _: _writable("/proc/sys/kernel/core_pattern"),
        needs="root"),
    Escape("proc", "system request", lambda _: _writable("/proc/sysrq-trigger"), needs="root"),
    Escape("proc", "module loader", lambda _: _writable("/proc/sys/kernel/modprobe"),
        needs="root and modules"),
    Escape("proc", "host name", lambda _: _writable("/proc/sys/kernel/hostname"), needs="root"),
    Escape("proc", "uevent helper", lambda _: _writable("/sys/kernel/uevent_helper"),
        needs="root and a helper"),
    Escape("proc", "memory of the kernel", lambda _: os.open("/proc/kcore", os.O_RDONLY),
        needs="root and kcore"),
    Escape("proc", "control group", lambda _: _writable("/sys/fs/cgroup/cgroup.procs"),
        needs="root and cgroups"),
)  # fmt: skip


def _attach(target: Target) -> None:
    """Read what is kept in the segment, whose address does not fit what `call` returns."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(target.shm, None, 0)
    if address in {None, ctypes.c_void_p(-1).value}:
        raise OSError(ctypes.get_errno(), "shmat")
    found(ctypes.string_at(address, len(target.name)) == target.name.encode())


def _receive(target: Target) -> None:
    message = ctypes.create_string_buffer(8 + 100)
    call("msgrcv", target.queue, message, 100, 0, 0o4000)
    found(target.name.encode() in message.raw)


def _read_shared(target: Target) -> None:
    with open(f"/dev/shm/{target.name}", "rb") as file:
        found(file.read())


SHM = (
    Escape("shm", "attach", _attach),
    Escape("shm", "by key", lambda t: call("shmget", t.key, 1, 0)),
    Escape("shm", "about", lambda t: call("shmctl", t.shm, 2, ctypes.create_string_buffer(256))),
    Escape("shm", "receive", _receive),
    Escape("shm", "queue by key", lambda t: call("msgget", t.key, 0)),
    Escape("shm", "send", lambda t: call("msgsnd", t.queue, struct.pack("=q4s", 1, b"gone"), 4, 0)),
    Escape("shm", "semaphore", lambda t: call("semctl", t.semaphore, 0, 12, 0)),
    Escape("shm", "raise semaphore", lambda t: call(
        "semop", t.semaphore, struct.pack("=HhH", 0, 1, 0), 1)),
    Escape("shm", "named memory", _read_shared),
    Escape("shm", "write named memory", lambda t: _write_to(f"/dev/shm/{t.name}", "escaped")),
    Escape("shm", "named queue", lambda t: os.close(call(
        "mq_open", t.name.encode(), os.O_RDWR, 0, None))),
)  # fmt: skip

_FILES = resource.RLIMIT_NOFILE


def _limit(target: Target) -> None:
    call("prlimit64", target.victim, _FILES, struct.pack("=QQ", 64, 64), None)


def _schedule(target: Target) -> None:
    """Set what says in one structure how a process is scheduled."""
    call("sched_setattr", target.victim, struct.pack("=IIQiIQQQ", 48, 3, 0, 19, 0, 0, 0, 0), 0)


LIMITS = (
    Escape("limits of others", "set", _limit),
    Escape("limits of others", "look", lambda t: call("prlimit64", t.victim, _FILES, None,
        ctypes.create_string_buffer(16))),
    Escape("limits of others", "by the library", lambda t: resource.prlimit(t.victim, _FILES)),
    *(
        Escape("limits of others", name, attempt, gap=_PRIORITY)
        for name, attempt in (
            ("priority", lambda t: os.setpriority(os.PRIO_PROCESS, t.victim, 19)),
            ("processors", lambda t: os.sched_setaffinity(t.victim, {0})),
            ("policy", lambda t: os.sched_setscheduler(
                t.victim, os.SCHED_BATCH, os.sched_param(0))),
            ("schedule", _schedule),
            ("disk priority", lambda t: call("ioprio_set", 1, t.victim, 3 << 13)),
        )
    ),
)  # fmt: skip

_LIFETIME = 30.0


def _live(ready: int, *, stops: bool) -> None:
    """Hold a lock for as long as this process lives."""
    held = os.open(make("lock"), os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    with open("pid", "w") as file:
        file.write(str(os.getpid()))
    os.write(ready, b"x")
    os.close(ready)
    if stops:
        os.kill(os.getpid(), signal.SIGSTOP)
    select.select([], [], [], _LIFETIME)
    os._exit(0)


def _surviving(
    leave: Callable[[Callable[[], None]], None], *, stops: bool
) -> Callable[[Target], None]:
    """Return an attempt that leaves a process behind and waits until it lives."""

    def attempt(_: Target) -> None:
        reader, writer = os.pipe()
        leave(lambda: _live(writer, stops=stops))
        os.close(writer)
        os.read(reader, 1)

    return attempt


def _fork_away(live: Callable[[], None]) -> None:
    if os.fork() == 0:
        if os.fork() == 0:
            live()
        os._exit(0)


def _ignoring(live: Callable[[], None]) -> None:
    if os.fork() == 0:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        _fork_away(live)
        os._exit(0)


def _adopting(live: Callable[[], None]) -> None:
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # become the parent of orphans below
        _fork_away(live)
        select.select([], [], [], _LIFETIME)
        os._exit(0)


def _chain(live: Callable[[], None]) -> None:
    """Have every process of a chain end at once, so that the last one has no parent."""
    if os.fork() > 0:
        return
    for _ in range(20):
        os.setsid()
        if os.fork() > 0:
            os._exit(0)
    live()


def _sibling(live: Callable[[], None]) -> None:
    """Make a child of the parent's, beside this process."""
    clone_parent = 0x8000
    if call("clone", clone_parent | signal.SIGCHLD, 0, 0, 0, 0) == 0:
        live()


SURVIVORS = tuple(
    Escape("survivors", name, _surviving(leave, stops=stops), is_judged_outside=True)
    for name, leave, stops in (
        ("double fork", _fork_away, False),
        ("ignored signals", _ignoring, False),
        ("adopted", _adopting, False),
        ("chain of forks", _chain, False),
        ("sibling", _sibling, False),
        ("stopped", _fork_away, True),
    )
)
