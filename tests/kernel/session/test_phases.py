"""A stream shows what it is doing: idle, connecting, connected, reconnecting, and how it ended."""

import asyncio

import pytest

from haptera import Agent, AgentError, ErrorCode, ProviderError, SessionState
from haptera.model.log.turns import RetryScheduled
from haptera.stores.memory import MemoryStore
from haptera.testing import FakeClock, Gate, ScriptedProvider, says


async def test_a_stream_goes_through_its_phases() -> None:
    waiting, clock = Gate(), FakeClock()
    overloaded = ProviderError(ErrorCode.OVERLOADED, "later", basis="status")
    provider = ScriptedProvider([overloaded, [says("a")[:3], waiting, says("a")[3:]]])
    async with (
        Agent("scripted/m", providers=[provider], clock=clock, environment={}) as agent,
        agent.session() as session,
    ):
        stream = session.stream("go")
        phases = [stream.phase]
        async for event in stream:
            phases.append(stream.phase)
            if isinstance(event, RetryScheduled):
                await clock.until_sleeping()
                phases.append(stream.phase)
                clock.advance(60)
            if waiting.reached.is_set():
                waiting.open()
        phases.append(stream.phase)
    assert list(dict.fromkeys(phases)) == [
        "idle",
        "connecting",
        "reconnecting",
        "connected",
        "closed",
    ]


async def test_a_failed_stream_ends_in_error() -> None:
    provider = ScriptedProvider([ProviderError(ErrorCode.AUTH, "no", basis="status")])
    async with Agent("scripted/m", providers=[provider], environment={}) as agent:
        stream = agent.stream("go")
        with pytest.raises(AgentError):
            await stream.result()
        assert stream.phase == "error"


async def test_a_conversation_is_not_restored_over_another() -> None:
    provider = ScriptedProvider([says("hello")])
    async with Agent(
        "scripted/m", providers=[provider], store=MemoryStore(), environment={}
    ) as agent:
        async with agent.session("ana") as session:
            await session.chat("hi")
            state: SessionState = await session.export()
        with pytest.raises(AgentError) as refused:
            await agent.session("ana", restore=state).open()
        assert refused.value.code is ErrorCode.CONFIG_INVALID


async def test_a_model_can_be_changed_to_by_its_short_name(tmp_path: object) -> None:
    folder = str(tmp_path)
    await asyncio.to_thread(_write_alias, folder)
    provider = ScriptedProvider([says("hello")])
    async with (
        Agent("scripted/m", providers=[provider], environment={}, config_dir=folder) as agent,
        agent.session() as session,
    ):
        await session.configure(model="quick")
        assert session.settings.model == "scripted/small"
        await session.chat("hi")
    assert provider.requests[0].model == "small"


def _write_alias(folder: str) -> None:
    from pathlib import Path

    path = Path(folder) / "config.toml"
    path.write_text('[models.quick]\nmodel = "scripted/small"\n', encoding="utf-8")
    path.chmod(0o600)
