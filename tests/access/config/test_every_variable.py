"""Every variable of ours takes a value of its option's type, and refuses one of another."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest

from haptera import Agent, ConfigError, ErrorCode
from haptera.access.assembly.agent_inputs import ConfigurationSources
from haptera.access.config.environment import PREFIX, VARIABLES
from haptera.access.configured import describe_configuration
from haptera.options.declarations import Declared, allowed_words

TEXTS = {"MODEL": "openai/gpt-5", "TITLE_MODEL": "openai/gpt-5", "STORE": "jsonl:chats"}
"""Values of the options whose text must have a form."""


@pytest.fixture(autouse=True)
def _level_of_the_log() -> Iterator[None]:
    logger = logging.getLogger("haptera")
    before = logger.level
    yield
    logger.setLevel(before)


def types_of(declared: Declared) -> set[Any]:
    """Return the types that an option may have, a list as `tuple`."""
    union = get_args(declared.kind)
    kinds = (declared.kind,) if get_origin(declared.kind) is tuple or not union else union
    return {get_origin(kind) or kind for kind in kinds} - {type(None)}


def fitting(name: str, declared: Declared) -> list[tuple[str, object]]:
    """Return texts that fit an option, and what each comes to; none of it is the default."""
    if words := allowed_words(declared.kind):
        word = next(word for word in words if word != declared.default)
        return [(word, word)]
    (kind,) = types_of(declared)
    if kind is bool:
        words = ("false", "0", "no", "OFF") if declared.default else ("True", "1", "YES", "on")
        return [(word, not declared.default) for word in words]
    if kind in {int, float}:
        return [("3", 3), (" 4 ", 4)] if kind is int else [("3", 3.0), ("2.5", 2.5)]
    if kind is tuple:
        return [("one, two", ("one, two",) if declared.option.whole else ("one", "two"))]
    assert kind is str, f"no text is known that fits {declared.kind}"
    text = TEXTS.get(name, "some text")
    return [(text, text)]


def unfitting(declared: Declared) -> list[tuple[str, str]]:
    """Return texts that do not fit an option, and what is said of each; any text is a text."""
    if allowed := allowed_words(declared.kind):
        no_text = ("\udcff", f" must be one of {', '.join(allowed)}, not '\\udcff'")
        return [("no-such-word", ": 'no-such-word' is not allowed"), no_text]
    (kind,) = types_of(declared)
    if kind is bool:
        words = "true, 1, yes, on or false, 0, no, off"
        return [(text, f" must be {words}, not '{text}'") for text in ("maybe", "2", "None")]
    if kind is int:
        return [(text, f" must be a whole number, not '{text}'") for text in ("many", "7.5")]
    if kind is float:
        return [("much", " must be a number, not 'much'"), ("nan", ": must be a finite number")]
    return []


FITTING = [
    (name, text, value)
    for name, variable in VARIABLES.items()
    for text, value in fitting(name, variable.declared)
]
UNFITTING = [
    (name, text, told)
    for name, variable in VARIABLES.items()
    for text, told in unfitting(variable.declared)
]


@pytest.mark.parametrize(("name", "text", "value"), FITTING)
def test_a_variable_sets_its_option(name: str, text: str, value: object, tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), PREFIX + name: text}
    Agent("scripted/m", environment=environment, cwd=tmp_path)
    found = describe_configuration(ConfigurationSources(environment=environment, cwd=tmp_path))
    (held,) = (each for each in found if each.name == VARIABLES[name].path)
    assert (held.value, held.origin) == (value, "environment")


@pytest.mark.parametrize(("name", "text", "told"), UNFITTING)
def test_a_value_of_another_type_names_its_variable(
    name: str, text: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        Agent("scripted/m", environment={PREFIX + name: text}, cwd=tmp_path)
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert caught.value.message.startswith(f"{PREFIX}{name}{told}")


def test_every_type_of_an_option_was_tried() -> None:
    tried = set().union(*(types_of(variable.declared) for variable in VARIABLES.values()))
    assert {bool, int, float, str, tuple} <= tried
