"""Every kind of entry that this version knows; what decodes a log goes by it."""

from typing import TypeAlias

from holdfast.vocabulary.compactions import Compaction
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
    SessionOpened,
    Snapshot,
    ToolEnded,
    ToolStarted,
    TranscriptMirrored,
    TurnDiscarded,
    TurnEnded,
    TurnStarted,
    UsageReported,
)

KnownEntry: TypeAlias = (
    SessionOpened
    | SessionChanged
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
    | HookMessage
    | UsageReported
    | TranscriptMirrored
)
