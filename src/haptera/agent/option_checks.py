"""Options of agents, sessions and queries as they were given, and what each of them is for.

What is derived here from the declarations: where an option belongs that was given elsewhere, what
configuration decides about, and which part of an agent an option is for.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import msgspec

from haptera.access.assembly.agent_inputs import AgentOptions, ObserverOptions, OwnAccess
from haptera.agent.agent_options import AGENT, CONFIGURE, OTHER_NAMES
from haptera.agent.keywords import AgentKeywords, CreateSessionKeywords, OneCallKeywords
from haptera.agent.query_options import CREATE_SESSION, QUERY, SESSION
from haptera.kernel.session.session_descriptions import NamedSettings
from haptera.model.agent_defaults import AgentDefaults
from haptera.model.approvals import DecisionT, check_decision
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.json_types import JsonObject, built_in_value, plain_value, writable
from haptera.model.secrets import Secret
from haptera.model.settings import Settings
from haptera.options.checks import StructT, check, filled
from haptera.options.declarations import Taken, declared_fields, options_of
from haptera.options.wording import did_you_mean

if TYPE_CHECKING:
    from haptera.access.config.resolution import Resolved

_FUNCTIONS: dict[str, Taken] = {
    "session.configure()": CONFIGURE,
    "Agent()": AGENT,
    "agent.session()": SESSION,
    "session.chat()": QUERY,
    "create_agent_session()": CREATE_SESSION,
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


def check_options(given: Mapping[str, object], taken: Taken, *, function: str) -> None:
    """Refuse options that a function does not have, and values that cannot be meant.

    Each call is checked once, by the function that a program calls.

    Raises:
        UnknownOptionError: saying where each of them belongs, or what may be meant.
        ConfigError: CONFIG_INVALID naming the option whose value is wrong.

    """
    check(given, taken, function=function, elsewhere=partial(_where_it_belongs, function, taken))


def checked_options(given: Mapping[str, Any], kind: type[StructT], *, function: str) -> StructT:
    """Return the options of a function that takes those of one struct, checked and filled up.

    Raises:
        ConfigError: as `check_options`.

    """
    check_options(given, kind, function=function)
    return filled(given, kind)


def _where_it_belongs(function: str, taken: Taken, name: str) -> str | None:
    """Say where an option belongs that a function does not have, or what it is called here."""
    if (advice := _POSITIONAL.get((function, name))) is not None:
        return advice
    if (here := OTHER_NAMES.get(name)) is not None:
        meant = here.partition("=")[0]
        if meant in options_of(taken):
            return f"{name} is unknown; {did_you_mean([here])}"
        if (advice := _where_it_belongs(function, taken, meant)) is not None:
            return f"{name} is unknown; {advice}"
    # A field of a table of options, such as `turns` of `limits`.
    for option in AGENT.options.values():
        fields = declared_fields(option.struct) if option.struct is not None else {}
        if name in fields:
            return f"{name} is a field of the option {option.name}"
    functions = [place for place, taken in _FUNCTIONS.items() if name in options_of(taken)]
    if not functions:
        return None
    *others, last = (
        functions if len(functions) == 1 else functions[:-1]
    )  # the last one takes almost all
    return f"{name} is an option of {', '.join(others)}{' and ' if others else ''}{last}"


# Which part of an agent an option is for.


def hide_key(options: AgentKeywords | OneCallKeywords[Any] | CreateSessionKeywords) -> None:
    """Mask a key that was given as text: from here on no frame of ours shows it."""
    key = options.get("api_key")
    if isinstance(key, str) and key.strip():
        options["api_key"] = Secret(key)


def arguments_of(options: Mapping[str, object]) -> JsonObject:
    """Return what of an agent's options configuration decides about, as plain values."""
    arguments = settings_changes(options)
    plain = {name: value for name, value in options.items() if name in {*_FOR_AGENTS, "runtime"}}
    return arguments | {name: value for name, value in plain.items() if not _is_object(name, value)}


_FOR_AGENTS = frozenset(AgentDefaults.__struct_fields__)


def _is_object(name: str, value: object) -> bool:
    """Whether an option is an object that no file could name: a store."""
    return name == "store" and not isinstance(value, str)


def settings_changes(options: Mapping[str, object]) -> JsonObject:
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
            message = f"option {name!r} is not valid: {error}"
            raise ConfigError(ErrorCode.CONFIG_INVALID, message) from error
    return plain


@cache
def setting_names() -> Mapping[str, str]:
    """Return the fields of `Settings` by the names of their options."""
    return {
        name: declared.option.field
        for name, declared in CONFIGURE.options.items()
        if declared.option.of is Settings
    }


def named_settings(
    options: Mapping[str, object], checked: Callable[[JsonObject], JsonObject]
) -> NamedSettings:
    """Return the settings that a program names, as `checked` of a configuration has them.

    A table that is given as a mapping names its fields only; one of our own types names them all.

    Raises:
        ConfigError: CONFIG_INVALID naming the setting.

    """
    settings = {
        setting: value
        for name, value in options.items()
        if (setting := setting_names().get(name)) is not None
        and (value or setting != "model")  # without one, the model is found elsewhere
    }
    if not settings:
        return NamedSettings()
    named = {name: value for name, value in settings_changes(options).items() if name in settings}
    changed = checked(named)
    converted = msgspec.convert(changed, Settings)
    normal = {name: plain_value(getattr(converted, name)) for name in changed}
    values = {
        # Taken from the checked table, so that its values are as the settings have them.
        name: {key: normal[name][key] for key in value}
        if isinstance(value := settings.get(name), Mapping)
        else normal[name]
        for name in changed
        if name in settings
    }
    # What a short name of a model brings along, such as fallbacks: weaker than what is named.
    implied = {name: normal[name] for name in changed if name not in settings}
    return NamedSettings(values=values, implied=implied)


def _as_setting(name: str, value: object) -> object:
    """Return a value as its setting has it: short ways of writing are for options only."""
    if name == "system_prompt":
        return () if value is None else [value] if isinstance(value, str) else value
    if name == "fallbacks" and isinstance(value, list | tuple):
        return [{"model": step} if isinstance(step, str) else step for step in value]
    return value


def inputs_of(options: Mapping[str, Any], resolved: "Resolved") -> AgentOptions:
    """Return what an agent is made of: its checked options, and what configuration says."""
    around = filled(options, ObserverOptions)
    return msgspec.structs.replace(
        filled(options, AgentOptions),
        store=options.get("store", resolved.agent.store),
        around=msgspec.structs.replace(around, runtime=resolved.runtime),
        own_access=filled(options, OwnAccess),
    )


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
