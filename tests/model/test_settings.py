"""Settings: the defaults that users get without saying anything."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera import Limits, ModelStep, RetrySettings, Settings, Timeouts
from haptera.model.budgets import Watchdogs
from haptera.model.compaction_settings import CompactionSettings
from haptera.model.settings import (
    PoolSettings,
    RuntimeSettings,
    allows_tool,
    bounded_settings,
)


def test_the_defaults_of_a_runtime() -> None:
    assert msgspec.structs.asdict(RuntimeSettings()) == {
        "buffer_size": 100,
        "observer_buffer": 1024,
        "checkpoint_bytes": 4096,
        "checkpoint_seconds": 1.0,
        "heartbeat_seconds": 30.0,
        "close_drain_seconds": 15.0,
        "hook_seconds": 60.0,
        "sub_agent_depth": 3,
        "parallel_sub_agents": 8,
        "cross_session_context": True,
        "auto_compaction": True,
    }


def test_the_defaults_of_a_pool() -> None:
    assert msgspec.structs.asdict(PoolSettings()) == {
        "max_concurrent_sessions": 10,
        "session_timeout": 1800.0,
    }


def test_the_defaults_of_a_session() -> None:
    assert msgspec.structs.asdict(Settings()) == {
        "model": "",
        "thinking": None,
        "system_prompts": (),
        "max_tokens": None,
        "temperature": None,
        "stop": (),
        "seed": None,
        "betas": {},
        "cache_ttl": "5m",
        "cached_reminders": (),
        "compaction": CompactionSettings(),
        "parallel_tools": False,
        "parallel_tool_calls": True,
        "allowed_tools": None,
        "denied_tools": (),
        "approval": "by_tool",
        "loop_threshold": 3,
        "on_loop": "ask",
        "permission_mode": "default",
        "on_deny": "continue",
        "limits": Limits(),
        "retry": RetrySettings(),
        "watchdogs": Watchdogs(),
        "fallbacks": (),
        "timeouts": Timeouts(),
    }


def test_the_defaults_of_retries() -> None:
    assert msgspec.structs.asdict(RetrySettings()) == {
        "max_retries": 5,
        "first_delay": 2.0,
        "factor": 2.0,
        "longest_delay": 30.0,
        "jitter": 0.1,
        "longest_retry_after": 60.0,
        "interruption_retries": 2,
        "interruption_delay": 2.0,
    }


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        (RetrySettings.RATE_LIMIT, (5.0, 60.0, 10, 1.5)),
        (RetrySettings.NETWORK, (1.0, 10.0, 3, 2.0)),
        (RetrySettings.QUICK, (0.1, 30.0, 2, 2.0)),
    ],
)
def test_the_presets_of_retries(
    preset: RetrySettings, expected: tuple[float, float, int, float]
) -> None:
    found = (preset.first_delay, preset.longest_delay, preset.max_retries, preset.factor)
    assert found == expected


def test_a_query_has_fifty_turns_and_no_other_limit_unless_it_is_given_some() -> None:
    found = msgspec.structs.asdict(Limits())
    assert found.pop("turns") == 50
    bounds = {name for name in found if name.startswith(("part_", "answer_", "reply_"))}
    assert {found[name] for name in found.keys() - bounds} == {None}
    assert all(found[name] for name in bounds), "an answer is bounded in any case"


def test_a_fallback_is_tried_twice() -> None:
    assert ModelStep(model="a/b").max_attempts == 2


def test_settings_are_values() -> None:
    settings = Settings(model="a/b")
    with pytest.raises(AttributeError):
        settings.model = "c/d"  # type: ignore[misc]
    assert msgspec.convert(msgspec.to_builtins(settings), Settings) == settings


def test_tools_are_not_among_the_settings() -> None:
    assert "tools" not in Settings.__struct_fields__


_NAMES = st.lists(st.sampled_from("abcd"), unique=True).map(tuple)
_BOUNDING = st.builds(
    Settings,
    allowed_tools=st.none() | _NAMES,
    denied_tools=_NAMES,
    approval=st.sampled_from(["by_tool", "ask"]),
)


def _allowed(settings: Settings) -> set[str]:
    return {name for name in "abcd" if allows_tool(settings, name)}


@given(_BOUNDING, _BOUNDING, _BOUNDING)
def test_bounded_settings_allow_what_all_of_them_allow(
    settings: Settings, ceiling: Settings, above: Settings
) -> None:
    bounded = bounded_settings(settings, ceiling)
    assert _allowed(bounded) == _allowed(settings) & _allowed(ceiling)
    assert (bounded.approval == "ask") == ("ask" in {settings.approval, ceiling.approval})
    assert bounded_settings(bounded, ceiling) == bounded
    twice = bounded_settings(bounded, above)
    at_once = bounded_settings(settings, bounded_settings(ceiling, above))
    assert (_allowed(twice), twice.approval) == (_allowed(at_once), at_once.approval)


def test_a_ceiling_bounds_nothing_but_tools_and_approval() -> None:
    settings = Settings(model="scripted/a", permission_mode="accept_edits", temperature=1.0)
    ceiling = Settings(model="scripted/b", permission_mode="plan", denied_tools=("a",))
    assert bounded_settings(settings, ceiling) == msgspec.structs.replace(
        settings, denied_tools=("a",)
    )
    assert bounded_settings(settings, Settings(permission_mode="plan")) is settings
