"""Before a call is made it can be said what it would really do."""

from pathlib import Path

import pytest

from haptera.model.json_types import JsonObject
from haptera.tools import CodingToolkit
from tests.tools.toolbox import Toolbox


@pytest.fixture
def kit(tmp_path: Path) -> CodingToolkit:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.py").write_text("one\n")
    (tmp_path / "alias").symlink_to("src")
    (tmp_path / "out").symlink_to("/etc")
    return CodingToolkit(tmp_path)


async def test_a_path_is_told_as_it_really_is(kit: CodingToolkit) -> None:
    assert (await kit.facts("read", {"path": "alias/a.py"})).path == "src/a.py"
    assert (await kit.facts("write", {"path": "alias/new/b", "content": ""})).path == "src/new/b"
    assert (await kit.facts("grep", {"pattern": "x"})).path == "."
    assert (await kit.facts("read", {"path": "out/passwd"})).path is None
    assert (await kit.facts("read", {"path": 7})).path is None


async def test_a_change_is_told_as_a_difference_and_not_made(
    kit: CodingToolkit, tmp_path: Path
) -> None:
    edits = [{"old": "one", "new": "two"}]
    edit = await kit.facts("edit", {"path": "src/a.py", "edits": edits})
    assert edit.difference == "--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1 @@\n-one\n+two\n"
    write = await kit.facts("write", {"path": "src/b.py", "content": "new\n"})
    assert write.difference == "--- a/src/b.py\n+++ b/src/b.py\n@@ -0,0 +1 @@\n+new\n"
    wrong = await kit.facts("edit", {"path": "src/a.py", "edits": [{"old": "no", "new": "x"}]})
    assert wrong.difference is None
    assert (tmp_path / "src/a.py").read_text() == "one\n"
    assert not (tmp_path / "src/b.py").exists()


_ENDS = ["\n", "\r\n", "\r"]


@pytest.mark.parametrize("last", ["", *_ENDS])
@pytest.mark.parametrize("first", _ENDS)
async def test_the_difference_that_is_told_is_the_one_that_is_made(
    tmp_path: Path, first: str, last: str
) -> None:
    kit = CodingToolkit(tmp_path)
    tools, file = Toolbox(kit.tools), tmp_path / "a"
    before = f"one{first}two{last}"
    calls: list[tuple[str, JsonObject]] = [
        *(("write", {"content": f"one{end}two{end}"}) for end in _ENDS),
        *(("edit", {"edits": [{"old": "two", "new": f"2{end}3"}]}) for end in _ENDS),
        *(("edit", {"edits": [{"old": f"one{end}two", "new": "12"}]}) for end in _ENDS),
    ]
    for name, arguments in calls:
        file.write_bytes(before.encode())
        await tools.call("read", path="a")
        difference = (await kit.facts(name, {"path": "a", **arguments})).difference
        told = await tools.call(name, path="a", **arguments)
        if told.startswith("failed"):
            assert difference is None
        else:
            assert (difference or "a was like this already") == told
            assert bool(difference) == (file.read_bytes() != before.encode())


@pytest.mark.namespaces
async def test_a_command_is_told_with_its_words_folder_and_sandbox(kit: CodingToolkit) -> None:
    facts = await kit.facts("shell", {"command": ["ls", "-l"], "folder": "alias"})
    assert (facts.argv, facts.folder, facts.is_confined) == (("ls", "-l"), "src", True)
    facts = await kit.facts("shell", {"command": "ls | wc"})
    assert facts.argv is not None
    assert facts.argv[-2:] == ("-c", "ls | wc")


async def test_without_a_sandbox_a_command_is_told_to_be_unconfined(tmp_path: Path) -> None:
    kit = CodingToolkit(tmp_path, sandbox=None)
    assert (await kit.facts("shell", {"command": "ls"})).is_confined is False
