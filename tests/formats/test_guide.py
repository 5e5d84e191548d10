"""The guide to export and import: its code runs, and its tables name what there is."""

import re
from pathlib import Path
from typing import Any

import msgspec

from haptera.formats.formats import ARCHIVE, FORMATS, READ_FORMATS, WRITTEN_FORMATS
from haptera.formats.values import ImportLimits

PAGE = (Path(__file__).parents[2] / "docs" / "export-and-import.md").read_text()


def test_the_code_of_the_guide_runs() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, "export-and-import.md", "exec"), names)  # noqa: S102 - our own page
    assert names["session"].title is None


def test_the_guide_names_every_format_and_whether_it_is_read() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| .* \| (yes|no) \| (yes|no) \|$", PAGE, re.MULTILINE)
    words = {True: "yes", False: "no"}
    formats = [
        (name, words[name in READ_FORMATS], words[name in WRITTEN_FORMATS]) for name in FORMATS
    ]
    assert sorted(rows) == sorted([(ARCHIVE, "yes", "yes"), *formats])


def test_the_guide_names_every_limit() -> None:
    named = {
        name for row in re.findall(r"^\| `(\w+)`[^|]*\|", PAGE, re.MULTILINE) for name in [row]
    }
    assert {field.name for field in msgspec.structs.fields(ImportLimits)} <= named
