"""Keeps rows that had to make way: damaged entries at the end of a log."""

import apsw

from holdfast.stores.sqlite.rows import (
    as_bytes,
    as_numbers,
    entry_of,
    finder_of,
    last_row,
    shown,
    span_of,
)


def set_damaged_end_aside(connection: apsw.Connection, key: int) -> None:
    """Move damaged rows from the end of a log, so that it can go on after its last good entry.

    Damaged rows before a good one stay where they are.
    """
    while (row := last_row(connection, key)) is not None:
        reason = entry_of(row, finder_of(connection, key))
        if not isinstance(reason, str):
            return
        connection.execute(
            "INSERT INTO quarantine (session, place, reason, body) VALUES (?, ?, ?, ?)",
            (key, row[0], reason, row[4] or b""),
        )
        connection.execute(
            "DELETE FROM text_index WHERE rowid BETWEEN ? AND ?", (row[0], span_of(key)[1])
        )
        connection.execute("DELETE FROM entry WHERE place = ?", (row[0],))


def read_quarantine(connection: apsw.Connection, key: int) -> list[tuple[str, str]]:
    """Return the place and the reason of what was set aside."""
    rows = connection.execute(
        f"SELECT {as_numbers('place')}, {as_bytes('reason')} FROM quarantine"  # noqa: S608
        " WHERE session = ? ORDER BY rowid",
        (key,),
    )
    return [(f"row {place}", str(shown(reason))) for place, reason in rows]
