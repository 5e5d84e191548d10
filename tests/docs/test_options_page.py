"""The page of options names every option that there is, and none that there is not."""

import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.keywords import (
    AgentOptions,
    CreateSessionOptions,
    QueryOptions,
    SessionOptions,
    SettingsOptions,
)
from holdfast.blocks.tool_registry.tool import ToolOptions

_PAGE = (Path(__file__).parents[2] / "docs/options.md").read_text()

_CHAPTERS: dict[str, set[str]] = {
    "Settings": set(SettingsOptions.__annotations__),
    "Agent": set(AgentOptions.__annotations__) - set(SettingsOptions.__annotations__),
    "Session": (set(CreateSessionOptions.__annotations__) - set(AgentOptions.__annotations__))
    | set(SessionOptions.__annotations__),
    "Query": set(QueryOptions.__annotations__),
    "Tool": set(ToolOptions.__annotations__),
}


@pytest.mark.parametrize("title", _CHAPTERS)
def test_every_option_is_on_the_page_and_no_other(title: str) -> None:
    chapter: Any = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", _PAGE, re.DOTALL | re.MULTILINE)
    rows = re.findall(r"^\| (`.*?) \|", chapter[1], re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(_CHAPTERS[title])
