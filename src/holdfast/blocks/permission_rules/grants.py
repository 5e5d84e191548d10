"""Which lasting approval covers a call.

A module of its own because rules and approvals are two things: a rule speaks of many calls, an
approval of exactly one.
"""

from collections.abc import Iterable

import msgspec

from holdfast.vocabulary.approvals import Grant
from holdfast.vocabulary.ids import QueryId, SessionId


class GrantPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a call is made."""

    query_id: QueryId
    session_id: SessionId
    folder: str


def find_grant(grants: Iterable[Grant], key: str, place: GrantPlace) -> Grant | None:
    """Return a grant that covers a call; one for `once` is used up by the call it was given to."""
    return next((grant for grant in grants if grant.key == key and _holds(grant, place)), None)


def _holds(grant: Grant, place: GrantPlace) -> bool:
    if grant.folder != place.folder:
        return False
    if grant.scope == "project":
        return True
    if grant.session_id not in {None, place.session_id}:
        return False
    return grant.scope == "session" or (grant.scope == "query" and grant.query_id == place.query_id)
