"""Arguments before environment before file before defaults, for every kind of value."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera.access.config.environment import Environment
from haptera.access.config.file import ConfigFile, parse_config
from haptera.access.config.resolution import Resolved, fallback_plan, model_named, resolve
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.settings import Limits, ModelStep, RuntimeSettings, Settings
from haptera.options.merging import merged_tables

FILE = """
[defaults]
model = "quick"
thinking = "low"
max_tokens = 100
limits = { turns = 5, cost = 1 }

[models.quick]
model = "groq/llama"
thinking = "off"

[models.deep]
model = "openai/gpt-5"
thinking = "high"
limits = { seconds = 60 }

[fallbacks]
deep = ["quick", "openai/gpt-5", { model = "anthropic/claude", thinking = "max" }]
default = ["deep"]
"""


def resolved(
    variables: dict[str, str] | None = None, *, text: str = FILE, **arguments: object
) -> Resolved:
    return resolve(arguments, environment=Environment(variables or {}), file=parse_config(text))


def test_without_anything_the_defaults_hold() -> None:
    found = resolve({}, environment=Environment({}), file=ConfigFile())
    assert (found.settings, found.runtime) == (Settings(), RuntimeSettings())
    assert found.agent.owner == "local"
    assert found.origin_of("model") == "default"


def test_each_layer_covers_the_one_below() -> None:
    found = resolved({"HAPTERA_MAX_TOKENS": "200"})
    assert (found.settings.max_tokens, found.origin_of("max_tokens")) == (200, "environment")
    found = resolved({"HAPTERA_MAX_TOKENS": "200"}, max_tokens=300)
    assert (found.settings.max_tokens, found.origin_of("max_tokens")) == (300, "argument")
    found = resolved()
    assert (found.settings.max_tokens, found.origin_of("max_tokens")) == (100, "file")


def test_a_short_name_brings_its_own_settings() -> None:
    found = resolved()
    assert (found.settings.model, found.settings.thinking) == ("groq/llama", "off")
    assert found.alias is not None
    deep = resolved(model="deep")
    assert (deep.settings.model, deep.settings.thinking) == ("openai/gpt-5", "high")
    assert deep.settings.limits == Limits(turns=5, cost=1, seconds=60)


def test_settings_of_a_short_name_give_way_to_the_environment_and_arguments() -> None:
    assert resolved({"HAPTERA_THINKING": "max"}, model="deep").settings.thinking == "max"
    assert resolved(model="deep", thinking="minimal").settings.thinking == "minimal"


def test_a_full_name_brings_no_settings_of_a_short_one() -> None:
    found = resolved(model="openai/gpt-5")
    assert (found.settings.thinking, found.alias) == ("low", None)


def test_an_argument_can_be_none_on_purpose() -> None:
    assert resolved(cache_ttl=None).settings.cache_ttl is None
    assert resolved().settings.cache_ttl == "5m"


def test_a_table_is_merged_and_a_whole_value_replaces() -> None:
    assert resolved(limits={"turns": 9}).settings.limits == Limits(turns=9, cost=1)
    found = resolved(limits=Limits(turns=9))
    assert found.settings.limits == Limits(turns=9)
    assert found.origins["limits"] == "argument"
    assert "limits.cost" not in found.origins


def test_a_plan_is_found_by_short_name_full_name_and_default() -> None:
    file = parse_config(FILE)
    after_deep = (
        ModelStep(model="groq/llama", thinking="off"),
        ModelStep(model="anthropic/claude", thinking="max"),
    )
    assert fallback_plan("deep", file) == after_deep
    assert fallback_plan("mistral/large", file) == (
        ModelStep(model="openai/gpt-5", thinking="high"),
    )
    assert resolved(fallbacks=()).settings.fallbacks == ()
    own = (ModelStep(model="xai/grok"),)
    assert resolved(fallbacks=own).settings.fallbacks == own


@pytest.mark.parametrize(
    "step",
    [
        *(f'{{ model = "p/m", max_attempts = {number} }}' for number in (-1, 0, 1, 100, 101)),
        *(f'{{ model = "p/m", thinking = "{word}" }}' for word in ("max", "hard")),
        *('{ model = "p/m", tries = 1 }', "{ max_attempts = 1 }", "{ model = 3 }"),
    ],
)
def test_a_step_of_a_plan_is_judged_alike_in_the_file_and_in_the_program(step: str) -> None:
    def outcome(text: str, **arguments: Any) -> object:
        try:
            return resolved(text=text, model="p/q", **arguments).settings.fallbacks
        except ConfigError as error:
            return error.message.rpartition("]")[2]

    value = tomllib.loads(f"step = {step}")["step"]
    assert outcome(f"[fallbacks]\ndefault = [{step}]") == outcome("", fallbacks=[value])


def test_a_plan_with_an_unknown_short_name_points_to_its_line() -> None:
    text = "[models.deep]\nmodel = 'p/m'\n[fallbacks]\ndefault = [\n'p/x',\n'dep']"
    with pytest.raises(ConfigError, match=r"line 6: fallbacks.default\[1\].*did you mean 'deep'"):
        resolved(text=text, model="p/q")


def test_an_unknown_model_of_the_project_points_to_the_line_of_its_file() -> None:
    users = parse_config(FILE, path=Path("users.toml"))
    project = parse_config("\n\n[defaults]\n\nmodel = 'quik'", path=Path("project.toml"))
    with pytest.raises(ConfigError, match=r" project.toml, line 5: defaults.model: .* 'quick'"):
        resolve({}, environment=Environment({}), file=users, project=project)


def test_a_model_without_a_provider_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"'quik' is neither .* did you mean 'quick'") as caught:
        resolved(model="quik")
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert model_named("quick", parse_config(FILE)) == "groq/llama"
    for name in ("/x", "x/", "x"):
        with pytest.raises(ConfigError, match="provider/model"):
            model_named(name, ConfigFile())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"thinkng": "low"}, "thinkng: unknown; did you mean 'thinking'?"),
        ({"thinking": "hard"}, "thinking: 'hard' is not allowed; use 'off'"),
        ({"limits": {"turns": 0}}, "limits.turns: must be at least 1, not 0"),
        ({"limits": Limits(turns=-1)}, "limits.turns: must be at least 1, not -1"),
        ({"limits": {"turn": 1}}, "limits.turn: unknown; did you mean 'turns'?"),
        ({"fallbacks": [{"model": 3}]}, "fallbacks[0].model: Expected `str`, got `int`"),
        ({"buffer_size": "big"}, "buffer_size: Expected `int`, got `str`"),
        ({"owner": None}, "owner: Expected `str`, got `None`"),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolved(**arguments)  # type: ignore[arg-type]
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("HAPTERA_THINKING", "hard", "HAPTERA_THINKING: 'hard' is not allowed; use"),
        ("HAPTERA_MAX_TOKENS", "-9", "HAPTERA_MAX_TOKENS: must be at least 0, not -9"),
        ("HAPTERA_CONNECT_TIMEOUT", "-1", "HAPTERA_CONNECT_TIMEOUT: must be at least 0.001"),
        ("HAPTERA_PERMISSION_MODE", "yolo", "HAPTERA_PERMISSION_MODE: 'yolo' is not allowed"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolved({name: value})
    assert message in caught.value.message


def test_places_are_no_settings() -> None:
    found = resolved({"HAPTERA_CONFIG_DIR": "/x", "HAPTERA_HOME": "/y"})
    assert not {"config_dir", "config_path", "home"} & found.origins.keys()


tables = st.recursive(
    st.integers(),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3),
    max_leaves=8,
)
layers = st.dictionaries(st.sampled_from("abc"), tables, max_size=3)


def leaves(values: dict[str, Any], inside: tuple[str, ...] = ()) -> dict[tuple[str, ...], int]:
    found: dict[tuple[str, ...], int] = {}
    for name, value in values.items():
        path = (*inside, name)
        found |= leaves(value, path) if isinstance(value, dict) else {path: value}
    return found


@given(layers, layers)
def test_what_lies_above_is_seen_whole_and_what_lies_below_where_nothing_covers_it(
    below: dict[str, Any], above: dict[str, Any]
) -> None:
    seen, over = leaves(merged_tables(below, above)), leaves(above)
    assert over.items() <= seen.items()
    covered = {path[:length] for path in over for length in range(1, len(path) + 1)}
    for path, value in leaves(below).items():
        prefixes = {path[:length] for length in range(1, len(path) + 1)}
        if not prefixes & over.keys() and path not in covered:
            assert seen[path] == value
