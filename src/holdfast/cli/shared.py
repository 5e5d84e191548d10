"""What the subcommands share: an agent for their store, tables, JSON, times and questions."""

import asyncio
import datetime
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import click
import msgspec

from holdfast import Agent
from holdfast.cli.choices import Choices, open_agent
from holdfast.cli.terminal import Output, safe_line
from holdfast.vocabulary.compactions import Compaction

ValueT = TypeVar("ValueT")


def with_agent(
    context: click.Context, work: Callable[[Agent], Awaitable[ValueT]], *, store: str | None = None
) -> ValueT:
    """Do something with an agent for the store that was chosen, and close it."""
    choices: Choices = context.obj or Choices()

    async def run() -> ValueT:
        chosen = choices if store is None else Choices(store=store).over(choices)
        async with open_agent(chosen) as agent:
            return await work(agent)

    return asyncio.run(run())


def print_json(output: Output, value: object) -> None:
    """Print any value as one JSON document; control characters are escaped in it."""
    output.line(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(output: Output, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns; the last one is shortened to the width of the terminal."""
    cells = [list(headings), *([safe_line(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings) - 1)]
    total = shutil.get_terminal_size().columns if output.is_terminal else None
    for row in cells:
        line = "".join(f"{cell:<{width}}  " for cell, width in zip(row, widths, strict=False))
        room = None if total is None else max(8, total - len(line))
        output.line((line + safe_line(row[-1], width=room)).rstrip())


def short_time(time_ms: int) -> str:
    """Return a time of the log in the user's time zone."""
    moment = datetime.datetime.fromtimestamp(time_ms / 1000, tz=datetime.UTC).astimezone()
    return moment.strftime("%Y-%m-%d %H:%M")


def compaction_line(done: Compaction) -> str:
    """Say in one line what a compaction did."""
    before, after = done.tokens_before, done.tokens_after
    sizes = "" if before is None or after is None else f": {before} tokens, now {after}"
    return f"the conversation was shortened ({done.strategy}){sizes}"


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is lost; without a terminal, `--yes` is needed.

    Raises:
        click.UsageError: when there is no terminal to ask on.
        click.Abort: when the answer is no.

    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is no terminal to ask on: confirm with --yes")
    click.confirm(question, abort=True, err=True)
