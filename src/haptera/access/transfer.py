"""Transfer: sessions of a store to files and back, in every format of `serialization.exchange`.

A file is read twice: once to check it as a whole, once to store it. What fails, fails before
anything is stored. An archive is written page by page and imported log by log.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Collection, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec
from msgspec.structs import replace

from haptera.access.descriptions import MessageDescription, SessionDescription, describe
from haptera.access.history import described_messages
from haptera.formats.archive import ArchiveWriter
from haptera.formats.archive_adoption import Adoption
from haptera.formats.archive_reading import (
    Blob,
    LogBegun,
    archive_items,
    check_archive,
)
from haptera.formats.formats import (
    ARCHIVE,
    FORMATS,
    Format,
    PeekedStream,
    format_named,
    read_session,
    recognised,
)
from haptera.formats.redaction import Redactor, redacted, redacted_entries
from haptera.formats.values import (
    ImportedSession,
    ImportReport,
    SessionExport,
    TimedMessage,
    opaque_entry,
)
from haptera.model.entry_bytes import encode_entry
from haptera.model.errors import AgentError, ConfigError, ErrorCode, SessionError
from haptera.model.ids import SessionId, new_entry_id, new_id, new_session_id
from haptera.model.json_types import JsonObject
from haptera.model.log.entry import Entry
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import SessionChanged, SessionOpened
from haptera.model.messages import AssistantMessage
from haptera.model.operations.operation import handles
from haptera.model.operations.sessions import ExportSession, ImportSession
from haptera.model.parts import MediaPart, Part, ToolResultPart
from haptera.model.settings import Settings
from haptera.options.wording import unknown_name
from haptera.ports.session_store import Lease, SessionRecord
from haptera.system.clock import Stamp

if TYPE_CHECKING:
    from haptera.access.assembly.composition import Composition
    from haptera.access.catalogue import Catalogue

_PAGE = 512
_ITEMS = 64
"""Of an archive, that are read together: a thread costs more than most of them."""
"""How many entries are held at a time."""
_PIECE = 64 * 1024
"""How many bytes of a file are made at a time, or one line of it."""


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was made from a file."""

    session: SessionDescription
    format: str
    report: ImportReport


@handles(ExportSession)
async def export_session(
    sessions: "Catalogue", order: ExportSession
) -> AsyncGenerator[bytes, None]:
    """Yield a session in a format, piece by piece.

    Raises:
        ConfigError: CONFIG_INVALID when there is no such format.

    """
    composition, record = sessions.composition, await sessions.record(order.reference)
    form = None if order.to == ARCHIVE else _format_named(composition, order.to)
    redactor = Redactor([record.project, str(Path.home())]) if order.redact else None
    if form is None:
        pieces = (
            _redacted_archive_pieces(composition, record, redactor)
            if redactor
            else _archive_pieces(composition, record)
        )
        async for piece in pieces:
            yield piece
        return
    folded = await sessions.folded(record.id)
    export = await conversation_of(composition, record, folded, has_media=not order.redact)
    if redactor is not None:
        export = await asyncio.to_thread(redacted, export, redactor)
    async for piece in _made_in_threads(iter(form.write(export))):
        yield piece


def _format_named(composition: "Composition", name: str) -> Format:
    """Return the format of a name, of the table or of a plugin.

    Raises:
        ConfigError: CONFIG_INVALID when there is none.

    """
    if (plugin := composition.configuration.plugins.format_named(name)) is not None:
        return plugin
    if name not in FORMATS:
        names = (ARCHIVE, *FORMATS)
        fault = f"the format {name!r} is {unknown_name(name, names)}"
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"{fault}; known are {', '.join(names)}")
    return format_named(name)


async def _made_in_threads(pieces: Iterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield pieces that are made off the event loop; small ones together: a thread costs more."""

    def next_ones() -> bytes:
        content = bytearray()
        for piece in pieces:
            content += piece
            if len(content) > _PIECE:
                break
        return bytes(content)

    while batch := await asyncio.to_thread(next_ones):
        yield batch


async def conversation_of(
    composition: "Composition",
    record: SessionRecord,
    folded: tuple[SessionFold, Sequence[Entry]],
    *,
    has_media: bool,
) -> SessionExport:
    """Return a session as other formats than the archive need it."""
    fold, entries = folded

    def find() -> tuple[tuple[TimedMessage, ...], set[str], set[str]]:
        messages = described_messages(fold.messages(), entries, folder=record.project)
        providers = {
            each.message.provider for each in messages if isinstance(each.message, AssistantMessage)
        }
        media = {part.blob for part in _media(messages) if part.blob} if has_media else set()
        timed = (
            TimedMessage(message=each.message, time=each.time, cost=each.cost) for each in messages
        )
        return tuple(timed), media, providers

    messages, media, providers = await asyncio.to_thread(find)
    return SessionExport(
        session_id=record.id,
        messages=messages,
        title=record.title,
        cwd=record.project,
        model=fold.settings.model,
        system_prompts=fold.settings.system_prompts,
        created=record.created,
        updated=record.updated,
        usage=fold.usage,
        cost=fold.cost,
        contents=await _contents(composition, record.id, media),
        protocols=composition.configuration.protocols_of(providers),
    )


@handles(ImportSession)
async def import_session(
    sessions: "Catalogue", order: ImportSession, *, file: BinaryIO, settings: Settings
) -> Imported:
    """Make a session from a file that can be read twice.

    Raises:
        ConfigError: CONFIG_INVALID when the file is of no known format, or exceeds a limit.
        StoreError: CORRUPT when an archive is damaged, VERSION_UNSUPPORTED when it is newer,
            CONFLICT when the name is taken.

    """
    composition = sessions.composition
    opening = SessionOpened(
        **Stamp(composition.clock)(),
        session_id=new_session_id(),
        owner=sessions.owner,
        project=order.project or sessions.project,
        name=order.name,
        settings=settings,
    )
    name = order.of or await asyncio.to_thread(lambda: recognised(PeekedStream(file).head))
    file.seek(0)
    if name == ARCHIVE:
        imported = await _import_archive(composition, file, opening)
        if not order.metadata:
            return imported
        record = await sessions.record(imported.session.id)
        await sessions.change(record, {"metadata": order.metadata})
        return replace(imported, session=await _described(composition, opening, record.id))
    own = None if name is None or name in FORMATS else _format_named(composition, name)

    def read() -> tuple[Iterator[Entry], str, ImportReport]:
        session = read_session(file, own or name)
        return iter(_entries_of(session, opening, order)), session.format, session.report

    entries, read_as, report = await asyncio.to_thread(read)
    await _store_log(composition, opening.session_id, entries, blobs=())
    info = await _described(composition, opening, opening.session_id)
    return Imported(session=info, format=read_as, report=report)


def _create(path: Path) -> BinaryIO:
    """Make a new file that only its owner can read: it holds a whole conversation."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "wb")


async def write_pieces(path: Path, pieces: AsyncGenerator[bytes, None]) -> None:
    """Write pieces to a new file; one that cannot be completed is removed."""
    first = await anext(pieces, b"")  # what fails before it, leaves no file behind
    file = await asyncio.to_thread(_create, path)
    try:
        with file:
            file.write(first)
            async for piece in pieces:
                await asyncio.to_thread(file.write, piece)
    except BaseException:
        await asyncio.to_thread(path.unlink, missing_ok=True)
        raise


async def _archive_pieces(
    composition: "Composition", record: SessionRecord
) -> AsyncGenerator[bytes, None]:
    writer = ArchiveWriter(record.id, created=composition.clock.time_ms())
    yield writer.begin()
    for session_id, through in await _lineage(composition, record.id):
        yield writer.begin_log(session_id)
        async for page in _pages(composition, session_id, through):
            blobs = await _blobs_in(composition, session_id, page)
            lines = chain(map(writer.blob, blobs), map(writer.entry, page))
            async for piece in _made_in_threads(lines):
                yield piece
        yield writer.end_log()
    yield writer.end()


async def _redacted_archive_pieces(
    composition: "Composition", record: SessionRecord, redactor: Redactor
) -> AsyncGenerator[bytes, None]:
    """Yield an archive for others to read. A log is masked as a whole: secrets cross its pages."""
    writer = ArchiveWriter(record.id, created=composition.clock.time_ms(), redacted=True)
    yield writer.begin()
    for session_id, through in await _lineage(composition, record.id):
        yield writer.begin_log(session_id)
        entries = [
            entry async for page in _pages(composition, session_id, through) for entry in page
        ]
        masked = redacted_entries(entries, redactor)
        async for piece in _made_in_threads(map(writer.entry, masked)):
            yield piece
        yield writer.end_log()
    yield writer.end()


async def _pages(
    composition: "Composition", session_id: SessionId, through: int | None
) -> AsyncGenerator[list[Entry], None]:
    after = 0
    while page := await composition.store.log.read(session_id, after=after, limit=_PAGE):
        after = page[-1].seq
        yield [entry for entry in page if through is None or entry.seq <= through]
        if through is not None and after >= through:
            return


async def _lineage(
    composition: "Composition", session_id: SessionId
) -> list[tuple[SessionId, int | None]]:
    """Return the logs that an archive needs, parents first, each with its last needed `seq`."""
    line: list[tuple[SessionId, int | None]] = []
    wanted: SessionId | None = session_id
    through: int | None = None
    while wanted is not None:
        line.insert(0, (wanted, through))
        first = await composition.store.log.read(wanted, limit=1)
        opened = first[0] if first else None
        if not isinstance(opened, SessionOpened) or opened.parent is None:
            break
        needed = (opened.forked_at or 0, opened.parent_head)
        through = None if needed[1] is None else max(needed[0], needed[1])
        wanted = opened.parent
    return line


async def _blobs_in(
    composition: "Composition", session_id: SessionId, entries: Sequence[Entry]
) -> list[bytes]:
    contents = []
    for name in await asyncio.to_thread(_blobs_named_in, entries):
        try:
            contents.append(await composition.store.blobs.get(session_id, name))
        except AgentError:
            continue  # a fork names payloads of its parent, which brings them itself
    return contents


def _blobs_named_in(entries: Sequence[Entry]) -> list[str]:
    # One at a time: they may be large. The search for the word spares most the decoding.
    bodies = (encode_entry(entry) for entry in entries)
    named = (msgspec.json.decode(body) for body in bodies if b'"blob"' in body)
    return list(dict.fromkeys(name for body in named for name in _blob_names(body)))


def _blob_names(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        name = value.get("blob")
        if isinstance(name, str):
            yield name
        for each in value.values():
            yield from _blob_names(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _blob_names(each)


async def _contents(
    composition: "Composition", session_id: SessionId, names: Collection[str]
) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    # What a fork inherits is kept with the session that it was forked from.
    lineage = await _lineage(composition, session_id) if names else []
    for name in names:
        for log, _ in lineage:
            try:
                contents[name] = await composition.store.blobs.get(log, name)
                break
            except AgentError:
                continue
    return contents


def _media(described: Sequence[MessageDescription]) -> Iterator[MediaPart]:
    for each in described:
        parts: Sequence[Part] = each.message.parts
        for part in parts:
            inner = part.content if isinstance(part, ToolResultPart) else (part,)
            yield from (piece for piece in inner if isinstance(piece, MediaPart))


async def _import_archive(
    composition: "Composition", file: BinaryIO, opening: SessionOpened
) -> Imported:
    summary = await asyncio.to_thread(check_archive, file)
    adoption = Adoption(
        summary,
        owner=opening.owner,
        project=opening.project,
        name=opening.name,
        settings=opening.settings,
    )
    file.seek(0)
    items, log, blobs, entries = archive_items(file), SessionId(""), list[bytes](), list[Entry]()

    async def store_log() -> None:
        if entries:
            new, adopted = adoption.session_of(log), adoption.entries(log, entries)
            await _store_log(composition, new, adopted, blobs=blobs)
            await asyncio.to_thread(entries.clear)
            undo.push_async_callback(composition.store.log.delete, new)

    async with contextlib.AsyncExitStack() as undo:
        while some := await asyncio.to_thread(lambda: list(islice(items, _ITEMS))):
            for item in some:
                match item:
                    case LogBegun(session_id=session_id):
                        # Parents come first in an archive, so the parent of a fork is stored
                        # before it.
                        await store_log()
                        log, blobs, entries = session_id, [], []
                    case Blob(content=content):
                        blobs.append(content)
                    case Entry():
                        entries.append(item)
        await store_log()
        await _check_models(composition, adoption.session_id)
        undo.pop_all()
    info = await _described(composition, opening, adoption.session_id)
    return Imported(session=info, format=ARCHIVE, report=summary.report)


async def _check_models(composition: "Composition", session_id: SessionId) -> None:
    """Refuse a session whose model may not be used here; most agents may use any."""
    if composition.configuration.bounds is not None:
        fold = await composition.stored.read_fold(session_id)
        composition.configuration.check_models(fold.settings)


def _entries_of(
    session: ImportedSession, opening: SessionOpened, order: ImportSession
) -> list[Entry]:
    """Return the log of a session that another program wrote: its messages as a history."""
    settings = replace(
        opening.settings,
        system_prompts=session.system_prompts or opening.settings.system_prompts,
    )
    created = session.created if order.keep_origin else 0
    opened = replace(
        opening,
        seq=1,
        time=created or opening.time,
        title=opening.title or session.title,
        settings=settings,
        history=tuple(each.message for each in session.messages),
    )
    records = [
        opaque_entry(record, session.format, seq=seq, time=opened.time)
        for seq, record in enumerate(session.opaque, start=2)
    ]
    metadata = dict(order.metadata or {})
    if order.keep_origin:
        metadata = _origin_of(session) | {"imported_head": len(records) + 2} | metadata
    if not metadata:
        return [opened, *records]
    changed = SessionChanged(
        id=new_entry_id(),
        time=max(created, session.updated) if created else opening.time,
        seq=len(records) + 2,
        changes={"metadata": metadata},
    )
    return [opened, *records, changed]


def _origin_of(session: ImportedSession) -> JsonObject:
    """Return what a file says of its session, for the metadata of ours."""
    costs = [each.cost for each in session.messages if each.cost is not None]
    origin = {
        "imported_from": session.format,
        "imported_id": session.source_id,
        "imported_model": session.model,
        "imported_cost": str(sum(costs)) if costs else "",
    }
    return {name: value for name, value in origin.items() if value}


async def _store_log(
    composition: "Composition",
    session_id: SessionId,
    entries: Iterator[Entry],
    *,
    blobs: Sequence[bytes],
) -> None:
    """Store a new log; one that cannot be stored as a whole is removed again."""
    store, page = composition.store, list[Entry]()

    def turn_page() -> bool:
        # In a thread: each entry is decoded and encoded anew, and may be large. To give up those
        # of the last page takes long, too.
        page[:] = islice(entries, _PAGE)
        return bool(page)

    lease: Lease = await store.leases.acquire(session_id, new_id("imp"))
    try:
        for content in blobs:
            await store.blobs.put(session_id, content)
        while await asyncio.to_thread(turn_page):
            await store.log.append(lease, tuple(page))
    except BaseException:
        await store.log.delete(session_id)
        raise
    finally:
        await store.leases.release(lease)


async def _described(
    composition: "Composition", opening: SessionOpened, session_id: SessionId
) -> SessionDescription:
    record = await composition.store.index.find(
        opening.owner, opening.project, session_id=session_id
    )
    if record is None:
        raise SessionError(ErrorCode.NOT_FOUND, f"session {session_id} was deleted in the meantime")
    return describe(record)
