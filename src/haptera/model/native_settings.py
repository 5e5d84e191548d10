"""Settings of agents that keep their own session: `[defaults.claude_agent]` of the file.

A module of its own because `haptera.model.settings` is as long as a module may be.
"""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from haptera.model.option import Option

NativePermissionMode: TypeAlias = Literal["default", "accept_edits", "plan", "dont_ask"]
ResumePolicy: TypeAlias = Literal["native", "replay", "fail"]


class ClaudeAgentSettings(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """How models of `claude-agent/…` are run."""

    executable: Annotated[
        str | None,
        Option(
            "The program of Claude Code; None is the one that comes with claude-agent-sdk.",
            variable="CLAUDE_EXECUTABLE",
        ),
    ] = None
    env: Annotated[
        dict[str, str],
        Option(
            "Variables for the program. Of the process's own it gets only those that it needs "
            "(`PATH`, `HOME`, locale, proxies, certificates, `ANTHROPIC_…`, `CLAUDE_CONFIG_DIR`)."
        ),
    ] = msgspec.field(default_factory=dict)
    permission_mode: Annotated[
        NativePermissionMode,
        Option(
            "What it asks about: `default` (what has effects), `accept_edits` (all but edits of "
            "files), `plan` (nothing is changed) or `dont_ask` (what is not allowed is denied).",
            variable="CLAUDE_PERMISSION_MODE",
        ),
    ] = "default"
    bypass_permissions: Annotated[
        bool, Option("Run every tool without asking. Only for a machine that has nothing to lose.")
    ] = False
    preapproved_tools: Annotated[
        tuple[str, ...],
        Option(
            "Its own tools that run without a question, such as `Read` or `Bash(git status)`.",
            variable="CLAUDE_PREAPPROVED_TOOLS",
        ),
    ] = ()
    append_system_prompt: Annotated[
        bool,
        Option("Whether a system prompt is added to Claude Code's own instead of replacing it."),
    ] = False
    setting_sources: Annotated[
        tuple[Literal["user", "project", "local"], ...],
        Option("Which of Claude Code's own settings files it reads; none by default."),
    ] = ()
    resume: Annotated[
        ResumePolicy,
        Option(
            "How an earlier conversation goes on: `native` (its own session, else by a hand-over), "
            "`replay` (always by a hand-over) or `fail` (its own session or not at all)."
        ),
    ] = "native"
    max_budget_usd: Annotated[
        float | None,
        Option("US dollars that one process of Claude Code may spend by its own count.", above=0),
    ] = None
    fallback_model: Annotated[
        str | None, Option("The model that Claude Code asks when its own is overloaded.")
    ] = None
    betas: Annotated[
        tuple[str, ...], Option("Beta headers of the Messages API that Claude Code sends.")
    ] = ()
    skills: Annotated[
        tuple[str, ...],
        Option(
            "Its skills that run without a question; `all` is every one. Skills are found in the "
            "folders of `setting_sources`."
        ),
    ] = ()
    file_checkpointing: Annotated[
        bool, Option("Whether Claude Code keeps copies of the files that it changes.")
    ] = False
    add_dirs: Annotated[
        tuple[str, ...],
        Option("More folders that its tools may use; only from the program or the user's file."),
    ] = ()
    sandbox: Annotated[
        dict[str, Any] | None,
        Option(
            "Claude Code's own sandbox, as its settings have it; only from the program or the "
            "user's file."
        ),
    ] = None
    settings: Annotated[
        str | None,
        Option(
            "Settings of Claude Code as JSON, or a file of them; only from the program or the "
            "user's file, because they can run programs."
        ),
    ] = None
    plugins: Annotated[
        tuple[str, ...],
        Option("Folders of plugins, which can run programs; only from those, too."),
    ] = ()
    extra_args: Annotated[
        dict[str, str | None],
        Option(
            "More flags of the program without their dashes, None for one without a value; only "
            "from those, too."
        ),
    ] = msgspec.field(default_factory=dict)
    max_retries: Annotated[
        int,
        Option(
            "Repeats of a failed request inside Claude Code; each 401 is repeated, too.",
            least=0,
            most=10,
        ),
    ] = 2
    turn_send_timeout: Annotated[
        float | None,
        Option(
            "Seconds until a prompt must be taken; it fails only its own query. None: any.",
            least=0.001,
            variable="TURN_SEND_TIMEOUT",
        ),
    ] = 60.0
    turn_result_timeout: Annotated[
        float | None,
        Option(
            "Seconds until a query must be answered; after that its process is ended. None: any.",
            least=0.001,
            variable="TURN_RESULT_TIMEOUT",
        ),
    ] = None
