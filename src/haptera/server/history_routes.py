"""Routes about the history of a session: fork, rewind, compact, export, import, usage."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Annotated, BinaryIO

import msgspec

from haptera.access.transfer import Imported
from haptera.formats.formats import ARCHIVE, FORMATS, READ_FORMATS, WRITTEN_FORMATS
from haptera.model.operations.session import CompactSession, RewindSession
from haptera.model.operations.sessions import CountUse, ExportSession, ForkSession
from haptera.model.operations.texts import Name
from haptera.options.declarations import options_of
from haptera.server.decoding import described
from haptera.server.operations import (
    ONE_SESSION,
    Call,
    FileAnswer,
    OperationAnswer,
    ServedOperation,
)
from haptera.server.problems import ProblemError
from haptera.server.session_operations import served

_FORMATS = {
    ARCHIVE: ("application/x-ndjson", ".jsonl"),
    **{name: (FORMATS[name].media_type, FORMATS[name].suffix) for name in WRITTEN_FORMATS},
}
_IN_MEMORY = 1024 * 1024
FormatName = Annotated[str, msgspec.Meta(pattern=f"^({'|'.join(_FORMATS)})$")]

ReadName = Annotated[str, msgspec.Meta(pattern=f"^({'|'.join((ARCHIVE, *READ_FORMATS))})$")]

_EXPORT = options_of(ExportSession)


class ExportQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How a session is exported."""

    format: Annotated[FormatName, described(_EXPORT["to"])] = _EXPORT["to"].default
    redact: Annotated[bool, described(_EXPORT["redact"])] = _EXPORT["redact"].default


class ImportQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How a file is read."""

    format: Annotated[
        ReadName | None, described("The format of the file; recognised without one.")
    ] = None
    name: Annotated[Name | None, described("The name of the new session.")] = None


@ServedOperation(
    method="GET",
    path=f"{ONE_SESSION}/export",
    rpc="session/export",
    scope="read",
    query=ExportQuery,
    media=tuple(dict.fromkeys(each[0].partition(";")[0] for each in _FORMATS.values())),
)
async def export_session(call: Call) -> FileAnswer:
    """Return a session as a file of Haptera or of another program."""
    query: ExportQuery = call.query
    session = await call.sessions.describe(call.path["session_id"])
    pieces = call.sessions.agent.sessions.export(session.id, to=query.format, redact=query.redact)
    media, suffix = _FORMATS[query.format]

    async def next_piece() -> bytes:
        async with call.server.hub.exporting.of(call.principal.owner):
            return await anext(pieces, b"")

    return FileAnswer(
        name=f"{session.id}{suffix}",
        media_type=media,
        pieces=_started(next_piece, await next_piece()),
    )


async def _started(
    next_piece: Callable[[], Awaitable[bytes]], first: bytes
) -> AsyncGenerator[bytes, None]:
    """Yield the pieces; the first was made before the response began: it could still fail."""
    piece = first
    while piece:
        yield piece
        piece = await next_piece()


@ServedOperation(
    method="POST",
    path="/api/v1/sessions:import",
    rpc="session/import",
    scope="write",
    query=ImportQuery,
    body=bytes,
    status=201,
    answer=Imported,
)
async def import_session(call: Call) -> OperationAnswer:
    """Make a session from a file of Haptera or of another program.

    One at a time for each owner: a file takes many times its size in memory while it is read.
    """
    query: ImportQuery = call.query
    async with call.sessions.importing:
        return await _import(call, query)


async def _import(call: Call, query: ImportQuery) -> OperationAnswer:
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
        async for piece in call.file:
            await asyncio.to_thread(file.write, piece)
        file.seek(0)
        imported = await _imported(call, file, query)  # type: ignore[arg-type]  # it is binary
    return OperationAnswer(
        imported, headers={"location": f"/api/v1/sessions/{imported.session.id}"}
    )


async def _imported(call: Call, file: BinaryIO, query: ImportQuery) -> Imported:
    sessions = call.sessions.agent.sessions
    seconds = call.server.hub.settings.import_seconds
    try:
        async with asyncio.timeout(seconds), call.server.hub.importing.of(call.principal.owner):
            return await sessions.import_from(file, of=query.format, name=query.name)
    except TimeoutError:
        # A thread that still reads the file ends when the file is closed.
        message = f"the file was not imported within {seconds:g} s"
        raise ProblemError(503, "IMPORT_TIMEOUT", message, retryable=True) from None


HISTORY_OPERATIONS = (
    import_session,
    served(ForkSession),
    served(RewindSession),
    served(CompactSession),
    export_session,
    served(CountUse),
)
