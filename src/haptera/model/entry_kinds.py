"""Every kind of entry that this version knows; what decodes a log goes by it."""

from typing import TypeAlias

from haptera.model.commands import CommandEnded
from haptera.model.compactions import Compaction
from haptera.model.context_files import ContextLoaded
from haptera.model.entries import (
    ApprovalRequested,
    ApprovalSettled,
    ContextNoted,
    HistoryEdited,
    HookMessage,
    InputDrained,
    InputPromoted,
    InputQueued,
    PartCheckpoint,
    PartEnded,
    PartStarted,
    QueryEnded,
    QueryStarted,
    RetryScheduled,
    Rewound,
    SessionChanged,
    SessionImported,
    SessionOpened,
    ToolEnded,
    ToolStarted,
    TranscriptMirrored,
    TurnDiscarded,
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from haptera.model.file_snapshots import Snapshot

KnownEntry: TypeAlias = (
    SessionOpened
    | SessionChanged
    | SessionImported
    | InputQueued
    | InputPromoted
    | InputDrained
    | QueryStarted
    | QueryEnded
    | TurnStarted
    | TurnEnded
    | TurnDiscarded
    | PartStarted
    | PartCheckpoint
    | PartEnded
    | ApprovalRequested
    | ApprovalSettled
    | ToolStarted
    | ToolEnded
    | RetryScheduled
    | Compaction
    | Snapshot
    | Rewound
    | HistoryEdited
    | ContextNoted
    | ContextLoaded
    | HookMessage
    | UsageReported
    | TranscriptMirrored
    | CommandEnded
)
