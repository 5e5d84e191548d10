"""Options of agents, sessions and queries as they were given, and what each of them is for.

What is derived here from the declarations: where an option belongs that was given elsewhere, what
configuration decides about, and which part of an agent an option is for.
"""

from collections.abc import Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import msgspec

from haptera.access.assembly.agent_inputs import AgentInputs, ConfigurationSources, OwnAccess
from haptera.agent.agent_options import OTHER_NAMES, AgentOptions, SettingsOptions
from haptera.agent.query_options import CreateSessionOptions, QueryOptions, SessionOptions
from haptera.kernel.blocks.hook_dispatch.registration import Hooks
from haptera.kernel.blocks.tool_registry.running import as_approver
from haptera.kernel.session.session_descriptions import NamedSettings
from haptera.model.agent_defaults import AgentDefaults
from haptera.model.approvals import DecisionT, check_decision
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.given_options import OptionsT, check_given, check_options
from haptera.model.json_types import JsonObject, built_in_value, plain_value, writable
from haptera.model.option_declarations import declared_fields, did_you_mean, options_of
from haptera.model.secrets import Secret
from haptera.model.settings import Settings

if TYPE_CHECKING:
    from haptera.access.assembly.configuration import Configuration
    from haptera.access.config.resolution import Resolved

_FUNCTIONS: dict[str, type] = {
    "session.configure()": SettingsOptions,
    "Agent()": AgentOptions,
    "agent.session()": SessionOptions,
    "session.chat()": QueryOptions,
    "create_agent_session()": CreateSessionOptions,
}
"""Where an option may be given, for the error of one that was given elsewhere."""


_POSITIONAL = {
    ("agent.session()", name): (
        f"{name} is the first argument, without its name: agent.session('ana-1'), where 'ana-1' is "
        "the name or the id of the session"
    )
    for name in ("name", "session_id", "id")
}
"""What is not an option but an argument, by function and name."""


def checked_options(options: OptionsT, kind: type[OptionsT], *, function: str) -> OptionsT:
    """Return options with their defaults, as `check_options`; an unknown one is told its place.

    Raises:
        UnknownOptionError: when the function has no such option; says where it belongs or what may
            be meant.
        ConfigError: CONFIG_INVALID naming the option whose value is wrong.

    """
    where = partial(_where_it_belongs, function, kind)
    return check_options(options, kind, function=function, elsewhere=where)


def refuse_wrong(options: Mapping[str, object], kind: type, *, function: str) -> None:
    """Refuse options that a function does not have, and values that cannot be meant.

    For a function that hands its options to another one, so that the error names the first.

    Raises:
        UnknownOptionError: saying where each of them belongs, or what may be meant.
        ConfigError: CONFIG_INVALID naming the option whose value is wrong.

    """
    check_given(
        options, kind, function=function, elsewhere=partial(_where_it_belongs, function, kind)
    )


def _where_it_belongs(function: str, kind: type, name: str) -> str | None:
    """Say where an option belongs that a function does not have, or what it is called here."""
    if (told := _POSITIONAL.get((function, name))) is not None:
        return told
    if (here := OTHER_NAMES.get(name)) is not None:
        meant = here.partition("=")[0]
        if meant in options_of(kind):
            return f"{name} is unknown; {did_you_mean([here])}"
        if (told := _where_it_belongs(function, kind, meant)) is not None:
            return f"{name} is unknown; {told}"
    # A field of a table of options, such as `turns` of `limits`.
    for option in options_of(AgentOptions).values():
        fields = declared_fields(option.struct) if option.struct is not None else {}
        if name in fields:
            return f"{name} is a field of the option {option.name}"
    functions = [function for function, kind in _FUNCTIONS.items() if name in options_of(kind)]
    if not functions:
        return None
    *others, last = (
        functions if len(functions) == 1 else functions[:-1]
    )  # the last one takes almost all
    return f"{name} is an option of {', '.join(others)}{' and ' if others else ''}{last}"


# Which part of an agent an option is for.


def hide_key(options: AgentOptions) -> None:
    """Mask a key that was given as text: from here on no frame of ours shows it."""
    key = options.get("api_key")
    if isinstance(key, str) and key.strip():
        options["api_key"] = Secret(key)


def arguments_of(options: AgentOptions) -> JsonObject:
    """Return what of an agent's options configuration decides about, as plain values."""
    arguments = settings_changes(options)
    given = {name: value for name, value in options.items() if name in {*_FOR_AGENTS, "runtime"}}
    return arguments | {name: value for name, value in given.items() if not _is_object(name, value)}


_FOR_AGENTS = frozenset(AgentDefaults.__struct_fields__)


def _is_object(name: str, value: object) -> bool:
    """Whether an option is an object that no file could name: a store."""
    return name == "store" and not isinstance(value, str)


def settings_changes(options: SettingsOptions) -> JsonObject:
    """Return the settings that options speak of, as plain JSON values.

    Raises:
        ConfigError: CONFIG_INVALID naming one that has no such values.

    """
    plain: JsonObject = {}
    for name, value in options.items():
        if (setting := setting_names().get(name)) is None:
            continue
        try:
            plain[setting] = built_in_value(_as_setting(name, value))
            # Encoded for the error alone: the setting is named now and not when it is stored.
            msgspec.json.encode(plain[setting])
        except (TypeError, UnicodeEncodeError) as error:
            told = f"option {name!r} is not valid: {error}"
            raise ConfigError(ErrorCode.CONFIG_INVALID, told) from error
    return plain


@cache
def setting_names() -> Mapping[str, str]:
    """Return the fields of `Settings` by the names of their options."""
    return {
        name: declared.option.field
        for name, declared in options_of(AgentOptions).items()
        if declared.option.of is Settings
    }


def named_settings(options: SettingsOptions, configuration: "Configuration") -> NamedSettings:
    """Return the settings that a program names, checked, with short names of models replaced.

    A table that is given as a mapping names its fields only; one of our own types names them all.

    Raises:
        ConfigError: CONFIG_INVALID naming the setting.

    """
    given = {
        setting: value
        for name, value in options.items()
        if (setting := setting_names().get(name)) is not None
        and (value or setting != "model")  # without one, the model is found elsewhere
    }
    if not given:
        return NamedSettings()
    named = {name: value for name, value in settings_changes(options).items() if name in given}
    changed = configuration.changed(named)
    converted = msgspec.convert(changed, Settings)
    normal = {name: plain_value(getattr(converted, name)) for name in changed}
    values = {
        # Taken from the checked table, so that its values are as the settings have them.
        name: {key: normal[name][key] for key in value}
        if isinstance(value := given.get(name), Mapping)
        else normal[name]
        for name in changed
        if name in given
    }
    # What a short name of a model brings along, such as fallbacks: weaker than what is named.
    implied = {name: normal[name] for name in changed if name not in given}
    return NamedSettings(values=values, implied=implied)


def _as_setting(name: str, value: object) -> object:
    """Return a value as its setting has it: short ways of writing are for options only."""
    if name == "system_prompt":
        return () if value is None else [value] if isinstance(value, str) else value
    if name == "fallbacks" and isinstance(value, list | tuple):
        return [{"model": step} if isinstance(step, str) else step for step in value]
    return value


def inputs_of(options: AgentOptions, resolved: "Resolved") -> AgentInputs:
    """Pick what an agent is made of from its checked options, and from what configuration says."""
    approver = options["approver"]
    return AgentInputs(
        **{
            **pick(options, AgentInputs),
            "tools": () if options["tools"] is None else options["tools"],
            "store": options.get("store", resolved.agent.store),
            "runtime": resolved.runtime,
            "approver": None if approver is None else as_approver(approver),
            "hooks": Hooks() if options["hooks"] is None else options["hooks"],
            "own_access": OwnAccess(**pick(options, OwnAccess)),
        }
    )


def sources_of(options: AgentOptions) -> ConfigurationSources:
    """Pick where configuration is looked for from an agent's checked options."""
    return ConfigurationSources(**pick(options, ConfigurationSources))


def pick(options: Mapping[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return those options that are fields of a struct."""
    return {name: value for name, value in options.items() if name in kind.__struct_fields__}


# Arguments that are no options.


def check_reference(reference: object) -> None:
    """Refuse what cannot be the name or the id of a session.

    Raises:
        ConfigError: CONFIG_INVALID when it is no text, or blank.

    """
    if reference is not None:
        check_id(reference, of="a session's name or id")


def check_id(value: object, *, of: str) -> None:
    """Refuse what cannot name anything.

    Raises:
        ConfigError: CONFIG_INVALID when it is no text, blank, or text that no store can keep.

    """
    check_text(value, of=of)
    if not str(value).strip():
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"{of} must not be empty")


def check_text(text: object, *, of: str) -> None:
    """Refuse what is no text, and text that no store can keep.

    Raises:
        ConfigError: CONFIG_INVALID naming whose text it is.

    """
    if not isinstance(text, str):
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"{of} must be text, not {text!r}")
    if writable(text) != text:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"{of} contains half of a surrogate pair, which cannot be stored: {text!r}",
        )


def decided(decision: DecisionT) -> DecisionT:
    """Return a decision about a tool call, checked, and with words that can be written.

    Raises:
        ConfigError: CONFIG_INVALID saying what is wrong with it.

    """
    mended = {
        name: writable(text)
        for name in ("reason", "by", "feedback")
        if isinstance(text := getattr(decision, name, None), str)
    }
    try:
        return check_decision(msgspec.structs.replace(decision, **mended))
    except ValueError as error:
        raise ConfigError(ErrorCode.CONFIG_INVALID, str(error)) from error
