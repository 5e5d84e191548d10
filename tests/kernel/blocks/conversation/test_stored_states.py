"""A session that is looked at by a stored state is the one that its whole log makes."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings

from haptera.kernel.session.session_descriptions import find_unfinished
from haptera.model.ids import new_session_id
from haptera.model.log import carried_state
from haptera.model.log.carried_state import fold_from_stored_state, state_to_store
from haptera.model.log.entry import Entry
from haptera.model.log.fold import fold_entries
from haptera.model.log.history import Rewound
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import FOLDED, SessionChanged, SessionOpened
from tests.folded_sessions import state_of
from tests.strategies_branches import any_logs, go_back
from tests.strategies_logs import LogWriter, QueryWriter, go_on


@pytest.fixture(autouse=True)
def _stored_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried_state, "STORED_EVERY", 1)


def store_state(log: LogWriter) -> SessionChanged | None:
    """Record what the session is, as the end of a query does."""
    state = state_to_store(log.fold())
    if state is None:
        return None
    log.add(SessionChanged(**log.stamp()(), changes={FOLDED: state}))
    stored = log.entries[-1]
    assert isinstance(stored, SessionChanged)
    return stored


def look(entries: Sequence[Entry], stored: SessionChanged) -> SessionFold | None:
    """Fold what is read to look at a session."""
    at = stored.changes[FOLDED]["at"]
    read = [entry for entry in entries if entry.seq == 1 or entry.seq > at]
    return fold_from_stored_state(read, stored.seq)


def seen_of(fold: SessionFold) -> dict[str, object]:
    """Return what can be seen of a session without its messages."""
    state = state_of(fold)
    state |= {"notes": None, "context": None}
    return state | {"unfinished": find_unfinished(fold), "approvals": fold.pending_approvals()}


def check_looks(log: LogWriter) -> int:
    """Store states wherever it can be done, go on, and look; returns how often there was one."""
    looked = 0
    for _ in range(4):
        stored = store_state(log)
        for _ in range(3 if stored is not None else 0):
            whole = fold_entries(log.entries, inherited=log.inherited)
            assert stored is not None
            seen = look(log.entries, stored)
            if seen is not None:
                assert seen_of(seen) == seen_of(whole)
                looked += 1
            (go_back if log.chance(out_of=3) else go_on)(log)
        go_on(log)
    return looked


@given(log=any_logs)
def test_what_is_seen_is_what_the_whole_log_says(log: LogWriter) -> None:
    check_looks(log)


@pytest.mark.soak
@given(log=any_logs)
@settings(max_examples=20_000, deadline=None)
def test_the_same_for_many_more_logs(log: LogWriter) -> None:
    check_looks(log)


def log_at_rest() -> tuple[LogWriter, SessionChanged]:
    """Write a log that ends with a stored state."""
    log = LogWriter(b"")
    log.add(SessionOpened(**log.stamp()(), session_id=new_session_id()))
    QueryWriter(log).write()
    stored = store_state(log)
    assert stored is not None
    return log, stored


def test_a_state_of_another_version_is_not_used() -> None:
    log, stored = log_at_rest()
    assert look(log.entries, stored) is not None
    older = {**stored.changes[FOLDED], "version": 0}
    log.entries[-1] = msgspec.structs.replace(stored, changes={FOLDED: older})
    assert look(log.entries, stored) is None


@pytest.mark.parametrize("value", [None, 7, [], {}, {"at": "x"}, {"at": -1}, {"at": 2**70}])
def test_a_state_that_cannot_be_read_is_not_used(value: object) -> None:
    log, stored = log_at_rest()
    log.entries[-1] = msgspec.structs.replace(stored, changes={FOLDED: value})
    assert look(log.entries, stored) is None
    log.entries[-1] = msgspec.structs.replace(stored, changes={})
    assert look(log.entries, stored) is None


def test_a_conversation_that_went_back_before_it_needs_all_entries() -> None:
    log, stored = log_at_rest()
    log.add(Rewound(**log.stamp()(), to_seq=1))
    assert look(log.entries, stored) is None
    assert log.fold().folded_at == 0, "the next one is stored soon"


def test_texts_are_not_stored() -> None:
    log, stored = log_at_rest()
    said = [message.text for message in log.fold().messages() if message.text]
    assert said
    told = msgspec.json.encode(stored.changes).decode()
    assert not [text for text in said if text in told]
