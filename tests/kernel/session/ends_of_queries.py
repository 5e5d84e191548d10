"""Every query that was started has one end, its own or that of the query that resumed it."""

from collections.abc import Sequence

from haptera.model.log.entry import Entry
from haptera.model.log.queries import QueryEnded, QueryStarted


def queries_without_end(log: Sequence[Entry], *, is_resumed_enough: bool = True) -> list[str]:
    """Return the queries of a log that is at rest which have no end; also those that end twice.

    A query that was resumed ends with the query that resumes it.
    """
    ended: list[str] = [str(entry.query_id) for entry in log if isinstance(entry, QueryEnded)]
    resumed = {str(e.resumes) for e in log if isinstance(e, QueryStarted) and e.resumes}
    wrong = [query for query in set(ended) if ended.count(query) > 1]
    for entry in log:
        if isinstance(entry, QueryStarted):
            query = str(entry.query_id)
            if query not in ended and not (is_resumed_enough and query in resumed):
                wrong.append(query)
    return wrong
