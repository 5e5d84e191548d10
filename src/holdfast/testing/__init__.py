"""Test doubles and exams that ship with Holdfast, for its own tests and for those of its users."""

from holdfast.testing.decode_reply import DecodedReply, decode_reply
from holdfast.testing.event_recorder import EventRecorder
from holdfast.testing.fake_clock import AutoClock, FakeClock
from holdfast.testing.recording import RecordingClient
from holdfast.testing.replay import CallAt, CutAt, FailAt, ReplayClient, StallAt
from holdfast.testing.scripted_provider import (
    Gate,
    ScriptedProvider,
    UnexpectedRequestError,
    UnplayedStepsError,
    calls,
    reasoning,
    says,
)
from holdfast.testing.seeded_loop import LoopClock, SeededLoop, run_seeded

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
