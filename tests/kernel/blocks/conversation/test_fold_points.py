"""A session that is folded from one of its points is the session that its whole log makes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haptera.model.log import fold_points
from haptera.model.log.entry import Entry
from haptera.model.log.fold import fold_entries, fold_from_point
from haptera.model.log.session_fold import SessionFold
from tests.strategies_branches import go_back
from tests.strategies_logs import write_session

_OBSERVED = (
    *("head", "title", "native", "settings", "configured", "query_options", "open_query"),
    *("last_query", "last_finish", "inputs", "usage", "cost", "context", "snapshot_error"),
    *("approvals", "child_answers", "unended"),
)


def state_of(fold: SessionFold) -> dict[str, object]:
    """Return all that can be seen of a session."""
    seen = {name: getattr(fold, name) for name in _OBSERVED}
    return seen | {
        "messages": fold.messages(),
        "sent": fold.sent_view(),
        "grants": fold.standing.grants,
        "policy": fold.standing.policy,
        "untold": (fold.notes.untold, fold.notes.noted),
        "calls": [(call.part, call.may_run) for call in fold.calls.values()],
        "unended": list(fold.unended),
    }


def live_fold(entries: list[Entry], start: int) -> SessionFold:
    """Return a session that was opened with the first entries and has lived through the others."""
    fold = fold_entries(entries[:start])
    for number, entry in enumerate(entries[start:], start=start + 1):
        fold.apply(entry)
        if entry.kind == "rewound":  # as the session does it: the conversation is derived again
            fold.become(refolded(fold, entries[:number]))
    return fold


def refolded(fold: SessionFold, entries: list[Entry]) -> SessionFold:
    point = fold.points.until(entries[-1].to_seq)  # type: ignore[attr-defined]
    while point is not None:
        after = [entry for entry in entries if entry.seq > point.seq]
        if point.needs_only(after):
            return fold_from_point(fold, point, after)
        point = fold.points.until(point.seq - 1)
    return fold_entries(entries)


@pytest.fixture(autouse=True)
def _many_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_points, "_DISTANCE", 1)


@settings(max_examples=60)
@given(st.binary(min_size=60, max_size=200), st.integers(0, 10_000))
def test_a_session_that_was_folded_from_points_is_that_of_its_log(
    choices: bytes, start: int
) -> None:
    entries = write_session(choices, go_back=go_back).entries
    fold = live_fold(entries, 1 + start % len(entries))
    assert state_of(fold) == state_of(fold_entries(entries))


@settings(max_examples=60)
@given(st.binary(min_size=60, max_size=200))
def test_every_point_leads_to_the_same_session(choices: bytes) -> None:
    entries = write_session(choices, go_back=go_back).entries
    whole = fold_entries(entries)
    wanted = state_of(whole)
    for number in range(1, len(entries)):
        point = whole.points.until(number)
        after = [entry for entry in entries if point is not None and entry.seq > point.seq]
        if point is not None and point.needs_only(after):
            assert state_of(fold_from_point(whole, point, after)) == wanted
