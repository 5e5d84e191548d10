"""Test doubles and checks that ship with Haptera, for its own tests and for those of its users."""

from haptera.stores.recording import RecordingClient
from haptera.testing.clocks import (
    AutoClock,
    FakeClock,
    LoopClock,
    SeededLoop,
    run_seeded,
)
from haptera.testing.decode_reply import DecodedReply, decode_reply
from haptera.testing.replay import CallAt, CutAt, FailAt, ReplayClient, StallAt
from haptera.testing.scripted_provider import (
    EventRecorder,
    Gate,
    ScriptedProvider,
    UnexpectedRequestError,
    UnplayedStepsError,
    calls,
    reasoning,
    says,
)

__all__ = [
    "AutoClock",
    "CallAt",
    "CutAt",
    "DecodedReply",
    "EventRecorder",
    "FailAt",
    "FakeClock",
    "Gate",
    "LoopClock",
    "RecordingClient",
    "ReplayClient",
    "ScriptedProvider",
    "SeededLoop",
    "StallAt",
    "UnexpectedRequestError",
    "UnplayedStepsError",
    "calls",
    "decode_reply",
    "reasoning",
    "run_seeded",
    "says",
]
