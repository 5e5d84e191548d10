"""`haptera mcp`: list, add, remove and test the MCP servers of the configuration file."""

import asyncio
import importlib.util
import shlex
from typing import Any

import click
import msgspec

from haptera.access.mcp_servers import (
    add_mcp_server,
    check_mcp_server,
    list_mcp_servers,
    remove_mcp_server,
)
from haptera.cli.session_texts import counted
from haptera.cli.terminal import Output, confirm, print_json, print_table, safe_line

_AS = click.option(
    "--format", "shown_as", type=click.Choice(("table", "json")), default="table", show_default=True
)


@click.group("mcp", help="List, add, remove and test MCP servers.", invoke_without_command=True)
@click.pass_context
def command(context: click.Context, /) -> None:
    """Manage the MCP servers whose tools every session gets."""
    if context.invoked_subcommand is None:
        context.invoke(list_servers, shown_as="table")


@command.command("list")
@_AS
def list_servers(shown_as: str) -> None:
    """List the servers of the configuration file; none is started."""
    servers = {name: msgspec.to_builtins(each) for name, each in list_mcp_servers().items()}
    output = Output()
    if shown_as == "json":
        print_json(output, servers)
        return
    if not servers:
        output.note("there are no MCP servers; `haptera mcp add NAME -- COMMAND` adds one")
        return
    rows = [
        (name, "disabled" if each.get("disabled") else "enabled", _target(each))
        for name, each in servers.items()
    ]
    print_table(output, ("name", "state", "server"), rows)


@command.command()
@click.argument("name")
@click.argument("program", nargs=-1, metavar="[--] COMMAND [ARGUMENT]... | URL", required=True)
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable for the command.")
@click.option(
    "--env-from",
    multiple=True,
    metavar="NAME[=VARIABLE]",
    help="A variable whose secret value is read from yours when the server starts.",
)
@click.option(
    "--token-from", metavar="VARIABLE", help="The variable that holds the bearer token of a URL."
)
def add(
    *,
    name: str,
    program: tuple[str, ...],
    env: tuple[str, ...],
    env_from: tuple[str, ...],
    token_from: str | None,
) -> None:
    """Add a server to the configuration file.

    Put `--` before a command: haptera mcp add time -- uvx mcp-server-time
    """
    table = _table(program)
    variables: dict[str, Any] = dict(_pair(each) for each in env)
    for each in env_from:
        inside, _, outside = each.partition("=")
        variables[inside] = {"env": outside or inside}
    if variables:
        table["env"] = variables
    if token_from is not None:
        table["token"] = {"env": token_from}
    add_mcp_server(name, table)
    output = Output()
    output.line(f"added; check that it works with `haptera mcp test {safe_line(name)}`")
    if importlib.util.find_spec("mcp") is None:
        output.note("haptera: MCP servers need one more package: pip install 'haptera[mcp]'")


@command.command()
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def remove(name: str, *, yes: bool) -> None:
    """Take a server out of the configuration file."""
    if name not in list_mcp_servers():
        yes = True  # nothing to ask about: what follows says that there is none
    confirm(f"Remove the MCP server {safe_line(name)!r}?", yes=yes)
    remove_mcp_server(name)
    Output().line("removed")


@command.command()
@click.argument("name")
@_AS
def test(name: str, shown_as: str) -> None:
    """Start a server, list its tools and end it. The exit code is 1 if that fails."""
    status = asyncio.run(check_mcp_server(name))
    output = Output()
    if shown_as == "json":
        print_json(output, status)
        return
    title = f"{status.server or name} (protocol {status.protocol or 'unknown'})"
    output.line(f"{safe_line(title)}: {counted(len(status.tools), 'tool')}")
    for tool in status.tools:
        output.line(f"  {safe_line(tool)}")


def _table(program: tuple[str, ...]) -> dict[str, Any]:
    first, *rest = program
    if first.startswith(("http://", "https://")):
        if rest:
            raise click.UsageError("a URL takes no arguments")
        return {"url": first}
    return {"command": first, **({"args": rest} if rest else {})}


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise click.UsageError(f"--env must be written as NAME=VALUE, not {text!r}")
    return name, value


def _target(entry: dict[str, Any]) -> str:
    if "url" in entry:
        return str(entry["url"])
    return shlex.join([str(entry.get("command", "")), *map(str, entry.get("args", ()))])
