"""Opening: a session becomes live, new or as the log left it."""

import os
from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.blocks.conversation.fold import SessionFold, fold_entries
from holdfast.blocks.conversation.paths import current_path
from holdfast.ports.session_store import Lease, SessionLog, SessionRecord
from holdfast.ports.stamps import Stamp
from holdfast.session.live_session import LiveSession, SessionParts
from holdfast.vocabulary.entries import FORMAT_VERSION, Entry, SessionOpened
from holdfast.vocabulary.errors import ConfigError, ErrorCode, SessionError, StoreError
from holdfast.vocabulary.ids import MessageId, SessionId, new_id, new_session_id, parse_session_id
from holdfast.vocabulary.messages import Message
from holdfast.vocabulary.settings import Settings


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session branches off from another."""

    parent: SessionId
    forked_at: int
    """The last `seq` of the parent that belongs to the branch."""
    forked_after: MessageId | None = None
    """The last message that does, where the parent itself had it from elsewhere."""
    settings: Settings


class SessionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which session to open, and what it starts with if it is new."""

    reference: str | None = None
    """An id or a name; None makes a new session without a name."""
    owner: str = "local"
    project: str = ""
    settings: Settings = msgspec.field(default_factory=Settings)
    busy: Literal["wait", "reject"] = "reject"
    history: tuple[Message, ...] = ()
    must_exist: bool = False
    fork: Fork | None = None


async def open_session(parts: SessionParts, request: SessionRequest) -> LiveSession:
    """Open a session, or make it.

    Raises:
        SessionError: BUSY when another process holds it, NOT_FOUND when it must exist and does not,
            or is somebody else's.

    """
    record = await find_session(parts, request)
    if record is None and (request.must_exist or await _is_taken(parts, request)):
        raise _no_session(request)
    if record is not None and request.fork is not None:
        raise StoreError(ErrorCode.CONFLICT, f"the name {request.reference!r} is taken")
    try:
        return await _open(parts, request, record.id if record else _new_id(request))
    except StoreError as error:
        # Somebody else may have made the session of this name at the same moment.
        if error.code is not ErrorCode.CONFLICT or record is not None or request.fork is not None:
            raise
        record = await find_session(parts, request)
        if record is None:
            raise
        return await _open(parts, request, record.id)


async def _open(parts: SessionParts, request: SessionRequest, session_id: SessionId) -> LiveSession:
    holder = f"{os.getpid()}:{new_id('hld')}"
    lease = await parts.store.leases.acquire(session_id, holder, busy=request.busy)
    try:
        entries = await parts.store.log.read(session_id)
        _refuse_foreign(entries, request)
        _refuse_restoring_over(entries, request)
        if not entries:
            entries = [await _append_opening(parts, lease, request)]
        fold = await fold_log(parts.store.log, entries)
    except BaseException:
        await parts.store.leases.release(lease)
        raise
    live = LiveSession(parts, lease, fold)
    try:
        if fold.opened is None and not fold.settings.model:
            # The entry that had them is damaged: the session goes on as a new one would start.
            await live.change({"settings": msgspec.to_builtins(request.settings)})
        await live.start()
    except BaseException:
        await live.close(force=True)
        raise
    return live


async def _is_taken(parts: SessionParts, request: SessionRequest) -> bool:
    """Whether an id that this owner and project do not have is somebody else's."""
    session_id = parse_session_id(request.reference or "")
    if session_id is None or not await parts.store.log.read(session_id):
        return False
    # It may have become ours since we looked.
    return await find_session(parts, request) is None


def _refuse_foreign(entries: Sequence[Entry], request: SessionRequest) -> None:
    """Refuse a session that somebody else made after we looked for it."""
    opened = entries[0] if entries else None
    owned = (request.owner, request.project)
    if isinstance(opened, SessionOpened) and (opened.owner, opened.project) != owned:
        raise _no_session(request)


def _no_session(request: SessionRequest) -> SessionError:
    """Make the error of a session that is not there, or not for us: nobody can tell which."""
    return SessionError(ErrorCode.NOT_FOUND, f"there is no session {request.reference!r}")


def _refuse_restoring_over(entries: Sequence[Entry], request: SessionRequest) -> None:
    """Refuse to restore a conversation into a session that has one."""
    if entries and request.history:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"session {request.reference!r} is there already; restore into a new one",
        )


async def find_session(parts: SessionParts, request: SessionRequest) -> SessionRecord | None:
    """Find a session by its id or name, for its owner and project only."""
    reference = request.reference
    if reference is None:
        return None
    session_id = parse_session_id(reference)
    name = None if session_id else reference
    return await parts.store.index.find(
        request.owner, request.project, session_id=session_id, name=name
    )


def _new_id(request: SessionRequest) -> SessionId:
    given = parse_session_id(request.reference) if request.reference else None
    return given or new_session_id()


async def _append_opening(
    parts: SessionParts, lease: Lease, request: SessionRequest
) -> SessionOpened:
    is_name = request.reference is not None and parse_session_id(request.reference) is None
    opened = SessionOpened(
        **Stamp(parts.clock)(),
        seq=1,
        session_id=lease.session_id,
        owner=request.owner,
        project=request.project,
        name=request.reference if is_name else None,
        parent=request.fork.parent if request.fork else None,
        forked_at=request.fork.forked_at if request.fork else None,
        forked_after=request.fork.forked_after if request.fork else None,
        settings=request.fork.settings if request.fork else request.settings,
        history=request.history,
    )
    await parts.store.log.append(lease, [opened])
    return opened


async def fold_log(log: SessionLog, entries: Sequence[Entry]) -> SessionFold:
    """Fold a session's entries on top of what it inherits.

    Raises:
        StoreError: VERSION_UNSUPPORTED when a newer version wrote the session.

    """
    opened = entries[0] if entries else None
    if isinstance(opened, SessionOpened) and opened.format > FORMAT_VERSION:
        raise StoreError(
            ErrorCode.VERSION_UNSUPPORTED,
            f"this session was written in format {opened.format}; "
            f"this version reads up to {FORMAT_VERSION}",
        )
    return fold_entries(entries, inherited=await inherited_entries(log, opened))


async def inherited_entries(log: SessionLog, opened: Entry | None) -> list[Entry]:
    """Read what a fork has from its parent, which may be a fork itself, and so on."""
    generations: list[Sequence[Entry]] = []
    while isinstance(opened, SessionOpened) and opened.parent is not None:
        through = opened.forked_at or 0
        entries = [
            entry for entry in await log.read(opened.parent, limit=through) if entry.seq <= through
        ]
        if not entries:
            raise StoreError(
                ErrorCode.CORRUPT,
                f"session {opened.session_id} was forked from {opened.parent}, which is gone",
            )
        generations.append(current_path(entries))
        opened = entries[0]
    return [entry for own in reversed(generations) for entry in own]
