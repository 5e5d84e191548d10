"""What two folds of one session must agree on, however much of its log each was made from."""

import msgspec

from haptera.model.log.session_fold import SessionFold

MADE_BY_MESSAGES = {
    "head",
    "opened",
    "conversation",
    "open_turn",
    "calls",
    "approvals",
    "child_answers",
    "compacted",
    "points",
    "folded_at",
    "listed",
    "lacks_texts",
    "rewound_at",
    "before_merge",
}
"""What the entries that are read make anew: the messages, and what becomes of their calls."""


def state_of(fold: SessionFold) -> dict[str, object]:
    """Return what has to be the same, without what cannot be: messages that were not read."""
    state = {name: value for name, value in vars(fold).items() if name not in MADE_BY_MESSAGES}
    opened = fold.open_query
    state["open_query"] = opened and msgspec.structs.replace(opened, message=None, raw=None)
    state["standing"] = (fold.standing.grants, fold.standing.policy)
    state["notes"] = (fold.notes.noted, fold.notes.untold, fold.notes.since)
    return state
