"""What an agent is told beside settings, also by the configuration file and the environment.

Each field is the one declaration of an option, as in `haptera.model.settings`.
"""

from typing import Annotated, Literal, TypeAlias

import msgspec

from haptera.model.budgets import Budgets
from haptera.model.ids import DEFAULT_OWNER
from haptera.model.native_settings import ClaudeAgentSettings
from haptera.model.option import Option

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]


class Permissions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rules for tool calls. Each is a tool's name, or `tool(pattern)`; a denial wins."""

    allow: Annotated[tuple[str, ...], Option("Calls that run without a question.")] = ()
    ask: Annotated[tuple[str, ...], Option("Calls that a person is asked about.")] = ()
    deny: Annotated[tuple[str, ...], Option("Calls that are never made.")] = ()


class FileLocations(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where files are looked for. No file says it; arguments go before the environment."""

    config_path: Annotated[
        str | None,
        Option("The configuration file itself, which must exist.", variable="CONFIG_PATH"),
    ] = None
    config_dir: Annotated[
        str | None,
        Option(
            "The folder of the configuration file, instead of the user's own.",
            variable="CONFIG_DIR",
        ),
    ] = None
    home: Annotated[
        str | None,
        Option(
            "One folder for configuration, data, state and cache, instead of the platform's.",
            variable="HOME",
        ),
    ] = None


class AgentDefaults(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What an agent is told beside settings: its store, and the owner of its sessions."""

    store: Annotated[
        str,
        Option(
            "Where sessions are kept: `memory`, `jsonl:DIR`, `sqlite:FILE` or `postgresql://URL`; "
            "a plugin's name and a location; or a store object, which its owner closes.",
            variable="STORE",
        ),
    ] = "memory"
    owner: Annotated[str, Option("Whose sessions these are.", variable="OWNER")] = DEFAULT_OWNER
    project: Annotated[
        str | None,
        Option(
            "What its sessions belong to; None is the working folder. A session's name is unique "
            "within its owner and project.",
            variable="PROJECT",
        ),
    ] = None
    recall: Annotated[
        bool,
        Option(
            "Whether the model gets the tool `recall`, which searches the other sessions of the "
            "same owner and project.",
            variable="RECALL",
        ),
    ] = False
    snapshots: Annotated[
        bool,
        Option(
            "Whether the files of the workspace are recorded before and after tools change them, "
            "for `session.diff` and `session.rewind(files=True)`. Needs the program `git`.",
            variable="SNAPSHOTS",
        ),
    ] = True
    mcp_servers: Annotated[
        tuple[str, ...] | None,
        Option(
            "Which MCP servers of the user's file (`[mcpServers]`) are offered, by name; None: all "
            "that are not disabled; an empty list: none. Those made in Python are given as `tools`."
        ),
    ] = None
    plugins: Annotated[
        bool,
        Option(
            "Whether plugins of installed packages may be used; where the variable turns them off, "
            "nothing turns them on.",
            variable="PLUGINS",
        ),
    ] = True
    tool_plugins: Annotated[
        tuple[str, ...],
        Option(
            "Plugins whose tools are offered, by the names of their entry points in the group "
            "`haptera.tools`; none while plugins are off."
        ),
    ] = ()
    title_model: Annotated[
        str | None,
        Option(
            "A small model that gives sessions a title after their first exchange, in the "
            "background; None makes none.",
            variable="TITLE_MODEL",
        ),
    ] = None
    context_files: Annotated[
        tuple[str, ...],
        Option(
            "Instruction files that the model is told when there is a workspace: names that are "
            "looked for from the workspace up to the root of its repository and in the user's "
            "configuration folder (of each folder the first that exists), or paths; an empty list: "
            "none.",
            variable="CONTEXT_FILES",
        ),
    ] = ("AGENTS.md", "CLAUDE.md")
    skill_folders: Annotated[
        tuple[str, ...],
        Option(
            "Folders of the workspace with skills (`NAME/SKILL.md`), which the model can load by "
            "the tool `load_skill`; the user's own are in `skills` of the configuration folder. An "
            "empty list: none.",
            variable="SKILL_FOLDERS",
        ),
    ] = (".agents/skills", ".claude/skills")
    budgets: Annotated[
        Budgets,
        Option(
            "What sessions may spend, checked before each call of a model; a "
            "`haptera.settings.Budgets` or a dictionary."
        ),
    ] = Budgets()
    log: Annotated[
        LogLevel | None,
        Option("Level of the logger `haptera`; None leaves it as it is.", variable="LOG"),
    ] = None
    permissions: Annotated[
        Permissions,
        Option(
            "Rules for tool calls: which are allowed, asked about and denied. Rules of the user's "
            "file, of a trusted project file and of the program all count; a "
            "`haptera.settings.Permissions` or a dictionary."
        ),
    ] = Permissions()
    claude_agent: Annotated[
        ClaudeAgentSettings, Option("How models of `claude-agent/…` are run.")
    ] = ClaudeAgentSettings()
