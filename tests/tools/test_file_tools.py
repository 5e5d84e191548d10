"""The file tools read, write, edit and list as a model expects, and refuse what would lose work."""

import stat
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera.tools import coding_tools
from haptera.tools.editing import Edit, EditError, apply_edits, difference
from tests.synced_disk import SyncedDisk
from tests.tools.toolbox import Toolbox, names_beneath

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


@pytest.fixture
def tools(tmp_path: Path) -> Toolbox:
    return Toolbox(coding_tools(tmp_path))


async def test_read_shows_lines_with_their_numbers_and_pages_through_them(
    tools: Toolbox, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {number}\n" for number in range(1, 6)))
    assert await tools.call("read", path="a.txt", offset=2, limit=2) == (
        "2\tline 2\n3\tline 3\n[2 lines follow, from offset=4 on]"
    )
    assert await tools.call("read", path="a.txt", offset=4) == "4\tline 4\n5\tline 5"
    assert await tools.call("read", path="a.txt", offset=9) == "[the file has 5 lines]"


async def test_read_says_what_lines_do_not_show(tools: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "open").write_text("no end")
    (tmp_path / "dos").write_bytes(b"one\r\ntwo\r\n")
    (tmp_path / "latin").write_bytes(b"caf\xe9\n")
    (tmp_path / "long").write_text("x" * 5000)
    assert await tools.call("read", path="empty") == "[the file is empty]"
    assert "[no newline at the end]" in await tools.call("read", path="open")
    assert await tools.call("read", path="dos") == "1\tone\n2\ttwo\n[lines end with CR LF]"
    assert "cannot be edited" in await tools.call("read", path="latin")
    assert "[3000 more characters]" in await tools.call("read", path="long")


async def test_pictures_are_shown_and_other_bytes_are_described(
    tools: Toolbox, tmp_path: Path
) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "a.bin").write_bytes(bytes(100))
    assert await tools.call("read", path="a.png") == "media image/png"
    assert "is not text: 100 bytes, SHA-256 cd00" in await tools.call("read", path="a.bin")
    assert "is a folder" in await tools.call("read", path=".")


@pytest.mark.slow
async def test_a_huge_file_is_read_in_pages_and_not_edited(tools: Toolbox, tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        for number in range(1, 1_200_001):
            file.write(b"%010d\n" % number)
    shown = await tools.call("read", path="huge", offset=1_000_000, limit=2)
    assert shown.startswith("1000000\t0001000000\n1000001\t0001000001\n[more lines follow")
    assert "[the end]" in await tools.call("read", path="huge", offset=1_199_999)
    refused = await tools.call("edit", path="huge", edits=[{"old": "0000000001", "new": "x"}])
    assert "larger than 10 MiB" in refused


async def all_pages(tools: Toolbox, name: str) -> str:
    """Read a kept result page by page, each from where the page before says."""
    pages, offset = [], 0
    while True:
        page, _, note = (await tools.call("read_output", name=name, offset=offset)).rpartition("\n")
        pages.append(page)
        if note.startswith("[the end"):
            return "".join(pages)
        offset = int(note.partition("offset=")[2].partition(" ")[0])


async def test_a_long_result_is_cut_and_the_rest_can_be_paged(
    tools: Toolbox, tmp_path: Path
) -> None:
    text = "".join(f"{number:06} is a line of some length\n" for number in range(2000))
    (tmp_path / "a.txt").write_text(text)
    shown = await tools.call("read", path="a.txt")
    assert len(shown) < 31_000
    name = shown.partition('read_output(name="')[2].partition('"')[0]
    whole = await all_pages(tools, name)
    assert [line.partition("\t")[2] for line in whole.splitlines()] == text.splitlines()
    other = Toolbox(coding_tools(tmp_path), session="ses_2")
    assert "failed" in await other.call("read_output", name=name)


@pytest.mark.parametrize("character", ["é", "€", "𝄞"])
@pytest.mark.parametrize("shift", range(4))
async def test_no_page_ends_inside_a_character(
    tools: Toolbox, tmp_path: Path, character: str, shift: int
) -> None:
    text = "x" * shift + "\n".join([character * 1_000] * 40)
    (tmp_path / "a.txt").write_text(text)
    shown = await tools.call("read", path="a.txt")
    name = shown.partition('read_output(name="')[2].partition('"')[0]
    whole = await all_pages(tools, name)
    assert "\n".join(line.partition("\t")[2] for line in whole.split("\n")[:40]) == text
    # An offset inside a character begins with all of it.
    at = len(whole[:500].encode())
    for offset in range(at, at + len(character.encode())):
        page = await tools.call("read_output", name=name, offset=offset)
        assert page.startswith(character * 2)
        assert "\ufffd" not in page


async def test_write_makes_folders_and_tells_what_changed(tools: Toolbox, tmp_path: Path) -> None:
    told = await tools.call("write", path="src/deep/a.py", content="one\ntwo\n")
    assert told == "src/deep/a.py is new: 2 lines, 8 bytes"
    changed = await tools.call("write", path="src/deep/a.py", content="one\n2\n")
    assert changed == ("--- a/src/deep/a.py\n+++ b/src/deep/a.py\n -1,2 +1,2 \n one\n-two\n+2\n")
    assert names_beneath(tmp_path) == {"src/deep/a.py"}


@pytest.mark.parametrize("character", ["a", "\u00e9", "\u6f22", "\U0001f600"])
async def test_a_file_with_the_longest_name_is_written_and_edited(
    tools: Toolbox, tmp_path: Path, character: str
) -> None:
    name = character * (255 // len(character.encode()))
    assert "is new" in await tools.call("write", path=name, content="one\n")
    await tools.call("edit", path=name, edits=[{"old": "one", "new": "two"}])
    assert (tmp_path / name).read_text() == "two\n"
    assert names_beneath(tmp_path) == {name}


async def test_a_power_cut_does_not_leave_an_empty_file_where_one_was_written(
    tools: Toolbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SyncedDisk(tmp_path, monkeypatch)
    for content in ("one\n", "one\ntwo\n"):
        await tools.call("write", path="a.txt", content=content)
        assert disk.keeps_content(tmp_path / "a.txt")


async def test_a_file_that_was_not_read_is_not_overwritten(tools: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("mine\n")
    assert "was not read yet" in await tools.call("write", path="a.txt", content="yours\n")
    edits = [{"old": "mine", "new": "yours"}]
    assert "was not read yet" in await tools.call("edit", path="a.txt", edits=edits)
    assert (tmp_path / "a.txt").read_text() == "mine\n"


async def test_a_file_that_changed_since_it_was_read_is_not_overwritten(
    tools: Toolbox, tmp_path: Path
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\n")
    await tools.call("read", path="a.txt")
    file.write_text("two\n")
    assert "changed since" in await tools.call("write", path="a.txt", content="three\n")
    edits = [{"old": "two", "new": "three"}]
    assert "changed since" in await tools.call("edit", path="a.txt", edits=edits)
    await tools.call("read", path="a.txt")
    assert "+three" in await tools.call("edit", path="a.txt", edits=edits)
    # What the session wrote itself it has seen.
    assert "+four" in await tools.call(
        "edit", path="a.txt", edits=[{"old": "three", "new": "four"}]
    )


async def test_what_one_session_read_another_has_not(tmp_path: Path) -> None:
    shared = coding_tools(tmp_path)
    (tmp_path / "a.txt").write_text("one\n")
    first, second = Toolbox(shared, session="ses_1"), Toolbox(shared, session="ses_2")
    await first.call("read", path="a.txt")
    edits = [{"old": "one", "new": "two"}]
    assert "was not read" in await second.call("edit", path="a.txt", edits=edits)
    assert "+two" in await first.call("edit", path="a.txt", edits=edits)


async def test_several_edits_are_made_all_or_none(tools: Toolbox, tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("a = 1\nb = 2\nc = 2\n")
    await tools.call("read", path="a.py")
    both = [{"old": "a = 1", "new": "a = 10"}, {"old": "= 2", "new": "= 20"}]
    told = await tools.call("edit", path="a.py", edits=both)
    assert "edit 2 of 2" in told
    assert "2 times (lines 2, 3)" in told
    assert file.read_text() == "a = 1\nb = 2\nc = 2\n"
    both[1]["all"] = True  # type: ignore[assignment]  # JSON of a model
    assert "+c = 20" in await tools.call("edit", path="a.py", edits=both)
    assert file.read_text() == "a = 10\nb = 20\nc = 20\n"


async def test_an_edit_keeps_mode_and_line_ends(tools: Toolbox, tmp_path: Path) -> None:
    file = tmp_path / "run.bat"
    file.write_bytes(b"one\r\ntwo\r\nthree\r\n")
    file.chmod(0o750)
    await tools.call("read", path="run.bat")
    await tools.call("edit", path="run.bat", edits=[{"old": "one\ntwo", "new": "1\n2"}])
    assert file.read_bytes() == b"1\r\n2\r\nthree\r\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o750


async def test_list_shows_kinds_and_does_not_follow(tools: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("abc")
    (tmp_path / "link").symlink_to("/etc")
    assert await tools.call("list") == "file (3 bytes)\nfolder/\nlink -> /etc"


async def test_input_that_does_not_fit_never_reaches_a_tool(tools: Toolbox) -> None:
    assert "not run" in await tools.call("read", path="a", offset=0)
    assert "not run" in await tools.call("edit", path="a", edits=[{"old": 1, "new": "b"}])


@given(
    st.lists(st.sampled_from("abcde"), max_size=30),
    st.lists(st.sampled_from("abcde"), max_size=30),
)
def test_a_difference_turns_one_text_into_the_other(before: list[str], after: list[str]) -> None:
    old, new = ("".join(f"{line}\n" for line in lines) for lines in (before, after))
    assert patched(old, difference(old, new, "f")) == new


def changed_at_random(chance: Random, kinds: int) -> tuple[str, str]:
    """Return a long text and one that was made of it, with few or many kinds of lines."""
    old = [f"{chance.randrange(kinds)}\n" for _ in range(chance.randrange(400))]
    new = list(old)
    for _ in range(chance.choice([1, 5, 100])):
        begin = chance.randrange(len(new) + 1)
        count = chance.choice([0, 1, 40])
        piece = chance.choice([new[:count], [f"{chance.randrange(kinds)}\n"], []])
        new[begin : begin + count] = piece
    return "".join(old), "".join(new)


@pytest.mark.parametrize("kinds", [3, 50, 400, 100_000])
def test_a_difference_of_long_texts_turns_one_into_the_other(kinds: int) -> None:
    for seed in range(60):
        old, new = changed_at_random(Random(f"{kinds} {seed}"), kinds)
        assert patched(old, difference(old, new, "f")) == new


def test_a_difference_is_no_longer_than_the_change() -> None:
    numbers = range(1500)
    old = "".join(f"a{number}\n" if number % 2 else f"{number}\n" for number in numbers)
    new = "".join(f"b{number}\n" if number % 2 else f"{number}\n" for number in numbers)
    told = difference(old, new, "f").splitlines()
    assert sum(line.startswith("-") for line in told[2:]) == 750
    assert sum(line.startswith("+") for line in told[2:]) == 750
    # A piece that has moved is told as taken out and put in, and nothing else is.
    lines = old.splitlines(keepends=True)
    moved = "".join([*lines[:100], *lines[200:900], *lines[100:200], *lines[900:]])
    told = difference(old, moved, "f").splitlines()
    assert sum(line.startswith(("-", "+")) for line in told[2:]) == 200


def patched(text: str, diff: str) -> str:
    """Apply a unified diff, the plain way."""
    lines, result, at = text.splitlines(keepends=True), [], 0
    for line in diff.splitlines(keepends=True)[2:]:
        if line.startswith(""):
            start, _, count = line.split()[1][1:].partition(",")
            begin = int(start) - (0 if count == "0" else 1)
            result += lines[at:begin]
            at = begin
        elif line.startswith("+"):
            result.append(line[1:])
        else:
            assert lines[at] == line[1:]
            result += [line[1:]] if line.startswith(" ") else []
            at += 1
    return "".join([*result, *lines[at:]])


@given(st.text("ab\n", max_size=40), st.text("ab\n", min_size=1, max_size=3), st.text("xy"))
def test_an_edit_changes_exactly_one_place_or_nothing(text: str, old: str, new: str) -> None:
    try:
        after = apply_edits(text, [Edit(old, new)])
    except EditError:
        assert text.count(old) != 1
    else:
        assert text.count(old) == 1
        assert after == text.replace(old, new)


def test_a_large_change_is_told_by_its_size() -> None:
    before = "".join(f"{number}\n" for number in range(10_000))
    after = before.replace("5", "five")
    assert "lines from line 6 on were replaced by" in difference(before, after, "f")
