"""A file system that takes names for the same whatever their case and Unicode form.

It keeps its files in a folder of the disk below and shows them elsewhere, by the protocol of
`/dev/fuse`: `case_insensitive_disk FOLDER PLACE`. As on the usual disks of macOS, a name is listed
as it was written first, and leads to its file in any other spelling.
"""

import ctypes
import errno
import os
import stat
import struct
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.architecture.source_tree import ROOT

_HEADER, _REPLY = struct.Struct("<IIQQIIIHH"), struct.Struct("<IiQ")
_ATTRIBUTES, _DIRENT = struct.Struct("<6Q10I"), struct.Struct("<QQII")
_SETATTR = struct.Struct("<II6Q8I")
_MODE, _OWNER, _GROUP, _SIZE, _MTIME, _MTIME_NOW = 1, 2, 4, 8, 32, 256
_LONGEST_WRITE, _BIG_WRITES, _DETACH = 1 << 17, 1 << 5, 2
_BY_HANDLE = 1


class Disk:
    """Answers the kernel. Nodes are names in folders; what they lead to is looked up each time."""

    def __init__(self, below: str) -> None:
        self._names: dict[int, tuple[int, str]] = {1: (0, below)}
        self._nodes: dict[tuple[int, str], int] = {}
        self._answers: dict[int, Callable[[int, bytes], bytes]] = {
            1: self._look_up,
            3: self._get,
            4: self._set,
            5: lambda node, _: os.fsencode(Path(self._path(node)).readlink()),
            6: self._symlink,
            9: self._mkdir,
            10: lambda node, data: self._remove(node, data, os.unlink),
            11: lambda node, data: self._remove(node, data, os.rmdir),
            12: lambda node, data: self._rename(node, data, 8),
            13: self._link,
            14: self._open,
            15: self._read,
            16: self._write,
            17: self._space,
            18: self._release,
            20: self._sync,
            25: lambda node, data: b"",
            26: self._begin,
            27: lambda node, data: struct.pack("<QII", 0, 0, 0),
            28: self._list,
            29: lambda node, data: b"",
            30: lambda node, data: b"",
            35: self._create,
            45: lambda node, data: self._rename(node, data, 16),
        }

    def serve(self, device: int) -> None:
        """Answer until the file system is taken away."""
        while True:
            try:
                request = os.read(device, _LONGEST_WRITE + 4096)
            except OSError:
                return
            _, operation, unique, node, *_ = _HEADER.unpack_from(request)
            if operation in {2, 36, 42}:  # forget, interrupt: nothing is expected
                continue
            reply, code = b"", 0
            try:
                reply = self._answers[operation](node, request[_HEADER.size :])
            except KeyError:
                code = errno.ENOSYS
            except OSError as error:
                code = error.errno or errno.EIO
            os.write(device, _REPLY.pack(_REPLY.size + len(reply), -code, unique) + reply)

    def _path(self, node: int) -> str:
        above, name = self._names[node]
        return self._found(self._path(above), name) if above else name

    @staticmethod
    def _found(folder: str, name: str) -> str:
        """Return the path of what a name leads to, or that of something new."""
        path = f"{folder}/{name}"
        if not os.path.lexists(path):
            same = [each for each in Path(folder).iterdir() if _folded(each.name) == _folded(name)]
            path = str(same[0]) if same else path
        return path

    def _at(self, folder: int, name: str) -> str:
        return self._found(self._path(folder), name)

    def _entry(self, folder: int, name: str) -> bytes:
        attributes = _attributes(os.lstat(self._at(folder, name)))
        node = self._nodes.setdefault((folder, name), len(self._names) + 1)
        self._names.setdefault(node, (folder, name))
        return struct.pack("<QQQQII", node, 0, 0, 0, 0, 0) + attributes

    def _look_up(self, node: int, data: bytes) -> bytes:
        return self._entry(node, _text(data))

    def _get(self, node: int, data: bytes) -> bytes:
        flags, _, handle = struct.unpack_from("<IIQ", data)
        facts = os.fstat(handle) if flags & _BY_HANDLE else os.lstat(self._path(node))
        return struct.pack("<QII", 0, 0, 0) + _attributes(facts)

    def _set(self, node: int, data: bytes) -> bytes:
        path = self._path(node)
        (valid, _, _, size, _, _, mtime, _, _, mtime_ns, _, mode, _, user, group, _) = (
            _SETATTR.unpack_from(data)
        )
        if valid & (_OWNER | _GROUP):
            os.lchown(path, user if valid & _OWNER else -1, group if valid & _GROUP else -1)
        if valid & _MODE:
            Path(path).chmod(stat.S_IMODE(mode))
        if valid & _SIZE:
            os.truncate(path, size)
        if valid & _MTIME_NOW:
            os.utime(path, follow_symlinks=False)
        elif valid & _MTIME:
            time = mtime * 10**9 + mtime_ns
            os.utime(path, ns=(time, time), follow_symlinks=False)
        return struct.pack("<QII", 0, 0, 0) + _attributes(os.lstat(path))

    def _symlink(self, node: int, data: bytes) -> bytes:
        name, leads_to = data.split(b"\0")[:2]
        Path(self._at(node, os.fsdecode(name))).symlink_to(os.fsdecode(leads_to))
        return self._entry(node, os.fsdecode(name))

    def _mkdir(self, node: int, data: bytes) -> bytes:
        mode, _ = struct.unpack_from("<II", data)
        Path(self._at(node, _text(data[8:]))).mkdir(mode)
        return self._entry(node, _text(data[8:]))

    def _remove(self, node: int, data: bytes, remove: Callable[[str], None]) -> bytes:
        remove(self._at(node, _text(data)))
        self._nodes.pop((node, _text(data)), None)
        return b""

    def _rename(self, node: int, data: bytes, begin: int) -> bytes:
        (folder,) = struct.unpack_from("<Q", data)
        old, new = (os.fsdecode(name) for name in data[begin:].split(b"\0")[:2])
        source, target = self._at(node, old), self._at(folder, new)
        # What was renamed to another spelling of its name is listed under that one.
        Path(source).rename(f"{self._path(folder)}/{new}" if source == target else target)
        moved = self._nodes.pop((node, old), None)
        self._nodes.pop((folder, new), None)
        if moved is not None:
            self._names[moved] = (folder, new)
            self._nodes[folder, new] = moved
        return b""

    def _link(self, node: int, data: bytes) -> bytes:
        (source,) = struct.unpack_from("<Q", data)
        name = _text(data[8:])
        os.link(self._path(source), self._at(node, name), follow_symlinks=False)
        return self._entry(node, name)

    def _open(self, node: int, data: bytes) -> bytes:
        flags, _ = struct.unpack_from("<II", data)
        handle = os.open(self._path(node), flags & (os.O_ACCMODE | os.O_APPEND))
        return struct.pack("<QII", handle, 0, 0)

    def _create(self, node: int, data: bytes) -> bytes:
        _, mode, _, _ = struct.unpack_from("<IIII", data)
        name = _text(data[16:])
        handle = os.open(self._at(node, name), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        return self._entry(node, name) + struct.pack("<QII", handle, 0, 0)

    def _read(self, node: int, data: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", data)
        return os.pread(handle, size, offset)

    def _write(self, node: int, data: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", data)
        return struct.pack("<II", os.pwrite(handle, data[40 : 40 + size], offset), 0)

    def _space(self, node: int, data: bytes) -> bytes:
        return struct.pack("<5Q4I6I", *[1 << 30] * 5, 4096, 255, 4096, *[0] * 7)

    def _release(self, node: int, data: bytes) -> bytes:
        os.close(struct.unpack_from("<Q", data)[0])
        return b""

    def _sync(self, node: int, data: bytes) -> bytes:
        os.fsync(struct.unpack_from("<Q", data)[0])
        return b""

    def _begin(self, node: int, data: bytes) -> bytes:
        return struct.pack(
            "<4I2H2I2HI7I", 7, 31, 0, _BIG_WRITES, 0, 0, _LONGEST_WRITE, 1, *[0] * 10
        )

    def _list(self, node: int, data: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", data)
        listed = b""
        names = sorted(os.scandir(self._path(node)), key=lambda entry: entry.name)
        for number, entry in enumerate(names[offset:], offset + 1):
            name = os.fsencode(entry.name)
            record = _DIRENT.pack(entry.inode(), number, len(name), 0) + name
            record += b"\0" * (-len(record) % 8)
            if len(listed) + len(record) > size:
                break
            listed += record
        return listed


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _text(data: bytes) -> str:
    return os.fsdecode(data.split(b"\0", 1)[0])


def _attributes(facts: os.stat_result) -> bytes:
    times = [divmod(each, 10**9) for each in (facts.st_atime_ns, facts.st_mtime_ns)]
    times.append(divmod(facts.st_ctime_ns, 10**9))
    return _ATTRIBUTES.pack(
        *(facts.st_ino, facts.st_size, facts.st_blocks),
        *(seconds for seconds, _ in times),
        *(rest for _, rest in times),
        *(facts.st_mode, facts.st_nlink, facts.st_uid, facts.st_gid, 0, 4096, 0),
    )


@contextmanager
def case_insensitive_disk(folder: Path) -> Iterator[Path]:
    """Mount one in a folder.

    Raises:
        OSError: when nothing can be mounted here.

    """
    below, place = folder / "below", folder / "disk"
    below.mkdir()
    place.mkdir()
    words = [
        *(sys.executable, "-m", "tests.agent.files.case_insensitive_disk"),
        *(str(below), str(place)),
    ]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            if server.stdout.readline() != "mounted\n":
                raise OSError(errno.EPERM, "no file system can be mounted here")
            yield place
        finally:
            ctypes.CDLL(None).umount2(os.fsencode(place), _DETACH)
            server.kill()


def main(below: str, place: str) -> None:
    """Mount the file system and answer until it is taken away."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = b"fd=%d,rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other" % device
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"names", os.fsencode(place), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), "mount")
    os.umask(0)
    sys.stdout.write("mounted\n")
    sys.stdout.flush()
    Disk(below).serve(device)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
