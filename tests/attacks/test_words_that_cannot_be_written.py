"""Text that no file, wire or terminal takes, and values that are no JSON."""

from pathlib import Path
from typing import Any

import pytest

from haptera import Agent, tool
from haptera.model.errors import ConfigError
from haptera.model.log.approvals import ApprovalSettled
from haptera.model.parts import TextPart, ToolResultPart
from haptera.testing import FakeClock, ScriptedProvider, calls, says
from tests.case_names import stable_name
from tests.stores.store_factories import STORE_FACTORIES, store_string


def _result_of(provider: ScriptedProvider) -> ToolResultPart:
    part = provider.requests[-1].messages[-1].parts[0]
    assert isinstance(part, ToolResultPart)
    return part


def _text(part: ToolResultPart) -> str:
    content = part.content[0]
    assert isinstance(content, TextPart)
    return content.text


@pytest.mark.parametrize("store", list(STORE_FACTORIES))
async def test_lone_surrogates_in_prompts_and_results_are_replaced(
    store: str, tmp_path: Path
) -> None:
    """File names on a real disk hold them; no log and no wire does."""

    @tool
    async def names() -> str:
        """List names."""
        return "report\udce9.txt"

    @tool
    async def fails() -> str:
        """Fail."""
        raise OSError("cannot read report\udce9.txt")

    place = store_string(store, tmp_path)
    provider = ScriptedProvider([calls(("names", {}), ("fails", {})), says("done")])
    agent = Agent(
        "scripted/m", providers=[provider], tools=[names, fails], store=place, clock=FakeClock()
    )
    async with agent:
        result = await agent.run("look at \ud800")
    assert result.text == "done"
    assert provider.requests[0].messages[0].text == "look at \ufffd"
    assert _text(_result_of(provider)) == "report\ufffd.txt"


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, {("a", "b"): 1}, {"a": float("nan")}, b"\xff\x00", complex(1, 2), Ellipsis],
    ids=stable_name,
)
async def test_whatever_a_tool_returns_is_answered(value: object) -> None:
    @tool
    async def odd() -> object:
        """Return something odd."""
        return value

    provider = ScriptedProvider([calls(("odd", {})), says("done")])
    async with Agent("scripted/m", providers=[provider], tools=[odd], clock=FakeClock()) as agent:
        assert (await agent.run("go")).text == "done"
    assert _result_of(provider).content


async def test_a_result_that_holds_itself_is_a_failure_of_the_tool() -> None:
    @tool
    async def circle() -> Any:
        """Return a list in itself."""
        value: list[Any] = []
        value.append(value)
        return value

    provider = ScriptedProvider([calls(("circle", {})), says("done")])
    async with Agent(
        "scripted/m", providers=[provider], tools=[circle], clock=FakeClock()
    ) as agent:
        assert (await agent.run("go")).text == "done"
    assert _result_of(provider).outcome == "error"


async def test_a_huge_result_is_kept_whole() -> None:
    @tool
    def big() -> str:
        """Return much."""
        return "x" * 5_000_000

    provider = ScriptedProvider([calls(("big", {})), says("done")])
    async with Agent("scripted/m", providers=[provider], tools=[big], clock=FakeClock()) as agent:
        await agent.run("go")
    assert len(_text(_result_of(provider))) == 5_000_000


async def test_an_error_that_cannot_be_printed_is_still_a_failure_of_the_tool() -> None:
    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    @tool
    async def fails() -> str:
        """Fail."""
        raise UnprintableError

    provider = ScriptedProvider([calls(("fails", {})), says("done")])
    async with Agent("scripted/m", providers=[provider], tools=[fails], clock=FakeClock()) as agent:
        assert (await agent.run("go")).text == "done"
    assert _result_of(provider).outcome == "error"


@pytest.mark.parametrize("store", list(STORE_FACTORIES))
async def test_names_that_cannot_be_written_are_refused_before_anything_is_stored(
    store: str, tmp_path: Path
) -> None:
    place = store_string(store, tmp_path)
    name = "report\udce9"
    provider = ScriptedProvider([says("done")])
    for option in ("owner", "project"):
        with pytest.raises(ConfigError, match=option):
            Agent("scripted/m", providers=[provider], store=place, **{option: name})  # type: ignore[arg-type]
    async with Agent("scripted/m", providers=[provider], store=place) as agent:
        with pytest.raises(ConfigError, match="session's name or id"):
            agent.session(name)
        with pytest.raises(ConfigError, match="session's name or id"):
            await agent.remote(name)
        async with agent.session("a plain one") as session:
            with pytest.raises(ConfigError, match="session's name or id"):
                await session.fork(name=name)
            assert (await session.chat("hello")).text == "done"


async def test_a_folder_whose_name_is_no_text_can_be_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "caf\udce9"
    folder.mkdir()
    monkeypatch.chdir(folder)
    provider = ScriptedProvider([says("done")])
    async with Agent("scripted/m", providers=[provider], store=f"sqlite:{tmp_path}/s.db") as agent:
        assert (await agent.run("hello")).text == "done"


@pytest.mark.parametrize("store", list(STORE_FACTORIES))
async def test_reasons_that_cannot_be_written_are_mended(store: str, tmp_path: Path) -> None:
    @tool(approval="ask")
    async def delete() -> str:
        """Delete."""
        return "deleted"

    half, mended = "report\udce9", "report\ufffd"
    place = store_string(store, tmp_path)
    provider = ScriptedProvider([calls(("delete", {}), ("delete", {})), says("done")])
    async with (
        Agent("scripted/m", providers=[provider], tools=[delete], store=place) as agent,
        agent.session("files") as session,
    ):
        first, second = (await session.chat("go")).pending
        await session.deny(first.id, half, by=half)
        remote = await agent.remote("files")
        await remote.deny(second.id, half)
        async for entry in remote.events():
            if isinstance(entry, ApprovalSettled) and entry.approval_id == second.id:
                break
        assert (await session.resume()).text == "done"
        await remote.abort(half)
        results = provider.requests[-1].messages[-1].parts
        assert [mended in _text(part) for part in results] == [True, True]  # type: ignore[arg-type]
