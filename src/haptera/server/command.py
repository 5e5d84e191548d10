"""`haptera serve`, `rpc` and `keys`: this user's sessions for programs, and keys for others."""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from haptera import Agent
from haptera.access.administration import key_advice, list_local_models, pool_limits, state_folder
from haptera.access.command_flags import MODEL_FLAG, STORE_FLAG, flag
from haptera.access.configured import check_store_outside, configured_store
from haptera.access.failure_log import log_to_stderr
from haptera.access.pool import PoolLimits
from haptera.access.unowned import LeftQueries
from haptera.model.vendors import LOCAL
from haptera.options.declarations import declared_fields
from haptera.server.access import Access, ApiKey, KeySource, new_token
from haptera.server.app import OPERATIONS, create_app
from haptera.server.key_file import KeyFile, add_key, read_keys, remove_key
from haptera.server.limits import ServerSettings, checked_settings
from haptera.server.rpc_stdio import serve_stdio
from haptera.server.serving import (
    Certificate,
    HttpServer,
    ServerState,
    announced,
    is_loopback,
    listen,
    run_process,
    url_of,
)
from haptera.system.clock import SystemClock

_DECLARED = declared_fields(ServerSettings)
_LOCAL = f"{LOCAL}/"


def _setting(
    name: str, field: str, *, metavar: str | None = None, more: str = ""
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a flag of a field of `ServerSettings`."""
    return flag(name, field, declared=_DECLARED[field], metavar=metavar, more=more)


@click.command(help="Serve sessions over HTTP, to programs of this user and to holders of keys.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="The IP address to listen on.",
)
@click.option(
    "--port",
    default=4747,
    metavar="N",
    show_default=True,
    type=click.IntRange(0, 65535),
    help="The port to listen on; 0 takes a free one.",
)
@MODEL_FLAG
@STORE_FLAG
@click.option(
    "--tls-certificate",
    type=click.Path(exists=True, dir_okay=False),
    help="A PEM file with the certificate, for HTTPS; needs --tls-key.",
)
@click.option(
    "--tls-key", type=click.Path(exists=True, dir_okay=False), help="A PEM file with its key."
)
@_setting("--behind-proxy", "behind_tls", more="The server may then listen beyond this machine.")
@_setting("--allow-host", "hosts", metavar="HOST", more="Repeatable.")
@_setting("--cors", "origins", metavar="ORIGIN", more="Repeatable.")
@click.option(
    "--tools-for-keys", is_flag=True, help="Let owners of API keys use files and the shell, too."
)
@flag(
    "--max-sessions",
    "sessions",
    declared=_DECLARED["sessions"].brief(),
    more="One owner has at most three quarters of them.",
    is_configured=True,
)
@_setting("--max-queries", "queries")
@_setting("--max-pending-queries", "pending_queries")
@_setting("--when-queries-full", "when_queries_full")
@_setting("--pending-seconds", "pending_seconds")
@_setting("--max-streams", "streams_per_owner")
@_setting("--max-requests", "requests_per_second")
@_setting("--allow-local-file", "local_files", metavar="PATH", more="Repeatable.")
@_setting("--resume/--no-resume", "resume")
def serve(**flags: object) -> None:
    """Listen until SIGINT or SIGTERM; then streams end, and running queries may end.

    A second signal aborts the queries.
    """
    log_to_stderr()
    run_process(_serve(flags))


@click.command(
    help="""Answer JSON-RPC 2.0 on standard input and output, one message per line.

\b
echo '{"jsonrpc":"2.0","id":1,"method":"session/list"}' | haptera rpc

The end of the input ends the command, after running queries. Nothing listens on a port, and no
token is needed: the caller is the user who starts it. Messages for people go to standard error.
"""
)
@MODEL_FLAG
@STORE_FLAG
def rpc(**flags: object) -> None:
    """Answer until the input ends, or SIGINT or SIGTERM comes."""
    log_to_stderr()
    asyncio.run(_rpc(flags))


async def _rpc(flags: dict[str, Any]) -> None:
    async with _agent_maker(flags)(None, has_tools=True) as agent:
        await _check_store(agent)
        await _warn_without_model(agent)
        await serve_stdio(agent, OPERATIONS, limits=_limits())


async def _serve(flags: dict[str, Any]) -> None:
    tls = _certificate(flags)
    settings = _settings(flags)
    sock = listen(flags["host"], flags["port"], is_protected=tls is not None or flags["behind_tls"])
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
    if has_tools:
        reason = "where the holders of keys have files and the shell"
        check_store_outside(flags["store"] or configured_store(), Path.cwd(), reason=reason)
    make = _agent_maker(flags)
    others: dict[str, Agent] = {}

    def agent_of(owner: str) -> Agent:
        if owner not in others:
            others[owner] = make(owner, has_tools=has_tools)
        return others[owner]

    async with make(None, has_tools=True) as agent:
        await _check_store(agent)
        api_keys = _own_keys_only_read(KeyFile(folder).keys, owner=agent.owner, has_tools=has_tools)
        access = Access(state.token, owner=agent.owner, keys=api_keys)
        app = create_app(agent, access=access, agents=agent_of, settings=settings)
        try:
            with announced(folder, state) as path:
                click.echo(f"{url}/#token={state.token}\nthe token is in {path}", err=True)
                await _warn_without_model(agent)
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
    limits = _limits()
    values: dict[str, Any] = {"sessions": limits.sessions, "idle_seconds": limits.idle_seconds}
    values |= {name: flags[name] for name in _DECLARED if flags.get(name) is not None}
    settings = checked_settings(ServerSettings(**values))
    return msgspec.structs.replace(
        settings, streams=max(settings.streams, settings.streams_per_owner)
    )


def _limits() -> PoolLimits:
    """Return how many sessions are kept open, and for how long, by what the user configured."""
    usual = ServerSettings()
    own = PoolLimits(sessions=usual.sessions, idle_seconds=usual.idle_seconds)
    return pool_limits(otherwise=own)


def _agent_maker(flags: dict[str, Any]) -> Callable[..., Agent]:
    """Return what makes the agent of an owner: with tools only where they are allowed.

    Without them, the model of a session gets none at all: neither the built-in ones nor those of
    the configured MCP servers, and no agent runs that has its own, such as Claude Code.
    """
    shared: dict[str, Any] = {"store": flags["store"] or configured_store()}
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


async def _check_store(agent: Agent) -> None:
    """Refuse a store that cannot be used, before a client is told of the server.

    A database that does not answer yet is not refused: the server waits for it.

    Raises:
        ConfigError: CONFIG_INVALID for one that is none, CONFIG_MISSING without its extra.
        StoreError: UNAVAILABLE for files that cannot be read or written.

    """
    if isinstance(agent.sessions.unowned, LeftQueries):  # a store of this machine
        await agent.sessions.list(limit=1)


async def _warn_without_model(agent: Agent) -> None:
    """Say on standard error that the default model is a local one that was never fetched."""
    model = agent.settings.model
    name = model.removeprefix(_LOCAL)
    if not model.startswith(_LOCAL):
        return
    absent = {each.name for each in await list_local_models() if not each.is_present}
    if name in absent:
        message = (
            f"warning: queries will fail: no key of a provider is found, and the model {model} is "
            f"not on this machine. Either {key_advice()} and start again, or install the extra "
            f"`local` and run `haptera models pull {name}`"
        )
        click.echo(message, err=True)


def _own_keys_only_read(keys: KeySource, *, owner: str, has_tools: bool) -> KeySource:
    """Return keys of which those of the server's own user can only read.

    The sessions of that user have files and the shell, and holders of keys must not get these
    unless the server was told so (`has_tools`).
    """
    seen: Mapping[str, ApiKey] | None = None
    limited_keys: Mapping[str, ApiKey] = {}

    def limited() -> Mapping[str, ApiKey]:
        nonlocal seen, limited_keys
        now = keys()
        if now is not seen:
            seen, limited_keys = now, {digest: _limited(key, owner) for digest, key in now.items()}
        return limited_keys

    return keys if has_tools else limited


def _limited(key: ApiKey, owner: str) -> ApiKey:
    return msgspec.structs.replace(key, scopes=("read",)) if key.owner == owner else key


@click.group(help="Manage the API keys of `haptera serve`.")
def keys() -> None:
    """Manage API keys; only their digests are stored."""


@keys.command("add")
@click.argument("owner")
@click.option("--read-only", is_flag=True, help="The key may read only.")
@click.option(
    "--days",
    type=float,
    help="How long it is valid; without it, until it is removed.",
)
@click.option("--label", default="", help="What it is for.")
def add(owner: str, *, read_only: bool, days: float | None, label: str) -> None:
    """Make a key for an owner, and print it: it is shown only now.

    An owner is a name of your choice; each has sessions of its own.
    """
    key = new_token()
    record = ApiKey.of(key, owner=owner, read_only=read_only, days=days)
    add_key(state_folder(), msgspec.structs.replace(record, label=label))
    click.echo(key)


@keys.command("list")
def list_keys() -> None:
    """List keys by the first digits of their digests."""
    records = read_keys(state_folder())
    if not records:
        click.echo("there are no keys; `haptera keys add OWNER` makes one", err=True)
    for key in records:
        cells = [key.digest[:12], key.owner, "+".join(key.scopes), _validity(key), key.label]
        click.echo("  ".join(each for each in cells if each))


def _validity(key: ApiKey) -> str:
    if key.expires is None:
        return ""
    word = "until" if key.expires > SystemClock().time_ms() else "expired"
    return f"{word} {time.strftime('%Y-%m-%d %H:%M', time.localtime(key.expires / 1000))}"


@keys.command("remove")
@click.argument("digest")
def remove(digest: str) -> None:
    """Remove a key by the first digits of its digest; a running server refuses it from then on."""
    if not remove_key(state_folder(), digest):
        raise click.ClickException(
            f"no single key begins with {digest!r}; give at least 8 of the digits that "
            "`haptera keys list` shows"
        )
