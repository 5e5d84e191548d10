"""Events: names for programs that store, send or tell apart events beyond those of the package."""

from haptera.model.approval_cards import ApprovalCard, card_of
from haptera.model.entry_bytes import decode_entry, encode_entry, encode_event
from haptera.model.events import (
    Instrumented,
    QueryMeasured,
    SubagentChanged,
    SubagentEvent,
    TurnMeasured,
)
from haptera.model.ids import EntryId, MessageId, SessionId, new_message_id, new_session_id
from haptera.model.log.compactions import Compaction

__all__ = [
    "ApprovalCard",
    "Compaction",
    "EntryId",
    "Instrumented",
    "MessageId",
    "QueryMeasured",
    "SessionId",
    "SubagentChanged",
    "SubagentEvent",
    "TurnMeasured",
    "card_of",
    "decode_entry",
    "encode_entry",
    "encode_event",
    "new_message_id",
    "new_session_id",
]
