"""Inputs that cannot be written down, or are nested too deeply, are refused with a typed error."""

from typing import Any

import pytest

from haptera import ConfigError, ErrorCode
from haptera.model.messages import Sender
from haptera.testing import says
from tests.scripted_agents import make_agent, playing


def deep_type(levels: int) -> Any:
    """Return a list of lists of numbers, so many levels deep."""
    hint: Any = int
    for _ in range(levels):
        hint = list[hint]
    return hint


def deep_list(levels: int) -> list[Any]:
    """Return an empty list inside so many others."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("option", ["output_type", "tools"])
async def test_what_is_nested_too_deeply_is_refused(option: str) -> None:
    given = deep_type(900) if option == "output_type" else deep_list(3_000)
    async with playing([]) as (session, _):
        with pytest.raises(ConfigError, match="nested too deeply") as refused:
            await session.chat("go", **{option: given})  # type: ignore[arg-type]
    assert refused.value.code is ErrorCode.CONFIG_INVALID


def test_a_tool_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        make_agent([], tools=deep_list(3_000))


async def test_half_a_character_in_a_sender_is_replaced(tmp_path: Any) -> None:
    store = f"sqlite:{tmp_path}/s.db"
    async with playing([says("yes")], store=store) as (session, _):
        await session.chat("go", sender=Sender(user_id="a\ud800"))
        assert session.messages[0].sender.user_id == "a\ufffd"  # type: ignore[union-attr]
