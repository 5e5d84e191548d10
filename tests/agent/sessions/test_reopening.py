"""Which settings hold when a session is opened again: those that a program names, and others."""

from pathlib import Path
from typing import Any

import pytest

from haptera import Agent, tool
from haptera.model.ids import SessionId
from haptera.model.log.sessions import SessionChanged
from haptera.model.settings import Limits, Settings
from haptera.stores.memory import MemoryStore
from haptera.testing import ScriptedProvider, calls, says
from tests.scripted_agents import outcomes_in


@tool
async def look() -> str:
    """Look."""
    return "seen"


@tool
async def listen() -> str:
    """Listen."""
    return "heard"


class Programs:
    """Runs programs one after the other on one store; each opens the same session."""

    def __init__(self, folder: Path) -> None:
        self._store = MemoryStore()
        self._folder = folder
        self.provider = ScriptedProvider()
        self.changes: list[SessionChanged] = []

    async def run(
        self,
        agent: dict[str, Any],
        session: dict[str, Any] | None = None,
        *,
        configure: dict[str, Any] | None = None,
        file: str = "",
        environment: dict[str, str] | None = None,
    ) -> Settings:
        """Open the session, change it perhaps, ask once, and return the settings in force."""
        config = self._folder / "config.toml"
        config.write_text(file or "# nothing")
        options: Any = {"config_path": config, "environment": environment or {}, **agent}
        self.provider.add(says("ok"))
        one = Agent(providers=[self.provider], store=self._store, **options)
        async with one, one.session("kept", **(session or {})) as held:
            if configure:
                await held.configure(**configure)
            await held.chat("go")
            log = await self._store.log.read(held.session_id or SessionId(""))
            self.changes = [entry for entry in log if isinstance(entry, SessionChanged)]
            return held.settings


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


A, B, C = ({"model": f"scripted/{name}"} for name in "abc")


async def test_what_an_agent_names_wins_over_what_the_session_was_opened_with(
    programs: Programs,
) -> None:
    await programs.run({**A, "system_prompt": "Old.", "temperature": 0.5})
    settings = await programs.run({**B, "system_prompt": "New."})
    assert (settings.model, settings.system_prompts) == ("scripted/b", ("New.",))
    assert settings.temperature == 0.5  # it was not named again
    request = programs.provider.requests[-1]
    assert (request.model, request.system, request.temperature) == ("b", ("New.",), 0.5)
    (change,) = programs.changes
    assert change.origin == "opening"
    assert change.changes == {"settings": {"model": "scripted/b", "system_prompts": ["New."]}}


async def test_what_was_configured_wins_over_what_an_agent_names(programs: Programs) -> None:
    await programs.run(A, configure={**B, "thinking": "low"})
    settings = await programs.run({**C, "thinking": "high", "seed": 7})
    assert (settings.model, settings.thinking, settings.seed) == ("scripted/b", "low", 7)
    assert [change.origin for change in programs.changes] == ["configure", "opening"]
    assert programs.changes[1].changes == {"settings": {"seed": 7}}


async def test_what_is_named_for_the_session_wins_over_what_was_configured(
    programs: Programs,
) -> None:
    await programs.run(A, configure=B)
    assert (await programs.run(A, C)).model == "scripted/c"
    # A change made at an opening ranks like what the session was opened with.
    assert (await programs.run(A)).model == "scripted/a"
    origins = [change.origin for change in programs.changes]
    assert origins == ["configure", "opening", "opening"]


async def test_a_new_session_has_what_was_named_for_it(programs: Programs) -> None:
    settings = await programs.run({**A, "thinking": "low"}, {**B, "limits": {"turns": 3}})
    assert (settings.model, settings.thinking) == ("scripted/b", "low")
    assert settings.limits == Limits(turns=3)
    assert programs.changes == []
    assert (await programs.run({}, environment={"HAPTERA_MODEL": "scripted/c"})).model == (
        "scripted/b"
    )


async def test_environment_file_and_defaults_never_override_what_is_stored(
    programs: Programs,
) -> None:
    first = await programs.run(
        {},
        file='[defaults]\nmodel = "scripted/a"\ntemperature = 0.3\n[defaults.limits]\nturns = 4\n',
        environment={"HAPTERA_THINKING": "low"},
    )
    assert (first.model, first.thinking, first.limits.turns) == ("scripted/a", "low", 4)
    later = await programs.run(
        {},
        file='[defaults]\nmodel = "scripted/b"\n[defaults.limits]\nturns = 9\n',
        environment={"HAPTERA_THINKING": "high", "HAPTERA_SEED": "5"},
    )
    assert later == first
    assert programs.changes == []


async def test_a_field_from_the_file_does_not_come_along_with_one_that_is_named(
    programs: Programs,
) -> None:
    file = "[defaults.limits]\ncost = 2.0\n"
    await programs.run({**A, "limits": Limits(turns=4, cost=1.0)})
    settings = await programs.run({**A, "limits": {"turns": 5}}, file=file)
    assert settings.limits == Limits(turns=5, cost=1.0)
    settings = await programs.run({**A, "limits": Limits(turns=6)}, file=file)
    assert settings.limits == Limits(turns=6)


async def test_what_comes_with_a_short_name_counts_when_the_model_changes(
    programs: Programs,
) -> None:
    file = '[models.fast]\nmodel = "scripted/b"\nthinking = "low"\n'
    await programs.run({**A, "thinking": "high"})
    settings = await programs.run({"model": "fast"}, file=file)
    assert (settings.model, settings.thinking) == ("scripted/b", "low")
    settings = await programs.run({"model": "fast"}, file=file.replace("low", "max"))
    assert settings.thinking == "low"


async def test_opening_a_session_as_it_is_changes_nothing(programs: Programs) -> None:
    options = {**A, "fallbacks": ["scripted/b"], "limits": Limits(turns=3), "stop": ["X"]}
    first = await programs.run(options)
    assert await programs.run(options) == first
    assert programs.changes == []


async def test_a_fork_keeps_what_was_configured() -> None:
    store = MemoryStore()
    provider = ScriptedProvider([says("one"), says("two")])

    def agent(model: str, **options: Any) -> Agent:
        return Agent(model, providers=[provider], store=store, environment={}, **options)

    async with agent("scripted/a") as first, first.session("trunk") as trunk:
        await trunk.chat("go")
        await trunk.configure(model="scripted/b")
        async with await trunk.fork(name="branch") as branch:
            assert branch.settings.model == "scripted/b"
    async with agent("scripted/c", seed=1) as later, later.session("branch") as branch:
        await branch.chat("go on")
        assert (branch.settings.model, branch.settings.seed) == ("scripted/b", 1)
    assert provider.requests[-1].model == "b"


async def test_a_session_is_opened_again_with_another_model_system_prompt_and_tools() -> None:
    store = MemoryStore()
    first = ScriptedProvider([calls(("look", {})), says("I saw it.")], provider="aaa")
    second = ScriptedProvider([calls(("listen", {})), says("I heard it.")], provider="bbb")
    clients = [first, second]

    def program(model: str, prompt: str, given: object) -> Agent:
        return Agent(
            model,
            system_prompt=prompt,
            tools=[given],  # type: ignore[list-item]
            providers=clients,
            store=store,
            environment={},
        )

    async with program("aaa/one", "You look.", look) as agent, agent.session("x") as session:
        assert (await session.chat("go")).text == "I saw it."
    async with program("bbb/two", "You listen.", listen) as agent, agent.session("x") as session:
        result = await session.chat("go on")
    assert (result.text, result.provider, result.model) == ("I heard it.", "bbb", "two")
    request = second.requests[-1]
    assert (request.model, request.system) == ("two", ("You listen.",))
    assert [spec.name for spec in request.tools] == ["listen"]
    assert [item[0] for item in outcomes_in(request)] == ["look", "listen"]
    assert len(first.requests) == 2
