"""A session that is folded from a compaction is the one that its whole log makes."""

import msgspec
import pytest
from hypothesis import given, settings

from haptera.kernel.session.session import estimate_all
from haptera.kernel.turns.compaction_plan import first_kept, id_at
from haptera.model.ids import MessageId, new_session_id
from haptera.model.log.carried_state import (
    _VERSION,
    CarriedState,
    carried_by,
    fold_from_compaction,
)
from haptera.model.log.compactions import Compaction
from haptera.model.log.entry import Entry
from haptera.model.log.fold import copy_fold, fold_entries, fold_of_fork
from haptera.model.log.paths import current_path
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import SessionOpened
from tests.folded_sessions import MADE_BY_MESSAGES, state_of
from tests.strategies_branches import any_logs
from tests.strategies_logs import LogWriter, QueryWriter, go_on

CARRIED = (
    *("at", "version", "settings", "title", "configured", "query_options", "native", "open_query"),
    *("last_query", "unended", "last_finish", "inputs", "grants", "policy", "notes", "untold"),
    *("untold_since", "usage", "cost", "context", "snapshot_error", "landmarks"),
)
"""What `CarriedState` has, by name, in its current version. Landmarks may be missing."""


def test_every_attribute_of_a_fold_is_declared_and_has_a_first_value() -> None:
    declared = set(SessionFold.__annotations__)
    assert set(vars(SessionFold())) == declared, "declare it in SessionFold, and set it there"


def test_everything_that_a_session_is_is_carried_or_made_by_its_messages() -> None:
    carried = set(CarriedState.__struct_fields__) - {"at", "version"}
    named = set(vars(SessionFold())) - MADE_BY_MESSAGES
    # Approvals that stand, and notes, are carried by what they consist of.
    undecided = (named - {"standing"}) ^ (carried - {"grants", "policy", "untold", "untold_since"})
    assert not undecided, "carry it in CarriedState, or name it in MADE_BY_MESSAGES"


def test_what_is_carried_belongs_to_a_version() -> None:
    """An older version compacts without what it does not know; its state must not be used."""
    told = "raise _VERSION of carried_state.py, and write what is carried, and the version, here"
    assert (CarriedState.__struct_fields__, _VERSION) == (CARRIED, 1), told


def compact(log: LogWriter, kept_from: MessageId | None) -> Compaction:
    """Record a compaction as the engine does."""
    reads_from, carried = carried_by(log.fold(), kept_from)
    entry = Compaction(
        **log.stamp()(),
        trigger="manual",
        strategy="summarise",
        summary="gist",
        kept_from=kept_from,
        reads_from=reads_from,
        carried=carried if reads_from is not None else None,
    )
    log.add(entry)
    return msgspec.structs.replace(entry, seq=len(log.entries))


def read_after(entries: list[Entry], compaction: Compaction) -> list[Entry]:
    """Return what an opening reads after a compaction."""
    first = compaction.reads_from or 1
    return [entry for entry in entries if entry.seq == 1 or entry.seq >= first]


def check_compactions(log: LogWriter, *, times: int = 2) -> int:
    """Compact so that any message may be the first one kept, and go on; returns how many counted.

    Then compact what came of it again, so many `times` in all. A session that cannot be folded from
    its compaction is folded from its first entry instead.
    """
    counted = 0
    view, before = log.fold().settled_view(), list(log.entries)
    sizes = {estimate_all(view[place:]) for place in range(len(view) + 1)}
    for place in {first_kept(view, size) for size in sizes} - {None}:
        log.entries = list(before)
        compaction = compact(log, id_at(view, place or 0))
        for _ in range(2):
            partial = fold_from_compaction(read_after(log.entries, compaction), compaction.seq)
            if (compaction.reads_from or 1) == 1 or partial is None:
                break
            whole = fold_entries(log.entries, inherited=log.inherited)
            assert partial.sent_view() == whole.sent_view()
            assert state_of(partial) == state_of(whole)
            counted += 1
            go_on(log)
        if times > 1:
            counted += check_compactions(log, times=times - 1)
    return counted


@pytest.mark.soak
@given(log=any_logs)
@settings(max_examples=20_000, deadline=None)
def test_the_same_for_many_more_logs(log: LogWriter) -> None:
    check_compactions(log)


@given(log=any_logs)
def test_a_session_from_a_compaction_is_the_one_from_its_whole_log(log: LogWriter) -> None:
    check_compactions(log)


def test_what_an_earlier_version_carried_is_not_used() -> None:
    log = LogWriter(b"")
    log.add(SessionOpened(**log.stamp()(), session_id=new_session_id()))
    QueryWriter(log).write()
    compaction = compact(log, None)
    read = read_after(log.entries, compaction)
    assert fold_from_compaction(read, compaction.seq) is not None
    carried = dict(compaction.carried or {})
    del carried["version"]
    older = msgspec.structs.replace(compaction, carried=carried)
    assert fold_from_compaction([*read[:-1], older], compaction.seq) is None


def test_a_compaction_is_not_used_when_an_earlier_one_needs_more_than_it_reads() -> None:
    log = LogWriter(b"")
    log.add(SessionOpened(**log.stamp()(), session_id=new_session_id()))
    QueryWriter(log).write()
    earlier = compact(log, log.fold().settled_view()[0].id)
    QueryWriter(log).write()
    later = msgspec.structs.replace(compact(log, None), reads_from=earlier.seq)
    read = [log.entries[0], earlier, *log.entries[earlier.seq : -1], later]
    assert earlier.reads_from is not None
    assert fold_from_compaction(read, later.seq) is None


OF_ITS_OPENING = {"head", "opened", "title", "settings", "configured", "native"}
TAKEN_OVER = {"conversation", "query_options", "last_finish", "notes", "context", "snapshot_error"}
LEFT_TO_THE_PARENT = {
    "landmarks",
    "listed",
    "lacks_texts",
    "rewound_at",
    "folded_at",
    "open_query",
    "last_query",
    "unended",
    "open_turn",
    "calls",
    "approvals",
    "child_answers",
    "inputs",
    "usage",
    "cost",
}
"""What a fork does not begin with."""


@given(log=any_logs)
def test_a_fork_takes_over_what_a_session_is_or_leaves_it_to_its_parent(log: LogWriter) -> None:
    new, parent = SessionFold(), log.fold()
    decided = OF_ITS_OPENING | TAKEN_OVER | LEFT_TO_THE_PARENT
    undecided = set(vars(new)) ^ (decided | {"standing", "compacted", "points", "before_merge"})
    assert not undecided, "a fork takes it over; name it in TAKEN_OVER, or clear it in _inherit"
    opened = SessionOpened(
        **log.stamp()(), seq=1, session_id=new_session_id(), parent=new_session_id()
    )
    inherited = [*log.inherited, *current_path(log.entries)]
    fork = fold_entries([opened], inherited=inherited)
    assert fork.sent_view() == parent.sent_view()
    assert fork.notes.untold == parent.notes.untold
    assert (fork.standing.grants, fork.standing.policy) == ([], None)
    same = fold_of_fork(copy_fold(parent), opened)
    assert (same.messages(), same.sent_view()) == (fork.messages(), fork.sent_view())
    assert state_of(same) == state_of(fork)
    for name in LEFT_TO_THE_PARENT | {"head", "opened", "before_merge"}:
        assert getattr(same, name) == getattr(fork, name), name
    assert state_of(parent) == state_of(log.fold()), "the parent stays as it is"
    assert parent.messages() == log.fold().messages()
    for name in TAKEN_OVER - {"conversation", "notes"}:
        assert getattr(fork, name) == getattr(parent, name), name
    for name in LEFT_TO_THE_PARENT:
        assert getattr(fork, name) == getattr(new, name), name
