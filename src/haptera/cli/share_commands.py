"""`haptera sessions share`: a session for others to read, and how its links are listed.

As a page in a file, or as a link that a server of this user answers.
"""

import contextlib
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec

from haptera import Agent
from haptera.access.administration import state_folder
from haptera.access.command_flags import flag
from haptera.access.sharing import Share
from haptera.cli.choices import find_session_by_words, with_agent
from haptera.cli.session_texts import short_time
from haptera.cli.terminal import Output, print_table, writing_file
from haptera.model.operations.sessions import ShareSession
from haptera.options.operations import given_fields

_STATE_FILE = "server.json"
_CONNECT_SECONDS = 1.0
_FIELDS = given_fields(ShareSession)


class _RunningServer(msgspec.Struct, frozen=True):
    """What the file of a running server says of where it is."""

    url: str


@click.command()
@click.argument("reference", metavar="ID|NAME|TEXT")
@click.option("-o", "--output", "path", type=click.Path(), help="A new file.")
@click.option("--no-redact", is_flag=True, help="Leave secrets, paths and media as they are.")
@click.option("--link", is_flag=True, help="Make a link that a server shows, and no file.")
@flag("--days", declared=_FIELDS["days"], otherwise=f"{_FIELDS['days'].default}")
@flag("--live", declared=_FIELDS["live"])
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
        lasting = _FIELDS["days"].default if days is None else days
        options = {"days": lasting, "redact": not flags["no_redact"], "live": flags["live"]}
        _print_link(context, reference, options)
    else:
        _write_page(context, reference, path, redact=not flags["no_redact"])


def show_shares(shares: tuple[Share, ...]) -> None:
    """Print the links to a session."""
    output = Output()
    if not shares:
        output.note("the session has no link; `haptera sessions share ID --link` makes one")
    else:
        print_table(output, ("id", "made", "until", "shows"), [_row(each) for each in shares])


def _write_page(context: click.Context, reference: str, path: str | None, *, redact: bool) -> None:
    async def work(agent: Agent) -> Path:
        session_id = await find_session_by_words(agent, reference)
        target = Path(path or f"session-{session_id[-12:]}.html")
        await agent.sessions.export_to(target, session_id, to="html", redact=redact)
        return target

    with writing_file(path):
        Output().line(str(with_agent(context, work)))


def _print_link(context: click.Context, reference: str, options: dict[str, Any]) -> None:
    async def work(agent: Agent) -> Share:
        return await agent.sessions.share(await find_session_by_words(agent, reference), **options)

    link, output, url = with_agent(context, work), Output(), _running_server()
    output.line(f"{url or ''}{link.path}")
    output.note(
        f"{link.id}, valid until {short_time(link.expires)}; the link is shown only now. "
        f"`haptera sessions unshare {link.session_id} {link.id}` revokes it"
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
