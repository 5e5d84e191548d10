"""Grants: approvals that hold for longer than one call, bound to exactly what was approved."""

import hashlib
from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from holdfast.serialization.canonical import canonical_json
from holdfast.vocabulary.ids import QueryId, SessionId
from holdfast.vocabulary.json_types import Json

GrantScope: TypeAlias = Literal["once", "query", "session", "project"]


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An approval of a call, and how long it holds."""

    key: str
    """What was approved: `approval_key` of the tool, its arguments and the folder."""
    scope: GrantScope = "once"
    query_id: QueryId | None = None
    session_id: SessionId | None = None
    folder: str = ""
    by: str | None = None


class GrantPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a call is made."""

    query_id: QueryId
    session_id: SessionId
    folder: str


def approval_key(tool: str, arguments: Json, folder: str) -> str:
    """Return the digest that binds an approval to a tool, its exact arguments and a folder.

    The same command in another folder is another command.
    """
    return hashlib.sha256(canonical_json([tool, arguments, folder])).hexdigest()


def find_grant(grants: Iterable[Grant], key: str, place: GrantPlace) -> Grant | None:
    """Return a grant that covers a call; one for `once` is used up by the call it was given to."""
    return next((grant for grant in grants if grant.key == key and _holds(grant, place)), None)


def _holds(grant: Grant, place: GrantPlace) -> bool:
    if grant.folder != place.folder:
        return False
    if grant.scope == "project":
        return True
    if grant.session_id != place.session_id:
        return False
    return grant.scope == "session" or (grant.scope == "query" and grant.query_id == place.query_id)
