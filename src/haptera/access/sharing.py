"""Sharing: links under which others may read a session, and what they see.

A share is a change of the session, in its log. The index keeps what checks a link: a wrong one
costs one look-up, and every process over one store knows every link. The token of a link is the id
of the session, one byte that says which owners to look among, and 128 random bits. It is shown
once; its SHA-256 is stored.
"""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import msgspec
from msgspec.structs import replace

from haptera.access.catalogue import Catalogue
from haptera.access.transfer import conversation_of
from haptera.formats.formats import format_named
from haptera.formats.forms import with_content
from haptera.formats.redaction import Redactor, redacted
from haptera.formats.values import SessionExport, TimedMessage
from haptera.model.errors import ErrorCode, SessionError
from haptera.model.ids import SessionId
from haptera.model.json_types import JsonObject
from haptera.model.messages import AssistantMessage, Message
from haptera.model.operations.operation import handles
from haptera.model.operations.sessions import ListShares, ReadShared, RevokeShare, ShareSession
from haptera.model.parts import MediaPart, Part, ProviderPart, ReminderPart, ToolResultPart
from haptera.model.secrets import token_digest
from haptera.model.shares import ShareId, StoredShare, new_share_id, sharing, unsharing
from haptera.ports.session_store import SessionRecord

MOST_SHARES = 100
"""How many links to one session can be valid at a time."""
_DAY_MS = 24 * 3600 * 1000
_SECRET_BYTES = 16
_ID_BYTES = 16
# 33 bytes (id, hint and secret) are 44 characters of base64, without padding.
_TOKEN = re.compile(r"[A-Za-z0-9_-]{44}", re.ASCII)
_NO_DIGEST = "0" * 64
_HOLDER_SECONDS = 10.0
"""How long a share waits for the process that holds the session."""
_NOT_SHOWN = (ReminderPart, ProviderPart)
"""What a redacted view leaves out: notes of the program to the model, and providers' own things."""


class Share(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A link under which others may read a session until it expires or is revoked."""

    id: ShareId
    session_id: SessionId
    created: int
    """Milliseconds since 1970, as all times here."""
    expires: int
    redact: bool
    """Whether secrets, paths, media and notes to the model are masked."""
    live: bool
    """Whether it shows the session as it is, and not as it was when it was shared."""
    token: str | None = None
    """The secret of the link; only the call that makes a share returns it."""
    path: str | None = None
    """Where a server of this store shows the session; with the token, so it is a secret, too."""


class SharedSession(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a link shows of a session: its messages, and nothing that could change it."""

    title: str
    model: str
    created: int
    updated: int
    expires: int
    """When the link ends."""
    redacted: bool
    live: bool
    messages: tuple[Message, ...] = ()

    def html(self) -> bytes:
        """Return a page that needs nothing else; see the export in the format `html`."""
        export = SessionExport(
            session_id=SessionId(""),
            messages=tuple(
                TimedMessage(message=message, time=message.time or 0) for message in self.messages
            ),
            title=self.title,
            model=self.model,
            created=self.created,
            updated=self.updated,
        )
        return b"".join(format_named("html").write(export))


@handles(ShareSession)
async def share(sessions: Catalogue, order: ShareSession) -> Share:
    """Record a link to a session, by the digest of its token."""
    record = await sessions.record(order.reference)
    now = sessions.composition.clock.time_ms()
    valid = valid_shares(record, now=now)
    if len(valid) >= MOST_SHARES:
        full = f"the session has {MOST_SHARES} links; revoke one before you make another"
        raise SessionError(ErrorCode.BUSY, full)
    token = new_share_token(record.id, record.owner)
    stored = StoredShare(
        id=new_share_id(),
        digest=token_digest(token),
        created=now,
        expires=now + math.ceil(order.days * _DAY_MS),
        through=None if order.live else record.head,
        redact=order.redact,
    )
    # What has expired is removed with the next link: to read a link changes nothing.
    expired = [each for each in record.shares if each not in valid]
    changes = sharing(stored, expired=expired)
    await _change_shares(sessions, record, changes, share_id=stored.id, is_there=True)
    return replace(_described(record.id, stored), token=token, path=f"/s/{token}")


@handles(ListShares)
async def shares(sessions: Catalogue, order: ListShares) -> tuple[Share, ...]:
    """List the links that have not expired."""
    record = await sessions.record(order.reference)
    valid = valid_shares(record, now=sessions.composition.clock.time_ms())
    return tuple(_described(record.id, each) for each in valid)


@handles(RevokeShare)
async def revoke_share(sessions: Catalogue, order: RevokeShare) -> None:
    """Record that a link is not valid any more."""
    record = await sessions.record(order.reference)
    valid = valid_shares(record, now=sessions.composition.clock.time_ms())
    revoked = next((each for each in valid if each.id == order.share_id), None)
    if revoked is None:
        message = f"the session has no share {order.share_id[:60]!r}"
        raise SessionError(ErrorCode.NOT_FOUND, message)
    await _change_shares(
        sessions, record, unsharing(revoked.id), share_id=revoked.id, is_there=False
    )


@handles(ReadShared)
async def shared(sessions: Catalogue, order: ReadShared) -> SharedSession:
    """Find the session of a token, and what its link shows."""
    session_id = session_of(order.token)
    record = session_id and await sessions.composition.store.index.find(
        sessions.owner, None, session_id=session_id
    )
    now = sessions.composition.clock.time_ms()
    stored = find_share(valid_shares(record, now=now) if record else (), order.token)
    if not record or stored is None:
        message = "this link is not valid; it may have expired or been revoked"
        raise SessionError(ErrorCode.NOT_FOUND, message)
    folded = await sessions.folded(record.id, through=stored.through)
    export = await conversation_of(
        sessions.composition, record, folded, has_media=not stored.redact
    )
    fold, entries = folded
    if stored.through is not None:
        updated = entries[-1].time if entries else record.created
        # The record has the title of now, which may say what was added after the session was
        # shared.
        export = replace(export, title=fold.title, updated=updated)
    # In a thread: masking searches all of the text, and a server has other requests.
    shown = await asyncio.to_thread(shown_to_others, export, redact=stored.redact)
    return SharedSession(
        title=shown.title or "Session",
        model=shown.model,
        created=shown.created,
        updated=shown.updated,
        expires=stored.expires,
        redacted=stored.redact,
        live=stored.through is None,
        messages=tuple(each.message for each in shown.messages),
    )


async def _change_shares(
    sessions: Catalogue,
    record: SessionRecord,
    changes: JsonObject,
    *,
    share_id: ShareId,
    is_there: bool,
) -> None:
    """Record a change, and wait until the log has it, also when another process writes it."""
    await sessions.change(record, changes)
    # Only for its waits: what an append contains is looked up in the index.
    log = sessions.composition.store.log.follow(record.id, after=record.head)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_HOLDER_SECONDS), contextlib.aclosing(log) as pages:
            # The index changes with the append, so it is looked at again with every page.
            while await _has_share(sessions, record.id, share_id) != is_there:
                await anext(pages, None)
            return
    message = "another process holds the session and has not recorded the change yet; it will"
    raise SessionError(ErrorCode.BUSY, message)


async def _has_share(sessions: Catalogue, session_id: SessionId, share_id: ShareId) -> bool:
    return any(each.id == share_id for each in (await sessions.record(session_id)).shares)


def new_share_token(session_id: SessionId, owner: str) -> str:
    """Return the token of a new link."""
    raw = UUID(session_id).bytes + bytes([owner_hint(owner)]) + os.urandom(_SECRET_BYTES)
    return base64.urlsafe_b64encode(raw).decode()


def session_of(token: str) -> SessionId | None:
    """Return which session a token is for; None when it is none."""
    if _TOKEN.fullmatch(token) is None:
        return None
    raw = base64.urlsafe_b64decode(token)
    return SessionId(str(UUID(bytes=raw[:_ID_BYTES])))


def owner_hint(owner: str) -> int:
    """Return the byte by which a server finds the owners that a token may belong to.

    It is short so that a reader of a link cannot use it to confirm a guess of the owner's name.
    """
    return hashlib.sha256(owner.encode("utf-8", "surrogatepass")).digest()[0]


def owners_of(token: str, owners: Sequence[str]) -> list[str]:
    """Return the owners among which the session of a token is to be looked for."""
    if session_of(token) is None:
        return []
    hint = base64.urlsafe_b64decode(token)[_ID_BYTES]
    return [owner for owner in owners if owner_hint(owner) == hint]


def valid_shares(record: SessionRecord, *, now: int) -> tuple[StoredShare, ...]:
    """Return the links to a session that have not expired."""
    return tuple(each for each in record.shares if each.expires > now)


def find_share(shares: Sequence[StoredShare], token: str) -> StoredShare | None:
    """Find the share of a token. Each digest is compared in constant time; none takes as long."""
    digest, match = token_digest(token), None
    # No early end: the time would say at which one the token was found.
    for each in shares:
        if hmac.compare_digest(each.digest.encode(), digest.encode()):
            match = each
    hmac.compare_digest(_NO_DIGEST, digest)
    return match


def shown_to_others(export: SessionExport, *, redact: bool) -> SessionExport:
    """Return what a link shows of a session.

    Never the system prompts, the folder, who sent a message, or what it cost. A redacted view also
    leaves out the notes of the program to the model, and masks secrets, paths and media.
    """
    left_out = _NOT_SHOWN if redact else ()
    messages = [_bare(each, export, left_out) for each in export.messages]
    shown = replace(
        export,
        messages=tuple(each for each in messages if each.message.parts),
        system_prompts=(),
        cwd="",
        cost=None,
        contents={},
    )
    return redacted(shown, Redactor([export.cwd, str(Path.home())])) if redact else shown


def _bare(
    each: TimedMessage, export: SessionExport, left_out: tuple[type[Part], ...]
) -> TimedMessage:
    """Return a message without what belongs to its owner, and with its media in it."""
    message = each.message
    parts = tuple(
        _with_media(part, export) for part in message.parts if not isinstance(part, left_out)
    )
    hidden: JsonObject = {"query_id": None, "turn_id": None, "time": each.time or message.time}
    hidden |= (
        {"usage": None, "cost": None} if isinstance(message, AssistantMessage) else {"sender": None}
    )
    return TimedMessage(message=replace(message, parts=parts, **hidden), time=each.time)


def _with_media(part: Part, export: SessionExport) -> Part:
    if isinstance(part, MediaPart):
        return with_content(part, export)
    if isinstance(part, ToolResultPart):
        content = tuple(
            with_content(piece, export) if isinstance(piece, MediaPart) else piece
            for piece in part.content
        )
        return replace(part, content=content)
    return part


def _described(session_id: SessionId, stored: StoredShare) -> Share:
    return Share(
        id=stored.id,
        session_id=session_id,
        created=stored.created,
        expires=stored.expires,
        redact=stored.redact,
        live=stored.through is None,
    )
