"""Test doubles and checks that ship with Holdfast, for its own tests and for those of its users."""

from holdfast.stores.recording import RecordingClient
from holdfast.testing.clocks import (
    AutoClock,
    FakeClock,
    LoopClock,
    SeededLoop,
    run_seeded,
)
from holdfast.testing.decode_reply import DecodedReply, decode_reply
from holdfast.testing.replay import CallAt, CutAt, FailAt, ReplayClient, StallAt
from holdfast.testing.scripted_provider import (
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
