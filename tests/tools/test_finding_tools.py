"""Glob finds files by name and grep by content, both within bounds."""

from pathlib import Path

import pytest

from haptera.kernel.blocks.permission_rules.wildcards import (
    matches_file,
    matches_path,
    matches_word,
)
from haptera.tools import coding_tools
from haptera.tools.contained_paths import Root
from haptera.tools.finding import FindingTools
from haptera.tools.output import Outputs, RecentBlobs
from tests.tools.toolbox import Toolbox


@pytest.fixture
def tools(tmp_path: Path) -> Toolbox:
    files = {
        "a.py": "import os\nclass A:\n    pass\n",
        "src/b.py": "CLASS = 1\n",
        "src/web/c.ts": "class C {}\n",
        "src/web/d.tsx": "class D {}\n",
        "node_modules/e.ts": "class E {}\n",
        ".git/config": "class = git\n",
        ".haptera/f.py": "class F:\n",
        ".holdfast/g.py": "class G:\n",
        "data.bin": "class\0",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return Toolbox(coding_tools(tmp_path))


@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("*.py", ".", "a.py\nsrc/b.py"),
        ("src/*.py", ".", "src/b.py"),
        ("src/**/*.{ts,tsx}", ".", "src/web/c.ts\nsrc/web/d.tsx"),
        ("*.ts", "src/web", "src/web/c.ts"),
        ("src/{web,b}/{c,{d}}.{ts,tsx}", ".", "src/web/c.ts"),
        ("*.rs", ".", "[no file fits]"),
        ("**", "src", "src/b.py\nsrc/web/c.ts\nsrc/web/d.tsx"),
    ],
)
async def test_glob_finds_files_by_name(
    tools: Toolbox, pattern: str, path: str, found: str
) -> None:
    assert await tools.call("glob", pattern=pattern, path=path) == found


async def test_glob_says_that_there_are_more(tools: Toolbox) -> None:
    assert await tools.call("glob", pattern="*.py", limit=1) == "a.py\n[there are more than 1]"


async def test_grep_finds_lines_and_leaves_out_what_is_no_text(tools: Toolbox) -> None:
    assert await tools.call("grep", pattern="class") == (
        "a.py:2: class A:\nsrc/web/c.ts:1: class C {}\nsrc/web/d.tsx:1: class D {}"
    )
    assert await tools.call("grep", pattern="^CLASS", path="src/b.py") == "src/b.py:1: CLASS = 1"
    assert await tools.call("grep", pattern="class", files="*.py", ignore_case=True) == (
        "a.py:2: class A:\nsrc/b.py:1: CLASS = 1"
    )
    assert "more than 1" in await tools.call("grep", pattern="class", limit=1)
    assert await tools.call("grep", pattern="nothing") == "[no line fits]"


async def test_a_pattern_that_is_none_is_explained(tools: Toolbox) -> None:
    assert "not a regular expression" in await tools.call("grep", pattern="(")


async def test_braces_that_stand_for_too_much_are_explained(tools: Toolbox) -> None:
    for name, arguments in (("glob", "pattern"), ("grep", "files")):
        given = {"pattern": "class", arguments: "{a,b}" * 10}
        assert "more than 512 patterns" in await tools.call(name, **given)


@pytest.mark.slow
async def test_a_pattern_that_never_ends_is_ended(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a" * 64 + "b\n")
    finding = FindingTools(Root(tmp_path), Outputs(RecentBlobs()), seconds=0.5)
    told = await Toolbox(finding.tools()).call("grep", pattern="(a+)+$")
    assert "took longer than 0.5 s" in told


async def test_what_a_guard_closes_is_neither_found_nor_shown(tmp_path: Path) -> None:
    for name in ("open/a.txt", "closed/b.txt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("word\n")
    tools = Toolbox(
        coding_tools(
            tmp_path, guard=lambda _, path: "closed" if path.startswith("closed/") else None
        )
    )
    assert await tools.call("grep", pattern="word") == "open/a.txt:1: word"
    assert await tools.call("glob", pattern="*.txt") == "open/a.txt"
    assert "closed" in await tools.call("read", path="closed/b.txt")


@pytest.mark.parametrize(
    ("pattern", "word", "fits"),
    [
        ("*", "", True),
        ("a*c", "abbc", True),
        ("a*c", "abbd", False),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("*a*b*", "xxaxxbxx", True),
        ("test:*", "test:unit", True),
        ("", "a", False),
    ],
)
def test_wildcards_in_words(pattern: str, word: str, fits: bool) -> None:
    assert matches_word(pattern, word) is fits


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        (".env", ".env", True),
        (".env", "deep/er/.env", True),
        ("secrets", "secrets/a/b", True),
        ("secrets/**", "secrets/a/b", True),
        ("secrets/**", "other/secrets/a", False),
        ("**/secrets/*", "other/secrets/a", True),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/deep/a.py", False),
        ("./src", "src/a.py", True),
        ("/src", "src/a.py", True),
        ("*.{key,pem}", "a/b.pem", True),
        ("**", ".", True),
    ],
)
def test_wildcards_in_paths(pattern: str, path: str, fits: bool) -> None:
    assert matches_path(pattern, path) is fits


def test_wildcards_take_linear_steps() -> None:
    assert not matches_word("*a" * 50 + "b", "a" * 2000)
    assert not matches_file("**/a/" * 30 + "b", "/".join("a" * 500))
    assert not matches_path("{a,b}" * 9, "zz")
    with pytest.raises(ValueError, match="more than 512"):
        matches_path("{a,b}" * 20, "zz")
