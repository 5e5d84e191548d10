"""Changing sessions: names, tags, what is kept beside them, and deleting them."""

import contextlib
from collections.abc import Mapping
from typing import Any

from haptera.access.assembly import late
from haptera.access.catalogue import Catalogue
from haptera.access.descriptions import SessionDescription, describe
from haptera.kernel.session.notes import project_notes
from haptera.kernel.session.session_descriptions import SessionRequest
from haptera.model.errors import AgentError, ErrorCode, StoreError
from haptera.model.ids import SessionId
from haptera.model.json_types import JsonObject
from haptera.model.operations.operation import handles
from haptera.model.operations.sessions import (
    ArchiveSession,
    DeleteSession,
    ForgetNote,
    KeepSummary,
    RenameSession,
    SaveContext,
    TagSession,
    TouchSession,
    UntagSession,
    UpdateSession,
)
from haptera.ports.session_store import SessionFilter, SessionRecord
from haptera.system.threads import run_in_thread


@handles(UpdateSession)
async def update_session(sessions: Catalogue, order: UpdateSession) -> SessionDescription:
    """Change what was checked; a session that another process holds is changed by that one."""
    record = await sessions.record(order.reference)
    if (name := order.changes.get("name")) not in {None, record.name}:
        # Looked up now: another process that holds the session changes it later, when no caller
        # hears of a conflict.
        bearer = await sessions.composition.store.index.find(
            sessions.owner, record.project, name=name
        )
        if bearer is not None:
            raise StoreError(ErrorCode.CONFLICT, f"the name {name!r} is taken")
    fields = changes_of(order.changes)
    named = fields.pop("native_session_id") if fields.get("native_session_id") else None
    if fields or named is None:
        await sessions.change(record, fields)
    if named is not None:
        # Last: the settings with which it goes on are in force.
        await _adopt(sessions, record, named)
    return describe(await sessions.record(record.id))


async def _adopt(sessions: Catalogue, record: SessionRecord, native_session_id: str) -> None:
    """Let a session go on with a native session, as opening it with that does."""
    composition = sessions.composition
    request = SessionRequest(
        owner=sessions.owner,
        project=record.project,
        reference=record.id,
        must_exist=True,
        native_session_id=native_session_id,
    )
    if (live := composition.held(record.id)) is not None:
        is_own = composition.configuration.bounds is None
        await composition.native_sessions.adopt(live, native_session_id, is_own=is_own)
        return
    live = await composition.begin_opening(request)
    await live.close()
    await composition.forget(live)
    sessions.announce("updated", record.id)


@handles(RenameSession)
async def rename(sessions: Catalogue, order: RenameSession) -> SessionDescription:
    """Give a session another name; None takes its name away."""
    changes = UpdateSession(reference=order.reference, changes={"name": order.name})
    return await update_session(sessions, changes)


@handles(TagSession)
async def tag(sessions: Catalogue, order: TagSession) -> SessionDescription:
    """Add tags to a session."""
    record = await sessions.record(order.reference)
    return await sessions.change(record, {"tags": sorted({*record.tags, *order.tags})})


@handles(UntagSession)
async def untag(sessions: Catalogue, order: UntagSession) -> SessionDescription:
    """Take tags off a session."""
    record = await sessions.record(order.reference)
    return await sessions.change(record, {"tags": sorted(set(record.tags) - set(order.tags))})


@handles(ArchiveSession)
async def archive(sessions: Catalogue, order: ArchiveSession) -> SessionDescription:
    """Put a session away, or (with `undo`) back."""
    record = await sessions.record(order.reference)
    now = None if order.undo else sessions.composition.clock.time_ms()
    for child in await sessions.browse(SessionFilter(spawned_by=record.id)):
        await archive(sessions, ArchiveSession(reference=child.id, undo=order.undo))
    return await sessions.change(record, {"archived": now})


@handles(TouchSession)
async def touch(sessions: Catalogue, order: TouchSession) -> SessionDescription:
    """Make a session the last updated one."""
    return await sessions.change(await sessions.record(order.reference), {})


@handles(DeleteSession)
async def delete(sessions: Catalogue, order: DeleteSession) -> None:
    """Delete a session with its payloads, its index and the sessions that its calls made."""
    record = await sessions.record(order.reference)
    live = sessions.composition.held(record.id)
    if live is not None:
        await live.close(abort=True)
        await sessions.composition.forget(live)
    # Before anything is deleted: a session that another process holds keeps its sub-agents'.
    lease = await sessions.acquire(record.id)
    try:
        for child in await sessions.browse(SessionFilter(spawned_by=record.id)):
            await delete(sessions, DeleteSession(reference=child.id))
        if await _has_forks(sessions, record.id):
            # Marked and not removed: a fork has only what is its own, and reads the rest from
            # this log.
            await sessions.append(lease, {"deleted": sessions.composition.clock.time_ms()})
        else:
            await _delete_log(sessions, record)
    finally:
        with contextlib.suppress(AgentError):  # nothing is left to be released
            await sessions.composition.store.leases.release(lease)
    await _delete_unneeded(sessions, record.parent)
    sessions.announce("deleted", record.id)


async def _has_forks(sessions: Catalogue, session_id: SessionId) -> bool:
    return bool(await sessions.browse(SessionFilter(parent=session_id, deleted=None)))


async def _delete_log(sessions: Catalogue, record: SessionRecord) -> None:
    """Delete the log of a session, with what is kept for it outside of the store.

    These are transcripts of native agents, and the copies of files that rewinds replaced.
    """
    composition, store = sessions.composition, sessions.composition.store
    # Read first: the entries name the transcripts.
    entries = await store.log.read(record.id) if record.native_session_id is not None else ()
    await store.log.delete(record.id)
    await composition.clients.delete_transcripts(record.owner, entries)
    data = composition.configuration.folders.data
    if copies := late.kept_files_of(data, record.id):
        await run_in_thread(lambda: late.forget_kept_files(copies))


async def _delete_unneeded(sessions: Catalogue, session_id: SessionId | None) -> None:
    """Delete a session that was kept for its forks, once there are none."""
    # A chain: a parent may have been kept only for the fork that was deleted now.
    while session_id is not None and not await _has_forks(sessions, session_id):
        deleted = await sessions.browse(SessionFilter(deleted=True))
        record = next((each for each in deleted if each.id == session_id), None)
        if record is None:
            return
        await _delete_log(sessions, record)
        session_id = record.parent


@handles(SaveContext)
async def set_context(sessions: Catalogue, order: SaveContext) -> None:
    """Save what a person is looking at."""
    await sessions.change(await sessions.record(order.reference), {"context": order.context})


@handles(KeepSummary)
async def set_summary(sessions: Catalogue, order: KeepSummary) -> None:
    """Keep a summary of a session, with its time."""
    time = order.summary.get("made") or sessions.composition.clock.time_ms()
    changes = {"summary": {**order.summary, "made": time}}
    await sessions.change(await sessions.record(order.reference), changes)


@handles(ForgetNote)
async def forget_note(sessions: Catalogue, order: ForgetNote) -> None:
    """Take a note back, wherever its text was noted."""
    store, text = sessions.composition.store, order.text.strip()
    for each in await project_notes(
        store, owner=sessions.owner, project=sessions.project, is_each_text_once=False
    ):
        if each.text.strip() == text:
            record = await sessions.record(each.session_id)
            await sessions.change(record, {"forgotten_notes": [each.seq]})


def changes_of(fields: Mapping[str, Any]) -> JsonObject:
    """Return the changes of an entry for what a caller wants changed."""
    changes: JsonObject = {}
    metadata: JsonObject = dict(fields.get("metadata") or {})
    for name, value in fields.items():
        if name in {"status", "error_message", "workflow_id"}:
            metadata[name] = value
        elif name == "system_prompt":
            changes["settings"] = {"system_prompts": [value] if value else []}
        elif name == "tags":
            changes["tags"] = sorted(set(fields["tags"]))
        elif name != "metadata":
            changes[name] = value
    return changes | ({"metadata": metadata} if metadata else {})
