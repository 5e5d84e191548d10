"""`haptera import --all`: every session of other programs on this machine, those that are new.

What was imported is known by its metadata (`imported_tool`, `imported_session`), so a second run
takes what is new. Nothing is deleted, here or there, and nothing of theirs is written.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from haptera import Agent, AgentError, SessionDescription
from haptera.access.other_tools import OTHER_TOOLS, FoundSession, OtherTool, find_other_sessions
from haptera.cli.choices import with_agent
from haptera.cli.outcomes import Exit
from haptera.cli.session_texts import counted
from haptera.cli.terminal import Output, safe_line

_BETWEEN_NOTES = 250
"""How many sessions are imported between two lines that say how far it is."""


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to do."""

    new: list[FoundSession]
    changed: list[tuple[FoundSession, SessionDescription]]
    """Sessions that went on since they were imported."""
    known: int
    """How many were imported before and are not to be imported again."""


def import_all(
    context: click.Context,
    output: Output,
    *,
    tool: OtherTool | None,
    store: str | None,
    syncs: bool,
    is_dry: bool,
) -> Exit:
    """Import all sessions that are new; with `syncs` also those that went on."""
    sessions = _found(output, OTHER_TOOLS if tool is None else (tool,))

    async def work(agent: Agent) -> Exit:
        plan = await _plan(agent, sessions, syncs=syncs)
        if is_dry:
            output.line(_told(plan, "would be imported"))
            return Exit.OK
        failed = await _carry_out(agent, plan, output)
        output.line(_told(plan, "imported", failed=failed))
        return Exit.ERROR if failed else Exit.OK

    return with_agent(context, work, store=store)


def _found(output: Output, tools: Sequence[OtherTool]) -> list[FoundSession]:
    sessions: list[FoundSession] = []
    for tool in tools:
        try:
            sessions += find_other_sessions(tool)
        except AgentError as error:
            output.note(f"haptera: sessions of {tool} are left out: {error.message}")
    return sessions


async def _plan(agent: Agent, sessions: Sequence[FoundSession], *, syncs: bool) -> _Plan:
    listed = await agent.sessions.list(everywhere=True, archived=None, limit=None)
    imported: dict[tuple[str, str], SessionDescription] = {}
    for session in sorted(listed, key=_version):
        # Any program may set metadata, and to any value.
        tool, own = map(session.metadata.get, ("imported_tool", "imported_session"))
        if isinstance(tool, str) and isinstance(own, str):
            imported[tool, own] = session
    plan = _Plan(new=[], changed=[], known=len(sessions))
    for each in sessions:
        before = imported.get((each.tool, each.id))
        if before is None:
            plan.new.append(each)
        elif syncs and _version(before) != each.updated:
            plan.changed.append((each, before))
    left = len(sessions) - len(plan.new) - len(plan.changed)
    return msgspec.structs.replace(plan, known=left)


def _version(session: SessionDescription) -> int:
    """Return when the original was updated, as it was imported."""
    updated = session.metadata.get("imported_updated")
    return updated if isinstance(updated, int) else 0


async def _carry_out(agent: Agent, plan: _Plan, output: Output) -> int:
    """Import what is new, and return how many could not be."""
    failed = 0
    all_of_them = [*((each, None) for each in plan.new), *plan.changed]
    for number, (each, before) in enumerate(all_of_them, start=1):
        if number % _BETWEEN_NOTES == 0:
            output.note(f"haptera: {number:,} of {counted(len(all_of_them), 'session')}")
        if not await _import(agent, each, output):
            failed += 1
        elif before is not None and before.metadata.get("imported_head") == before.head:
            # It was not gone on with here, and has nothing that the new one lacks.
            await agent.sessions.archive(before.id)
    # So that the first search does not have to index all of them.
    await agent.sessions.search("haptera", limit=1, everywhere=True)
    return failed


async def _import(agent: Agent, each: FoundSession, output: Output) -> bool:
    project = _project_of(each)
    try:
        with each.open() as file:
            await agent.sessions.import_from(
                file,
                of=each.format,
                project=project,
                metadata={
                    "imported_tool": each.tool,
                    "imported_session": each.id,
                    "imported_folder": each.folder,
                    "imported_updated": each.updated,
                },
                keep_origin=True,
            )
    except (AgentError, OSError) as error:
        reason = error.message if isinstance(error, AgentError) else error.strerror
        output.note(f"haptera: {safe_line(each.id)} of {each.tool} was not imported: {reason}")
        return False
    return True


def _project_of(session: FoundSession) -> str | None:
    """Return the folder that a session worked in, if it is there; None for this one."""
    folder = Path(session.folder)
    return os.path.realpath(folder) if folder.is_absolute() and folder.is_dir() else None


def _told(plan: _Plan, what: str, *, failed: int = 0) -> str:
    count = len(plan.new) + len(plan.changed) - failed
    more = [f"{plan.known:,} were imported before"] if plan.known else []
    if plan.changed:
        more.append(f"{len(plan.changed):,} of them went on since")
    if failed:
        more.append(f"{failed:,} could not be read")
    return f"{counted(count, 'session')} {what}" + (f"; {'; '.join(more)}" if more else "")
