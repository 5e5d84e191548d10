"""Every kind of entry that this version knows; what decodes a log goes by it."""

from typing import TypeAlias

from holdfast.vocabulary.commands import CommandEnded
from holdfast.vocabulary.compactions import Compaction
from holdfast.vocabulary.context_files import ContextLoaded
from holdfast.vocabulary.entries import (
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
from holdfast.vocabulary.file_snapshots import Snapshot

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
