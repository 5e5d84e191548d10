"""What `coding_tools` may be told: every option is checked before a tool is made."""

from pathlib import Path
from typing import Any

import pytest

from haptera import ConfigError, ErrorCode
from haptera.tools import CodingToolkit, coding_tools


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("environment", ["PATH"]),
        ("variables", {"A": 1}),
        ("variables", None),
        ("sandbox", True),
        ("sandbox", {"network": True}),
        ("protected", ".git"),
        ("protected", [1]),
        ("guard", "read"),
        ("blobs", "memory"),
    ],
)
@pytest.mark.parametrize("make", [coding_tools, CodingToolkit])
def test_a_value_that_cannot_be_meant_is_refused(
    make: Any, name: str, value: object, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        make(tmp_path, **{name: value})
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert caught.value.message.startswith(f"coding_tools(): option {name!r} ")


def test_an_unknown_option_says_what_was_meant(tmp_path: Path) -> None:
    options: Any = {"protect": [".env"]}
    with pytest.raises(TypeError, match=r"protect is unknown; did you mean 'protected'\?"):
        coding_tools(tmp_path, **options)


def test_what_can_be_meant_is_taken(tmp_path: Path) -> None:
    made = coding_tools(
        tmp_path,
        environment=None,
        variables={"CI": "true"},
        sandbox=None,
        protected=[".git", ".env"],
        guard=lambda kind, path: None,
        blobs=None,
    )
    assert [tool.name for tool in made] == [tool.name for tool in coding_tools(tmp_path)]
