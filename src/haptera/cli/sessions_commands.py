"""`haptera sessions`: list, show, search, change, export, import, check and repair sessions."""

import codecs
import contextlib
import sys
from collections.abc import AsyncGenerator, Callable
from typing import Any, BinaryIO, cast, get_args

import click
import msgspec

from haptera import Agent, AgentSession, SessionDescription, UserMessage
from haptera.access.command_flags import STORE_FLAG, flag
from haptera.access.configured import offers_format
from haptera.access.descriptions import (
    FoundText,
    MessageDescription,
    SessionStats,
)
from haptera.access.keywords import CountKeywords, ListKeywords
from haptera.access.maintenance import SessionHealth
from haptera.access.sharing import Share
from haptera.cli.choices import find_session_by_words, with_agent
from haptera.cli.operation_commands import session_commands
from haptera.cli.outcomes import Exit
from haptera.cli.session_texts import (
    counted,
    short_time,
    shown_part,
    shown_titles,
    shown_value,
)
from haptera.cli.share_commands import share, show_shares
from haptera.cli.terminal import (
    Output,
    Sanitiser,
    discard_output,
    print_json,
    print_table,
    safe_line,
    unguarded,
    writing_file,
)
from haptera.formats.formats import ARCHIVE, READ_FORMATS, WRITTEN_FORMATS
from haptera.model.file_snapshots import RewindReport
from haptera.model.log.compactions import Compaction
from haptera.model.operations.sessions import ExportSession
from haptera.model.results import SessionOrder
from haptera.options.declarations import options_of

_WRITTEN = (ARCHIVE, *WRITTEN_FORMATS)
_READ = (ARCHIVE, *READ_FORMATS)


class _FormatName(click.Choice[str]):
    """The name of a built-in format, or of one that an installed plugin offers."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Return the name as it was written."""
        if isinstance(value, str) and value not in self.choices and offers_format(value):
            return value
        return super().convert(value, param, ctx)


_AS = click.option(
    "--format", "shown_as", type=click.Choice(("table", "json")), default="table", show_default=True
)
_REFERENCE = click.argument("reference", metavar="ID|NAME|TEXT")


@click.group("sessions", help="List, show, search, change and export sessions.")
@STORE_FLAG
@click.pass_context
def command(context: click.Context, /, store: str | None) -> None:
    """Work with stored sessions. A session is named by its id, its name or words in it."""
    if store is not None:
        context.obj = type(context.obj)(store=store).over(context.obj)


command.add_command(share)


_SELECTION = (
    click.option("--all", "everywhere", is_flag=True, help="Of all folders, not this one only."),
    click.option("--tag", "tags", multiple=True, help="Only those with this tag; again for more."),
    click.option(
        "--metadata",
        "fields",
        multiple=True,
        metavar="NAME=VALUE",
        help="Only those whose metadata has this; again for more.",
    ),
    click.option("--status", help="Only those with this status, such as `waiting`."),
    click.option("--name", "name_prefix", metavar="PREFIX", help="Only names that begin so."),
    click.option("--sender", metavar="USER", help="Only those in which this user spoke."),
    click.option(
        "--since",
        type=click.DateTime(("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S")),
        help="Only those updated at this local time or later.",
    ),
    click.option("--archived", is_flag=True, help="Archived ones, too."),
)


def _selecting(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags that say which sessions are meant."""
    for each in reversed(_SELECTION):
        function = each(function)
    return function


def _selection(flags: dict[str, Any]) -> CountKeywords:
    """Return the sessions that flags mean as a program says it."""
    meant = {**flags, "archived": None if flags["archived"] else False}
    if fields := meant.pop("fields"):
        meant["metadata"] = dict(map(_field, fields))
    return cast("CountKeywords", meant)


def _field(text: str) -> tuple[str, object]:
    """Read `NAME=VALUE`: a number, true, false or other JSON as such, anything else as a text.

    Raises:
        UsageError: when there is no `=`.

    """
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--metadata {text!r} is not NAME=VALUE")
    try:
        return name, msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return name, value


@command.command("list")
@click.option("-n", "limit", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--order", type=click.Choice(get_args(SessionOrder)), help="What comes first.")
@_selecting
@_AS
@click.pass_context
def list_sessions(
    context: click.Context,
    /,
    *,
    limit: int,
    order: SessionOrder | None,
    shown_as: str,
    **flags: object,
) -> None:
    """List sessions, the last updated first."""
    selection = _selection(flags)
    wanted = cast("ListKeywords", {"limit": limit, "order": order or "updated", **selection})

    async def read(agent: Agent) -> tuple[tuple[SessionDescription, ...], dict[str, str]]:
        sessions = await agent.sessions.list(**wanted)
        return sessions, await shown_titles(agent, sessions) if shown_as == "table" else {}

    sessions, titles = with_agent(context, read)
    if shown_as == "json":
        print_json(Output(), sessions)
    else:
        _print_sessions(sessions, titles, everywhere=bool(flags["everywhere"]))


@command.command("count")
@_selecting
@click.pass_context
def count_sessions(context: click.Context, /, **flags: object) -> None:
    """Count sessions."""
    wanted = _selection(flags)
    Output().line(str(with_agent(context, lambda agent: agent.sessions.count(**wanted))))


@command.command()
@_REFERENCE
@click.option("-n", "last", type=click.IntRange(min=1), help="Only the last messages.")
@_AS
@click.pass_context
def show(context: click.Context, /, *, reference: str, last: int | None, shown_as: str) -> None:
    """Show the conversation of a session."""

    async def read(agent: Agent) -> tuple[SessionDescription, tuple[MessageDescription, ...]]:
        session = await agent.sessions.get(await find_session_by_words(agent, reference))
        return session, await agent.sessions.messages(session.id)

    described, messages = with_agent(context, read)
    chosen = messages[-last:] if last else messages
    output = Output()
    if shown_as == "json":
        print_json(output, {"session": described, "messages": chosen})
        return
    output.line(safe_line(f"{described.title}  ({described.id}, {described.model})"))
    for each in chosen:
        role = "user" if isinstance(each.message, UserMessage) else "assistant"
        output.line(f"\n{role}  {short_time(each.time)}")
        for part in each.message.parts:
            output.line(shown_part(part))


@command.command()
@_REFERENCE
@click.argument("name", required=False)
@click.option("--title", help="A new title.")
@click.pass_context
def rename(
    context: click.Context, /, *, reference: str, name: str | None, title: str | None
) -> None:
    """Give a session another name, or a title."""
    if name is None and title is None:
        raise click.UsageError("give a NAME or a --title")

    async def change(agent: Agent) -> SessionDescription:
        session_id = await find_session_by_words(agent, reference)
        if name is not None:
            await agent.sessions.rename(session_id, name)
        if title is not None:
            await agent.sessions.update(session_id, title=title)
        return await agent.sessions.get(session_id)

    _say_changed(with_agent(context, change))


@command.command()
@_REFERENCE
@click.option("--format", "to", type=_FormatName(_WRITTEN), default=ARCHIVE, show_default=True)
@click.option("-o", "--output", "path", type=click.Path(), help="A new file; default: stdout.")
@flag("--redact", declared=options_of(ExportSession)["redact"])
@click.pass_context
def export(
    context: click.Context, /, *, reference: str, to: str, path: str | None, redact: bool
) -> None:
    """Write a session to a file: an archive, or the file of another program."""

    async def work(agent: Agent) -> None:
        session_id = await find_session_by_words(agent, reference)
        if path is not None:
            await agent.sessions.export_to(path, session_id, to=to, redact=redact)
            return
        pieces = agent.sessions.export(session_id, to=to, redact=redact)
        output = Output()
        if output.is_terminal:
            await _show(pieces, output)
            return
        try:
            # As bytes: an archive must come out as it was written, whatever the encoding of the
            # terminal.
            await _copy(pieces, unguarded(sys.stdout).buffer)
        except BrokenPipeError:
            discard_output()

    with writing_file(path):
        with_agent(context, work)


@command.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--from", "of", type=_FormatName(_READ), help="Its format, if not recognised.")
@click.option("--name", help="The name of the new session.")
@click.pass_context
def import_session(
    context: click.Context, /, *, file: str, of: str | None, name: str | None
) -> None:
    """Make a new session from a file of Haptera or of another program."""
    source = sys.stdin.buffer if file == "-" else file
    imported = with_agent(
        context,
        lambda agent: agent.sessions.import_from(cast("str | BinaryIO", source), of=of, name=name),
    )
    Output().line(f"{imported.session.id}  {safe_line(imported.session.title)}")


async def _show(pieces: AsyncGenerator[bytes, None], output: Output) -> None:
    """Print an export to a person: as text that the terminal does not obey."""
    decoder, cleaner = codecs.getincrementaldecoder("utf-8")("backslashreplace"), Sanitiser()
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            output.write_piece(decoder.decode(piece), cleaner=cleaner)
    output.write_piece(decoder.decode(b"", final=True), cleaner=cleaner)
    output.write_rest(cleaner=cleaner)


async def _copy(pieces: AsyncGenerator[bytes, None], to: BinaryIO) -> None:
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            to.write(piece)
    to.flush()


def _print_sessions(
    sessions: tuple[SessionDescription, ...], titles: dict[str, str], *, everywhere: bool
) -> None:
    output = Output()
    if not sessions:
        output.note("there are no sessions here; `--all` lists those of other folders")
    headings = ("id", "updated", "state", *(("project",) if everywhere else ()), "title")
    rows = [
        (
            each.id,
            short_time(each.updated),
            each.phase,
            *((each.project,) if everywhere else ()),
            titles[each.id],
        )
        for each in sessions
    ]
    print_table(output, headings, rows)


def _say_changed(session: SessionDescription) -> None:
    tags = f"  [{', '.join(session.tags)}]" if session.tags else ""
    name = f"  {session.name}" if session.name else ""
    state = "  archived" if session.archived else ""
    Output().line(safe_line(f"{session.id}{name}  {session.title}{tags}{state}"))


def _show_rewind(report: RewindReport) -> None:
    output = Output()
    for change in report.changes:
        output.line(safe_line(f"{change.kind}  {change.path}"))
    for each in report.left:
        output.line(safe_line(f"left alone  {each.path}: {each.reason}"))
    for each in report.refused:
        output.line(safe_line(f"refused  {each.path}: {each.reason}"))
    for path in report.conflicts:
        output.line(safe_line(f"also changed by others  {path}"))


def _show_health(health: SessionHealth) -> None:
    print_json(Output(), health)
    click.get_current_context().exit(Exit.OK if health.ok else Exit.ERROR)


def _show_found(places: tuple[FoundText, ...]) -> None:
    if not places:
        Output().note("nothing is found here; `--all` searches all folders")
        return
    rows = [
        (each.session.id, short_time(each.session.updated), each.hit.snippet) for each in places
    ]
    print_table(Output(), ("id", "updated", "text"), rows)


def _show_stats(stats: SessionStats) -> None:
    rows = [(name, shown_value(value)) for name, value in msgspec.to_builtins(stats).items()]
    print_table(Output(), ("what", "value"), rows)


def _show_index(count: int) -> None:
    Output().line(f"the index holds {counted(count, 'session')}; `verify` says what a log has lost")


_SHOWN: dict[Any, Callable[[Any], None]] = {
    AgentSession: lambda session: Output().line(str(session.session_id)),
    Compaction: lambda made: Output().line(made.outcome),
    RewindReport: _show_rewind,
    SessionDescription: _say_changed,
    SessionHealth: _show_health,
    SessionStats: _show_stats,
    int: _show_index,
    tuple[FoundText, ...]: _show_found,
    tuple[Share, ...]: show_shares,
}
"""What prints that which an operation returns, by its type."""
for _made in session_commands(_SHOWN):
    command.add_command(_made)
