"""Files and folders that only their owner can read, made so that they survive a power cut."""

import os
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW


def open_or_create(path: Path, flags: int) -> int:
    """Open a file, made durably if it is new."""
    try:
        return os.open(path, flags | _FLAGS)
    except FileNotFoundError:
        make_folder(path.parent)
    descriptor = os.open(path, flags | _FLAGS | os.O_CREAT, FILE_MODE)
    sync_folder(path.parent)
    return descriptor


def make_folder(path: Path) -> None:
    """Make a folder and those above it, durably."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(mode=FOLDER_MODE, exist_ok=True)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make durable which files a folder holds."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_whole(path: Path) -> bytes:
    """Return the content of a file; a missing one is empty."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def remove_durably(path: Path) -> None:
    """Remove a file that may be missing, and make that durable."""
    try:
        path.unlink()
    except FileNotFoundError:
        return
    sync_folder(path.parent)
