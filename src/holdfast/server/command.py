"""`holdfast serve`, `rpc` and `keys`: this user's sessions for programs, and keys for others."""

import asyncio
import contextlib
import os
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast import Agent
from holdfast.administration import state_folder
from holdfast.administration.configured import command_line_store
from holdfast.administration.failure_log import log_to_stderr
from holdfast.server.access import Access, ApiKey, new_token
from holdfast.server.app import OPERATIONS, create_app
from holdfast.server.key_file import KeyFile, add_key, read_keys, remove_key
from holdfast.server.limits import ServerSettings
from holdfast.server.rpc_stdio import serve_stdio
from holdfast.server.serving import (
    Certificate,
    HttpServer,
    ServerState,
    announced,
    is_loopback,
    listen,
    run_process,
    url_of,
)
from holdfast.server.start_checks import check_store, own_keys_only_read, warn_without_model

_LIMITS = ServerSettings()
_ORIGIN = re.compile(r"https?://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:\d{1,5})?")


@click.command(help="Serve sessions over HTTP, to programs of this user and to holders of keys.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The IP address to listen on.")
@click.option(
    "--port",
    default=4747,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="The port to listen on; 0 takes a free one.",
)
@click.option("--model", "-m", help="The model of new sessions, as `provider/model`.")
@click.option("--store", help="Where sessions are kept; by default as for the command line.")
@click.option(
    "--tls-certificate",
    type=click.Path(exists=True, dir_okay=False),
    help="A PEM file with the certificate, for HTTPS; needs --tls-key.",
)
@click.option(
    "--tls-key", type=click.Path(exists=True, dir_okay=False), help="A PEM file with its key."
)
@click.option("--behind-proxy", is_flag=True, help="A proxy adds TLS: listen beyond this machine.")
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    help="A host name that clients use, such as chat.example, with the port unless it is 80 or "
    "443. Replaces 127.0.0.1 and localhost. Repeatable.",
)
@click.option(
    "--cors",
    "origins",
    multiple=True,
    help="An origin whose pages may call, such as https://app.example. Repeatable.",
)
@click.option(
    "--tools-for-keys", is_flag=True, help="Let owners of API keys use files and the shell, too."
)
@click.option(
    "--max-sessions",
    "sessions",
    default=_LIMITS.sessions,
    show_default=True,
    type=click.IntRange(min=1),
    help="How many sessions are kept open at once; one owner has at most three quarters of them.",
)
@click.option(
    "--max-streams",
    "streams",
    default=_LIMITS.streams_per_owner,
    show_default=True,
    type=click.IntRange(min=1),
    help="How many streams of events one owner may have open.",
)
@click.option(
    "--max-requests",
    "requests",
    default=_LIMITS.requests_per_second,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="How many requests a second one owner may make.",
)
@click.option(
    "--no-resume", is_flag=True, help="Carry no query on that an earlier server did not finish."
)
def serve(**flags: object) -> None:
    """Listen until SIGINT or SIGTERM; then streams end, and running queries may end.

    A second signal aborts the queries.
    """
    log_to_stderr()
    run_process(_serve(flags))


@click.command(
    help="""Answer JSON-RPC 2.0 on standard input and output, one message per line.

\b
echo '{"jsonrpc":"2.0","id":1,"method":"session/list"}' | holdfast rpc

The end of the input ends the command, after running queries. Nothing listens on a port, and no
token is needed: the caller is the user who starts it. Messages for people go to standard error.
"""
)
@click.option("--model", "-m", help="The model of new sessions, as `provider/model`.")
@click.option("--store", help="Where sessions are kept; by default as for the command line.")
def rpc(**flags: object) -> None:
    """Answer until the input ends, or SIGINT or SIGTERM comes."""
    log_to_stderr()
    asyncio.run(_rpc(flags))


async def _rpc(flags: dict[str, Any]) -> None:
    async with _agent_maker(flags)(None, has_tools=True) as agent:
        await check_store(agent)
        await warn_without_model(agent)
        await serve_stdio(agent, OPERATIONS)


async def _serve(flags: dict[str, Any]) -> None:
    tls = _certificate(flags)
    settings = _settings(flags)
    sock = listen(
        flags["host"], flags["port"], is_protected=tls is not None or flags["behind_proxy"]
    )
    with contextlib.closing(sock):
        if not (flags["hosts"] or is_loopback(flags["host"])):
            raise click.UsageError("name the hosts that clients use with --allow-host")
        await _serve_on(sock, flags, tls=tls, settings=settings)


async def _serve_on(
    sock: socket.socket,
    flags: dict[str, Any],
    *,
    tls: Certificate | None,
    settings: ServerSettings,
) -> None:
    folder, has_tools = state_folder(), flags["tools_for_keys"]
    url = url_of(sock, has_tls=tls is not None)
    state = ServerState(url=url, pid=os.getpid(), token=new_token())
    make = _agent_maker(flags)
    others: dict[str, Agent] = {}

    def agent_of(owner: str) -> Agent:
        if owner not in others:
            others[owner] = make(owner, has_tools=has_tools)
        return others[owner]

    async with make(None, has_tools=True) as agent:
        await check_store(agent)
        known = own_keys_only_read(KeyFile(folder).keys, owner=agent.owner, has_tools=has_tools)
        access = Access(state.token, owner=agent.owner, keys=known)
        app = create_app(agent, access=access, agents=agent_of, settings=settings)
        try:
            with announced(folder, state) as path:
                click.echo(f"{url}/#token={state.token}\nthe token is in {path}", err=True)
                await warn_without_model(agent)
                await HttpServer(app, tls=tls).serve(sockets=[sock])
        finally:
            for other in others.values():
                await other.close()


def _certificate(flags: dict[str, Any]) -> Certificate | None:
    certificate, key = flags["tls_certificate"], flags["tls_key"]
    if (certificate is None) != (key is None):
        raise click.UsageError("--tls-certificate and --tls-key are given together")
    return None if certificate is None else Certificate(certificate=certificate, key=key)


def _settings(flags: dict[str, Any]) -> ServerSettings:
    for each in flags["origins"]:
        if _ORIGIN.fullmatch(each.lower()) is None:
            told = f"--cors {each!r} is not an origin such as https://app.example, without a path"
            raise click.UsageError(told)
    return ServerSettings(
        hosts=frozenset(each.lower() for each in flags["hosts"]),
        origins=frozenset(each.lower() for each in flags["origins"]),
        behind_tls=flags["behind_proxy"],
        resume=not flags["no_resume"],
        sessions=flags["sessions"],
        streams_per_owner=flags["streams"],
        streams=max(_LIMITS.streams, flags["streams"]),
        requests_per_second=flags["requests"],
    )


def _agent_maker(flags: dict[str, Any]) -> Callable[..., Agent]:
    """Return what makes the agent of an owner: with tools only where they are allowed.

    Without them, the model of a session gets none at all: neither the built-in ones nor those of
    the configured MCP servers, and an agent such as Claude Code runs without its own.
    """
    shared: dict[str, Any] = {"store": flags["store"] or command_line_store()}
    if flags["model"]:
        shared["model"] = flags["model"]

    def make(owner: str | None, *, has_tools: bool) -> Agent:
        options = dict(shared)
        if owner is not None:
            options["owner"] = owner
        if has_tools:
            options["workspace"] = Path.cwd()
        else:
            options |= {"allowed_tools": [], "mcp_servers": []}
        return Agent(**options)

    return make


@click.group(help="Manage the API keys of `holdfast serve`.")
def keys() -> None:
    """Manage API keys; only their digests are stored."""


@keys.command("add")
@click.argument("owner")
@click.option("--read-only", is_flag=True, help="The key may read only.")
@click.option(
    "--days",
    type=click.FloatRange(min=0, min_open=True),
    help="How long it is valid; without it, until it is removed.",
)
@click.option("--label", default="", help="What it is for.")
def add(owner: str, *, read_only: bool, days: float | None, label: str) -> None:
    """Make a key for an owner, and print it: it is shown only now.

    An owner is a name of your choice; each has sessions of its own.
    """
    key = new_token()
    made = ApiKey.of(key, owner=owner, read_only=read_only, days=days)
    add_key(state_folder(), msgspec.structs.replace(made, label=label))
    click.echo(key)


@keys.command("list")
def list_keys() -> None:
    """List keys by the first digits of their digests."""
    found = read_keys(state_folder())
    if not found:
        click.echo("there are no keys; `holdfast keys add OWNER` makes one", err=True)
    for key in found:
        told = [key.digest[:12], key.owner, "+".join(key.scopes), _validity(key), key.label]
        click.echo("  ".join(each for each in told if each))


def _validity(key: ApiKey) -> str:
    if key.expires is None:
        return ""
    word = "until" if key.expires > _now_ms() else "expired"
    return f"{word} {time.strftime('%Y-%m-%d %H:%M', time.localtime(key.expires / 1000))}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@keys.command("remove")
@click.argument("digest")
def remove(digest: str) -> None:
    """Remove a key by the first digits of its digest; a running server refuses it from then on."""
    if not remove_key(state_folder(), digest):
        raise click.ClickException(
            f"no single key begins with {digest!r}; give at least 8 of the digits that "
            "`holdfast keys list` shows"
        )
