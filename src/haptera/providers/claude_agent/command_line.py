"""The command line and the environment of the Claude Code CLI."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.json_types import JsonObject
from haptera.model.native_settings import ClaudeAgentSettings
from haptera.model.settings import Settings
from haptera.model.vendors import CLAUDE_AGENT
from haptera.ports.native_agent import NativeOpening
from haptera.providers.claude_agent.frames import OWN_SERVER

ALLOWED_VARIABLES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "LANG", "LANGUAGE", "TMPDIR"),
        *("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
        *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"),
        *("ANTHROPIC_CUSTOM_HEADERS", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR"),
    }
)
"""What the CLI gets of the process's own environment; also every `LC_…`."""

FIXED_VARIABLES = {
    "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
    "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "ENABLE_TOOL_SEARCH": "false",
}
"""No telemetry, no updates; it says when it is at rest, and its model sees our tools at once."""

_CREDENTIALS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
_OTHER_CLOUDS = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
_MODES = {
    "default": "default",
    "accept_edits": "acceptEdits",
    "plan": "plan",
    "dont_ask": "dontAsk",
}
_BLANK_LINE = "\n\n"
_EFFORTS = {"minimal": "low"}
"""Where the CLI has no word of its own for how much a model thinks."""


def clean_environment(
    variables: Mapping[str, str], settings: ClaudeAgentSettings, own: Mapping[str, str]
) -> dict[str, str]:
    """Return all that the CLI gets: what is allowed, what we set, and what the user adds."""
    allowed = {
        name: value
        for name, value in variables.items()
        if name in ALLOWED_VARIABLES or name.startswith("LC_")
    }
    fixed = {**FIXED_VARIABLES, "CLAUDE_CODE_MAX_RETRIES": str(settings.max_retries)}
    if settings.file_checkpointing:
        fixed["CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING"] = "true"
    return {**allowed, **fixed, **own, **settings.env}


def config_folder(environment: Mapping[str, str]) -> Path:
    """Return where the CLI keeps its transcripts and its login."""
    folder = environment.get("CLAUDE_CONFIG_DIR")
    return Path(folder) if folder else Path(environment.get("HOME") or Path.home()) / ".claude"


def refuse_missing_credentials(environment: Mapping[str, str], *, platform: str) -> None:
    """Raise CONFIG_MISSING where the CLI has nothing to sign in with.

    On macOS a login is kept in the keychain, where we do not look.
    """
    if any(environment.get(name) for name in (*_CREDENTIALS, *_OTHER_CLOUDS)):
        return
    if platform == "darwin" or (config_folder(environment) / ".credentials.json").exists():
        return
    raise ConfigError(
        ErrorCode.CONFIG_MISSING,
        f"{CLAUDE_AGENT} has no credentials: set ANTHROPIC_API_KEY or pass api_key",
        provider=CLAUDE_AGENT,
    )


def command_line(
    executable: str,
    opening: NativeOpening,
    settings: ClaudeAgentSettings,
    *,
    mcp_servers: Mapping[str, Any],
    session_id: str | None,
    mirrors: bool,
) -> tuple[str, ...]:
    """Return the command of one session.

    Raises:
        ConfigError: CONFIG_INVALID when no model is named.

    """
    if not opening.model.strip():
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"{CLAUDE_AGENT} needs a model, as in '{CLAUDE_AGENT}/claude-sonnet-5'",
            provider=CLAUDE_AGENT,
        )
    streams = ["--output-format", "stream-json", "--input-format", "stream-json", "--verbose"]
    return (
        executable,
        *streams,
        "--include-partial-messages",
        # In one word, as all that comes from outside: it is never taken for another option.
        f"--model={opening.model}",
        *_permissions(opening, settings),
        *_words(opening.settings, settings),
        # In one word, because the list may be empty, which means no source at all.
        f"--setting-sources={','.join(settings.setting_sources)}",
        *_own_options(settings),
        *_servers(mcp_servers),
        *_session(opening, session_id),
        *(("--session-mirror",) if mirrors else ()),
        # Last: what the user adds wins.
        *(
            f"--{name}" if value is None else f"--{name}={value}"
            for name, value in settings.extra_args.items()
        ),
    )


def _permissions(opening: NativeOpening, settings: ClaudeAgentSettings) -> list[str]:
    command = ["--permission-prompt-tool", "stdio"]
    if settings.bypass_permissions:
        command += ["--permission-mode", "bypassPermissions", "--dangerously-skip-permissions"]
    else:
        command += ["--permission-mode", _MODES[settings.permission_mode]]
    own = {tool.name for tool in opening.tools}
    wanted, denied = opening.settings.allowed_tools, opening.settings.denied_tools
    if wanted is not None:
        # In one word, as they come from settings; the list may be empty, which means no tool.
        command.append(f"--tools={','.join(name for name in wanted if name not in own)}")
    preapproved = [*settings.preapproved_tools]
    preapproved += ["Skill" if name == "all" else f"Skill({name})" for name in settings.skills]
    if own:
        preapproved.append(f"mcp__{OWN_SERVER}")  # their approvals are ours
    if preapproved:
        command.append(f"--allowedTools={','.join(preapproved)}")
    if refused := [name for name in denied if name not in own]:
        command.append(f"--disallowedTools={','.join(refused)}")
    return command


def _words(settings: Settings, native: ClaudeAgentSettings) -> list[str]:
    command: list[str] = []
    if settings.system_prompts:
        flag = "--append-system-prompt" if native.append_system_prompt else "--system-prompt"
        command.append(f"{flag}={_BLANK_LINE.join(settings.system_prompts)}")
    if settings.thinking == "off":
        command += ["--thinking", "disabled"]
    elif settings.thinking is not None:
        command += ["--effort", _EFFORTS.get(settings.thinking, settings.thinking)]
    if settings.limits.turns is not None:
        command += ["--max-turns", str(settings.limits.turns)]
    return command


def _own_options(settings: ClaudeAgentSettings) -> list[str]:
    """Return what Claude Code is told as it is, each in one word."""
    command = [f"--add-dir={folder}" for folder in settings.add_dirs]
    command += [f"--plugin-dir={folder}" for folder in settings.plugins]
    if settings.max_budget_usd is not None:
        command.append(f"--max-budget-usd={settings.max_budget_usd:g}")
    if settings.fallback_model is not None:
        command.append(f"--fallback-model={settings.fallback_model}")
    if settings.betas:
        command.append(f"--betas={','.join(settings.betas)}")
    if (text := _settings_text(settings)) is not None:
        command.append(f"--settings={text}")
    return command


def _settings_text(settings: ClaudeAgentSettings) -> str | None:
    """Return the settings with the sandbox in them; a file is read only to put that in.

    Raises:
        ConfigError: CONFIG_INVALID when they cannot be read.

    """
    given_settings = settings.settings
    if settings.sandbox is None:
        return given_settings
    try:
        text = (given_settings or "{}").strip()
        if not text.startswith("{"):
            text = Path(text).expanduser().read_text(encoding="utf-8-sig")
        fields = msgspec.json.decode(text, type=dict[str, Any])
    except (OSError, ValueError) as error:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"claude_agent.settings cannot be read: {error}",
            provider=CLAUDE_AGENT,
        ) from error
    return msgspec.json.encode({**fields, "sandbox": settings.sandbox}).decode()


def _servers(servers: Mapping[str, Any]) -> Sequence[str]:
    if not servers:
        return ()
    plain: JsonObject = {
        # The instance of a server in this process is an object, which the package talks to itself.
        name: {key: value for key, value in server.items() if key != "instance"}
        for name, server in servers.items()
    }
    return ("--mcp-config", msgspec.json.encode({"mcpServers": plain}).decode())


def _session(opening: NativeOpening, session_id: str | None) -> list[str]:
    # `--flag=value`: a value that begins with a dash is never taken for another flag.
    command = [f"--resume={opening.resume}"] if opening.resume else []
    if opening.resume and opening.fork:
        command.append("--fork-session")
    if session_id is not None:
        command.append(f"--session-id={session_id}")
    return command
