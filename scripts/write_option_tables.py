"""Writes the tables of options into the documentation, from their declarations.

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`; what is between them is
replaced. Run it with `make docs`; a test fails when a table is not what it would write.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from holdfast.agent.agent_options import AgentOptions, ScopedOptions, SettingsOptions
from holdfast.agent.option_checks import options_of
from holdfast.agent.query_options import (
    AdmissionOptions,
    CreateSessionOptions,
    QueryOnlyOptions,
    SendOptions,
)
from holdfast.blocks.tool_registry.tool import TOOL_OPTIONS
from holdfast.config.environment import PREFIX, VARIABLES, Variable
from holdfast.vocabulary.compaction_settings import CompactionSettings
from holdfast.vocabulary.native_settings import ClaudeAgentSettings
from holdfast.vocabulary.option_declarations import Declared, declared_fields
from holdfast.vocabulary.settings import (
    Limits,
    ModelStep,
    RetrySettings,
    RuntimeSettings,
    Timeouts,
)

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "docs/options.md", ROOT / "docs/configuration.md")
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


def _own(kind: type, *others: type) -> list[Declared]:
    """Return the options of a TypedDict that none of the others have."""
    known = {name for other in others for name in options_of(other)}
    return [item for name, item in options_of(kind).items() if name not in known]


def _fields(struct: type[msgspec.Struct]) -> Callable[[], str]:
    return lambda: option_table(declared_fields(struct).values(), first="field")


TABLES: dict[str, Callable[[], str]] = {
    "settings": lambda: option_table(_own(SettingsOptions)),
    "scoped": lambda: option_table(_own(ScopedOptions, SettingsOptions)),
    "agent": lambda: option_table(_own(AgentOptions, ScopedOptions)),
    "session": lambda: option_table(_own(CreateSessionOptions, AgentOptions)),
    "prompt": lambda: option_table(_own(SendOptions)),
    "sent prompt": lambda: option_table(_own(AdmissionOptions, SendOptions)),
    "query": lambda: option_table(_own(QueryOnlyOptions, SendOptions)),
    "tool": lambda: option_table(TOOL_OPTIONS.values()),
    "Limits": _fields(Limits),
    "RetrySettings": _fields(RetrySettings),
    "Timeouts": _fields(Timeouts),
    "CompactionSettings": _fields(CompactionSettings),
    "ModelStep": _fields(ModelStep),
    "RuntimeSettings": _fields(RuntimeSettings),
    "ClaudeAgentSettings": _fields(ClaudeAgentSettings),
    "variables": lambda: variable_table(VARIABLES),
}


def main() -> None:
    """Write the tables."""
    for page in PAGES:
        page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
