"""What becomes of each option of a query: in its turns, over a restart, and when it is resumed.

A new option fails here until its row in `FATES` says what is to become of it.
"""

import contextlib
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from haptera import (
    Agent,
    AgentSession,
    ConfigError,
    ErrorCode,
    QueryStarted,
    ToolError,
)
from haptera.agent.agent_options import CONFIGURE
from haptera.agent.query_options import QUERY
from haptera.model.log.compactions import Compaction
from haptera.model.messages import KeptOptions
from haptera.testing import ScriptedProvider, says
from tests.agent.options.option_scenes import ANSWER, CALL, PROBES, Scene, Seen
from tests.scripted_agents import MODEL


class Fate(msgspec.Struct, frozen=True):
    """What becomes of an option."""

    acts: Literal["throughout", "first"]
    """In all turns of its query, or in the first one only."""
    waiting: Literal["kept", "lost"]
    """When its prompt waits in the queue over a restart."""
    cut_off: Literal["kept", "lost"]
    """When its query is cut off in the first turn, and resumed by another program."""
    resting: Literal["kept", "lost", "over"]
    """When another program resumes it after the first turn; one for that turn is over then."""
    resume: Literal["takes", "refuses"]
    """What `resume()` does with it."""


FATES: dict[str, Fate] = {
    "settings": Fate("throughout", "kept", "kept", "kept", "takes"),
    "tools": Fate("throughout", "lost", "lost", "lost", "takes"),
    "deps": Fate("throughout", "lost", "lost", "lost", "takes"),
    "sender": Fate("throughout", "kept", "kept", "kept", "refuses"),
    "attachments": Fate("throughout", "kept", "kept", "kept", "refuses"),
    "signal": Fate("throughout", "lost", "lost", "lost", "takes"),
    "on_abort": Fate("throughout", "lost", "lost", "lost", "takes"),
    "timeout": Fate("throughout", "kept", "kept", "kept", "takes"),
    "total_timeout": Fate("throughout", "lost", "lost", "lost", "takes"),
    "output_type": Fate("throughout", "lost", "lost", "lost", "takes"),
    "output_schema": Fate("throughout", "lost", "lost", "lost", "takes"),
    "output_validator": Fate("throughout", "lost", "lost", "lost", "takes"),
    "output_attempts": Fate("throughout", "lost", "lost", "lost", "takes"),
    "reminders": Fate("first", "kept", "lost", "over", "takes"),
    "require_tool": Fate("first", "kept", "kept", "over", "takes"),
    "transform": Fate("throughout", "lost", "lost", "lost", "takes"),
}
ELSEWHERE = {"delivery", "compact"}
"""Those with tests of their own below: they are no part of how a prompt is answered."""
TAKEN = [name for name, fate in FATES.items() if fate.resume == "takes"]


def expected(name: str, fate: Literal["kept", "lost", "over"]) -> Seen:
    return FATES[name].acts if fate == "kept" else "never"


def others(name: str) -> list[str]:
    """Return what `resume()` can be told beside an option."""
    return [other for other in TAKEN if other != name]


def test_what_becomes_of_every_option_of_a_query_is_decided() -> None:
    options = set(QUERY.options) - set(CONFIGURE.options)
    declared = options | set(KeptOptions.__struct_fields__)
    decided = FATES.keys() | ELSEWHERE
    assert declared - decided == set(), "add a row to FATES and PROBES: what becomes of it?"
    assert decided - declared == set(), "there is no such option"
    assert PROBES.keys() == FATES.keys(), "each option in FATES has its probe"


@pytest.mark.parametrize("name", FATES)
async def test_an_option_acts_in_its_turns_and_in_no_other_query(name: str) -> None:
    scene = Scene(name)
    await scene.chat(**scene.said(name))
    assert scene.seen == FATES[name].acts
    plain = Scene(name)
    await plain.chat()
    assert plain.seen == "never"


@pytest.mark.parametrize("name", FATES)
async def test_an_option_of_a_prompt_that_waits_over_a_restart(name: str) -> None:
    scene = Scene(name)
    await scene.leave_waiting(**scene.said(name))
    await scene.resume()
    assert scene.seen == expected(name, FATES[name].waiting)


@pytest.mark.parametrize("name", FATES)
async def test_an_option_of_a_query_that_was_cut_off_and_is_resumed(name: str) -> None:
    scene = Scene(name)
    await scene.cut_off(**scene.said(name))
    await scene.resume()
    assert scene.seen == expected(name, FATES[name].cut_off)


@pytest.mark.parametrize("name", FATES)
async def test_an_option_of_a_query_that_is_cut_off_twice(name: str) -> None:
    scene = Scene(name)
    await scene.cut_off(**scene.said(name))
    await scene.die_in(lambda session: session.resume().result())
    await scene.resume()
    assert scene.seen == expected(name, FATES[name].cut_off)


@pytest.mark.parametrize("name", FATES)
async def test_an_option_of_a_query_that_is_resumed_after_its_first_turn(name: str) -> None:
    scene = Scene(name, approval="ask")
    await scene.rest(**scene.said(name))
    await scene.approve_and_resume()
    assert scene.seen == expected(name, FATES[name].resting)


@pytest.mark.parametrize("name", [name for name, fate in FATES.items() if fate.waiting == "kept"])
async def test_an_option_that_is_kept_is_read_back_from_a_file(name: str, tmp_path: Path) -> None:
    scene = Scene(name, store=f"sqlite:{tmp_path / 'waiting.db'}")
    await scene.leave_waiting(**scene.said(name))
    await scene.resume()
    assert scene.seen == FATES[name].acts
    resting = Scene(name, store=f"sqlite:{tmp_path / 'resting.db'}", approval="ask")
    await resting.rest(**resting.said(name))
    await resting.approve_and_resume()
    assert resting.seen == expected(name, FATES[name].resting)


@pytest.mark.parametrize("name", TAKEN)
async def test_resuming_names_an_option_in_place_of_what_was_kept(name: str) -> None:
    scene = Scene(name)
    await scene.cut_off(**scene.probe.earlier)
    await scene.resume(**scene.said(name))
    assert scene.seen == FATES[name].acts
    waiting = Scene(name)
    await waiting.leave_waiting(**waiting.probe.earlier)
    await waiting.resume(**waiting.said(name))
    assert waiting.seen == FATES[name].acts


@pytest.mark.parametrize("name", FATES)
async def test_resuming_with_all_other_options_leaves_an_option_as_it_was(name: str) -> None:
    scene = Scene(name)
    await scene.cut_off(**scene.said(name))
    await scene.resume(**scene.said(*others(name)))
    assert scene.seen == expected(name, FATES[name].cut_off)
    waiting = Scene(name)
    await waiting.leave_waiting(**waiting.said(name))
    await waiting.resume(**waiting.said(*others(name)))
    assert waiting.seen == expected(name, FATES[name].waiting)


@pytest.mark.parametrize("name", sorted(FATES.keys() - set(TAKEN)))
async def test_resuming_refuses_an_option_of_a_prompt(name: str) -> None:
    scene = Scene(name)
    await scene.cut_off()
    await scene.resume(**scene.said(name))
    assert scene.error is not None
    assert scene.error.code is ErrorCode.CONFIG_INVALID
    assert f"{name} is an option of session.chat()" in scene.error.message
    assert scene.requests == []


async def test_resuming_names_a_part_of_a_table_and_the_rest_stays_as_the_query_had_it() -> None:
    scene = Scene()
    await scene.cut_off(limits={"cost": 5}, timeouts={"connect": 3.0})
    started: list[QueryStarted] = []

    def carry_on(session: AgentSession) -> Any:
        session.on(QueryStarted, started.append)
        limits: Any = {"turns": 9}
        return session.resume(limits=limits)

    await scene.play(carry_on, CALL, ANSWER)
    limits = started[0].options.settings["limits"]
    assert (limits["turns"], limits["cost"]) == (9, 5)
    assert [request.timeouts.connect for request in scene.requests] == [3.0, 3.0]


async def test_resuming_without_a_timeout_is_said_as_zero() -> None:
    scene = Scene()
    await scene.cut_off(timeout=700)
    started: list[QueryStarted] = []

    def carry_on(session: AgentSession) -> Any:
        session.on(QueryStarted, started.append)
        return session.resume(timeout=0)

    await scene.play(carry_on, CALL, ANSWER)
    assert [entry.options.timeout for entry in started] == [0]


# Options that say nothing of how a prompt is answered.


async def test_a_prompt_that_waits_over_a_restart_keeps_its_delivery() -> None:
    scene, found = Scene(), list[str]()
    await scene.leave_waiting(delivery="steer")

    async def look(session: AgentSession) -> None:
        found.extend(item.delivery for item in session.unfinished.inputs)

    await scene.play(look)
    assert found == ["steer"]


async def test_a_compaction_that_was_cut_off_is_one_when_it_is_resumed() -> None:
    scene = Scene()
    await scene.chat()
    await scene.die_in(lambda session: session.compact("the names"))
    compacted: list[Compaction] = []

    def carry_on(session: AgentSession) -> Any:
        session.on(Compaction, compacted.append)
        return session.resume(timeout=700)

    await scene.play(carry_on, says("In short: Paris."))
    assert [entry.summary for entry in compacted] == ["In short: Paris."]
    assert "the names" in str(scene.requests[0].messages)


@pytest.mark.parametrize("half", ["\ud800", ["\ud800"], {"\ud800": "\ud800"}])
@pytest.mark.parametrize("name", sorted(QUERY.options))
async def test_text_that_no_store_can_keep_is_refused_or_mended(
    tmp_path: Path, name: str, half: Any
) -> None:
    provider = ScriptedProvider([says("Hello.")])
    store = f"sqlite:{tmp_path}/s.db"
    async with Agent(MODEL, providers=[provider], environment={}, store=store) as agent:
        async with agent.session() as session:
            with contextlib.suppress(ConfigError, ToolError):
                assert (await session.chat("go", **{name: half})).text
        async with agent.session(session.session_id) as again:
            assert again.unfinished.query_id is None
