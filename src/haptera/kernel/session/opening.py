"""Opening: a session becomes live, new or as the log left it."""

import os
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec

from haptera.kernel.session.live_session import LiveSession, SessionResources
from haptera.kernel.session.log_reading import (
    beside_the_loop,
    fold_log,
    let_go,
    read_for_opening,
)
from haptera.kernel.session.notes import inherited_notes
from haptera.kernel.session.session import waiting_for_caller
from haptera.kernel.session.session_descriptions import SessionRequest
from haptera.kernel.session.state_reading import read_to_look
from haptera.model.errors import (
    ConfigError,
    ErrorCode,
    SessionError,
    StoreError,
    error_from_report,
)
from haptera.model.events import Instrumented
from haptera.model.ids import SessionId, new_id, new_session_id, parse_session_id
from haptera.model.json_types import JsonObject
from haptera.model.log.entry import Entry
from haptera.model.log.fold import fold_of_fork
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import SessionOpened
from haptera.ports.session_store import Lease, SessionRecord
from haptera.system.clock import Stamp
from haptera.system.owned_tasks import OwnedTasks, until_done

LONGEST_NAME = 512
"""Of new sessions; one that has a longer name is still found by it."""


async def open_session(resources: SessionResources, request: SessionRequest) -> LiveSession:
    """Open a session, or make it.

    Raises:
        SessionError: BUSY when another process holds it, NOT_FOUND when it must exist and does not,
            or belongs to another owner.
        ConfigError: CONFIG_INVALID when a new session would have a name that is too long.

    """
    record = await find_session(resources, request)
    if record is None and (request.must_exist or await _is_taken(resources, request)):
        raise no_session(request)
    if record is None:
        _refuse_long_name(request)
    elif request.origin.fork is not None:
        raise StoreError(ErrorCode.CONFLICT, f"the name {request.reference!r} is taken")
    try:
        if record is not None:
            return await _open(resources, request, record.id, record=record)
        given = parse_session_id(request.reference) if request.reference else None
        return await _open(resources, request, given or new_session_id(), is_new=given is None)
    except StoreError as error:
        # Another process may have made the session of this name at the same moment.
        if (
            error.code is not ErrorCode.CONFLICT
            or record is not None
            or request.origin.fork is not None
        ):
            raise
        record = await find_session(resources, request)
        if record is None:
            raise
        return await _open(resources, request, record.id, record=record)


async def _open(
    resources: SessionResources,
    request: SessionRequest,
    session_id: SessionId,
    *,
    is_new: bool = False,
    record: SessionRecord | None = None,
) -> LiveSession:
    """Open a session; one whose id `is_new`, minted just now, has no log to be read."""
    lease = await _acquire(resources, request, session_id)
    try:
        log, compacted = resources.store.log, record.compacted if record is not None else None
        entries, fold = list[Entry](), await _looked_at(resources, request, record)
        if fold is None and not is_new:
            entries, fold = await read_for_opening(log, session_id, compacted)
        _refuse_foreign(entries, request)
        _refuse_restoring_over(entries, request)
        is_new = fold is None and not entries
        if is_new:
            entries = await _append_opening(resources, lease, request)
        fold = fold or await _known_fork(request, entries) or await fold_log(log, entries)
        await let_go(entries)
    except BaseException:
        await _to_its_end(resources.store.leases.release(lease))
        raise
    if request.is_for_one_query and resources.make_title is not None:  # it goes with its answer
        resources = msgspec.structs.replace(resources, make_title=None)
    # From here on the lease belongs to the session, and closing releases it.
    live = LiveSession(resources, lease, fold, bindings=request.bindings)
    if resources.instrumentation is not None:
        live.channel.on(Instrumented, resources.instrumentation)
    try:
        # Before commands of the inbox are carried out: those may change settings again.
        if not is_new and (changes := _changes_at_opening(fold, request)):
            await live.change({"settings": changes}, origin="opening")
        await live.start()
        await live.hooks.open(live.fold, is_new=is_new)
    except BaseException:
        await _to_its_end(live.close(force=True))
        raise
    return live


async def _looked_at(
    resources: SessionResources, request: SessionRequest, record: SessionRecord | None
) -> SessionFold | None:
    """Return a session without its messages, if it need not have them and that can be read."""
    if record is None or request.reads_messages or record.folded is None:
        return None
    if (record.compacted or (0,)) > record.folded:
        return None
    return await read_to_look(resources.store.log, record.id, record.folded)


async def _known_fork(request: SessionRequest, entries: Sequence[Entry]) -> SessionFold | None:
    """Return what a new fork begins with, if its parent was open; it is the fork's from now on."""
    known = request.origin.fork.known if request.origin.fork is not None else []
    if len(entries) != 1 or not known or not isinstance(opened := entries[0], SessionOpened):
        return None
    fold = known.pop()
    return await beside_the_loop(fold.messages(), lambda: fold_of_fork(fold, opened))


async def _acquire(
    resources: SessionResources, request: SessionRequest, session_id: SessionId
) -> Lease:
    """Acquire the session; an error names it as it was asked for, not by its id only."""
    holder = f"{os.getpid()}:{new_id('hld')}"
    # A query that waits for this very caller keeps the session: waiting for it would never end.
    is_own = any(session_id == query.submission.session_id for query in waiting_for_caller())
    busy = "reject" if is_own else request.busy
    try:
        return await resources.store.leases.acquire(session_id, holder, busy=busy)
    except SessionError as error:
        if request.reference in {None, session_id}:
            raise
        named = f"{request.reference!r} ({session_id})"
        message = error.message.replace(session_id, named, 1)
        raise error_from_report(msgspec.structs.replace(error.report, message=message)) from None


def _changes_at_opening(fold: SessionFold, request: SessionRequest) -> JsonObject:
    """Return the settings that the program names and the session does not have.

    What the program names wins over what the session was opened with. What `configure` set wins
    over what the agent names, but not over what is named for this session.
    """
    if fold.opened is None and not fold.settings.model:
        # The entry that had them is damaged: the session goes on as a new one would start.
        changes: JsonObject = msgspec.to_builtins(request.settings)
        return changes
    here = request.named.here
    but = {*fold.configured, *here.values, *here.implied}
    first = request.named.by_agent.changes_to(fold.settings, but=but)
    return first | here.changes_to(fold.settings)


async def _to_its_end(giving_back: Coroutine[Any, Any, None]) -> None:
    """Wait until what was acquired is given back, however often the opening is cancelled meanwhile.

    Every caller that cancels an opening continues when it has ended; nothing may be held by then.
    """
    task = OwnedTasks().start(giving_back, name="haptera-give-back")
    await until_done(task)  # the opening ends with what it is given up for
    task.result()


def _refuse_long_name(request: SessionRequest) -> None:
    """Refuse to give a new session a name that is longer than any store has to keep."""
    if request.reference is not None and len(request.reference) > LONGEST_NAME:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"the name of a new session has at most {LONGEST_NAME} characters, "
            f"not {len(request.reference)}: {request.reference[:40]!r}…",
        )


async def _is_taken(resources: SessionResources, request: SessionRequest) -> bool:
    """Whether an id that this owner and project do not have belongs to others."""
    session_id = parse_session_id(request.reference) if request.reference else None
    if session_id is None or not await resources.store.log.read(session_id, limit=1):
        return False
    # It may have become ours since we looked.
    return await find_session(resources, request) is None


def _refuse_foreign(entries: Sequence[Entry], request: SessionRequest) -> None:
    """Refuse a session that another owner made after it was looked for."""
    opened = entries[0] if entries else None
    owned = (request.owner, request.project)
    if isinstance(opened, SessionOpened) and (opened.owner, opened.project) != owned:
        raise no_session(request)


def no_session(request: SessionRequest) -> SessionError:
    """Make the error of a session that is not there, or is another owner's: it tells no more."""
    return SessionError(
        ErrorCode.NOT_FOUND,
        f"there is no session {request.reference!r} of owner {request.owner!r} in project "
        f"{request.project!r}; check the name, the store, and owner= and project= of the agent",
    )


def _refuse_restoring_over(entries: Sequence[Entry], request: SessionRequest) -> None:
    """Refuse to restore a conversation into a session that has one."""
    if entries and request.origin.history:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"session {request.reference!r} already exists; restore into a new session",
        )


async def find_session(
    resources: SessionResources, request: SessionRequest
) -> SessionRecord | None:
    """Find a session by its id or name, for its owner and project only."""
    reference = request.reference
    if reference is None:
        return None
    session_id = parse_session_id(reference)
    name = None if session_id else reference
    return await resources.store.index.find(
        request.owner, request.project, session_id=session_id, name=name
    )


async def _append_opening(
    resources: SessionResources, lease: Lease, request: SessionRequest
) -> list[Entry]:
    """Begin a log, with the notes of the project unless they come with what is forked."""
    stamp, entries = Stamp(resources.host.clock), list[Entry]()
    if resources.host.runtime.cross_session_context and request.origin.fork is None:
        entries += await inherited_notes(
            resources.store, owner=request.owner, project=request.project, stamp=stamp
        )
    # In one append: a crash leaves no session that began without the notes of its project.
    entries.insert(0, _opening_of(request, lease.session_id, stamp))
    entries = [msgspec.structs.replace(each, seq=seq) for seq, each in enumerate(entries, 1)]
    await resources.store.log.append(lease, entries)
    return entries


def _opening_of(request: SessionRequest, session_id: SessionId, stamp: Stamp) -> SessionOpened:
    origin, fork = request.origin, request.origin.fork
    is_name = request.reference is not None and parse_session_id(request.reference) is None
    return SessionOpened(
        **stamp(),
        session_id=session_id,
        owner=request.owner,
        project=request.project,
        name=request.reference if is_name else None,
        title=origin.title,
        spawned_by=origin.spawned_by,
        spawned_by_call=origin.spawned_by_call,
        parent=fork.parent if fork else None,
        forked_at=fork.forked_at if fork else None,
        forked_after=fork.forked_after if fork else None,
        parent_head=fork.parent_head if fork else None,
        native_parent=fork.native_parent if fork else None,
        settings=fork.settings if fork else request.settings,
        configured=fork.configured if fork else (),
        history=origin.history,
    )
