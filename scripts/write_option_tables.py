"""Writes the tables of options and flags into the documentation, from their declarations.

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`; what is between them is
replaced. Run it with `make docs`; a test fails when a table is not what it would write.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import click
import msgspec

from haptera.access.assembly.block_options import BlockChoices, HoldChoices
from haptera.access.auth.oauth_settings import OAuthSettings
from haptera.access.config.environment import LOCATION_VARIABLES, PREFIX, VARIABLES, Variable
from haptera.access.config.schema import (
    MODEL_FIELDS,
    KeyReference,
    McpServerEntry,
    ModelEntry,
    PriceEntry,
    ProviderEntry,
)
from haptera.access.descriptions import (
    SessionChanges,
)
from haptera.access.pool import PoolLimits
from haptera.agent.agent_options import (
    AGENT,
    CONFIGURE,
    SubAgentOptions,
)
from haptera.agent.query_options import (
    CREATE_SESSION,
    QUERY,
    SESSION,
    AdmissionOptions,
    SendOptions,
)
from haptera.cli.chat.slash_commands import SLASH_COMMANDS
from haptera.cli.main import run
from haptera.hooks import HookFunctions
from haptera.kernel.blocks.tool_registry.tool import ToolOptions
from haptera.model.agent_defaults import Permissions
from haptera.model.budgets import Budgets, Watchdogs
from haptera.model.compaction_settings import CompactionSettings
from haptera.model.native_settings import ClaudeAgentSettings
from haptera.model.operations import held as held_operations
from haptera.model.operations import session as session_operations
from haptera.model.operations import sessions as sessions_operations
from haptera.model.operations.operation import Facts, Operation, Route
from haptera.model.operations.session import RewindSession
from haptera.model.operations.sessions import ExportSession, ListSessions, ShareSession
from haptera.model.settings import (
    Limits,
    ModelStep,
    PoolSettings,
    RetrySettings,
    RuntimeSettings,
    Timeouts,
)
from haptera.model.vendors import VENDOR_FIELDS, VendorFields
from haptera.options.declarations import Declared, Keywords, Taken, declared_fields, options_of
from haptera.options.operations import given_fields
from haptera.providers.vendors import VENDORS
from haptera.server import ServerSettings
from haptera.server.app import OPERATIONS
from haptera.server.command import serve
from haptera.server.rpc_methods import RpcParams
from haptera.tools.coding import CodingOptions
from haptera.tools.mcp.server_settings import McpOptions

ROOT = Path(__file__).parents[1]
PAGES = tuple(
    ROOT / "docs" / f"{name}.md"
    for name in (
        "options",
        "budgets",
        "configuration",
        "managing-sessions",
        "mcp",
        "server",
        "command-line",
        "architecture",
        "rpc",
    )
)
_TABLE = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def option_table(options: Iterable[Declared], *, first: str = "option") -> str:
    """Return the table of some options."""
    rows = [
        (f"`{item.name}`", f"`{item.shown_type}`", _default(item), item.option.sentence)
        for item in options
    ]
    return _markdown((first, "type", "default", "meaning"), rows)


def variable_table(variables: Mapping[str, Variable]) -> str:
    """Return the table of the variables that set an option."""
    rows = [
        (f"`{PREFIX}{name}`", f"`{variable.path}`", variable.declared.option.sentence)
        for name, variable in variables.items()
    ]
    return _markdown(("variable", "sets", "meaning"), rows)


def location_table(variables: Mapping[str, Variable]) -> str:
    """Return the table of the variables that say where files are."""
    rows = [
        (f"`{PREFIX}{name}`", variable.declared.option.sentence)
        for name, variable in variables.items()
    ]
    return _markdown(("variable", "meaning"), rows)


def flag_table(command: click.Command) -> str:
    """Return the table of the flags of a command, as its help has them."""
    context = click.Context(command)
    rows = []
    for flag in command.params:
        if isinstance(flag, click.Option):
            both = zip(flag.opts, flag.secondary_opts, strict=False)
            names = [f"{on}/{off}" for on, off in both] or list(flag.opts)
            if not (flag.is_flag or flag.count):
                names[-1] += f" {flag.make_metavar(context)}"
            cells = ", ".join(f"`{name}`" for name in names)
            rows.append((cells, flag.help or "", _flag_default(flag, context)))
    return _markdown(("flag", "meaning", "default"), rows)


def _flag_default(flag: click.Option, context: click.Context) -> str:
    """Return what holds without a flag: in words, or the value."""
    if isinstance(flag.show_default, str):
        return flag.show_default
    default = flag.get_default(context)
    if flag.is_flag:
        return "on" if default else "off"
    return f"`{default}`" if flag.show_default else ""


def rewritten(text: str, tables: Mapping[str, Callable[[], str]] | None = None) -> str:
    """Return a page with every table as the declarations have it."""
    known = TABLES if tables is None else tables
    return _TABLE.sub(lambda found: f"{found[1]}{known[found[2]]()}{found[3]}", text)


def _default(item: Declared) -> str:
    return "" if item.default is msgspec.UNSET else f"`{item.shown_default}`"


def _markdown(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    escaped = [[cell.replace("|", r"\|") for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in escaped)


def _operations() -> str:
    """Return the table of operations: how each is asked for, and where."""
    rows: list[tuple[str, ...]] = []
    for module, face in (
        (session_operations, "session"),
        (held_operations, "session"),
        (sessions_operations, "agent.sessions"),
    ):
        for kind in vars(module).values():
            facts = vars(kind).get("facts") if isinstance(kind, type) else None
            if facts is None or not facts.face:
                continue
            route, command, slash = facts.route, facts.command, facts.slash
            asked = [
                route and f"{route.method} …{_path(route, facts)}",
                route and (route.rpc or f"session/{facts.face}"),
                command and f"sessions {command.name}",
                slash and slash[0],
            ]
            is_refused = facts.needs_lease or module is held_operations
            where = "waits" if facts.waits else "no" if is_refused else "yes"
            cells = (f"`{each}`" if each else "" for each in asked)
            rows.append((f"`{face}.{facts.face}`", where, *cells))
    head = ("method", "another process", "HTTP", "JSON-RPC", "command", "in the chat")
    return _markdown(head, rows)


def _path(route: Route, facts: Facts) -> str:
    return f"/{facts.face}" if route.path is None else route.path


def _slash_commands() -> str:
    """Return the table of the commands of the chat."""
    rows = [(f"`{each.usage}`", each.help) for each in SLASH_COMMANDS.values()]
    return _markdown(("command", "does"), rows)


def _routes() -> str:
    """Return the table of the routes of HTTP."""
    rows = [(f"`{each.method} {each.path}`", each.summary) for each in OPERATIONS]
    return _markdown(("route", "does"), rows)


def _methods() -> str:
    """Return the table of the methods of JSON-RPC."""
    rows = [
        (
            f"`{each.rpc}`",
            ", ".join(f"`{name}`" for name in RpcParams.of(each).names),
            f"`{each.method} {each.path}`",
        )
        for each in sorted(OPERATIONS, key=lambda each: str(each.rpc))
        if each.rpc is not None
    ]
    return _markdown(("method", "parameters", "result as of"), rows)


def _asked(kind: type[Operation]) -> list[Declared]:
    """Return what may be given of an operation, and need not be."""
    return [each for each in given_fields(kind).values() if each.default is not msgspec.UNSET]


def _own(taken: Taken, *others: Taken) -> list[Declared]:
    """Return the options that a function takes, and that none of others has."""
    known = {name for other in others for name in _names(other)}
    return [item for name, item in options_of(taken).items() if name not in known]


def _names(taken: Taken) -> Iterable[str]:
    return taken.options if isinstance(taken, Keywords) else declared_fields(taken)


def _fields(struct: type[msgspec.Struct], *names: str) -> Callable[[], str]:
    """Return what makes the table of a struct: of all fields, or of some."""
    known = declared_fields(struct)
    return lambda: option_table([known[name] for name in names or known], first="field")


_PROVIDER_FIELDS = [name for name in declared_fields(ProviderEntry) if name not in VENDOR_FIELDS]
"""Those that every vendor takes."""


def vendor_field_table() -> str:
    """Return the table of the fields that only some vendors take."""
    rows = []
    for name, declared in declared_fields(VendorFields).items():
        takers = [f"`{row.name}`" for row in VENDORS.values() if name in row.more_variables]
        rows.append((f"`{name}`", ", ".join(takers), declared.option.sentence))
    return _markdown(("field", "taken by", "meaning"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "settings": lambda: option_table(CONFIGURE.options.values()),
    "scoped": lambda: option_table([SESSION.options[name] for name in ("tools", "deps")]),
    "agent": lambda: option_table(_own(AGENT, SESSION)),
    "session": lambda: option_table(_own(CREATE_SESSION, AGENT)),
    "prompt": lambda: option_table(_own(SendOptions)),
    "sent prompt": lambda: option_table(_own(AdmissionOptions, SendOptions)),
    "query": lambda: option_table(_own(QUERY, SESSION, SendOptions)),
    "tool": lambda: option_table(_own(ToolOptions)),
    "sub-agent": lambda: option_table(_own(SubAgentOptions)),
    "coding tools": lambda: option_table(_own(CodingOptions)),
    "hooks": lambda: option_table(_own(HookFunctions)),
    "list of sessions": lambda: option_table(_own(ListSessions)),
    "link": lambda: option_table(_asked(ShareSession)),
    "export": lambda: option_table(_own(ExportSession)),
    "operations": _operations,
    "slash commands": _slash_commands,
    "routes": _routes,
    "methods": _methods,
    "rewind": lambda: option_table(_asked(RewindSession)),
    "changes of a session": lambda: option_table(_own(SessionChanges), first="field"),
    "blocks": lambda: option_table(_own(BlockChoices)),
    "held conversation": lambda: option_table(_own(HoldChoices)),
    "Permissions": _fields(Permissions),
    "Budgets": _fields(Budgets),
    "Watchdogs": _fields(Watchdogs),
    "Limits": _fields(Limits),
    "RetrySettings": _fields(RetrySettings),
    "Timeouts": _fields(Timeouts),
    "CompactionSettings": _fields(CompactionSettings),
    "ModelStep": _fields(ModelStep),
    "RuntimeSettings": _fields(RuntimeSettings),
    "PoolLimits": _fields(PoolLimits),
    "PoolSettings": _fields(PoolSettings),
    "ClaudeAgentSettings": _fields(ClaudeAgentSettings),
    "McpServerEntry": _fields(McpServerEntry),
    "ProviderEntry": _fields(ProviderEntry, *_PROVIDER_FIELDS),
    "VendorFields": vendor_field_table,
    "KeyReference": _fields(KeyReference),
    "OAuthSettings": _fields(OAuthSettings),
    "ModelEntry": _fields(ModelEntry, *MODEL_FIELDS),
    "PriceEntry": _fields(PriceEntry),
    "McpServer": lambda: option_table(_own(McpOptions, McpServerEntry)),
    "ServerSettings": _fields(ServerSettings),
    "variables": lambda: variable_table(VARIABLES),
    "locations": lambda: location_table(LOCATION_VARIABLES),
    "flags": lambda: flag_table(run),
    "serve flags": lambda: flag_table(serve),
}


def main() -> None:
    """Write the tables."""
    for page in PAGES:
        page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
