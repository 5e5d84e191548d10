"""Routes about the history of a session: fork, rewind, export, import, usage."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from typing import Annotated, BinaryIO

import msgspec

from haptera import ConfigError, SessionDescription
from haptera.access.descriptions import ExportOptions, SessionStats
from haptera.access.transfer import Imported
from haptera.agent.query_options import RewindOptions
from haptera.formats.formats import ARCHIVE, FORMATS
from haptera.model.file_snapshots import RewindReport
from haptera.model.log.compactions import Compaction
from haptera.model.option_declarations import options_of
from haptera.server.decoding import described
from haptera.server.operations import Call, FileAnswer, Operation, OperationAnswer
from haptera.server.problems import ProblemError
from haptera.server.session_routes import ONE_SESSION, Name, Strict
from haptera.server.sessions import SessionHandle

_FORMATS = {
    ARCHIVE: ("application/x-ndjson", ".jsonl"),
    **{name: (each.media_type, each.suffix) for name, each in FORMATS.items()},
}
_IN_MEMORY = 1024 * 1024
FormatName = Annotated[str, msgspec.Meta(pattern=f"^({'|'.join(_FORMATS)})$")]

_EXPORT = options_of(ExportOptions)
_REWIND = options_of(RewindOptions)


class ForkBody(Strict, frozen=True, kw_only=True):
    """Where a copy ends, and its name."""

    at_message_id: Annotated[
        Name | None, described("The last message of the copy; without one, the last of all.")
    ] = None
    name: Annotated[Name | None, described("The name of the copy.")] = None


class RewindBody(Strict, frozen=True, kw_only=True):
    """The message that becomes the last one; null takes the last rewind back."""

    message_id: Annotated[
        Name | None,
        described("The message that becomes the last one; null takes the last rewind back."),
    ] = None
    files: Annotated[bool, described(_REWIND["files"])] = _REWIND["files"].default
    dry_run: Annotated[bool, described(_REWIND["dry_run"])] = _REWIND["dry_run"].default
    force: Annotated[bool, described(_REWIND["force"])] = _REWIND["force"].default


class RewoundSession(SessionDescription, frozen=True, kw_only=True):
    """A session after a rewind, or before one that was only tried."""

    rewind: RewindReport


class CompactBody(Strict, frozen=True, kw_only=True):
    """How to compact."""

    instructions: Annotated[
        Annotated[str, msgspec.Meta(min_length=1, max_length=4000)] | None,
        described("What the summary is to pay attention to."),
    ] = None


class ExportQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How a session is exported."""

    format: Annotated[FormatName, described(_EXPORT["to"])] = _EXPORT["to"].default
    redact: Annotated[bool, described(_EXPORT["redact"])] = _EXPORT["redact"].default


class ImportQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How a file is read."""

    format: Annotated[
        FormatName | None, described("The format of the file; recognised without one.")
    ] = None
    name: Annotated[Name | None, described("The name of the new session.")] = None


async def fork_session(call: Call) -> OperationAnswer:
    """Copy a session, up to a message or as a whole."""
    body: ForkBody = call.body
    found = await call.sessions.describe(call.path["session_id"])
    sessions = call.sessions.agent.sessions
    forked = await sessions.fork(found.id, after=body.at_message_id, name=body.name)
    await forked.close()
    made = await call.sessions.describe(forked.session_id or "")
    return OperationAnswer(made, headers={"location": f"/api/v1/sessions/{made.id}"})


async def rewind_session(call: Call) -> OperationAnswer:
    """Make a message the last one, or take the last rewind back."""
    body: RewindBody = call.body
    if body.message_id is None and (body.files or body.dry_run):
        raise ProblemError(400, "BODY_INVALID", "`files` and `dry_run` need a `message_id`")
    async with call.sessions.handle(call.path["session_id"], carries_on=False) as handle:
        report = await _rewound(handle, body)
    found = await call.sessions.describe(call.path["session_id"])
    return OperationAnswer(
        RewoundSession(**msgspec.structs.asdict(found), rewind=report.writable())
    )


async def _rewound(handle: SessionHandle, body: RewindBody) -> RewindReport:
    if body.message_id is None:
        return await handle.undo_rewind(force=body.force)
    try:
        return await handle.rewind(
            to=body.message_id, files=body.files, dry_run=body.dry_run, force=body.force
        )
    except ConfigError as error:  # no failure of the server: the agent takes no snapshots of files
        raise ProblemError(409, error.code, error.message) from error


async def compact_session(call: Call) -> OperationAnswer:
    """Replace the earlier messages by a summary in what is sent to the model."""
    body: CompactBody = call.body
    async with call.sessions.handle(call.path["session_id"], carries_on=False) as handle:
        return OperationAnswer(await handle.compact(body.instructions))


async def export_session(call: Call) -> FileAnswer:
    """Return a session as a file of Haptera or of another program."""
    query: ExportQuery = call.query
    found = await call.sessions.describe(call.path["session_id"])
    pieces = call.sessions.agent.sessions.export(found.id, to=query.format, redact=query.redact)
    media, suffix = _FORMATS[query.format]
    return FileAnswer(
        name=f"{found.id}{suffix}",
        media_type=media,
        pieces=_started(pieces, await anext(pieces, b"")),
    )


async def _started(
    pieces: AsyncGenerator[bytes, None], first: bytes
) -> AsyncGenerator[bytes, None]:
    """Yield the pieces; the first was made before the response began: it could still fail."""
    yield first
    async for piece in pieces:
        yield piece


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
    return await sessions.import_from(file, of=query.format, name=query.name)


async def session_usage(call: Call) -> OperationAnswer:
    """Add up the tokens, cost and time of a session."""
    found = await call.sessions.describe(call.path["session_id"])
    return OperationAnswer(await call.sessions.agent.sessions.stats(found.id))


HISTORY_OPERATIONS = (
    Operation(
        method="POST",
        path="/api/v1/sessions:import",
        name="import_session",
        rpc="session/import",
        summary="Make a session from a file of Haptera or of another program.",
        handler=import_session,
        scope="write",
        query=ImportQuery,
        body=bytes,
        status=201,
        answer=Imported,
    ),
    Operation(
        method="POST",
        path=f"{ONE_SESSION}/fork",
        name="fork_session",
        rpc="session/fork",
        summary="Copy a session, up to a message or as a whole.",
        handler=fork_session,
        scope="write",
        body=ForkBody,
        status=201,
        answer=SessionDescription,
    ),
    Operation(
        method="POST",
        path=f"{ONE_SESSION}/rewind",
        name="rewind_session",
        rpc="session/rewind",
        summary="Make a message the last one; without one, take the last rewind back.",
        handler=rewind_session,
        scope="write",
        body=RewindBody,
        answer=RewoundSession,
    ),
    Operation(
        method="POST",
        path=f"{ONE_SESSION}/compact",
        name="compact_session",
        rpc="session/compact",
        summary="Replace the earlier messages by a summary in what is sent to the model.",
        handler=compact_session,
        scope="write",
        body=CompactBody,
        answer=Compaction,
    ),
    Operation(
        method="GET",
        path=f"{ONE_SESSION}/export",
        name="export_session",
        rpc="session/export",
        summary="Return a session as a file of Haptera or of another program.",
        handler=export_session,
        scope="read",
        query=ExportQuery,
        media=tuple(dict.fromkeys(each[0].partition(";")[0] for each in _FORMATS.values())),
    ),
    Operation(
        method="GET",
        path=f"{ONE_SESSION}/usage",
        name="session_usage",
        rpc="session/usage",
        summary="Add up the tokens, cost and time of a session.",
        handler=session_usage,
        scope="read",
        answer=SessionStats,
    ),
)
