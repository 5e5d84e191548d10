"""Which value holds: arguments, else environment, project file, the user's file, defaults.

A pure function of what was handed in. Nested settings are merged field by field, except where an
argument is a whole value of ours: that one replaces what stood below it.
"""

from collections.abc import Mapping

import msgspec

from haptera.access.config.environment import PREFIX, Environment
from haptera.access.config.file import ConfigFile
from haptera.access.config.schema import ModelEntry
from haptera.model.agent_defaults import AgentDefaults
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.json_types import JsonObject, plain_value, python_words
from haptera.model.settings import ModelStep, PoolSettings, RuntimeSettings, Settings
from haptera.model.vendors import split_model
from haptera.options.checks import KeyPath, checked_table, dotted
from haptera.options.merging import Merged, ValueSource, check_values, merged, merged_tables
from haptera.options.wording import did_you_mean, meant_name


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """What holds, and where each value came from."""

    settings: Settings
    runtime: RuntimeSettings
    agent: AgentDefaults
    pool: PoolSettings
    """No argument of an agent sets these: an agent has no pool."""
    alias: ModelEntry | None = None
    """The entry of the chosen model, if it was chosen by its short name."""
    origins: dict[str, ValueSource]
    """By dotted path; what is not here is the default."""

    def origin_of(self, path: str) -> ValueSource:
        """Return where a value came from."""
        return self.origins.get(path, "default")


_NO_FILE = ConfigFile()


def resolve(
    arguments: Mapping[str, object],
    *,
    environment: Environment,
    file: ConfigFile,
    project: ConfigFile = _NO_FILE,
) -> Resolved:
    """Decide every setting. `project` is the trusted file of a project, which has only settings.

    `arguments` holds only what was given, under the names of the fields of `Settings`,
    `RuntimeSettings` and `AgentDefaults`; a `runtime` replaces the `RuntimeSettings` as a whole.

    Raises CONFIG_INVALID, naming the argument, the variable, or the file, line and field.
    """
    checked = check_arguments(arguments)
    runtime = checked.pop("runtime", None)
    variables = _checked_variables(environment)
    below = merged_tables(file.defaults, file.runtime)
    # The model first: which settings of the file hold depends on it, wherever it was chosen.
    name = next(
        (
            layer["model"]
            for layer in (checked, variables, project.defaults, below)
            if layer.get("model")
        ),
        "",
    )
    if name:
        _refuse_unknown_model(
            name, options=checked, variables=variables, project=project, file=file
        )
    _refuse_unknown_plans(file)
    alias = file.models.get(name)
    plan = fallback_plan(name, file)
    values = merged(
        [
            ("file", below),
            ("file", {"fallbacks": plan} if plan else {}),
            ("file", {} if alias is None else alias.settings),
            ("project", project.defaults),
            ("environment", variables),
            ("argument", checked),
        ]
    )
    if name:
        values.values["model"] = alias.model if alias is not None else _full_name(name, file)
    whole = values if runtime is None else Merged(values=runtime, origins={})
    return Resolved(
        settings=values.built(Settings),
        runtime=whole.built(RuntimeSettings),
        agent=values.built(AgentDefaults),
        pool=values.built(PoolSettings),
        alias=alias,
        origins=values.origins,
    )


def model_named(name: str, file: ConfigFile) -> str:
    """Return `provider/model` for a short name or itself; raises CONFIG_INVALID for neither."""
    alias = file.models.get(name)
    return alias.model if alias is not None else _full_name(name, file)


def fallback_plan(name: str, file: ConfigFile) -> tuple[ModelStep, ...]:
    """Return the models to go on with after `name`, short names replaced."""
    alias = file.models.get(name)
    model = name if alias is None else alias.model
    for key in (name, model, "default"):
        if (steps := file.fallbacks.get(key)) is not None:
            plan = [_step(step, (key, index), file) for index, step in enumerate(steps)]
            return tuple(step for step in plan if step.model != model)
    return ()


def _step(step: ModelStep, position: tuple[str, int], file: ConfigFile) -> ModelStep:
    alias = file.models.get(step.model)
    if alias is None and "/" not in step.model:
        path: KeyPath = ("fallbacks", *position)
        raise file.error(path, _unknown_model(step.model, file))
    if alias is None:
        return step
    thinking = step.thinking or alias.settings.get("thinking")
    return msgspec.structs.replace(step, model=alias.model, thinking=thinking)


def _refuse_unknown_model(
    name: str,
    *,
    options: JsonObject,
    variables: JsonObject,
    project: ConfigFile,
    file: ConfigFile,
) -> None:
    """Raise for a model that is none, naming where it was said."""
    if name in file.models or all(split_model(name)):
        return
    words = _unknown_model(name, file)
    if options.get("model"):
        raise ConfigError(ErrorCode.CONFIG_INVALID, words)
    if variables.get("model"):
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"{PREFIX}MODEL: {words}")
    said_in = project if project.defaults.get("model") else file
    raise said_in.error(("defaults", "model"), words)


def _refuse_unknown_plans(file: ConfigFile) -> None:
    """Raise for a plan that no model has, and for a step of any plan that is no model."""
    for name in file.fallbacks:
        if name != "default" and name not in file.models and not all(split_model(name)):
            raise file.error(("fallbacks", name), _unknown_model(name, file))
        fallback_plan(name, file)  # raises for its steps


def _full_name(name: str, file: ConfigFile) -> str:
    if all(split_model(name)):
        return name
    raise ConfigError(ErrorCode.CONFIG_INVALID, _unknown_model(name, file))


def _unknown_model(name: str, file: ConfigFile) -> str:
    provider, slash, model = name.partition("/")
    if slash and provider and not model:
        usual = [each for each in file.find_models(name) if each.startswith(name)]
        such_as = f", such as {usual[0]!r}" if usual else ""
        return f"{name!r} names a provider and no model; write it as 'provider/model'{such_as}"
    hint = meant_name(name, file.models)
    if not hint and (matching := file.find_models(name)):
        hint = f"; {did_you_mean(matching)}"
    return (
        f"the model {name!r} is neither written as 'provider/model' nor a short name of [models]"
        f"{hint}"
    )


def check_arguments(arguments: Mapping[str, object]) -> JsonObject:
    """Check what the caller gave, and return it; an error names the argument."""

    def complain(path: KeyPath, message: str) -> ConfigError:
        text = f"{dotted(path)}: {python_words(message)}"
        return ConfigError(ErrorCode.CONFIG_INVALID, text)

    values = dict(arguments)
    runtime = plain_value(values.pop("runtime", {}))
    check_values(values, (Settings, RuntimeSettings, AgentDefaults), complain=complain)
    checked_table(runtime, RuntimeSettings, at=("runtime",), complain=complain)
    return values | ({"runtime": runtime} if "runtime" in arguments else {})


def _checked_variables(environment: Environment) -> JsonObject:
    """Check what the environment says; an error names the variable."""

    def complain(path: KeyPath, message: str) -> ConfigError:
        variables = environment.options()
        steps = [str(step) for step in path if isinstance(step, str)]
        named = (variables.get(".".join(steps[:length])) for length in range(len(steps), 0, -1))
        variable = next((name for name in named if name), PREFIX + "…")
        return ConfigError(ErrorCode.CONFIG_INVALID, f"{variable}: {message}")

    values = environment.values()
    kinds = (Settings, RuntimeSettings, AgentDefaults, PoolSettings)
    check_values(values, kinds, complain=complain)
    return values
