"""Finding sessions: lists, search, descriptions, what a log says of its messages."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from haptera.access.assembly.side_questions import ask_for_summary
from haptera.access.catalogue import Catalogue
from haptera.access.descriptions import (
    ActiveContext,
    FoundPrompt,
    FoundText,
    MessageDescription,
    SessionDescription,
    SessionStats,
    SessionSummary,
    SessionTree,
    describe,
)
from haptera.access.history import described_messages, stats_of, usage_of
from haptera.formats.transcript import transcript_of
from haptera.kernel.session.conversation_effects import record_note
from haptera.kernel.session.log_reading import beside_the_loop, fold_log
from haptera.kernel.session.notes import ProjectNote, project_notes
from haptera.kernel.session.session_descriptions import Fork
from haptera.model.errors import ConfigError, ErrorCode, SessionError
from haptera.model.ids import SessionId
from haptera.model.json_types import JsonObject, writable
from haptera.model.log.notes import ContextNoted
from haptera.model.log.sessions import SessionChanged
from haptera.model.operations.held import IncludeSession
from haptera.model.operations.operation import handles
from haptera.model.operations.selection import SessionSelection
from haptera.model.operations.sessions import (
    CountSessions,
    CountUse,
    DescribeTree,
    FindPrompt,
    ForkSession,
    GetSession,
    GroupUse,
    ListChildren,
    ListMessages,
    ListNotes,
    ListSessions,
    ReadContext,
    ReadSummary,
    SearchSessions,
)
from haptera.options.operations import check_order
from haptera.ports.session_store import SessionFilter, SessionRecord

if TYPE_CHECKING:
    from haptera.access.assembly.composition import Composition
    from haptera.kernel.session.command_effects import HeldSession

ValueT = TypeVar("ValueT")


@handles(ListSessions)
async def list_sessions(sessions: Catalogue, order: ListSessions) -> tuple[SessionDescription, ...]:
    """List sessions in an order."""
    records = await sessions.composition.store.index.browse(
        sessions.owner,
        None if order.everywhere else order.project,
        matching=_filter_of(order),
        order=order.order,
        limit=order.limit,
        after=None if order.after is None else SessionId(order.after),
    )
    return tuple(map(describe, records))


@handles(CountSessions)
async def count_sessions(sessions: Catalogue, order: CountSessions) -> int:
    """Count sessions without reading their records."""
    return await sessions.composition.store.index.count(
        sessions.owner, None if order.everywhere else order.project, matching=_filter_of(order)
    )


_AS_ASKED = tuple(
    name
    for name in SessionSelection.__struct_fields__
    if name in SessionFilter.__struct_fields__ and name not in {"tags", "since", "metadata"}
)
"""The fields of a selection that a filter has as they are."""


def _filter_of(order: SessionSelection) -> SessionFilter:
    since = order.since
    if isinstance(since, datetime):
        since = round(since.timestamp() * 1000)
    shared = {name: getattr(order, name) for name in _AS_ASKED}
    return SessionFilter(
        **shared,
        metadata=order.metadata or {},
        tags=tuple(order.tags) if order.tag is None else (order.tag, *order.tags),
        since=since,
        spawned=None if order.children or order.spawned_by is not None else False,
    )


@handles(GetSession)
async def get_session(sessions: Catalogue, order: GetSession) -> SessionDescription:
    """Describe one session."""
    return describe(await sessions.record(order.reference))


@handles(SearchSessions)
async def search(sessions: Catalogue, order: SearchSessions) -> tuple[FoundText, ...]:
    """Find what was said: texts that hold every word, the best first."""
    store, project = sessions.composition.store, None if order.everywhere else sessions.project
    hits = await store.search.find(
        writable(order.text),
        owner=sessions.owner,
        project=project,
        limit=order.limit,
        prefix=order.prefix,
    )
    places: list[FoundText] = []
    for hit in hits:
        record = await store.index.find(sessions.owner, project, session_id=hit.session_id)
        if record is not None:  # it may have been deleted since
            places.append(FoundText(session=describe(record), hit=hit))
    return tuple(places)


@handles(ListChildren)
async def children(sessions: Catalogue, order: ListChildren) -> tuple[SessionDescription, ...]:
    """List the sessions that were forked from one, and those that its tool calls made."""
    session_id = (await sessions.record(order.reference)).id
    forks = await sessions.browse(SessionFilter(parent=session_id))
    spawned = await sessions.browse(SessionFilter(spawned_by=session_id))
    return tuple(map(describe, (*forks, *spawned)))


@handles(DescribeTree)
async def tree(sessions: Catalogue, order: DescribeTree) -> SessionTree:
    """Describe a session with those of its sub-agents, and theirs; forks are not among them."""
    return await _tree_of(sessions, await sessions.record(order.reference))


async def _tree_of(sessions: Catalogue, record: SessionRecord) -> SessionTree:
    spawned = await sessions.browse(SessionFilter(spawned_by=record.id))
    first_began = sorted(spawned, key=lambda each: (each.created, each.id))
    return SessionTree(
        session=describe(record),
        children=tuple([await _tree_of(sessions, each) for each in first_began]),
    )


@handles(CountUse)
async def stats(sessions: Catalogue, order: CountUse) -> SessionStats:
    """Add up messages, tokens, cost and duration over the log of a session."""
    record = await sessions.record(order.reference)
    entries = await sessions.composition.store.log.read(record.id)
    fold = await fold_log(sessions.composition.store.log, entries)
    added = await beside_the_loop(entries, lambda: stats_of(fold, entries))
    if order.children:
        for child in await sessions.browse(SessionFilter(spawned_by=record.id)):
            added += await stats(sessions, CountUse(reference=child.id, children=True))
    return added


@handles(ListMessages)
async def messages(sessions: Catalogue, order: ListMessages) -> tuple[MessageDescription, ...]:
    """Return messages with their time, parent, model, cost and error, oldest first."""
    record = await sessions.record(order.reference)
    fold, entries = await sessions.folded(record.id, through=order.through)
    describe_all = partial(described_messages, folder=record.project)
    described = await beside_the_loop(entries, lambda: describe_all(fold.messages(), entries))
    start = 0 if order.after is None else _position_of(described, order.after) + 1
    end = len(described) if order.before is None else _position_of(described, order.before)
    page = described[start:end]
    if order.limit is not None:
        # Not `page[-limit:]`, which is the whole page with a limit of 0.
        page = (
            page[: order.limit] if order.before is None else page[max(0, len(page) - order.limit) :]
        )
    return tuple(page)


@handles(ReadContext)
async def context(sessions: Catalogue, order: ReadContext) -> ActiveContext:
    """Return what a person was looking at when it was last saved."""
    return await _saved(sessions, order.reference, field="context", kind=ActiveContext)


@handles(ReadSummary)
async def summary(sessions: Catalogue, order: ReadSummary) -> SessionSummary | None:
    """Return the summary of a session, when one was made."""
    saved = await _saved(sessions, order.reference, field="summary", kind=SessionSummary)
    # `_saved` returns the default when nothing, or nothing valid, was saved.
    return saved if saved != SessionSummary() else None


@handles(FindPrompt)
async def find_prompt(sessions: Catalogue, order: FindPrompt) -> FoundPrompt | None:
    """Find a prompt that was sent with an id of its sender's choice; None without one."""
    record = await sessions.record(order.reference)
    return await sessions.sent_prompts.find(
        sessions.composition.store.log, record, order.message_id
    )


@handles(GroupUse)
async def usage(sessions: Catalogue, order: GroupUse) -> dict[str, SessionStats]:
    """Add up what a session used for each day (UTC, such as 2026-05-17), or for each model."""
    record = await sessions.record(order.reference)
    entries = await sessions.composition.store.log.read(record.id)
    add_up = partial(usage_of, entries, order.by, model=record.model)
    return await beside_the_loop(entries, add_up)


@handles(ListNotes)
async def list_notes(sessions: Catalogue, _order: ListNotes) -> tuple[ProjectNote, ...]:
    """List the notes of this project, the oldest first; a text comes once."""
    return await project_notes(
        sessions.composition.store, owner=sessions.owner, project=sessions.project
    )


@handles(ForkSession)
async def fork_point(sessions: Catalogue, order: ForkSession) -> tuple[SessionRecord, Fork]:
    """Find where a new session begins that goes on from another one."""
    record = await sessions.record(order.reference)
    return record, await sessions.composition.stored.read_fork(record.id, order.after)


async def _saved(sessions: Catalogue, reference: str, *, field: str, kind: type[ValueT]) -> ValueT:
    record = await sessions.record(reference)
    entries = await sessions.composition.store.log.read(record.id)
    saved: JsonObject = {}
    for entry in entries:
        if isinstance(entry, SessionChanged) and isinstance(entry.changes.get(field), dict):
            # Field by field, as it was saved: a change holds only the fields that it sets.
            saved |= entry.changes[field]
    try:
        return msgspec.convert(saved, kind)
    # Any program can save such a field in the log; a wrong one must not make a session
    # unreadable.
    except msgspec.ValidationError:
        return kind()


def _position_of(messages: Sequence[MessageDescription], message_id: str) -> int:
    for position, each in enumerate(messages):
        if each.message.id == message_id:
            return position
    raise SessionError(ErrorCode.MESSAGE_NOT_FOUND, f"this session has no message {message_id!r}")


def check_included(composition: "Composition", order: IncludeSession) -> None:
    """Refuse what cannot be included.

    Raises:
        ConfigError: CONFIG_INVALID saying why.

    """
    check_order(order, function="session.include()")
    if not order.other.strip():
        raise ConfigError(ErrorCode.CONFIG_INVALID, "a session's name or id must not be empty")
    if not composition.configuration.resolved.runtime.cross_session_context:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, "the runtime setting cross_session_context is off"
        )


@handles(IncludeSession)
async def include(sessions: Catalogue, order: IncludeSession, held: "HeldSession") -> None:
    """Tell the model of a session of another one, with the next prompt."""
    composition, other = sessions.composition, order.other
    session = await get_session(sessions, GetSession(reference=other))
    # It finds an id in every project of the owner; what is told stays within one project.
    if session.project != sessions.project:
        raise SessionError(
            ErrorCode.NOT_FOUND, f"there is no session {other!r} in project {sessions.project!r}"
        )
    asked = ReadSummary(reference=session.id)
    stored = await summary(sessions, asked) if order.as_ == "summary" else None
    content = "" if stored is None else _summary_text(stored)
    if stored is None:
        messages = (await sessions.folded(session.id))[0].committed_messages()
        content = "\n\n".join(transcript_of(messages))
        if order.as_ != "full" and content:
            resources = composition.session_resources()
            content = await ask_for_summary(resources, held.live.fold.settings, messages)
    if not content.strip():
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, f"there is nothing in session {other!r} to include"
        )
    what = "A summary of" if order.as_ == "summary" else "The conversation of"
    text = f"{what} an earlier session of this project, {session.title!r}:\n\n{content}"
    # A model, or an import, may have said what no store can keep, such as half of a surrogate
    # pair.
    noted = ContextNoted(
        **held.live.stamp(), text=writable(text), source=session.id, included=order.as_
    )
    await record_note(held, noted)


def _summary_text(summary: SessionSummary) -> str:
    lines = [summary.title, summary.body]
    if summary.topics:
        lines.append("Topics: " + ", ".join(summary.topics))
    if summary.files_changed:
        lines.append("Files changed: " + ", ".join(summary.files_changed))
    return "\n\n".join(line for line in lines if line)
