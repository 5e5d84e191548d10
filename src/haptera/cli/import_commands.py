"""`haptera import`: sessions that other programs keep on this machine, to go on with them here."""

import sys
from pathlib import Path

import click

from haptera import Agent, AgentError
from haptera.access.command_flags import STORE_FLAG
from haptera.access.other_tools import (
    OTHER_TOOLS,
    FoundSession,
    OtherTool,
    find_other_sessions,
    openai_agents_sessions,
)
from haptera.cli.choices import with_agent
from haptera.cli.import_all import import_all
from haptera.cli.outcomes import Exit
from haptera.cli.session_texts import counted, short_time
from haptera.cli.terminal import Output, print_json, print_table, safe_line


@click.command("import", help="Go on with sessions of Claude Code, Codex, opencode or pi.")
@click.argument("chosen", nargs=-1, metavar="[NUMBER|ID]...")
@click.option(
    "--from", "tool", type=click.Choice((*OTHER_TOOLS, "openai-agents")), help="The program."
)
@click.option(
    "--file", "file", type=click.Path(path_type=Path), help="The database of openai-agents."
)
@click.option("--last", is_flag=True, help="Import the last updated one.")
@click.option("--everything", is_flag=True, help="Import all that are listed, without -n.")
@click.option(
    "--all",
    "everywhere",
    is_flag=True,
    help="Of all folders, not this one only; without --from, import all of all programs.",
)
@click.option("--sync", is_flag=True, help="Import all that are new or went on since.")
@click.option("--dry-run", is_flag=True, help="Of --all and --sync: only say how many there are.")
@click.option("-n", "limit", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--format", "shown_as", type=click.Choice(("table", "json")), default="table")
@STORE_FLAG
@click.pass_context
def command(
    context: click.Context,
    /,
    *,
    tool: OtherTool | None,
    file: Path | None,
    chosen: tuple[str, ...],
    limit: int,
    shown_as: str,
    store: str | None,
    **flags: bool,
) -> None:
    """List the sessions of a program, and import those that are chosen by number or id."""
    output = Output()
    if flags["sync"] or (tool is None and flags["everywhere"]):
        is_dry, syncs = flags["dry_run"], flags["sync"]
        context.exit(
            import_all(context, output, tool=tool, store=store, syncs=syncs, is_dry=is_dry)
        )
    if tool is None or flags["dry_run"]:
        raise click.UsageError(
            "name a program with --from, or import all sessions with --all"
            if tool is None
            else "--dry-run is for --all without --from, and for --sync"
        )
    is_all = flags["everything"] or bool(chosen)
    # A number or an id may be of a session that `-n` would leave out.
    most = 1 if flags["last"] else None if is_all else limit
    sessions = _sessions(tool, file, folder=None if flags["everywhere"] else Path.cwd(), limit=most)
    if not sessions:
        more = "" if flags["everywhere"] else " for this folder; `--all` looks at all folders"
        output.note(f"haptera: there are no sessions of {tool}{more}")
        context.exit(Exit.NO_SESSION if is_all or flags["last"] else Exit.OK)
    if flags["last"] or flags["everything"]:
        picked = sessions
    elif chosen:
        picked = tuple(_picked(each, sessions, tool) for each in chosen)
    elif shown_as == "json":
        print_json(output, sessions)
        return
    else:
        _print(sessions, output, everywhere=flags["everywhere"])
        picked = _ask(sessions, output, tool)
    context.exit(_import(context, picked, output, store=store))


def _sessions(
    tool: OtherTool, file: Path | None, *, folder: Path | None, limit: int | None
) -> tuple[FoundSession, ...]:
    """Find the sessions of a program, or those in a file of openai-agents.

    Raises:
        UsageError: for a file of another program, and for openai-agents without one.

    """
    if (tool == "openai-agents") != (file is not None):
        raise click.UsageError("--file goes with --from openai-agents, which needs one")
    if file is not None:
        return openai_agents_sessions(file)[:limit]
    return find_other_sessions(tool, folder=folder, limit=limit)


def _picked(name: str, sessions: tuple[FoundSession, ...], tool: str) -> FoundSession:
    if name.isdecimal() and 0 < int(name) <= len(sessions):
        return sessions[int(name) - 1]
    matching = [each for each in sessions if each.id == name] or [
        each for each in sessions if each.id.startswith(name)
    ]
    if len(matching) != 1:
        count = "no" if not matching else "more than one"
        raise click.UsageError(
            f"{count} session of {tool} here has the number or id {name!r}; "
            f"`haptera import --from {tool} --all` lists them"
        )
    return matching[0]


def _print(sessions: tuple[FoundSession, ...], output: Output, *, everywhere: bool) -> None:
    headings = ("number", "updated", "id", *(("folder",) if everywhere else ()), "title")
    rows = [
        (
            str(number),
            short_time(each.updated),
            each.id,
            *((each.folder,) if everywhere else ()),
            each.title,
        )
        for number, each in enumerate(sessions, start=1)
    ]
    print_table(output, headings, rows)


def _ask(sessions: tuple[FoundSession, ...], output: Output, tool: str) -> tuple[FoundSession, ...]:
    """Ask which ones; without a terminal, say how to choose."""
    if not (sys.stdin.isatty() and output.is_terminal):
        output.note(f"import one with `haptera import --from {tool} NUMBER`, or --last")
        return ()
    answer: str = click.prompt("Import which (empty: none)", default="", show_default=False)
    return tuple(_picked(each, sessions, tool) for each in answer.replace(",", " ").split())


def _import(
    context: click.Context,
    picked: tuple[FoundSession, ...],
    output: Output,
    *,
    store: str | None,
) -> Exit:
    """Import sessions one by one; one that fails does not keep the others out."""

    async def work(agent: Agent) -> Exit:
        ended = Exit.OK
        for each in picked:
            try:
                with each.open() as file:
                    imported = await agent.sessions.import_from(file, of=each.format)
            except (AgentError, OSError) as error:
                reason = error.message if isinstance(error, AgentError) else error.strerror
                output.note(f"haptera: {each.id} was not imported: {reason}")
                ended = Exit.ERROR
                continue
            count = imported.report.messages
            output.line(f"{safe_line(each.title)}: {counted(count, 'message')}")
            output.line(f"  continue it with: haptera -r {imported.session.id}")
        return ended

    return with_agent(context, work, store=store) if picked else Exit.OK
