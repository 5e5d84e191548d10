"""Settings that do not exist are refused, and the level of the log is set."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from haptera import Agent, ConfigError, ErrorCode


def _refusal(**options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        Agent("scripted/m", **{"environment": {}, **options})
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    return caught.value.message


@pytest.mark.parametrize("name", ["max_concurrent_sessions", "session_timeout"])
def test_an_agent_refuses_the_limits_of_a_pool_which_it_would_not_use(name: str) -> None:
    assert _refusal(runtime={name: 3}).startswith(f"runtime.{name}: unknown")


def test_a_field_of_the_runtime_that_does_not_exist_is_refused() -> None:
    assert _refusal(runtime={"bufer_size": 3}).startswith("runtime.bufer_size: unknown; did you")
    assert (
        _refusal(runtime={"buffer_size": -1}) == "runtime.buffer_size: must be at least 0, not -1"
    )


# The level of the log.


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger("haptera")
    before = found.level
    yield found
    found.setLevel(before)


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_a_variable_sets_the_level_of_the_log(level: str, logger: logging.Logger) -> None:
    Agent("scripted/m", environment={"HAPTERA_LOG": level})
    assert logger.level == getattr(logging, level.upper())


def test_the_file_sets_the_level_of_the_log(tmp_path: Path, logger: logging.Logger) -> None:
    (tmp_path / "config.toml").write_text("[defaults]\nlog = 'info'")
    Agent("scripted/m", environment={}, config_dir=tmp_path)
    assert logger.level == logging.INFO


def test_without_a_level_the_program_s_own_stays(logger: logging.Logger) -> None:
    logger.setLevel(logging.CRITICAL)
    Agent("scripted/m", environment={})
    assert logger.level == logging.CRITICAL


def test_a_level_that_is_none_is_refused(logger: logging.Logger) -> None:
    before = logger.level
    assert _refusal(environment={"HAPTERA_LOG": "loud"}).startswith(
        "HAPTERA_LOG: 'loud' is not allowed"
    )
    assert logger.level == before
