"""KeptFiles: exchanges files of a folder, after what stood in their places has been copied.

The copies, with modes, times and links, are what an undo and a recovery go by. They are readable
by their owner only, one folder for each session.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from haptera.model.errors import ErrorCode, StoreError
from haptera.model.file_snapshots import FileChange, FileLeft
from haptera.model.own_name import FORMER_NAME
from haptera.stores.file_trees.git_command import unavailable
from haptera.stores.file_trees.places import (
    NEW_TIME,
    OF_CALLER,
    ChangedError,
    FileState,
    Places,
    RefusedError,
    copy_file,
    folded,
    name_in,
    state_in,
)
from haptera.system.atomic_files import create_folder, replace_file
from haptera.system.private_files import store_error_of

STAGING = b".haptera-rewind-"
FORMER_STAGING = f".{FORMER_NAME}-rewind-".encode()
"""What a rewind that was cut off before the name changed left behind."""
"""Begins the name of the folder that files are exchanged in; none is there between rewinds."""
_ID = re.compile(r"[0-9a-f]{32}")
_BYTES = "latin-1"
_MANIFEST = "manifest.json"
_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is to stand at a path."""

    path: bytes
    state: FileState
    source: Path | None = None
    """A file or link with the content."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """What stood at a path and what is to stand there; the number names their copies."""

    number: int
    name: str
    """The path, each byte as one character."""
    old: FileState
    new: FileState

    @property
    def path(self) -> bytes:
        """The path, relative to the folder."""
        return self.name.encode(_BYTES)

    def backwards(self, found: FileState) -> "Move":
        """Return the move to what stood there, from what is found there."""
        return msgspec.structs.replace(self, old=found, new=self.old)


class FileExchange(msgspec.Struct, frozen=True, kw_only=True):
    """All moves of one rewind, with the folders that come and go with them."""

    moves: tuple[Move, ...] = ()
    removable: dict[str, int] = {}
    """Folders that go when they are empty, with their modes."""
    made: tuple[str, ...] = ()
    """Folders that were not there."""
    folder_modes: dict[str, int] = {}
    """Modes of folders that are made."""

    def backwards(self, moves: Sequence[Move]) -> "FileExchange":
        """Return what takes moves back."""
        return FileExchange(
            moves=tuple(moves),
            removable=dict.fromkeys(self.made, 0),
            folder_modes=self.removable,
        )


class Examined(msgspec.Struct, kw_only=True):
    """Which of the wanted changes can be made, and why others are refused."""

    exchange: FileExchange
    wanted: list[Wanted]
    """One for each move."""
    refused: list[FileLeft]

    def changes(self) -> tuple[FileChange, ...]:
        """Return what happens to each file."""
        return tuple(_change_of(move) for move in self.exchange.moves)


class KeptLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much is copied before files are changed."""

    file_bytes: int = 256 << 20
    """A larger file is refused."""
    all_bytes: int = 1 << 30
    """Of all files of one rewind."""


class KeptFiles:
    """The copies of one session, and the exchanges of files that they allow."""

    def __init__(self, root: Path, folder: Path, *, session: str, limits: KeptLimits) -> None:
        self._places = Places(root)
        self._folder = folder / session_folder(session)
        self._limits = limits

    def examine(
        self,
        wanted: Sequence[Wanted],
        *,
        is_needed: Callable[[str], bool],
        folder_mode: Callable[[str], int | None],
    ) -> Examined:
        """Find out what stands at paths that are to be changed. Nothing is written.

        A folder that `is_needed` stays when it is empty.
        """
        rest, refused = wanted, list[FileLeft]()
        while True:
            examined = self._examine(rest, is_needed=is_needed, folder_mode=folder_mode)
            # What cannot come back under its name is not taken away under another spelling of it.
            barred = {
                folded(os.fsencode(left.path)): left.reason
                for left in examined.refused
                if self._places.taken_by(os.fsencode(left.path)) is not None
            }
            if not barred:
                examined.refused += refused
                return examined
            for item in rest:
                if (reason := barred.get(folded(item.path))) is not None:
                    refused.append(FileLeft(path=os.fsdecode(item.path), reason=reason))
            rest = [item for item in rest if folded(item.path) not in barred]

    def _examine(
        self,
        wanted: Sequence[Wanted],
        *,
        is_needed: Callable[[str], bool],
        folder_mode: Callable[[str], int | None],
    ) -> Examined:
        examined = Examined(exchange=FileExchange(), wanted=[], refused=[])
        gone = set[bytes]()
        removable, modes, folders_made = dict[bytes, int](), dict[bytes, int](), dict[bytes, None]()
        moves = list[Move]()
        # What goes first is not in the way of what comes.
        for item in sorted(wanted, key=lambda item: (item.state.kind != "absent", item.path)):
            try:
                missing = self._places.check_way(item.path, gone)
                old = self._places.state(item.path)
                folders = self._check(item, old, gone)
                self._check_size(old, sum(move.old.size for move in moves))
            except (RefusedError, OSError) as error:
                left = FileLeft(path=os.fsdecode(item.path), reason=str(error))
                examined.refused.append(left)
                continue
            if item.state.kind == "absent":
                gone.add(item.path)
                folders |= self._emptied(item.path, is_needed)
            removable |= folders
            folders_made |= dict.fromkeys(missing)
            for folder in missing:
                if (mode := folder_mode(os.fsdecode(folder))) is not None:
                    modes[folder] = mode
            name = item.path.decode(_BYTES)
            old = FileState() if old.kind == "folder" else old
            moves.append(Move(number=len(moves), name=name, old=old, new=item.state))
            examined.wanted.append(item)
        examined.exchange = FileExchange(
            moves=tuple(moves),
            removable=_named(removable),
            made=tuple(folder.decode(_BYTES) for folder in folders_made),
            folder_modes=_named(modes),
        )
        return examined

    def examine_undo(self, exchange: FileExchange, wanted: Sequence[Wanted]) -> Examined:
        """Find out the same of what takes an exchange back, its folders with it."""
        folders_made, modes = _folder_names(exchange.made), _folder_names(exchange.removable)
        examined = self.examine(
            wanted, is_needed=lambda folder: folder not in folders_made, folder_mode=modes.get
        )
        lost = {
            folder: mode
            for folder, mode in exchange.removable.items()
            if self._places.state(folder.encode(_BYTES)).kind == "absent"
        }
        examined.exchange = msgspec.structs.replace(
            examined.exchange, folder_modes=examined.exchange.folder_modes | lost
        )
        return examined

    def _check(self, item: Wanted, old: FileState, gone: set[bytes]) -> dict[bytes, int]:
        """Refuse what cannot be copied or replaced; returns the folders in the way."""
        other = self._places.taken_by(item.path)
        if other is not None and other not in gone:
            if self._places.state(other).kind != "folder":
                raise RefusedError(f"{os.fsdecode(other)!r} is in its place")
            return self._places.folders_beneath(other, gone)
        if old.kind == "other":
            raise RefusedError("it is no regular file")
        if old.kind == "folder":
            if item.state.kind == "absent":
                raise RefusedError("a folder is in its place")
            return self._places.folders_beneath(item.path, gone)
        if old.kind == "file":
            self._places.check_readable(item.path)
        return {}

    def _check_size(self, old: FileState, others: int) -> None:
        for size, limit in (
            (old.size, self._limits.file_bytes),
            (old.size + others, self._limits.all_bytes),
        ):
            if size > limit:
                raise RefusedError(f"more than {limit:,} bytes would have to be copied")

    def _emptied(self, path: bytes, is_needed: Callable[[str], bool]) -> dict[bytes, int]:
        folders = dict[bytes, int]()
        folder = path.rpartition(b"/")[0]
        while folder and not is_needed(os.fsdecode(folder)):
            folders[folder] = self._places.state(folder).mode
            folder = folder.rpartition(b"/")[0]
        return folders

    def keep(self, examined: Examined) -> str:
        """Copy what is to be replaced and what replaces it; returns the id of the copies.

        Raises:
            StoreError: CONFLICT when a file changes meanwhile, FULL or UNAVAILABLE when it cannot
                be copied. Nothing of the folder was changed.

        """
        name = os.urandom(16).hex()
        folder = self._folder / name
        try:
            for each in ("old", "new"):
                create_folder(folder / each)
            moves = [
                self._kept(folder, move, item)
                for move, item in zip(examined.exchange.moves, examined.wanted, strict=True)
            ]
            exchange = msgspec.structs.replace(examined.exchange, moves=tuple(moves))
            replace_file(folder / _MANIFEST, msgspec.json.encode(exchange))
        except ChangedError as changed:
            shutil.rmtree(folder, ignore_errors=True)
            raise _was_changed(changed) from changed
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise store_error_of(error, folder) from error
        return name

    def _kept(self, folder: Path, move: Move, item: Wanted) -> Move:
        old, new, number = move.old, move.new, str(move.number)
        if old.kind == "file":
            digest = self._places.keep(move.path, old, folder / "old" / number)
            old = msgspec.structs.replace(old, digest=digest)
        elif old.kind == "link":
            with self._places.parent(move.path) as parent:
                leads_to = os.readlink(os.fsdecode(name_in(move.path)), dir_fd=parent)
            (folder / "old" / number).symlink_to(leads_to)
        if item.source is not None:
            new = _taken(item.source, folder / "new" / number, new)
            new = msgspec.structs.replace(new, owner=new.owner or old.owner)
        return msgspec.structs.replace(move, old=old, new=new)

    def read(self, name: str) -> FileExchange | None:
        """Return the moves of an earlier rewind; None when they are kept no longer."""
        # The id comes from a log.
        if _ID.fullmatch(name) is None:
            return None
        try:
            content = (self._folder / name / _MANIFEST).read_bytes()
            return msgspec.json.decode(content, type=FileExchange)
        except (OSError, msgspec.MsgspecError):
            return None

    def carry_out(self, name: str) -> None:
        """Make the moves whose copies were made. All of them are made, or none.

        Raises:
            StoreError: why not: CONFLICT when a file was changed meanwhile.

        """
        exchange = self.read(name)
        if exchange is None:
            raise _is_gone()
        self._make(exchange, name, sources="new")
        # They are where they belong by now.
        shutil.rmtree(self._folder / name / "new", ignore_errors=True)

    def take_back(self, name: str) -> tuple[FileLeft, ...]:
        """Take back the moves of a rewind that was cut off; returns what was changed since.

        Raises:
            StoreError: why it cannot be done; the moves can be taken back later.

        """
        exchange = self.read(name)
        if exchange is None:
            return ()
        moves, left = list[Move](), list[FileLeft]()
        for move in exchange.moves:
            state = self._places.whole_state(move.path)
            if state.is_as(move.old):
                continue
            is_made = state.kind == "folder" and move.name in exchange.made
            if state.is_as(move.new) or state.kind == "absent" or is_made:
                moves.append(move.backwards(FileState() if is_made else state))
            else:
                reason = "it was changed since the rewind was cut off"
                left.append(FileLeft(path=os.fsdecode(move.path), reason=reason))
        self._make(exchange.backwards(moves), name, sources="old")
        return tuple(left)

    def undoing(self, exchange: FileExchange, name: str) -> Iterator[tuple[Wanted, bool]]:
        """Yield what stood at each path before a rewind, and whether it was changed since."""
        for move in exchange.moves:
            state = self._places.whole_state(move.path)
            if state.is_as(move.old):
                continue
            is_made = state.kind == "folder" and move.name in exchange.made
            source = self._folder / name / "old" / str(move.number)
            wanted = Wanted(
                path=move.path,
                state=move.old,
                source=source if move.old.kind != "absent" else None,
            )
            yield wanted, not (state.is_as(move.new) or is_made)

    def _make(self, exchange: FileExchange, name: str, *, sources: str) -> None:
        work = _Exchanging(
            self._places, self._places.root / os.fsdecode(STAGING + name[:16].encode())
        )
        try:
            work.make(exchange, self._folder / name / sources)
        except ChangedError as changed:
            raise _was_changed(changed) from changed
        except OSError as error:
            raise store_error_of(error, self._places.root) from error


class _Exchanging:
    """One exchange of files: by renames only, once everything new stands beside the folder's files.

    So a full disk shows before a file is touched, and a failure is taken back by renames.
    """

    def __init__(self, places: Places, staging: Path) -> None:
        self._places = places
        self._staging = staging
        self._done: list[Callable[[], None]] = []

    def make(self, exchange: FileExchange, sources: Path) -> None:
        shutil.rmtree(self._staging, ignore_errors=True)  # of an exchange that was cut off
        if not exchange.moves and not exchange.removable:
            return
        self._staging.mkdir(mode=0o700)
        descriptor = os.open(self._staging, _FOLDER)
        try:
            for move in exchange.moves:
                _stage(move, descriptor, sources / str(move.number))
            self._exchange(exchange, descriptor)
        except (ChangedError, OSError):
            for step in reversed(self._done):
                with suppress(OSError):  # what is not taken back here is later, from the copies
                    step()
            raise
        finally:
            os.close(descriptor)
            shutil.rmtree(self._staging, ignore_errors=True)

    def _exchange(self, exchange: FileExchange, staging: int) -> None:
        for move in exchange.moves:
            if move.old.kind != "absent":
                self._take_out(move, staging)
        # The deepest first.
        for folder in sorted(exchange.removable, key=len, reverse=True):
            self._remove_folder(folder.encode(_BYTES))
        modes = {name.encode(_BYTES): mode for name, mode in exchange.folder_modes.items()}
        for name in sorted(modes, key=len):
            self._make_folder(name, modes)
        for move in exchange.moves:
            if move.new.kind != "absent":
                self._put_in(move, staging, modes)

    def _take_out(self, move: Move, staging: int) -> None:
        name, aside = name_in(move.path), f"old-{move.number}"
        with self._places.parent(move.path) as folder:
            if not move.old.is_untouched(state_in(folder, name)):
                raise ChangedError(os.fsdecode(move.path))
            os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=staging)

        def put_back() -> None:
            # What another program has put there meanwhile is the newer one.
            with suppress(FileExistsError), self._places.parent(move.path, {}) as parent:
                _put_new(aside, name, (staging, parent))

        self._done.append(put_back)
        # It may have been written between the look and the rename.
        if not move.old.is_untouched(state_in(staging, aside)):
            raise ChangedError(os.fsdecode(move.path))

    def _remove_folder(self, folder: bytes) -> None:
        with suppress(OSError), self._places.parent(folder) as parent:
            name = name_in(folder)
            mode = state_in(parent, name).mode
            os.rmdir(name, dir_fd=parent)

            def make_again() -> None:
                with self._places.parent(folder + b"/.", {folder: mode}):
                    pass

            self._done.append(make_again)

    def _put_in(self, move: Move, staging: int, modes: Mapping[bytes, int]) -> None:
        name, aside = name_in(move.path), f"new-{move.number}"
        for folder in _folders_of(move.path):
            self._make_folder(folder, modes)
        with self._places.parent(move.path) as parent:
            try:
                _put_new(aside, name, (staging, parent))
            except FileExistsError:
                raise ChangedError(os.fsdecode(move.path)) from None
            put = state_in(parent, name)

        def take_away() -> None:
            with self._places.parent(move.path) as parent:
                # What another program has written meanwhile is the newer one.
                if put.is_untouched(state_in(parent, name)):
                    os.rename(name, aside, src_dir_fd=parent, dst_dir_fd=staging)

        self._done.append(take_away)

    def _make_folder(self, folder: bytes, modes: Mapping[bytes, int]) -> None:
        if self._places.state(folder).kind == "absent":
            with suppress(OSError), self._places.parent(folder + b"/.", modes):
                self._done.append(partial(self._drop_folder, folder))

    def _drop_folder(self, folder: bytes) -> None:
        with suppress(OSError), self._places.parent(folder) as parent:
            os.rmdir(name_in(folder), dir_fd=parent)


def _stage(move: Move, staging: int, source: Path) -> None:
    """Put what is new beside the files of the folder, with its mode, owner and time."""
    new, aside = move.new, f"new-{move.number}"
    if new.kind == "absent":
        return
    if new.kind == "link":
        os.symlink(source.readlink(), aside, dir_fd=staging)
    else:
        copy_file(source, staging, aside, mode=0o777 if new.is_run else 0o666)
    state = os.stat(aside, dir_fd=staging, follow_symlinks=False)
    if new.owner is not None and new.owner != (state.st_uid, state.st_gid):
        with suppress(PermissionError):
            os.chown(aside, *new.owner, dir_fd=staging, follow_symlinks=False)
    if new.kind == "file" and new.mode != OF_CALLER:
        os.chmod(aside, new.mode, dir_fd=staging)
    if new.mtime_ns != NEW_TIME:
        times = (new.mtime_ns, new.mtime_ns)
        os.utime(aside, ns=times, dir_fd=staging, follow_symlinks=False)


def _put_new(aside: str, name: bytes, folders: tuple[int, int]) -> None:
    """Move what stands aside under a name that nothing has; a rename would overwrite silently."""
    staging, folder = folders
    try:
        os.link(aside, name, src_dir_fd=staging, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:  # not every file system has hard links
        if state_in(folder, name).kind != "absent":
            raise FileExistsError from None
        os.rename(aside, name, src_dir_fd=staging, dst_dir_fd=folder)
    else:
        os.unlink(aside, dir_fd=staging)


def _taken(source: Path, copy: Path, state: FileState) -> FileState:
    """Have the new content among the copies; returns the state with what it is."""
    if state.kind == "link":
        leads_to = source.readlink()
        copy.symlink_to(leads_to)
        digest = hashlib.sha256(os.fsencode(leads_to)).hexdigest()
    else:
        with source.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        try:
            os.link(source, copy)
        except OSError:  # not every file system has hard links
            shutil.copyfile(source, copy)
    return msgspec.structs.replace(state, digest=digest, inode=0)


def session_folder(session: str) -> str:
    """Return the name of the folder with the copies of a session."""
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def kept_files_of(data: Path, session: str) -> list[Path]:
    """Return the folders with the copies that were made for a session; mostly there are none."""
    return list((data.resolve() / "snapshots").glob(f"*/kept/{session_folder(session)}"))


def forget_kept_files(folders: Iterable[Path]) -> None:
    """Remove the copies that were made for a session."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _change_of(move: Move) -> FileChange:
    path = os.fsdecode(move.path)
    if move.new.kind == "absent":
        return FileChange(path=path, kind="deleted")
    return FileChange(path=path, kind="added" if move.old.kind == "absent" else "changed")


def _folders_of(path: bytes) -> list[bytes]:
    names = path.split(b"/")[:-1]
    return [b"/".join(names[:count]) for count in range(1, len(names) + 1)]


def _folder_names(folders: Iterable[str] | Mapping[str, int]) -> dict[str, int]:
    """Return folders under the names that the file system has for them."""
    modes = folders if isinstance(folders, Mapping) else dict.fromkeys(folders, 0)
    return {os.fsdecode(folder.encode(_BYTES)): mode for folder, mode in modes.items()}


def _named(modes: Mapping[bytes, int]) -> dict[str, int]:
    return {folder.decode(_BYTES): mode for folder, mode in modes.items()}


def _was_changed(changed: ChangedError) -> StoreError:
    message = f"{changed} was changed while the files were brought back; nothing was changed"
    return StoreError(ErrorCode.CONFLICT, message)


def _is_gone() -> StoreError:
    return unavailable("what the rewind replaced is kept no longer")
