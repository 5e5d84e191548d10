"""What a confined command sees of the file system, made of mounts that only it has.

The whole tree is read-only. Over it lie the root and the temporary folder, writable; a small
`/dev` and a `/proc` of its own; and nothing where something is hidden. Everything is mounted on
descriptors: no path inside the root is looked up, because others may change what it leads to.

Standard library only: the launcher imports this without the rest of the package.
"""

import contextlib
import errno
import os
import stat

from haptera.tools.sandbox.kernel import (
    NO_DEVICES,
    NO_PROGRAMS,
    NO_SETUID,
    READ_ONLY,
    RESOLVE_BENEATH,
    RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS,
    attach_mount,
    clone_tree,
    make_filesystem,
    make_mounts_private,
    openat2,
    restrict_mount,
)
from haptera.tools.sandbox.plan import LASTING_TEMPORARY, TEMPORARY, Plan, is_beneath
from haptera.tools.sandbox.privileges import write_file

_CLOSED = READ_ONLY | NO_SETUID | NO_DEVICES
_OPEN = NO_SETUID | NO_DEVICES
_DEVICES = ("null", "zero", "full", "random", "urandom")
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
_COVERED = ("/run", "/mnt/wslg", "/var/lib/incus", "/var/lib/lxd", "/var/snap/lxd")
"""Folders of sockets, through which programs outside can be asked to act."""
_SOCKETS = "/proc/net/unix"
_COLUMNS_BEFORE_PATH = 7
_MOST_NAMESPACES = "/proc/sys/user/max_user_namespaces"


def bound_sockets(root: str) -> list[str] | None:
    """Return the paths of UNIX sockets in this network namespace; None if they are not told.

    A relative one is taken to be in the root: the program that bound it may have gone to another
    folder since, and where it was is not recorded.
    """
    try:
        with open(_SOCKETS, "rb") as file:
            lines = file.read().splitlines()[1:]
    except OSError:
        return None
    columns = [line.split(None, _COLUMNS_BEFORE_PATH) for line in lines]
    names = {row[-1] for row in columns if len(row) > _COLUMNS_BEFORE_PATH}
    return sorted({os.path.realpath(os.path.join(root, os.fsdecode(name))) for name in names})


def build_view(plan: Plan, sockets: list[str]) -> list[str]:
    """Make the view in a new mount namespace and go to the command's folder.

    `sockets` are hidden wherever they are. Returns what could not be made and is not needed for the
    others to hold.
    """
    missing = []
    make_mounts_private()
    with contextlib.suppress(OSError):
        # While `/proc` can be written: the command gets one that cannot.
        write_file(_MOST_NAMESPACES, "0")
    # All copies are made before the whole tree becomes read-only: a copy has the restrictions of
    # its mount, and they can only be added to.
    root = _clone(plan.root, identity=plan.root_identity)
    # Twice, because a tree can be attached once.
    temporary = [_clone(plan.temporary) for _ in range(2)]
    writable = [(path, _clone(path)) for path in plan.writable]
    exposed = [(path, _clone(path)) for path in plan.exposed]
    nothing = _clone("/dev/null")
    devices = [(name, _clone(f"/dev/{name}")) for name in _DEVICES]
    _restrict("/", _CLOSED, recursive=True)
    for tree in (root, *temporary, *(tree for _, tree in writable)):
        restrict_mount(tree, _OPEN, recursive=True)
    restrict_mount(nothing, READ_ONLY | NO_SETUID, recursive=False)
    for _, tree in exposed:
        restrict_mount(tree, _CLOSED, recursive=True)
    _make_devices(devices)
    covers = [_cover(os.path.realpath(path)) for path in _COVERED if os.path.isdir(path)]
    attach_mount(temporary[0], _open(TEMPORARY))
    with contextlib.suppress(OSError):
        attach_mount(temporary[1], _open(LASTING_TEMPORARY))
    inside = _hidden_beneath_attached(plan)
    covers += _hide([path for path in plan.hidden if path not in inside], nothing)
    for path, tree in [*exposed, *writable, (plan.root, root)]:
        _attach_at(path, tree)
    # These are beneath the trees that were just attached, which would cover what was hidden before.
    covers += _hide(inside, nothing, writable=(plan.root, *plan.writable))
    _hide_sockets(sockets, nothing)
    for cover in covers:
        restrict_mount(cover, READ_ONLY, recursive=False)
    for name in plan.protected:
        _protect(root, name)
    if not _mount_processes():
        missing.append("a /proc of its own")
    _enter(root, plan.folder)
    return missing


def _hidden_beneath_attached(plan: Plan) -> list[str]:
    attached = (plan.root, *plan.writable, *plan.exposed)
    return [path for path in plan.hidden if any(is_beneath(path, each) for each in attached)]


def _enter(root: int, folder: str) -> None:
    """Go to the command's folder through the new mounts; a descriptor from before leads around."""
    flags, resolve = os.O_PATH | os.O_DIRECTORY, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS
    os.fchdir(openat2(root, os.fsencode(folder), flags=flags, resolve=resolve))


def _clone(path: str, *, identity: list[int] | None = None) -> int:
    descriptor = _open(path)
    facts = os.fstat(descriptor)
    if identity is not None and [facts.st_dev, facts.st_ino] != identity:
        raise OSError(errno.ESTALE, f"{path} is not the folder that it was")
    return clone_tree(descriptor)


def _open(path: str) -> int:
    """Open what a path names; the caller has resolved its links."""
    top = os.open("/", os.O_PATH | os.O_CLOEXEC)
    relative = os.fsencode(path.lstrip("/")) or b"."
    return openat2(top, relative, flags=os.O_PATH, resolve=RESOLVE_NO_SYMLINKS)


def _attach_at(path: str, tree: int) -> None:
    """Attach a tree at its path, which is gone where its parent was covered."""
    is_folder = stat.S_ISDIR(os.fstat(tree).st_mode)
    os.makedirs(path if is_folder else os.path.dirname(path), exist_ok=True)
    if not is_folder:
        os.close(os.open(path, os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC, 0o444))
    attach_mount(tree, _open(path))


def _restrict(path: str, attributes: int, *, recursive: bool) -> None:
    restrict_mount(_open(path), attributes, recursive=recursive)


def _empty(mode: str = "755", size: str = "4k") -> int:
    return make_filesystem("tmpfs", {"mode": mode, "size": size}, attributes=_OPEN)


def _cover(path: str) -> int:
    """Put an empty folder over one; it is still writable, so that mount points can be made."""
    cover = _empty()
    attach_mount(cover, _open(path))
    return cover


def _hide(paths: list[str], nothing: int, *, writable: tuple[str, ...] = ()) -> list[int]:
    """Cover folders with empty ones and everything else with nothing to read."""
    _hold_above(paths, writable)
    covers = []
    for path in paths:
        # It is beneath something that is covered already, or gone.
        with contextlib.suppress(FileNotFoundError):
            target = _open(path)
            if stat.S_ISDIR(os.fstat(target).st_mode):
                covers.append(_empty(mode="555"))
                attach_mount(covers[-1], target)
            else:
                attach_mount(clone_tree(nothing), target)
    return covers


def _hold_above(hidden: list[str], writable: tuple[str, ...]) -> None:
    """Make mount points of the folders above what is hidden: these cannot be moved away."""
    held: set[str] = set()
    for path in hidden:
        tops = [top for top in writable if is_beneath(path, top)]
        above = os.path.dirname(path)
        while tops and above not in {*tops, *held}:
            held.add(above)
            above = os.path.dirname(above)
    for folder in sorted(held):  # the one above first
        with contextlib.suppress(FileNotFoundError):
            target = _open(folder)
            attach_mount(clone_tree(target), target)


def _hide_sockets(paths: list[str], nothing: int) -> None:
    """Cover sockets, and nothing else: a program chooses what the kernel lists as its path.

    One that is bound later is not covered, nor one that is bound again at the same path.
    """
    for path in paths:
        try:
            target = _open(path)
        except OSError:  # gone, beneath something that is covered, or out of reach anyway
            continue
        if stat.S_ISSOCK(os.fstat(target).st_mode):
            cover = clone_tree(nothing)
            attach_mount(cover, target)
            os.close(cover)
        os.close(target)


def _make_devices(devices: list[tuple[str, int]]) -> None:
    """Put a `/dev` with the harmless devices over the machine's."""
    # Not NO_DEVICES: that is judged by the mount of each device, and these are mounts of their own.
    dev_folder = make_filesystem("tmpfs", {"mode": "755", "size": "64k"}, attributes=NO_SETUID)
    for name, _ in devices:
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o666, dir_fd=dev_folder))
    for name, target in _LINKS.items():
        os.symlink(target, name, dir_fd=dev_folder)
    for name in ("shm", "pts"):
        os.mkdir(name, dir_fd=dev_folder)
    attach_mount(dev_folder, _open("/dev"))
    for name, tree in devices:
        attach_mount(tree, os.open(name, os.O_PATH, dir_fd=dev_folder))
    attach_mount(_empty(mode="1777", size="256m"), os.open("shm", os.O_PATH, dir_fd=dev_folder))
    settings = {"ptmxmode": "0666", "mode": "0620"}
    with contextlib.suppress(OSError):
        terminals = make_filesystem("devpts", settings, attributes=NO_SETUID | NO_PROGRAMS)
        attach_mount(terminals, os.open("pts", os.O_PATH, dir_fd=dev_folder))
        os.symlink("pts/ptmx", "ptmx", dir_fd=dev_folder)
    restrict_mount(dev_folder, READ_ONLY, recursive=False)


def _protect(root: int, name: str) -> None:
    """Make one name in the root read-only; as a mount point it cannot be moved away, either."""
    target = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=root)
    if stat.S_ISLNK(os.fstat(target).st_mode):
        raise OSError(errno.ELOOP, f"{name} is a symbolic link and cannot be made read-only")
    tree = clone_tree(target)
    restrict_mount(tree, _CLOSED, recursive=True)
    attach_mount(tree, target)


def _mount_processes() -> bool:
    """Mount a `/proc` of the new process namespace, read-only: root may write there otherwise."""
    try:
        # Refused in containers whose own `/proc` is partly covered: a new one would show those
        # parts.
        attach_mount(make_filesystem("proc", {}, attributes=_CLOSED | NO_PROGRAMS), _open("/proc"))
    except OSError:
        return False
    return True
