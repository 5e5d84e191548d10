"""All kinds of entries and live-only events that this version knows, by `make docs`.

A module of its own because it is data, written by `scripts/write_entry_tables.py`. What reads logs
goes by `KnownEntry`; importing it defines every kind.
"""

from typing import TypeAlias

from haptera.model.events import (
    CompactionDelta,
    Heartbeat,
    HookFailed,
    NativeNoted,
    ObserverLagged,
    QueryMeasured,
    QuerySummary,
    QuerySuspended,
    ReasoningDelta,
    SessionDeleted,
    StatusChanged,
    SubagentChanged,
    SubagentEvent,
    TextDelta,
    ToolFailed,
    ToolInputDelta,
    ToolMeasured,
    ToolProgress,
    TurnMeasured,
)
from haptera.model.log.approvals import (
    ApprovalRequested,
    ApprovalSettled,
)
from haptera.model.log.compactions import (
    Compaction,
)
from haptera.model.log.history import (
    HistoryEdited,
    Rewound,
)
from haptera.model.log.native import (
    TranscriptMirrored,
    UsageReported,
)
from haptera.model.log.notes import (
    ContextNoted,
    HookMessage,
)
from haptera.model.log.queries import (
    InputDrained,
    InputPromoted,
    InputQueued,
    QueryEnded,
    QueryStarted,
)
from haptera.model.log.sessions import (
    CommandEnded,
    SessionChanged,
    SessionImported,
    SessionOpened,
)
from haptera.model.log.tools import (
    ToolEnded,
    ToolStarted,
)
from haptera.model.log.turns import (
    PartCheckpoint,
    PartEnded,
    PartStarted,
    RetryScheduled,
    TurnDiscarded,
    TurnEnded,
    TurnStarted,
)
from haptera.model.log.workspace import (
    ContextLoaded,
    Snapshot,
)

KnownEntry: TypeAlias = (
    ApprovalRequested
    | ApprovalSettled
    | CommandEnded
    | Compaction
    | ContextLoaded
    | ContextNoted
    | HistoryEdited
    | HookMessage
    | InputDrained
    | InputPromoted
    | InputQueued
    | PartCheckpoint
    | PartEnded
    | PartStarted
    | QueryEnded
    | QueryStarted
    | RetryScheduled
    | Rewound
    | SessionChanged
    | SessionImported
    | SessionOpened
    | Snapshot
    | ToolEnded
    | ToolStarted
    | TranscriptMirrored
    | TurnDiscarded
    | TurnEnded
    | TurnStarted
    | UsageReported
)

KnownLiveEvent: TypeAlias = (
    CompactionDelta
    | Heartbeat
    | HookFailed
    | NativeNoted
    | ObserverLagged
    | QueryMeasured
    | QuerySummary
    | QuerySuspended
    | ReasoningDelta
    | SessionDeleted
    | StatusChanged
    | SubagentChanged
    | SubagentEvent
    | TextDelta
    | ToolFailed
    | ToolInputDelta
    | ToolMeasured
    | ToolProgress
    | TurnMeasured
)
