"""Events and entries: each kind has its name, and the names that other systems use lead to it."""

import re
from typing import Any, Literal, get_args

import pytest

from haptera.model import events
from haptera.model.errors import ErrorCode, ProviderError
from haptera.model.events import (
    Failed,
    Idle,
    Instrumented,
    LiveEvent,
    QuerySuspended,
    ReasoningDelta,
    SessionDeleted,
    StatusChanged,
    TextDelta,
    ToolInputDelta,
    ToolProgress,
    TurnMeasured,
)
from haptera.model.ids import (
    ApprovalId,
    CallId,
    EntryId,
    InputId,
    MessageId,
    PartId,
    QueryId,
    SessionId,
    TurnId,
)
from haptera.model.known_events import KnownEntry
from haptera.model.log.compactions import Compaction
from haptera.model.log.entry import Entry, UnknownEntry
from haptera.model.log.native import UsageReported
from haptera.model.log.notes import HookMessage
from haptera.model.log.queries import InputPromoted, QueryEnded, QueryStarted
from haptera.model.log.sessions import SessionChanged, SessionOpened
from haptera.model.log.tools import ToolEnded, ToolStarted
from haptera.model.log.turns import (
    PartCheckpoint,
    PartEnded,
    PartStarted,
    TurnDiscarded,
    TurnEnded,
    TurnStarted,
)
from haptera.model.log.workspace import Snapshot
from haptera.model.messages import UserMessage
from haptera.model.operations.operation import CommandId
from haptera.model.operations.session import AbortQuery, ApproveCall, DenyCall
from haptera.model.parts import (
    CompactionPart,
    PartKind,
    ProviderPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
)
from haptera.model.results import StopReason
from haptera.model.source_names import EVENT_NAMES, event_names
from haptera.system.clock import Stamp
from haptera.testing import FakeClock

ENTRY_KINDS = {
    "session.opened",
    "session.changed",
    "session.imported",
    "input.queued",
    "input.promoted",
    "input.drained",
    "query.started",
    "query.ended",
    "turn.started",
    "turn.ended",
    "turn.discarded",
    "part.started",
    "part.checkpoint",
    "part.ended",
    "approval.requested",
    "approval.settled",
    "tool.started",
    "tool.waiting",
    "tool.ended",
    "retry.scheduled",
    "compaction",
    "snapshot",
    "context.loaded",
    "rewound",
    "history.edited",
    "context.noted",
    "hook.message",
    "usage.reported",
    "transcript.mirrored",
    "command.ended",
}

LIVE_KINDS = {
    "text.delta",
    "reasoning.delta",
    "compaction.delta",
    "tool.input.delta",
    "tool.progress",
    "tool.failed",
    "subagent",
    "subagent.event",
    "native.notice",
    "session.status",
    "session.deleted",
    "stream.heartbeat",
    "instrumentation.summary",
    "instrumentation.turn",
    "instrumentation.hook",
    "instrumentation.tool",
    "instrumentation.query",
    "observer.lagged",
    "query.suspended",
}

OF_SESSIONS = [
    "session.created",
    "session.updated",
    "session.deleted",
    "session.status",
    "session.error",
    "message.created",
    "message.updated",
    "message.deleted",
    "part.created",
    "part.updated",
    "part.deleted",
    "stream.start",
    "stream.delta",
    "stream.end",
]

OF_STREAMS = [
    "start",
    "text-start",
    "text-delta",
    "text-end",
    "reasoning-start",
    "reasoning-delta",
    "reasoning-end",
    "tool-input-start",
    "tool-input-delta",
    "tool-input-end",
    "tool-call",
    "tool-result",
    "tool-error",
    "step-start",
    "step-finish",
    "finish",
    "error",
]

OF_CHANNELS = [
    "message_start",
    "message_text",
    "message_thinking",
    "message_compaction_start",
    "message_compaction",
    "message_end",
    "tool_approval_request",
    "tool_approval_response",
    "tool_error",
    "done",
    "message_usage",
    "query_summary",
    "compact_boundary",
    "result_usage",
]


def live_events() -> list[type[LiveEvent]]:
    found = (value for value in vars(events).values() if isinstance(value, type))
    bases = (LiveEvent, Instrumented)
    return [kind for kind in found if issubclass(kind, LiveEvent) and kind not in bases]


def test_every_kind_of_entry_is_in_the_log_s_table() -> None:
    assert {str(kind.__struct_config__.tag) for kind in get_args(KnownEntry)} == ENTRY_KINDS


def test_every_live_event_has_a_name_of_its_own() -> None:
    assert {str(kind.__struct_config__.tag) for kind in live_events()} == LIVE_KINDS


def test_no_entry_and_no_live_event_have_one_name_and_all_are_a_thing_and_what_happened() -> None:
    assert set() == ENTRY_KINDS & LIVE_KINDS
    odd = {kind for kind in ENTRY_KINDS if re.fullmatch(r"[a-z]+(\.[a-z]+)+", kind) is None}
    assert odd == {"compaction", "snapshot", "rewound"}


def test_live_events_have_no_place_in_the_log() -> None:
    assert [kind for kind in live_events() if "seq" in kind.__struct_fields__] == []


@pytest.mark.parametrize("name", [*OF_SESSIONS, *OF_STREAMS, *OF_CHANNELS])
def test_a_name_from_another_system_leads_to_one_of_our_kinds(name: str) -> None:
    assert [kind for kind in EVENT_NAMES if name in event_names(kind)] != []


def test_what_is_told_to_a_session_has_names_from_other_systems_too() -> None:
    command, approval = CommandId("cmd_1"), ApprovalId("apr_1")
    told = [
        AbortQuery(id=command),
        ApproveCall(id=command, approval_id=approval),
        DenyCall(id=command, approval_id=approval),
    ]
    names = ["cancel", "tool_approval_response", "tool_approval_response"]
    assert [item.alias for item in told] == names


def test_aliases_are_of_kinds_that_exist() -> None:
    assert set(EVENT_NAMES) - ENTRY_KINDS - LIVE_KINDS == set()


def examples() -> list[Entry | LiveEvent]:
    """Return events of every kind that has a name elsewhere, in each of its variants."""
    stamp = Stamp(FakeClock())
    message, part, call = MessageId("msg_1"), PartId("prt_1"), CallId("call_1")
    prompt = UserMessage(id=message, parts=(TextPart(text="hi"),))
    failure = ProviderError(ErrorCode.AUTH, "no").report
    ids: Any = {"session_id": SessionId("s"), "query_id": QueryId("q"), "turn_id": TurnId("t")}
    turn: Any = {**ids, "provider": "p", "model": "m", "attempt": 1, "duration_ms": 1}
    delta: Any = {"part_id": part, "offset": 0, "text": "a"}
    kinds: tuple[PartKind, ...] = ("text", "reasoning", "tool_call", "compaction", "provider")
    whole = (
        TextPart(text="a"),
        ReasoningPart(text="a"),
        ToolCallPart(call_id=call, name="look"),
        CompactionPart(text="a"),
        ProviderPart(provider="p", model="m", payload={}),
    )
    reasons: tuple[StopReason, ...] = ("complete", "aborted", "error")
    outcomes: tuple[Literal["ok", "error", "denied"], ...] = ("ok", "error", "denied")
    return [
        SessionOpened(**stamp(), session_id=SessionId("s")),
        SessionChanged(**stamp(), changes={}),
        SessionDeleted(session_id=SessionId("s")),
        QuerySuspended(query_id=QueryId("q"), reason="closed"),
        StatusChanged(status=Idle()),
        StatusChanged(status=Failed(error=failure)),
        InputPromoted(**stamp(), input_id=InputId("inp_1")),
        QueryStarted(**stamp(), message=prompt),
        QueryStarted(**stamp(), resumes=QueryId("q")),
        *(QueryEnded(**stamp(), stop_reason=reason) for reason in reasons),
        TurnStarted(**stamp(), message_id=message, provider="p", model="m"),
        TurnEnded(**stamp(), message_id=message),
        TurnEnded(**stamp(), message_id=message, interrupted=True),
        TurnMeasured(**turn),
        TurnMeasured(**turn, error=failure),
        TurnDiscarded(**stamp(), message_id=message, reason="it named no tool"),
        TurnDiscarded(**stamp(), message_id=message, reason="it failed", error=failure),
        *(PartStarted(**stamp(), part_id=part, part_kind=kind) for kind in kinds),
        *(PartEnded(**stamp(), part_id=part, part=each) for each in whole),
        PartCheckpoint(**stamp(), **delta),
        *(TextDelta(**delta), ReasoningDelta(**delta), ToolInputDelta(**delta)),
        ToolStarted(**stamp(), call_id=call, tool="look", arguments_hash=""),
        ToolProgress(call_id=call, tool="look", progress=1),
        *(ToolEnded(**stamp(), call_id=call, tool="look", outcome=each) for each in outcomes),
    ]


@pytest.mark.parametrize("name", [*OF_SESSIONS, *OF_STREAMS])
def test_a_name_of_another_system_s_events_is_the_alias_of_some_event(name: str) -> None:
    assert [event.kind for event in examples() if event.alias == name] != []


def test_what_an_event_holds_decides_which_name_it_has_elsewhere() -> None:
    seen = [(event.kind, event.alias) for event in examples()]
    assert [alias for kind, alias in seen if kind == "part.ended"] == [
        "text-end",
        "reasoning-end",
        "tool-input-end",
        "message_compaction",
        "part.updated",
    ]
    assert [alias for kind, alias in seen if kind == "tool.ended"] == [
        "tool-result",
        "tool-error",
        "tool-error",
    ]
    assert [alias for kind, alias in seen if kind == "query.ended"] == [
        "finish",
        "stream.end",
        "error",
    ]
    assert [alias for kind, alias in seen if kind == "session.status"] == [
        "session.status",
        "session.error",
    ]


def test_an_event_knows_its_names_in_all_other_systems() -> None:
    assert TextDelta(part_id=PartId("prt_1"), offset=0, text="a").aliases == (
        "text-delta",
        "stream.delta",
        "message_text",
    )
    for event in examples():
        assert set(event.aliases) <= set(event_names(event.kind))


def test_an_event_says_its_best_known_other_name() -> None:
    stamp = Stamp(FakeClock())
    compacted = Compaction(**stamp(), trigger="auto", strategy="server", summary="short")
    assert (compacted.kind, compacted.alias) == ("compaction", "compact_boundary")
    assert UsageReported(**stamp()).alias == "result_usage"
    assert TurnEnded(**stamp(), message_id=MessageId("msg_1")).alias == "message_usage"
    assert HookMessage(**stamp(), hook="h", text="t").alias == "hookMessage"
    assert TextDelta(part_id=PartId("prt_1"), offset=0, text="a").alias == "text-delta"
    assert StatusChanged(status=Idle()).alias == "session.status"


def test_a_kind_without_another_name_is_called_by_its_own() -> None:
    snapshot = Snapshot(id=EntryId("evt_1"), time=1, tree="")
    assert (snapshot.alias, snapshot.aliases) == ("snapshot", ())


def test_an_entry_that_a_later_version_stored_in_its_own_way_has_the_names_of_its_kind() -> None:
    entry = UnknownEntry(id=EntryId("evt_1"), time=1, stored_kind="query.ended")
    assert entry.alias == "finish"


def test_an_unknown_entry_says_the_kind_it_was_stored_under() -> None:
    entry = UnknownEntry(id=EntryId("evt_1"), time=1, stored_kind="later.invention")
    assert (entry.kind, entry.alias) == ("later.invention", "later.invention")
