"""Shares: links under which others may read a session, as its log and the index keep them."""

import contextlib
from collections.abc import Collection
from typing import NewType

import msgspec

from haptera.model.ids import new_id
from haptera.model.json_types import JsonObject

ShareId = NewType("ShareId", str)


class StoredShare(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A link to a session. It can be checked with this, and not be made from it."""

    id: ShareId
    digest: str
    """The SHA-256 of the token, in hexadecimal digits."""
    created: int
    expires: int
    through: int | None
    """The last `seq` that is shown; None: the session as it is when it is read."""
    redact: bool = True


def new_share_id() -> ShareId:
    """Mint the id of a share."""
    return ShareId(new_id("shr"))


def sharing(share: StoredShare, *, expired: Collection[StoredShare] = ()) -> JsonObject:
    """Return the change of a session that adds a share, and takes expired ones away."""
    ended = unsharing(*(each.id for each in expired)) if expired else {}
    return {"shared": msgspec.to_builtins(share), **ended}


def unsharing(*share_ids: ShareId) -> JsonObject:
    """Return the change of a session that takes shares away, for good."""
    return {"unshared": list(share_ids)}


def shares_after(
    shares: tuple[StoredShare, ...], changes: JsonObject, *, time: int
) -> tuple[StoredShare, ...]:
    """Return the shares of a session after a change of it; expired ones are left out.

    A value that no version of this program writes changes nothing.
    """
    valid = {each.id: each for each in shares if each.expires > time}
    if isinstance(ended := changes.get("unshared"), list):
        valid = {name: each for name, each in valid.items() if name not in ended}
    if "shared" in changes:
        with contextlib.suppress(msgspec.ValidationError):
            added = msgspec.convert(changes["shared"], StoredShare)
            valid[added.id] = added
    return tuple(valid.values())
