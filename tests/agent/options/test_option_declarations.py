"""An option is declared once: checks, defaults, signatures, help and tables derive from it."""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, get_args

import msgspec
import pytest

from haptera import Agent, ConfigError, ErrorCode
from haptera.access.assembly.agent_inputs import (
    AgentOptions,
    ConfigurationSources,
    ObserverOptions,
    OwnAccess,
)
from haptera.access.config.environment import Variable
from haptera.agent.agent_options import AGENT, CONFIGURE
from haptera.agent.option_checks import setting_names
from haptera.agent.query_options import QUERY
from haptera.model.agent_defaults import AgentDefaults
from haptera.model.operations.operation import Operation
from haptera.model.option import Option
from haptera.model.settings import PoolSettings, RuntimeSettings, Settings
from haptera.options.checks import UnknownOptionError, check, checked_table, filled
from haptera.options.declarations import Declared, Keywords, declared_fields
from haptera.options.operations import given_fields
from haptera.options.signatures import takes
from scripts import write_option_tables
from scripts.write_option_tables import option_table, variable_table
from tests.docs.test_options_page import declared_structs, structs_in
from tests.scripted_agents import make_agent

# A made-up option.


class PaintedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a query could be told if answers had colours."""

    colour: Annotated[Literal["red", "blue"], Option("What the answer is painted in.")] = "red"
    coats: Annotated[int, Option("How often it is painted.", least=1)] = 1


PAINTED = Keywords(structs=(*QUERY.structs, PaintedOptions), configured=QUERY.configured)


def test_an_option_that_is_added_is_checked_filled_in_shown_and_written_down() -> None:
    @takes(PAINTED)
    def paint(prompt: str, **options: Any) -> str:
        """Paint an answer."""
        check(options, PAINTED, function="paint()")
        return f"{prompt} {filled(options, PaintedOptions).colour}"

    assert (paint("go"), paint("go", colour="blue")) == ("go red", "go blue")
    with pytest.raises(ConfigError, match="option 'colour' is not valid"):
        paint("go", colour="green")
    with pytest.raises(ConfigError, match="option 'coats' must be at least 1, not 0"):
        paint("go", coats=0)
    with pytest.raises(TypeError, match="color is unknown; did you mean 'colour'"):
        paint("go", color="red")
    assert inspect.signature(paint).parameters["colour"].default == "red"
    told = """colour ("red" | "blue"): What the answer is painted in. Default: 'red'."""
    assert told in (paint.__doc__ or "")
    row = '| `colour` | `"red" \\| "blue"` | `\'red\'` | What the answer is painted in. |'
    assert row in option_table(PAINTED.options.values())


class Painted(Settings, frozen=True, kw_only=True):
    """Settings with one that is made up."""

    coats: Annotated[int, Option("How often it is painted.", least=1, variable="COATS")] = 2


def test_a_setting_that_is_added_is_checked_in_files_read_from_variables_and_written_down() -> None:
    def complain(path: tuple[str | int, ...], message: str) -> ConfigError:
        return ConfigError(ErrorCode.CONFIG_INVALID, f"{path}: {message}")

    assert checked_table({"coats": 3}, Painted, at=(), complain=complain).coats == 3
    with pytest.raises(ConfigError, match="must be at least 1, not 0"):
        checked_table({"coats": 0}, Painted, at=(), complain=complain)
    with pytest.raises(ConfigError, match="unknown; did you mean 'coats'"):
        checked_table({"coat": 1}, Painted, at=(), complain=complain)
    variable = Variable("coats", declared_fields(Painted)["coats"])
    assert variable.parse("7") == 7
    assert "| `HAPTERA_COATS` | `coats` | How often" in variable_table({"COATS": variable})


@pytest.mark.parametrize(
    ("said", "default"), [(Option(), {"coats": 1}), (Option("No default."), {}), (Option(), {})]
)
def test_an_option_that_is_half_declared_is_a_mistake(
    said: Option, default: dict[str, Any]
) -> None:
    kind = msgspec.defstruct("HalfOptions", [("coats", Annotated[int, said], *default.values())])
    with pytest.raises(TypeError, match="'coats' of HalfOptions is not fully declared"):
        takes(kind)


# Where an option goes.


def test_every_option_of_an_agent_is_for_exactly_one_part_of_it() -> None:
    parts = (
        *(Settings, AgentDefaults, AgentOptions, ObserverOptions, OwnAccess),
        ConfigurationSources,
    )
    decided_elsewhere = {"store", "runtime"}  # of the components, by configuration
    homes = {
        name: [
            part.__name__
            for part in parts
            if setting_names().get(name, name) in part.__struct_fields__
        ]
        for name in AGENT.options
    }
    assert {name: found for name, found in homes.items() if len(found) != 1} == {
        "store": ["AgentDefaults", "AgentOptions"]
    }
    own = _fields_of(AgentOptions) | _fields_of(ObserverOptions)
    assert own - {"own_access", "around"} <= homes.keys()
    assert decided_elsewhere < own


def _fields_of(kind: type[msgspec.Struct]) -> set[str]:
    return set(kind.__struct_fields__)


def test_every_setting_is_an_option_and_every_option_of_settings_a_setting() -> None:
    assert list(setting_names()) == list(CONFIGURE.options)
    assert set(setting_names().values()) == _fields_of(Settings)


def test_every_field_of_a_setting_has_its_sentence() -> None:
    structs: list[type[msgspec.Struct]] = [Settings, AgentDefaults, RuntimeSettings, PoolSettings]
    structs += [
        item.struct for item in declared_fields(Settings).values() if item.struct is not None
    ]
    silent = [
        f"{struct.__name__}.{name}"
        for struct in structs
        for name, declared in declared_fields(struct).items()
        if not declared.option.sentence
    ]
    assert silent == []


UNBOUNDED = {
    "seed": "any whole number is one",
    "temperature": "what models take differs, and they refuse the rest themselves",
}
"""Numbers that may be any, and why."""


def declarations() -> Iterator[tuple[str, Declared]]:
    """Yield every option and field that has a table in the documentation, with its place."""
    kinds = [kind for kind in vars(write_option_tables).values() if isinstance(kind, type)]
    structs = {struct for kind in kinds for struct in structs_in(kind)} | declared_structs()
    structs |= set(QUERY.structs)
    found = [
        (kind, given_fields(kind) if issubclass(kind, Operation) else declared_fields(kind))
        for kind in structs - {Option, Declared, Keywords}
    ]
    for kind, options in found:
        for name, declared in options.items():
            yield f"{kind.__name__}.{name}", declared


def test_every_number_that_can_be_given_has_bounds_or_a_reason_for_none() -> None:
    numbers = [
        (place, declared.option)
        for place, declared in declarations()
        if {int, float} & {declared.kind, *get_args(declared.kind)} and declared.option.sentence
    ]
    unbounded = {
        place
        for place, said in numbers
        if (said.least, said.above, said.most, said.fits) == (None,) * 4
        and place.partition(".")[2] not in UNBOUNDED
    }
    assert unbounded == set(), "give their Option a bound (least, above, most or fits)"
    places = [place for place, _ in numbers]
    assert {"QueryInput.timeout", "RuntimeSettings.buffer_size"} < set(places)


async def test_options_of_links_and_rewinds_are_checked_before_anything_is_done() -> None:
    agent, _ = make_agent([])
    wrong: Any
    async with agent, agent.session() as session:
        reference = str(session.session_id)
        for wrong in ({"days": 0}, {"days": 366}, {"days": "7"}, {"live": "yes"}):
            (name,) = wrong
            with pytest.raises(ConfigError, match=rf"sessions.share\(\): option '{name}' "):
                await agent.sessions.share(reference, **wrong)
        wrong = {"redact": "no"}
        with pytest.raises(ConfigError, match="option 'redact' is not valid"):
            agent.sessions.export(reference, **wrong)
        wrong = {"files": "no"}
        with pytest.raises(ConfigError, match="option 'files' is not valid"):
            await session.rewind(to="msg_1", **wrong)


# What is said of an option in the wrong place.


ELSEWHERE: list[tuple[str, str]] = [
    ("must_exist", "must_exist is an option of agent.session()"),
    ("timeout", "timeout is an option of session.chat()"),
    ("name", "name is an option of create_agent_session()"),
    ("turns", "turns is a field of the option limits"),
    ("buffer_size", "buffer_size is a field of the option runtime"),
    ("temprature", "temprature is unknown; did you mean 'temperature'?"),
    ("nonsense", "nonsense is unknown"),
]


@pytest.mark.parametrize(("name", "told"), ELSEWHERE)
def test_an_option_that_belongs_elsewhere_is_told_where(name: str, told: str) -> None:
    options: Any = {name: 1}
    with pytest.raises(UnknownOptionError) as caught:
        Agent("scripted/m", **options)
    assert caught.value.message == f"Agent(): {told}"


async def test_each_function_says_where_an_option_of_an_agent_belongs() -> None:
    agent, _ = make_agent([])
    options: Any = {"store": "memory"}
    async with agent, agent.session() as session:
        functions: list[Callable[[], object]] = [
            lambda: agent.session(**options),
            lambda: session.stream("go", **options),
        ]
        for function in functions:
            with pytest.raises(TypeError, match=r"store is an option of Agent\(\)"):
                function()
        with pytest.raises(TypeError, match=r"store is an option of Agent\(\)"):
            await session.configure(**options)
        settings: Any = {"thinking": "low"}
        told = "thinking is an option of session.configure(), Agent(), agent.session() and session."
        with pytest.raises(TypeError, match=re.escape(told)):
            await session.send("go", **settings)
        tools: Any = {"tools": []}
        told = "tools is an option of Agent(), agent.session() and session.chat()"
        with pytest.raises(TypeError, match=re.escape(told)):
            await session.configure(**tools)
        query: Any = {"timeout": 1}
        with pytest.raises(TypeError, match=r"timeout is an option of session.chat\(\)"):
            await session.send("go", **query)
