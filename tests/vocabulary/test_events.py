"""Events and entries: each kind has its name, and the names that other systems use lead to it."""

from typing import get_args

import pytest

from holdfast.ports.clock import Stamp
from holdfast.testing import FakeClock
from holdfast.vocabulary import events
from holdfast.vocabulary.aliases import ALIASES, alias_of
from holdfast.vocabulary.entries import (
    Compaction,
    HookMessage,
    KnownEntry,
    TurnEnded,
    UnknownEntry,
    UsageReported,
)
from holdfast.vocabulary.events import Idle, LiveEvent, StatusChanged, TextDelta
from holdfast.vocabulary.ids import EntryId, MessageId, PartId

ENTRY_KINDS = {
    "session.opened",
    "session.changed",
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
    "tool.ended",
    "retry.scheduled",
    "compaction",
    "snapshot",
    "rewound",
    "context.noted",
    "hook.message",
    "usage.reported",
}

LIVE_KINDS = {
    "text.delta",
    "reasoning.delta",
    "compaction.delta",
    "tool.input.delta",
    "tool.progress",
    "tool.failed",
    "session.status",
    "instrumentation",
    "observer.lagged",
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
    return [kind for kind in found if issubclass(kind, LiveEvent) and kind is not LiveEvent]


def test_every_kind_of_entry_is_in_the_log_s_table() -> None:
    assert {str(kind.__struct_config__.tag) for kind in get_args(KnownEntry)} == ENTRY_KINDS


def test_every_live_event_has_a_name_of_its_own() -> None:
    assert {str(kind.__struct_config__.tag) for kind in live_events()} == LIVE_KINDS


def test_live_events_have_no_place_in_the_log() -> None:
    assert [kind for kind in live_events() if "seq" in kind.__struct_fields__] == []


@pytest.mark.parametrize("name", [*OF_SESSIONS, *OF_STREAMS, *OF_CHANNELS])
def test_a_name_from_another_system_leads_to_one_of_our_kinds(name: str) -> None:
    assert [kind for kind, names in ALIASES.items() if name in names] != []


def test_aliases_are_of_kinds_that_exist() -> None:
    without_an_event = {"session.deleted"}
    assert set(ALIASES) - ENTRY_KINDS - LIVE_KINDS == without_an_event


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
    assert alias_of("snapshot") == "snapshot"


def test_an_unknown_entry_says_the_kind_it_was_stored_under() -> None:
    entry = UnknownEntry(id=EntryId("evt_1"), time=1, stored_kind="later.invention")
    assert (entry.kind, entry.alias) == ("later.invention", "later.invention")
