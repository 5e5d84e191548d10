"""Big payloads as files: one per content, named by its SHA-256, in a folder per session."""

import functools
import os
from pathlib import Path

from holdfast.stores.private_files import open_or_create, read_or_empty, sync_folder
from holdfast.stores.stored_records import FindBlob


def keep_content(folder: Path, name: str, content: bytes) -> None:
    """Store content durably under its name; raises OSError."""
    path = folder / name
    # A damaged file of that name is replaced by what it should have been.
    if not path.exists() or read_or_empty(path) != content:
        _write_durably(path, content)


def find_content(folder: Path, name: str) -> bytes | None:
    """Return what is stored under a name, unchecked; raises OSError."""
    try:
        return (folder / name).read_bytes()
    except FileNotFoundError:
        return None


def finder_in(folder: Path) -> FindBlob:
    """Return the function that finds the payloads of one session."""
    return functools.partial(find_content, folder)


def _write_durably(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    descriptor = open_or_create(temporary, os.O_WRONLY | os.O_TRUNC)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    temporary.rename(path)
    sync_folder(path.parent)
