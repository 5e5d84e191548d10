"""Values are checked where a program hands them over: numbers, decisions and results of tools."""

from typing import Any

import pytest
from msgspec.structs import replace

from haptera import ConfigError, ErrorCode, ModelStep, tool
from haptera.model.compaction_settings import CompactionSettings
from haptera.model.settings import RuntimeSettings
from haptera.testing import calls, says
from tests.scripted_agents import failure_of, make_agent, outcomes_in, playing, run_script

NAN, INFINITE = float("nan"), float("inf")

IMPOSSIBLE: list[tuple[str, dict[str, Any]]] = [
    *(
        (f"runtime.{name}", {"runtime": replace(RuntimeSettings(), **{name: value})})
        for name in ("observer_buffer", "checkpoint_bytes", "checkpoint_seconds")
        for value in (0, -1, NAN, INFINITE)
    ),
    *(
        (f"runtime.{name}", {"runtime": {name: value}})
        for name in ("buffer_size", "close_drain_seconds")
        for value in (-1, NAN, INFINITE)
    ),
    *(
        ("fallbacks[0].max_attempts", {"fallbacks": [ModelStep(model="a/b", max_attempts=value)]})
        for value in (-1, 101)
    ),
    ("fallbacks[0].tries", {"fallbacks": [{"model": "a/b", "tries": 2}]}),
    *(
        ("compaction.input_tokens", {"compaction": CompactionSettings(input_tokens=value)})
        for value in (0, -1)
    ),
    *(("temperature", {"temperature": value}) for value in (NAN, INFINITE)),
    ("retry.longest_delay", {"retry": {"longest_delay": INFINITE}}),
    ("timeouts.connect", {"timeouts": {"connect": INFINITE}}),
]


@pytest.mark.parametrize(("field", "options"), IMPOSSIBLE, ids=str)
def test_an_impossible_number_is_refused_by_name(field: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        make_agent([], **options)
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert field in caught.value.message


OF_SESSIONS = [case for case in IMPOSSIBLE if "runtime" not in case[1]]


@pytest.mark.parametrize(("field", "options"), OF_SESSIONS, ids=str)
async def test_a_session_refuses_it_as_well(field: str, options: dict[str, Any]) -> None:
    async with playing([]) as (session, _):
        error = await failure_of(session.configure(**options))
    assert (error.code, field in error.message) == (ErrorCode.CONFIG_INVALID, True)


async def test_no_attempts_are_the_default_number_of_attempts() -> None:
    step = ModelStep(model="scripted/two", max_attempts=0)
    result, _ = await run_script([says("hello")], fallbacks=[step])
    assert result.text == "hello"


class Handle:
    """Something that has no JSON form."""


ROUND: list[object] = []
ROUND.append(ROUND)


NO_JSON = {"object": Handle(), "inside": {"inner": [Handle()]}, "number": 1 + 2j, "round": ROUND}


@pytest.mark.parametrize("value", NO_JSON.values(), ids=NO_JSON)
async def test_a_result_without_a_json_form_is_a_failure_that_says_so(value: object) -> None:
    @tool
    async def give() -> object:
        """Give something."""
        return value

    script = [calls(("give", {})), says("a pity")]
    async with playing(script, tools=[give]) as (session, provider):
        await session.chat("go")
    ((_, outcome, text),) = outcomes_in(provider.requests[1])
    assert outcome == "error"
    assert "which has no JSON form" in text
    assert "complex" in text or "Handle" in text or "'list'" in text
