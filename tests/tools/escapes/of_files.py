"""Attempts on files: those outside, their modes and times, the root's `.git`, set-id bits."""

import ctypes
import errno
import mmap
import os
import socket
import stat

from tests.tools.escapes.attempt import (
    HERE,
    Escape,
    Target,
    call,
    found,
    give_name,
    make,
    reached,
    write,
)

_ATTRIBUTES = "their modes, owners, times and extended attributes can be changed"
_EXCHANGE = 2
_ACL = bytes.fromhex("0200000001000600ffffffff04000400ffffffff20000400ffffffff")
"""The same rights as a mode of 0644, as an access control list."""


def _rename_over(own: str, target: str) -> None:
    os.rename(make(own), target)


def _link_to(target: str) -> str:
    os.symlink(target, "link")
    return "link"


def _link_in(target: str) -> None:
    os.link(target, "linked")
    write("linked")


def _upwards(path: str) -> str:
    return "../" * 40 + path.lstrip("/")


def _write_by_folder(target: Target) -> None:
    folder = os.open(target.folder, os.O_PATH | os.O_DIRECTORY)
    write("file", folder=folder)


def _reopen(path: str) -> None:
    write(f"/proc/self/fd/{os.open(path, os.O_PATH)}")


def _temporary_file(target: Target) -> None:
    opened = os.open(target.folder, os.O_TMPFILE | os.O_WRONLY, 0o644)
    give_name(opened, f"{target.folder}/made")


def _exchange(own: str, target: str) -> None:
    call("renameat2", HERE, own.encode(), HERE, target.encode(), _EXCHANGE)


def _map(target: Target) -> None:
    opened = os.open(target.file, os.O_RDWR)
    with mmap.mmap(opened, 4) as mapped:
        mapped[:4] = b"gone"


def _read(path: str, wanted: str) -> None:
    with open(path, "rb") as file:
        found(wanted.encode() in file.read())


def _by_handle(target: Target) -> None:
    handle = ctypes.create_string_buffer(128)
    handle.raw = (120).to_bytes(4, "little") + bytes(124)
    mount = ctypes.create_string_buffer(4)
    call("name_to_handle_at", HERE, target.file.encode(), handle, mount, 0)
    opened = call("open_by_handle_at", os.open(target.root, os.O_RDONLY), handle, os.O_WRONLY)
    os.write(opened, b"escaped")


FILES = (
    Escape("files outside", "write", lambda t: write(t.file)),
    Escape("files outside", "append", lambda t: write(t.file, flags=os.O_APPEND)),
    Escape("files outside", "truncate", lambda t: os.truncate(t.file, 0)),
    Escape("files outside", "empty", lambda t: write(t.file, flags=os.O_TRUNC)),
    Escape("files outside", "map", _map),
    Escape("files outside", "create", lambda t: make(f"{t.folder}/new")),
    Escape("files outside", "unlink", lambda t: os.unlink(t.file)),
    Escape("files outside", "rename", lambda t: os.rename(t.file, f"{t.folder}/other")),
    Escape("files outside", "replace", lambda t: _rename_over("own", t.file)),
    Escape("files outside", "exchange", lambda t: _exchange(make("own"), t.file)),
    Escape("files outside", "carry in", lambda t: os.rename(t.file, "taken")),
    Escape("files outside", "make folder", lambda t: os.mkdir(f"{t.folder}/new")),
    Escape("files outside", "remove folder", lambda t: os.rmdir(f"{t.folder}/folder")),
    Escape("files outside", "make symlink", lambda t: os.symlink("file", f"{t.folder}/new")),
    Escape("files outside", "make pipe", lambda t: os.mkfifo(f"{t.folder}/new")),
    Escape("files outside", "make node", lambda t: os.mknod(f"{t.folder}/new", stat.S_IFREG)),
    Escape("files outside", "link out", lambda t: os.link(make("own"), f"{t.folder}/new")),
    Escape("files outside", "link in", lambda t: _link_in(t.file)),
    Escape("files outside", "through symlink", lambda t: write(_link_to(t.file))),
    Escape("files outside", "through folder link", lambda t: write(
        f"{_link_to(t.folder)}/file")),
    Escape("files outside", "upwards", lambda t: write(_upwards(t.file))),
    Escape("files outside", "proc root", lambda t: write(f"/proc/self/root{t.file}")),
    Escape("files outside", "proc cwd", lambda t: write(f"/proc/self/cwd/{_upwards(t.file)}")),
    Escape("files outside", "opened folder", _write_by_folder),
    Escape("files outside", "reopened descriptor", lambda t: _reopen(t.file)),
    Escape("files outside", "nameless file", _temporary_file),
    Escape("files outside", "handle", _by_handle, needs="root"),
    Escape("files outside", "bind socket", lambda t: socket.socket(socket.AF_UNIX).bind(
        os.path.relpath(f"{t.folder}/s"))),
    Escape("files outside", "temporary folder", lambda t: write(f"{t.temporary}/file")),
    Escape("files outside", "read secret", lambda t: _read(t.secret, t.name)),
    Escape("files outside", "read secret by proc", lambda t: _read(
        f"/proc/self/root{t.secret}", t.name)),
    Escape("files outside", "list secrets", lambda t: found(
        os.listdir(os.path.dirname(t.secret)))),
    Escape("files outside", "system", lambda _: os.unlink(
        make("/etc/haptera-escape")), needs="root"),
)  # fmt: skip


def _chmod_by_descriptor(path: str) -> None:
    os.chmod(f"/proc/self/fd/{os.open(path, os.O_PATH)}", 0o600)


def _on_folder(target: Target) -> None:
    folder = os.open(target.folder, os.O_PATH | os.O_DIRECTORY)
    os.utime("file", (1, 1), dir_fd=folder)


def _change_acl(path: str) -> None:
    os.setxattr(path, "system.posix_acl_access", _ACL)


ATTRIBUTES = tuple(
    Escape("attributes outside", name, attempt, gap=_ATTRIBUTES, needs=needs)
    for name, attempt, needs in (
        ("chmod", lambda t: os.chmod(t.file, 0o600), None),
        ("chmod of folder", lambda t: os.chmod(t.folder, 0o700), None),
        ("chmod by descriptor", lambda t: _chmod_by_descriptor(t.file), None),
        ("fchmodat2", lambda t: call("fchmodat2", HERE, t.file.encode(), 0o600, 0), "Linux 6.6"),
        ("chmod through link", lambda t: os.chmod(_link_to(t.file), 0o600), None),
        ("chown", lambda t: os.chown(t.file, os.getuid(), os.getgid()), None),
        ("lchown", lambda t: os.lchown(t.file, os.getuid(), os.getgid()), None),
        ("utime", lambda t: os.utime(t.file, (1, 1)), None),
        ("utime of folder", lambda t: os.utime(t.folder, (1, 1)), None),
        ("utime by folder", _on_folder, None),
        ("set attribute", lambda t: os.setxattr(t.file, "user.new", b"x"), "user xattrs"),
        ("remove attribute", lambda t: os.removexattr(t.file, "user.kept"), "user xattrs"),
        ("access list", lambda t: _change_acl(t.file), "ACLs"),
    )
)


def _replaced_by_link(target: Target) -> None:
    os.rename(f"{target.root}/.git", f"{target.root}/.aside")
    try:
        os.symlink(target.folder, f"{target.root}/.git")
        os.unlink(f"{target.root}/.git")
    finally:
        os.rename(f"{target.root}/.aside", f"{target.root}/.git")


def _exchanged(target: Target) -> None:
    os.mkdir("other")
    for _ in range(2):
        _exchange("other", f"{target.root}/.git")


def _by_open_folder(target: Target) -> None:
    os.chdir(f"{target.root}/.git")
    write(f"/proc/self/fd/{os.open('.', os.O_RDONLY)}/{target.row}")


def _hook(target: Target) -> str:
    os.makedirs(f"{target.root}/.git/hooks", exist_ok=True)
    return make(f"{target.root}/.git/hooks/{target.row}")


def _settings(target: Target) -> None:
    os.mkdir(f"{target.root}/.haptera")
    make(f"{target.root}/.haptera/config.toml")


def _former_settings(target: Target) -> None:
    os.mkdir(f"{target.root}/.holdfast")
    make(f"{target.root}/.holdfast/config.toml")


GIT = (
    Escape("git", "write", lambda t: write(t.git_file)),
    Escape("git", "append", lambda t: write(t.git_file, flags=os.O_APPEND)),
    Escape("git", "truncate", lambda t: os.truncate(t.git_file, 0)),
    Escape("git", "unlink", lambda t: os.unlink(t.git_file)),
    Escape("git", "rename", lambda t: os.rename(t.git_file, f"{t.git_file}-new")),
    Escape("git", "carry out", lambda t: os.rename(t.git_file, "taken")),
    Escape("git", "replace", lambda t: _rename_over("own", t.git_file)),
    Escape("git", "exchange", lambda t: _exchange(make("own"), t.git_file)),
    Escape("git", "link", lambda t: _link_in(t.git_file)),
    Escape("git", "symlink", lambda t: write(_link_to(t.git_file))),
    Escape("git", "hook", _hook),
    Escape("git", "folder replaced", _replaced_by_link),
    Escape("git", "folder exchanged", _exchanged),
    Escape("git", "by open folder", _by_open_folder),
    Escape("git", "nameless file", lambda t: give_name(
        os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o644), f"{t.git_file}-new")),
    Escape("git", "through proc", lambda t: write(f"/proc/self/root{t.git_file}")),
    Escape("git", "settings of a project", _settings),
    Escape("git", "settings under the former name", _former_settings),
    Escape("git", "chmod", lambda t: os.chmod(t.git_file, 0o600), gap=_ATTRIBUTES),
    Escape("git", "utime", lambda t: os.utime(t.git_file, (1, 1)), gap=_ATTRIBUTES),
)  # fmt: skip


def _is_set_id(name: str) -> None:
    found(os.stat(name).st_mode & (stat.S_ISUID | stat.S_ISGID))


def _chmod(mode: int) -> None:
    os.chmod(make("own"), mode)
    _is_set_id("own")


def _fchmod() -> None:
    os.fchmod(os.open(make("own"), os.O_RDONLY), 0o6755)
    _is_set_id("own")


def _make_set_id(name: str, *arguments: int | bytes) -> None:
    call(name, *arguments)
    _is_set_id("made")


def _open_set_id() -> None:
    os.close(os.open("made", os.O_CREAT | os.O_WRONLY, 0o4755))
    _is_set_id("made")


def _nameless_set_id() -> None:
    opened = os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o4755)
    give_name(opened, "made")
    _is_set_id("made")


def _openat2_set_id() -> None:
    how = b"".join(each.to_bytes(8, "little") for each in (os.O_CREAT | os.O_WRONLY, 0o4755, 0))
    _make_set_id("openat2", HERE, b"made", how, len(how))


def _give_capability() -> None:
    permitted = (1 << 21).to_bytes(4, "little")
    value = 0x02000001.to_bytes(4, "little") + permitted + bytes(12)
    os.setxattr(make("own"), "security.capability", value)


SET_ID = (
    Escape("set-id", "chmod user", lambda _: _chmod(0o4755)),
    Escape("set-id", "chmod group", lambda _: _chmod(0o2755)),
    Escape("set-id", "fchmod", lambda _: _fchmod()),
    Escape("set-id", "fchmodat", lambda _: _make_set_id(
        "fchmodat", HERE, make("made").encode(), 0o4755)),
    Escape("set-id", "fchmodat2", lambda _: _make_set_id(
        "fchmodat2", HERE, make("made").encode(), 0o4755, 0), needs="Linux 6.6"),
    Escape("set-id", "open", lambda _: _open_set_id()),
    Escape("set-id", "openat2", lambda _: _openat2_set_id()),
    Escape("set-id", "creat", lambda _: _make_set_id("creat", b"made", 0o4755), needs="x86_64"),
    Escape("set-id", "mknod", lambda _: _make_set_id(
        "mknodat", HERE, b"made", stat.S_IFREG | 0o4755, 0)),
    Escape("set-id", "nameless file", lambda _: _nameless_set_id()),
    Escape("set-id", "capability", lambda _: _give_capability(), needs="root"),
)  # fmt: skip


def _mount(*arguments: int | bytes | None) -> None:
    call("mount", *arguments)
    call("umount2", os.path.realpath("place").encode(), 2)


def _at_place(attempt: object, *codes: int) -> None:
    os.mkdir("place")
    if callable(attempt):
        reached(attempt, *codes)


MOUNTS = (
    Escape("mounts", "tmpfs", lambda _: _at_place(
        lambda: _mount(b"none", b"place", b"tmpfs", 0, None)), needs="root"),
    Escape("mounts", "bind", lambda t: _at_place(
        lambda: _mount(t.outside.encode(), b"place", None, 0x1000, None)), needs="root"),
    Escape("mounts", "writable again", lambda _: _at_place(
        lambda: call("mount", None, b"place", None, 0x1020, None), errno.EINVAL), needs="root"),
    Escape("mounts", "unmount", lambda t: reached(
        lambda: call("umount2", f"{t.root}/.git".encode(), 2), errno.EINVAL), needs="root"),
    Escape("mounts", "pivot root", lambda _: _at_place(
        lambda: call("pivot_root", b"place", b"place"), errno.EINVAL, errno.EBUSY), needs="root"),
    Escape("mounts", "chroot", lambda _: call("chroot", b"."), needs="root"),
    Escape("mounts", "new file system", lambda _: call("fsopen", b"tmpfs", 0), needs="root"),
    Escape("mounts", "copy of a tree", lambda t: call(
        "open_tree", HERE, t.outside.encode(), 1), needs="root"),
    Escape("mounts", "pick", lambda _: call("fspick", HERE, b"/proc", 0), needs="root"),
    Escape("mounts", "move", lambda _: _at_place(
        lambda: call("move_mount", HERE, b"place", HERE, b"place", 0),
        errno.EINVAL, errno.ELOOP), needs="root"),
    Escape("mounts", "attributes", lambda _: _at_place(
        lambda: call("mount_setattr", HERE, b"place", 0, bytes(32), 32), errno.EINVAL),
        needs="root"),
    Escape("mounts", "swap", lambda _: reached(
        lambda: call("swapon", make("own").encode(), 0), errno.EINVAL), needs="root"),
)  # fmt: skip
