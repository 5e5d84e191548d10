"""A session that is looked at by a stored state is the one that its whole log makes."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haptera.kernel.session.log_reading import seq_of_message
from haptera.kernel.session.session_descriptions import find_unfinished
from haptera.kernel.session.state_reading import MessagePlace, StateReader, read_to_look
from haptera.model.ids import (
    MessageId,
    SessionId,
    new_message_id,
    new_part_id,
    new_session_id,
    new_turn_id,
)
from haptera.model.log import fold_points, stored_state
from haptera.model.log.entry import Entry
from haptera.model.log.fold import fold_entries
from haptera.model.log.history import Rewound
from haptera.model.log.queries import QueryEnded, QueryStarted
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import FOLDED, SessionChanged, SessionOpened
from haptera.model.log.stored_state import state_to_store
from haptera.model.log.turns import PartEnded, PartStarted, TurnEnded, TurnStarted
from haptera.model.parts import TextPart
from haptera.model.usage import Usage
from tests.folded_sessions import state_of
from tests.strategies_branches import any_logs, go_back
from tests.strategies_logs import LogWriter, QueryWriter, a_prompt, go_on


@pytest.fixture(autouse=True)
def _stored_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_state, "STORED_EVERY", 1)
    monkeypatch.setattr(fold_points, "_DISTANCE", 2)


def store_state(log: LogWriter) -> SessionChanged | None:
    """Record what the session is, as the end of a query does."""
    state = state_to_store(log.fold())
    if state is None:
        return None
    log.add(SessionChanged(**log.stamp()(), changes={FOLDED: state}))
    stored = log.entries[-1]
    assert isinstance(stored, SessionChanged)
    return stored


class ListLog:
    """Entries in a list, read as from a store."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    async def read(
        self, session_id: SessionId, *, after: int = 0, limit: int | None = None
    ) -> list[Entry]:
        """Read entries in order."""
        del session_id
        return [each for each in self._entries if each.seq > after][:limit]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def look(entries: Sequence[Entry], stored: SessionChanged) -> SessionFold | None:
    """Fold what is read to look at a session."""
    folded = (stored.seq, stored.changes[FOLDED]["at"])
    return asyncio.run(read_to_look(ListLog(entries), SessionId(""), folded))


def seen_of(fold: SessionFold) -> dict[str, object]:
    """Return what can be seen of a session without its messages."""
    state = state_of(fold)
    state |= {"notes": None, "context": None}
    return state | {"unfinished": find_unfinished(fold), "approvals": fold.pending_approvals()}


async def check_way_back(log: LogWriter, seen: SessionFold) -> bool:
    """Go back to a message by what is stored; returns whether that could be done."""
    message_id = log.one_of(log.fold().messages()).id
    reader = StateReader(ListLog(log.entries), SessionId(""), log.entries[0])
    back = await gone_back_to(log, seen, message_id, await reader.find(seen, message_id))
    if back is None:
        return False
    assert seen_of(back) == seen_of(log.fold())
    assert back.messages()[-1].id == log.fold().messages()[-1].id
    log.entries.pop()
    return True


async def check_way_back_from_points(log: LogWriter) -> bool:
    """Go back to a message of a session that has all of them; returns whether that was near."""
    whole = log.fold()
    index = log.one_of(range(len(whole.messages())))
    message_id = whole.messages()[index].id
    reader = StateReader(ListLog(log.entries), SessionId(""), log.entries[0])
    place = await reader.find_at(whole, index, message_id)
    back = await gone_back_to(log, whole, message_id, place)
    if back is None:
        return False
    assert state_of(back) == state_of(log.fold())
    assert back.messages() == log.fold().messages()
    log.entries.pop()
    return True


async def gone_back_to(
    log: LogWriter, seen: SessionFold, message_id: MessageId, place: MessagePlace | None
) -> SessionFold | None:
    """Record that a session goes back to a message; returns it, or None if more must be read."""
    if place is None:
        return None
    assert place.seq == seq_of_message(log.entries, message_id, inherited=log.inherited)
    assert message_id in {message.id for message in place.messages}
    log.add(Rewound(**log.stamp()(), to_seq=place.seq, message_id=message_id))
    seen.apply(log.entries[-1])
    back = await place.stretch.folded(log.entries[-1:], between=seen)
    if back is None:
        log.entries.pop()
    else:
        assert back.rewound_at == log.fold().rewound_at == log.entries[-1].seq
    return back


def say_and_answer(log: LogWriter) -> None:
    """Write a prompt and its whole answer, after whatever was left unfinished."""
    fold = log.fold()
    for query_id in fold.unended:
        log.add(QueryEnded(**log.stamp(query_id)(), stop_reason="aborted"))
    query = QueryWriter(log)
    log.add(QueryStarted(**query.stamp(), message=a_prompt("well?", query_id=query.query_id)))
    calls = query.turn(fails=False) if log.chance() else []
    query.tools(calls)
    stamp, message_id = query.stamp.of_turn(new_turn_id()), new_message_id()
    log.add(TurnStarted(**stamp(), message_id=message_id, provider="scripted", model="one"))
    part_id = new_part_id()
    log.add(PartStarted(**stamp(), part_id=part_id, part_kind="text"))
    log.add(PartEnded(**stamp(), part_id=part_id, part=TextPart(id=part_id, text="well")))
    log.add(TurnEnded(**stamp(), message_id=message_id, finish="stop", usage=Usage(output=2)))
    log.add(QueryEnded(**query.stamp(), stop_reason="complete"))


def check_looks(log: LogWriter, *, steps: int = 12) -> tuple[int, int]:
    """Store states wherever it can be done, go on, and look.

    Returns how often there was one, and how often it was gone back to a message by them.
    """
    looked = gone_back = 0
    stored: SessionChanged | None = None
    for _ in range(steps):
        write = log.one_of((say_and_answer, say_and_answer, go_on, go_back))
        write(log)
        stored = store_state(log) or stored
        seen = look(log.entries, stored) if stored is not None else None
        if seen is None:
            continue
        whole = fold_entries(log.entries, inherited=log.inherited)
        assert seen_of(seen) == seen_of(whole)
        assert seen.rewound_at == whole.rewound_at
        looked += 1
        for _ in range(2 if whole.messages() else 0):
            again = look(log.entries, stored) if stored is not None else None
            if again is not None:
                gone_back += asyncio.run(check_way_back(log, again))
            gone_back += asyncio.run(check_way_back_from_points(log))
    return looked, gone_back


many_choices = st.binary(min_size=100, max_size=900)
some_logs = st.tuples(any_logs, many_choices).map(lambda both: with_choices(*both))
"""Logs that are gone on with by other choices than they were written by."""


def with_choices(log: LogWriter, choices: bytes) -> LogWriter:
    """Return a log that goes on by other choices."""
    log._choices = iter(choices)
    return log


@given(log=some_logs)
def test_what_is_seen_is_what_the_whole_log_says(log: LogWriter) -> None:
    check_looks(log)


@pytest.mark.soak
@given(log=some_logs)
@settings(max_examples=20_000, deadline=None)
def test_the_same_for_many_more_logs(log: LogWriter) -> None:
    check_looks(log)


def log_at_rest() -> tuple[LogWriter, SessionChanged]:
    """Write a log that ends with a stored state."""
    log = LogWriter(b"")
    log.add(SessionOpened(**log.stamp()(), session_id=new_session_id()))
    say_and_answer(log)
    stored = store_state(log)
    assert stored is not None
    return log, stored


def test_a_state_of_another_version_is_not_used() -> None:
    log, stored = log_at_rest()
    assert look(log.entries, stored) is not None
    older = {**stored.changes[FOLDED], "version": 1}
    log.entries[-1] = msgspec.structs.replace(stored, changes={FOLDED: older})
    assert look(log.entries, stored) is None


@pytest.mark.parametrize("value", [None, 7, [], {}, {"at": "x"}, {"at": -1}, {"at": 2**70}])
def test_a_state_that_cannot_be_read_is_not_used(value: object) -> None:
    log, stored = log_at_rest()
    log.entries[-1] = msgspec.structs.replace(stored, changes={FOLDED: value})
    assert look(log.entries, stored) is None
    log.entries[-1] = msgspec.structs.replace(stored, changes={})
    assert look(log.entries, stored) is None


def test_texts_are_not_stored() -> None:
    log, stored = log_at_rest()
    said = [message.text for message in log.fold().messages() if message.text]
    assert said
    told = msgspec.json.encode(stored.changes).decode()
    assert not [text for text in said if text in told]
