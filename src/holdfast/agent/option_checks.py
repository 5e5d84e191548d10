"""Option checks: whether what a user handed in can be what was meant, before anything is built.

Everything here derives from the declarations of options: which names a door knows, which values
fit, what holds without them, and which part of an agent each of them is for.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.agent.agent_options import AgentOptions, SettingsOptions
from holdfast.agent.query_options import CreateSessionOptions, QueryOptions, SessionOptions
from holdfast.assembly.agent_inputs import AgentInputs, ConfigurationSources, OwnAccess
from holdfast.blocks.hook_dispatch.registration import Hooks
from holdfast.blocks.tool_registry.running import as_approver
from holdfast.session.session_descriptions import NamedSettings
from holdfast.vocabulary.agent_defaults import AgentDefaults
from holdfast.vocabulary.approvals import DecisionT, check_decision
from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.json_types import JsonObject, plain_value, writable
from holdfast.vocabulary.option_declarations import (
    Declared,
    DoorT,
    allowed_words,
    bounds_fault,
    declared_fields,
    declared_keys,
    help_of,
    showing,
    unknown_name,
    word_fault,
)
from holdfast.vocabulary.secrets import Secret
from holdfast.vocabulary.settings import Settings

if TYPE_CHECKING:
    from holdfast.assembly.configuration import Configuration
    from holdfast.config.resolution import Resolved

OptionsT = TypeVar("OptionsT", bound=Mapping[str, Any])

STORED_AS = {"system_prompt": "system_prompts"}
"""Options whose setting has another name: it holds several texts."""

_DOORS: dict[str, type] = {
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
"""What is not an option but an argument, by door and name."""


@cache
def options_of(kind: type) -> Mapping[str, Declared]:
    """Return the options that a TypedDict declares, those of the settings with their facts.

    Raises:
        TypeError: when an option has no sentence, or neither a default nor a setting that has one.
            This is a mistake in the declaration; it is found when the package is imported.

    """
    found = declared_keys(kind.__annotations__)
    for name, declared in found.items():
        if (setting := _SETTINGS.get(STORED_AS.get(name, name))) is not None:
            own = declared.option
            facts = msgspec.structs.replace(setting.option, fits=own.fits, wanted=own.wanted)
            found[name] = msgspec.structs.replace(declared, option=facts, default=setting.default)
        if not found[name].option.sentence or found[name].default is msgspec.UNSET:
            raise TypeError(f"the option {name!r} of {kind.__name__} is not fully declared")
    return found


_SETTINGS = declared_fields(AgentDefaults) | declared_fields(Settings)


def takes(kind: type) -> Callable[[DoorT], DoorT]:
    """Show the options of a TypedDict in the signature and the help of what takes them."""
    return showing(options_of(kind), _help_of(kind))


@cache
def _help_of(kind: type) -> str:
    return help_of(options_of(kind))


def check_options(options: OptionsT, kind: type[OptionsT], *, door: str) -> OptionsT:
    """Return options with their defaults; refuse what is unknown and what cannot be meant.

    What configuration decides (settings, store, owner, project, runtime) is not filled in here, and
    of that settings and runtime are not checked, either: configuration does both.

    Raises:
        TypeError: when the door has no such option; says where it belongs, or what may be meant.
        ConfigError: CONFIG_INVALID naming the option whose value is wrong.

    """
    known = check_names(options, kind, door=door)
    for name, value in options.items():
        _check_value(known[name], value)
    filled: Any = {**_defaults_of(kind), **options}
    for name, make in _makers_of(kind).items():
        if name not in options:
            filled[name] = make()
    checked: OptionsT = filled
    return checked


@cache
def _defaults_of(kind: type) -> Mapping[str, object]:
    """Return the options that configuration does not decide, with their defaults."""
    return {
        name: declared.default
        for name, declared in options_of(kind).items()
        if not _is_configured(name)
    }


@cache
def _makers_of(kind: type) -> Mapping[str, Callable[[], object]]:
    """Return the options among these whose default is made anew for each call."""
    made = {name: options_of(kind)[name].option.make for name in _defaults_of(kind)}
    return {name: make for name, make in made.items() if make is not None}


def check_names(options: Mapping[str, object], kind: type, *, door: str) -> Mapping[str, Declared]:
    """Refuse options that a door does not have; returns those that it has.

    Raises:
        TypeError: saying where each of them belongs, or what may be meant.

    """
    known = options_of(kind)
    if unknown := sorted(set(options) - set(known)):
        told = "; ".join(_POSITIONAL.get((door, name)) or _unknown(name, known) for name in unknown)
        raise TypeError(f"{door}: {told}")
    return known


def _unknown(name: str, known: Mapping[str, Declared]) -> str:
    """Say where a name belongs that a door does not know."""
    for option in options_of(AgentOptions).values():
        fields = declared_fields(option.struct) if option.struct is not None else {}
        if name in fields:
            return f"{name} is a field of the option {option.name}"
    doors = [door for door, kind in _DOORS.items() if name in options_of(kind)]
    if not doors:
        return f"{name} is {unknown_name(name, known)}"
    *others, last = doors if len(doors) == 1 else doors[:-1]  # the last one takes almost all
    return f"{name} is an option of {', '.join(others)}{' and ' if others else ''}{last}"


def _is_configured(name: str) -> bool:
    """Whether configuration decides an option: what was given is only the strongest of several."""
    return name == "runtime" or STORED_AS.get(name, name) in _CONFIGURED


_OF_SESSIONS = frozenset(Settings.__struct_fields__)
_CONFIGURED = _OF_SESSIONS.union(AgentDefaults.__struct_fields__)


def _check_value(declared: Declared, value: object) -> None:
    said = declared.option
    if said.fits is not None:
        if not said.fits(value):
            raise _invalid(declared.name, f"must be {said.wanted}, not {type(value).__name__}")
        return
    if STORED_AS.get(declared.name, declared.name) in _OF_SESSIONS:
        return
    if (words := allowed_words(declared.kind)) and isinstance(value, str) and value not in words:
        raise _invalid(declared.name, f"is not valid: {word_fault(value, words)}")
    try:
        msgspec.convert(msgspec.to_builtins(value), declared.kind)
    except (msgspec.ValidationError, TypeError) as error:
        raise _invalid(declared.name, f"is not valid: {error}") from error
    if (fault := bounds_fault(value, said)) is not None:
        raise _invalid(declared.name, fault)


def _invalid(name: str, why: str) -> ConfigError:
    return ConfigError(ErrorCode.CONFIG_INVALID, f"option {name!r} {why}")


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
        setting = STORED_AS.get(name, name)
        if setting not in _OF_SESSIONS:
            continue
        try:
            plain[setting] = msgspec.to_builtins(_as_setting(name, value))
            msgspec.json.encode(plain[setting])
        except (TypeError, UnicodeEncodeError) as error:
            raise _invalid(name, f"is not valid: {error}") from error
    return plain


def named_settings(options: SettingsOptions, configuration: "Configuration") -> NamedSettings:
    """Return the settings that a program names, checked, with short names of models replaced.

    A table that is given as a mapping names its fields only; one of our own types names them all.

    Raises:
        ConfigError: CONFIG_INVALID naming the setting.

    """
    given = {
        setting: value
        for name, value in options.items()
        if (setting := STORED_AS.get(name, name)) in _OF_SESSIONS
        and (value or setting != "model")  # without one, the model is found elsewhere
    }
    if not given:
        return NamedSettings()
    named = {name: value for name, value in settings_changes(options).items() if name in given}
    changed = configuration.changed(named)
    normal = plain_value(msgspec.convert(changed, Settings))
    values = {
        name: {key: normal[name][key] for key in value}
        if isinstance(value := given.get(name), Mapping)
        else normal[name]
        for name in changed
        if name in given
    }
    implied = {name: normal[name] for name in changed if name not in given}
    return NamedSettings(values=values, implied=implied)


def _as_setting(name: str, value: object) -> object:
    """Return a value as its setting has it: short ways of writing are for options only."""
    if name == "system_prompt":
        return [value] if isinstance(value, str) else value or ()
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


def check_subscription(kind: object, handler: object) -> None:
    """Refuse a subscription that could never be served.

    Raises:
        ConfigError: CONFIG_INVALID when the kind is no class or the handler no function.

    """
    if not isinstance(kind, type):
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"pass the class of an event, such as TextDelta, not {kind!r}",
        )
    if not callable(handler):
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, f"a handler must be a function, not {handler!r}"
        )


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
    if not (isinstance(value, str) and value.strip()):
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"{of} must be text, not {value!r}")
    check_text(value, of=of)


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
