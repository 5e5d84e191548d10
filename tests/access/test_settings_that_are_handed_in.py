"""Settings that a program makes are checked where they are handed in, by their declaration."""

import importlib
import math
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any, get_args

import msgspec
import pytest

import haptera
from haptera import ConfigError, ErrorCode
from haptera.access.pool import PoolLimits, SessionPool
from haptera.access.worker import SessionWorker, WorkerSettings
from haptera.model.settings import PoolSettings
from haptera.options.declarations import Declared, declared_fields, split_annotation
from haptera.server import ServerSettings, create_app
from tests.scripted_agents import make_agent
from tests.server.serving import TOKEN, serving

UNBOUNDED = {"Settings.temperature", "Settings.seed"}
"""Numbers that are sent to a provider as they are."""


def _serve(settings: ServerSettings) -> object:
    return create_app(make_agent([])[0], token=TOKEN, settings=settings)


def _pool(limits: PoolLimits) -> object:
    return SessionPool(lambda owner, name: None, limits=limits)  # type: ignore[arg-type, return-value]


def _worker(settings: WorkerSettings) -> object:
    store: Any = None
    return SessionWorker(store, lambda query: store, settings=settings)


TAKEN_BY: dict[type[msgspec.Struct], Callable[[Any], object]] = {
    ServerSettings: _serve,
    PoolLimits: _pool,
    WorkerSettings: _worker,
}
FIELDS = [(kind, field) for kind in TAKEN_BY for field in declared_fields(kind).values()]
EACH_FIELD = pytest.mark.parametrize(
    ("kind", "field"), FIELDS, ids=[f"{kind.__name__}.{field.name}" for kind, field in FIELDS]
)


def wrong_values(field: Declared) -> list[object]:
    """Return values that a field cannot have, by its declaration alone."""
    said, kinds = field.option, {field.kind, *get_args(field.kind)}
    found: list[object] = [object(), {"a": 1}]
    if int in kinds or float in kinds:
        found += ["many", math.nan, math.inf, True]
    if said.least is not None:
        found += [said.least - 1, -1e9]
    if said.above is not None:
        found += [said.above, said.above - 1]
    if said.most is not None:
        found.append(said.most + 1)
    if bool in kinds:
        found += ["yes", 1]
    return found


@EACH_FIELD
def test_a_value_that_a_field_cannot_have_is_refused_with_its_name(
    kind: type[msgspec.Struct], field: Declared
) -> None:
    TAKEN_BY[kind](kind())
    for value in wrong_values(field):
        with pytest.raises(ConfigError, match=rf"{kind.__name__}: {field.name} ") as caught:
            TAKEN_BY[kind](kind(**{field.name: value}))
        assert caught.value.code is ErrorCode.CONFIG_INVALID


@EACH_FIELD
def test_the_smallest_and_the_largest_value_of_a_field_are_taken(
    kind: type[msgspec.Struct], field: Declared
) -> None:
    said = field.option
    bounds = (said.least, said.most, None if said.above is None else said.above + 1e-6)
    for value in bounds:
        if value is not None:
            whole = int(value) if int in {field.kind, *get_args(field.kind)} else value
            TAKEN_BY[kind](kind(**{field.name: whole}))


def _structs() -> Iterator[type[msgspec.Struct]]:
    """Yield every struct of the package that has options."""
    for module in pkgutil.walk_packages(haptera.__path__, "haptera."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    known: list[type[msgspec.Struct]] = [msgspec.Struct]
    while known:
        found = known.pop().__subclasses__()
        known += found
        yield from (
            each
            for each in found
            if each.__module__.startswith("haptera.")
            and (each.__name__.endswith(("Settings", "Limits")) or _has_options(each))
        )


def _has_options(kind: type[msgspec.Struct]) -> bool:
    return any(split_annotation(each)[1] for each in kind.__annotations__.values())


def _is_number(field: Declared) -> bool:
    return bool({int, float} & {field.kind, *get_args(field.kind)})


@pytest.mark.slow
def test_every_number_that_is_an_option_has_bounds() -> None:
    declared = {
        f"{kind.__name__}.{name}": field
        for kind in _structs()
        for name, field in declared_fields(kind).items()
        if field.option.sentence and _is_number(field)
    }
    assert len(declared) > 60
    unbounded = {
        name
        for name, field in declared.items()
        if (field.option.least, field.option.above, field.option.most) == (None, None, None)
    }
    assert unbounded == UNBOUNDED


@pytest.mark.slow
def test_settings_and_limits_of_surfaces_declare_every_field_and_are_checked() -> None:
    rooms = ("haptera.server.", "haptera.access.")
    beneath = ("haptera.access.assembly.", "haptera.access.auth.", "haptera.access.config.")
    made = {
        kind
        for kind in _structs()
        if kind.__module__.startswith(rooms)
        and not kind.__module__.startswith(beneath)
        and kind.__name__.endswith(("Settings", "Limits"))
    }
    assert made == set(TAKEN_BY)
    silent = [
        f"{kind.__name__}.{name}"
        for kind in made
        for name, field in declared_fields(kind).items()
        if not field.option.sentence
    ]
    assert silent == []


def test_what_a_pool_and_a_server_keep_open_has_the_same_bounds_and_says_which_is_used() -> None:
    pool, server = declared_fields(PoolSettings), declared_fields(ServerSettings)
    for one, other in (
        ("max_concurrent_sessions", "sessions"),
        ("session_timeout", "idle_seconds"),
    ):
        assert pool[one].option.least == server[other].option.least
        assert "`haptera serve` and `rpc`, too, if it is set" in pool[one].option.sentence
        assert f"use the configured `{one}` instead, if it is set" in server[other].option.sentence


async def test_hosts_and_origins_are_compared_in_lower_case() -> None:
    agent, _ = make_agent([])
    settings = ServerSettings(
        hosts=frozenset({"Chat.Example"}), origins=frozenset({"https://App.example"})
    )
    async with serving(agent, settings=settings) as served:
        headers = {"host": "chat.example", "origin": "https://app.example"}
        assert (await served.call("GET", "/api/v1/info", headers=headers))[0] == 200
    with pytest.raises(ConfigError, match="ServerSettings: origins must be origins such as"):
        _serve(ServerSettings(origins=frozenset({"app.example"})))


async def test_the_smallest_rate_counts_requests_and_does_not_fail() -> None:
    agent, _ = make_agent([])
    async with serving(agent, settings=ServerSettings(requests_per_second=1e-6)) as served:
        statuses = [(await served.call("GET", "/api/v1/info"))[0] for _ in range(3)]
    assert statuses == [200, 429, 429]
