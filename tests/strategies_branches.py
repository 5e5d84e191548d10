"""Strategies that make logs with rewinds, and logs of sessions that were forked."""

from hypothesis import strategies as st

from haptera.kernel.session.log_reading import seq_of_message
from haptera.model.ids import MessageId, new_session_id
from haptera.model.log.history import Rewound
from haptera.model.log.paths import current_path, last_rewind
from haptera.model.log.sessions import SessionOpened
from haptera.model.settings import Settings
from tests.strategies_logs import LogWriter, write_onto, write_session


def _place(log: LogWriter) -> tuple[int, MessageId] | None:
    """Choose a message that can be gone back to."""
    messages = log.fold().messages()
    if not messages:
        return None
    message_id = log.one_of(messages).id
    seq = seq_of_message(log.entries, message_id, inherited=log.inherited)
    return None if seq is None else (seq, message_id)


def go_back(log: LogWriter) -> None:
    """Go back to a message, take a rewind back, or go to where the session was at rest once."""
    how = log.one_of(("message", "message", "undo", "rest"))
    place, last = _place(log), last_rewind(log.entries)
    if how == "message" and place is not None:
        log.add(Rewound(**log.stamp()(), to_seq=place[0], message_id=place[1]))
    elif how == "undo" and last is not None:
        log.add(Rewound(**log.stamp()(), to_seq=last.seq - 1))
    else:
        log.add(Rewound(**log.stamp()(), to_seq=log.one_of(log.rests)))


def fork(parent: LogWriter, choices: bytes) -> LogWriter:
    """Write the log of a session that goes on from any message of another, or from its end."""
    place = None if parent.chance(out_of=4) else _place(parent)
    seq, message_id = place or (len(parent.entries), None)
    log = LogWriter(
        choices,
        inherited=[*parent.inherited, *current_path(parent.entries, through=seq)],
        started=[item._replace(seq=0) for item in parent.started],
    )
    opened = SessionOpened(
        **log.stamp()(),
        session_id=new_session_id(),
        parent=new_session_id(),
        forked_at=seq,
        forked_after=message_id if seq == 1 else None,
        parent_head=len(parent.entries),
        settings=Settings(model="a/b"),
    )
    return write_onto(log, opened, go_back=go_back)


def _forked(choices: list[bytes]) -> LogWriter:
    log = write_session(choices[0], go_back=go_back)
    for more in choices[1:]:
        log = fork(log, more)
    return log


branching_logs = st.lists(st.binary(min_size=30, max_size=200), min_size=1, max_size=3).map(_forked)
"""Logs with rewinds, of sessions that were forked up to twice."""

any_logs = st.binary(min_size=40, max_size=150).map(write_session) | branching_logs
"""Logs with rewinds, and logs without any."""
