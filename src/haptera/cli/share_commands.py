"""`haptera sessions share`, `shares` and `unshare`: a session for others to read.

As a page in a file, or as a link that a server of this user answers.
"""

import contextlib
import socket
from pathlib import Path
from urllib.parse import urlsplit

import click
import msgspec

from haptera import Agent
from haptera.access.administration import state_folder
from haptera.access.command_flags import flag
from haptera.access.descriptions import ShareOptions
from haptera.access.sharing import Share
from haptera.cli.choices import find_session_by_words, with_agent
from haptera.cli.session_texts import short_time
from haptera.cli.terminal import Output, print_json, print_table, writing_file
from haptera.model.option_declarations import options_of

_STATE_FILE = "server.json"
_CONNECT_SECONDS = 1.0
_OPTIONS = options_of(ShareOptions)


class _RunningServer(msgspec.Struct, frozen=True):
    """What the file of a running server says of where it is."""

    url: str


@click.command()
@click.argument("reference", metavar="ID|NAME|TEXT")
@click.option("-o", "--output", "path", type=click.Path(), help="A new file.")
@click.option("--no-redact", is_flag=True, help="Leave secrets, paths and media as they are.")
@click.option("--link", is_flag=True, help="Make a link that a server shows, and no file.")
@flag("--days", declared=_OPTIONS["days"], otherwise=f"{_OPTIONS['days'].default}")
@flag("--live", declared=_OPTIONS["live"])
@click.pass_context
def share(
    context: click.Context,
    /,
    *,
    reference: str,
    path: str | None,
    days: float | None,
    **flags: bool,
) -> None:
    """Show a session to others: as an HTML page in a file, or as a link.

    Secrets and paths are masked in both.
    """
    if flags["link"] and path is not None:
        raise click.UsageError("--output is for a file; --link makes none")
    if not flags["link"] and (days is not None or flags["live"]):
        raise click.UsageError("--days and --live are for --link")
    if flags["link"]:
        told: ShareOptions = {"redact": not flags["no_redact"], "live": flags["live"]}
        if days is not None:
            told["days"] = days
        _print_link(context, reference, told)
    else:
        _write_page(context, reference, path, redact=not flags["no_redact"])


@click.command()
@click.argument("reference", metavar="ID|NAME|TEXT")
@click.option("--format", "shown_as", type=click.Choice(("table", "json")), default="table")
@click.pass_context
def shares(context: click.Context, /, *, reference: str, shown_as: str) -> None:
    """List the links to a session that are valid."""

    async def read(agent: Agent) -> tuple[Share, ...]:
        return await agent.sessions.shares(await find_session_by_words(agent, reference))

    found, output = with_agent(context, read), Output()
    if shown_as == "json":
        print_json(output, found)
    elif not found:
        output.note("the session has no link; `haptera sessions share ID --link` makes one")
    else:
        print_table(output, ("id", "made", "until", "shows"), [_row(each) for each in found])


@click.command()
@click.argument("reference", metavar="ID|NAME")
@click.argument("share_id", metavar="SHARE")
@click.pass_context
def unshare(context: click.Context, /, *, reference: str, share_id: str) -> None:
    """Revoke a link to a session; `haptera sessions shares` lists them."""

    async def work(agent: Agent) -> None:
        session_id = await find_session_by_words(agent, reference, by_text=False)
        await agent.sessions.unshare(session_id, share_id)

    with_agent(context, work)
    Output().line(f"{share_id} is revoked")


def _write_page(context: click.Context, reference: str, path: str | None, *, redact: bool) -> None:
    async def work(agent: Agent) -> Path:
        session_id = await find_session_by_words(agent, reference)
        target = Path(path or f"session-{session_id[-12:]}.html")
        await agent.sessions.export_to(target, session_id, to="html", redact=redact)
        return target

    with writing_file(path):
        Output().line(str(with_agent(context, work)))


def _print_link(context: click.Context, reference: str, told: ShareOptions) -> None:
    async def work(agent: Agent) -> Share:
        return await agent.sessions.share(await find_session_by_words(agent, reference), **told)

    made, output, url = with_agent(context, work), Output(), _running_server()
    output.line(f"{url or ''}{made.path}")
    output.note(
        f"{made.id}, valid until {short_time(made.expires)}; the link is shown only now. "
        f"`haptera sessions unshare {made.session_id} {made.id}` revokes it"
    )
    if url is None:
        output.note("`haptera serve` answers it; put the URL of the server before it")


def _running_server() -> str | None:
    """Return the URL of this user's server if something listens there."""
    with contextlib.suppress(OSError, ValueError):  # no file, no URL in it, or nothing listens
        url = msgspec.json.decode(
            (state_folder() / _STATE_FILE).read_bytes(), type=_RunningServer
        ).url
        parts = urlsplit(url)
        address = (parts.hostname or "", parts.port or 0)
        # A server that was killed leaves its file behind.
        with socket.create_connection(address, timeout=_CONNECT_SECONDS):
            return url
    return None


def _row(each: Share) -> tuple[str, str, str, str]:
    shown = "as it goes on" if each.live else "as it was"
    masked = "masked" if each.redact else "not masked"
    return each.id, short_time(each.created), short_time(each.expires), f"{shown}, {masked}"
