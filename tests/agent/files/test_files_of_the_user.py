"""What a rewind with files must never do to what the user put into the workspace."""

import os
import stat
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from haptera import ErrorCode
from haptera.model.file_snapshots import RewindReport
from haptera.model.log.workspace import Snapshot
from haptera.stores.file_trees.git_trees import GitTrees
from tests.agent.files.file_worlds import BIG, HUGE, agent_in, clear, plain, state_of
from tests.scripted_agents import failure_of, live_of

pytestmark = pytest.mark.slow

Work = Callable[[Path], object]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "story.txt").write_text("one\n")
    return folder


def write(name: str, content: str) -> Work:
    def act(root: Path) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)

    return act


def each(*acts: Work) -> Work:
    def act(root: Path) -> None:
        for one in acts:
            one(root)

    return act


def size(name: str, length: int) -> Work:
    def act(root: Path) -> None:
        (root / name).touch()
        os.truncate(root / name, length)

    return act


def told(report: RewindReport) -> set[str]:
    return {item.path for item in (*report.left, *report.refused)}


async def test_what_the_user_put_where_git_ignores_it_now_is_a_conflict_and_comes_back(
    root: Path,
) -> None:
    def remove(root: Path) -> None:
        (root / "notes.txt").unlink()
        (root / ".gitignore").write_text("notes.txt\n")

    write("notes.txt", "of the project\n")(root)
    agent = agent_in(root, "memory", [lambda: remove(root)])
    async with agent, agent.session() as session:
        await session.chat("go")
        write("notes.txt", "precious\n")(root)
        (root / "notes.txt").chmod(0o600)
        os.utime(root / "notes.txt", ns=(10**18, 10**18))
        before, first = state_of(root), session.messages[0].id
        error = await failure_of(session.rewind(to=first, files=True))
        assert error.code is ErrorCode.CONFLICT
        assert "notes.txt" in error.message
        assert state_of(root) == before
        report = await session.rewind(to=first, files=True, force=True)
        assert report.conflicts == ("notes.txt",)
        assert "notes.txt" in report.restored
        assert (root / "notes.txt").read_text() == "of the project\n"
        await session.undo_rewind()
        assert state_of(root) == before


def former_repository(root: Path) -> None:
    for name in ("objects", "refs"):
        (root / "sub" / ".git" / name).mkdir(parents=True)
    (root / "sub" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (root / "sub" / "in.txt").write_text("of the sub-repository\n")


NOT_RECORDED: dict[str, tuple[Work, Work, str, str]] = {
    "an ignored file": (
        each(write(".env", "KEY=1\n"), write(".gitignore", ".env\n")),
        write(".gitignore", "nothing\n"),
        ".env",
        ".env",
    ),
    "a large file that was cut": (size("big.bin", BIG), size("big.bin", 5), "big.bin", "big.bin"),
    "a former repository": (
        former_repository,
        lambda root: clear(root / "sub" / ".git"),
        "sub/in.txt",
        "sub/",
    ),
    "dependencies": (
        write("node_modules/m.js", "installed\n"),
        write(".gitignore", "!node_modules/\n"),
        "node_modules/m.js",
        "node_modules/",
    ),
}


@pytest.mark.parametrize("case", NOT_RECORDED)
async def test_what_was_not_recorded_is_not_taken_for_what_was_not_there(
    case: str, root: Path
) -> None:
    prepare, work, kept, named = NOT_RECORDED[case]
    prepare(root)
    agent = agent_in(root, "memory", [lambda: each(work, write("story.txt", "two\n"))(root)])
    async with agent, agent.session() as session:
        await session.chat("go")
        before = (root / kept).read_bytes()
        report = await session.rewind(to=session.messages[0].id, files=True)
        assert (root / kept).read_bytes() == before
        assert named in told(report)
        assert (root / "story.txt").read_text() == "one\n"


async def test_a_file_that_grew_above_the_limit_is_brought_back(root: Path) -> None:
    agent = agent_in(root, "memory", [lambda: size("story.txt", BIG)(root)])
    async with agent, agent.session() as session:
        await session.chat("go")
        before = state_of(root)
        assert [item.kind for item in (await session.diff()).changes] == ["changed"]
        report = await session.rewind(to=session.messages[0].id, files=True)
        assert report.restored == ("story.txt",)
        assert (root / "story.txt").read_text() == "one\n"
        await session.undo_rewind()
        assert state_of(root) == before


async def test_a_file_that_is_too_large_to_be_copied_is_refused(root: Path) -> None:
    work = each(size("story.txt", HUGE), write("other.txt", "new\n"))
    agent = agent_in(root, "memory", [lambda: work(root)])
    async with agent, agent.session() as session:
        await session.chat("go")
        report = await session.rewind(to=session.messages[0].id, files=True)
        assert [item.path for item in report.refused] == ["story.txt"]
        assert report.restored == ("other.txt",)
        assert (root / "story.txt").stat().st_size == HUGE


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o750])
async def test_the_mode_comes_back(mode: int, root: Path) -> None:
    def replace(root: Path) -> None:
        (root / "story.txt").unlink()
        (root / "story.txt").write_text("two\n")
        (root / "only-mode.txt").chmod(0o644)

    for name in ("story.txt", "only-mode.txt"):
        (root / name).touch()
        (root / name).chmod(mode)
    agent = agent_in(root, "memory", [lambda: replace(root)])
    async with agent, agent.session() as session:
        await session.chat("go")
        before = state_of(root)
        await session.rewind(to=session.messages[0].id, files=True)
        for name in ("story.txt", "only-mode.txt"):
            assert stat.S_IMODE((root / name).stat().st_mode) == mode
        await session.undo_rewind()
        assert state_of(root) == before


async def test_what_is_ignored_by_now_is_not_deleted(root: Path) -> None:
    agent = agent_in(root, "memory", [lambda: write("out.log", "made by the agent\n")(root)])
    async with agent, agent.session() as session:
        await session.chat("go")
        write(".gitignore", "*.log\n")(root)
        report = await session.rewind(to=session.messages[0].id, files=True)
        assert [(item.path, item.reason) for item in report.left] == [("out.log", "it is ignored")]
        assert (root / "out.log").exists()


async def test_a_file_that_a_program_has_open_for_writing_is_refused(root: Path) -> None:
    agent = agent_in(root, "memory", [lambda: write("story.txt", "two\n")(root)])
    async with agent, agent.session() as session:
        await session.chat("go")
        with (root / "story.txt").open("a") as file:
            report = await session.rewind(to=session.messages[0].id, files=True)
            file.write("three\n")
        assert [item.path for item in report.refused] == ["story.txt"]
        assert (root / "story.txt").read_text() == "two\nthree\n"


async def test_a_link_in_the_place_of_a_folder_is_not_followed(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("of another person\n")
    write("sub/x", "one\n")(root)
    agent = agent_in(root, "memory", [lambda: write("sub/x", "two\n")(root)])
    async with agent, agent.session() as session:
        await session.chat("go")
        (root / "sub").rename(root / "moved")
        (root / "sub").symlink_to(outside)
        report = await session.rewind(to=session.messages[0].id, files=True, force=True)
        assert "sub/x" in told(report)
        assert (outside / "x").read_text() == "of another person\n"


@pytest.mark.parametrize("how", ["delete", "prune"])
async def test_copies_are_for_the_owner_only_out_of_exports_and_go_with_the_session(
    how: str, root: Path
) -> None:
    secret = "KEY=of-the-user"
    agent = agent_in(root, "memory", [(root / ".env").unlink])
    write(".env", "KEY=example\n")(root)
    async with agent, agent.session() as session:
        await session.chat("go")
        write(".env", secret)(root)
        await session.rewind(to=session.messages[0].id, files=True, force=True)
        snapshots = root.parent / "home" / "data" / "snapshots"
        copies = [path for path in snapshots.glob("*/kept/**/*") if path.is_file()]
        assert any(path.read_bytes() == secret.encode() for path in copies)
        assert [path for path in snapshots.rglob("*") if path.lstat().st_mode & 0o077] == []
        session_id = session.session_id or ""
        archive = b"".join([piece async for piece in agent.sessions.export(session_id)])
        assert secret.encode() not in archive
        if how == "delete":
            await session.delete()
        else:
            await session.close()
            assert await agent.sessions.prune(days=-1)
        assert list(snapshots.glob("*/kept/*")) == []


async def test_a_full_disk_leaves_everything_as_it_was(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from haptera.stores.file_trees import kept_files, places

    acts: Sequence[Work] = [write(f"{name}.txt", "two\n") for name in ("a", "b", "story")]
    agent = agent_in(root, "memory", [lambda: each(*acts)(root)])
    real = places.copy_file
    count = 0

    def copy(*arguments: Any, **named: Any) -> None:
        nonlocal count
        count += 1
        if count == 1:
            raise OSError(28, "No space left on device")
        real(*arguments, **named)

    async with agent, agent.session() as session:
        await session.chat("go")
        before, first = state_of(root), session.messages[0].id
        with monkeypatch.context() as patch:
            patch.setattr(kept_files, "copy_file", copy)
            error = await failure_of(session.rewind(to=first, files=True))
        assert error.code is ErrorCode.FULL
        assert state_of(root) == before
        assert len(session.messages) > 1
        error = await failure_of(session.undo_rewind())
        assert error.code is ErrorCode.NOT_FOUND
        await session.rewind(to=first, files=True)
        await session.undo_rewind()
        assert state_of(root) == before


async def test_a_file_that_changes_in_the_middle_is_not_lost(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from haptera.stores.file_trees import kept_files

    agent = agent_in(
        root, "memory", [lambda: each(write("a", "new\n"), write("story.txt", "two\n"))(root)]
    )
    real = kept_files.KeptFiles.carry_out

    def carry_out(self: kept_files.KeptFiles, name: str) -> None:
        write("story.txt", "in the middle\n")(root)
        real(self, name)

    async with agent, agent.session() as session:
        await session.chat("go")
        with monkeypatch.context() as patch:
            patch.setattr(kept_files.KeptFiles, "carry_out", carry_out)
            error = await failure_of(session.rewind(to=session.messages[0].id, files=True))
        assert error.code is ErrorCode.CONFLICT
        assert (root / "story.txt").read_text() == "in the middle\n"
        assert (root / "a").read_text() == "new\n"


async def test_what_is_written_over_a_file_that_was_brought_back_is_not_lost(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rewind fails behind it, and takes back what it did."""
    from haptera.stores.file_trees import kept_files

    names = ("a.txt", "story.txt")
    write("a.txt", "one\n")(root)
    work = each(*(write(name, "two\n") for name in names))
    agent = agent_in(root, "memory", [lambda: work(root)])
    real = kept_files._Exchanging._put_in

    def put_in(self: Any, move: Any, *arguments: Any) -> None:
        if move.name == "story.txt":
            for name in names:
                write(name, "in the middle\n")(root)
        real(self, move, *arguments)

    async with agent, agent.session() as session:
        await session.chat("go")
        with monkeypatch.context() as patch:
            patch.setattr(kept_files._Exchanging, "_put_in", put_in)
            error = await failure_of(session.rewind(to=session.messages[0].id, files=True))
        assert error.code is ErrorCode.CONFLICT
        assert [(root / name).read_text() for name in names] == ["in the middle\n"] * 2


async def test_a_repository_that_the_session_made_is_named_when_it_is_none_any_more(
    root: Path,
) -> None:
    agent = agent_in(root, "memory", [lambda: former_repository(root)])
    async with agent, agent.session() as session:
        await session.chat("go")
        clear(root / "sub" / ".git")
        report = await session.rewind(to=session.messages[0].id, files=True)
        assert (root / "sub" / "in.txt").exists()
        assert told(report) == {"sub/"}


async def test_snapshots_of_earlier_versions_can_be_rewound_and_undone(root: Path) -> None:
    """They are plain trees, and their rewinds made no copies."""

    def work(root: Path) -> None:
        write("story.txt", "two\n")(root)
        write("new/made.txt", "new\n")(root)

    write(".env", "KEY=1\n")(root)
    agent = agent_in(root, "memory", [lambda: work(root)])
    async with agent, agent.session() as session:
        snapshotter = agent._composition.workspace.snapshotter
        assert snapshotter is not None
        live = await live_of(session)
        take = snapshotter.take

        async def take_plain() -> object:
            taken = await take()
            repository = snapshotter._repository  # type: ignore[attr-defined]
            with repository.locked():
                said = repository.run("rev-parse", f"{taken.tree}^{{tree}}")
            return msgspec.structs.replace(taken, tree=said.decode().strip())

        snapshotter.take = take_plain  # type: ignore[method-assign, assignment]
        await session.chat("go")
        before, first = state_of(root), session.messages[0].id
        await session.rewind(to=first, files=True)
        assert (root / "story.txt").read_text() == "one\n"
        assert not (root / "new").exists()
        await session.undo_rewind()
        assert state_of(root) == before
        # One that made no copies is undone by its trees.
        await session.rewind(to=first, files=True)
        entries = await live.store.log.read(live.session_id)
        real = live.branches.entries

        async def without_copies() -> object:
            return [
                msgspec.structs.replace(entry, kept="") if isinstance(entry, Snapshot) else entry
                for entry in await real()
            ]

        assert any(isinstance(entry, Snapshot) and entry.kept for entry in entries)
        live.branches.entries = without_copies  # type: ignore[method-assign, assignment]
        await session.undo_rewind()
        assert {path: each[2] for path, each in plain(state_of(root)).items()} == {
            path: each[2] for path, each in plain(before).items()
        }


@pytest.mark.parametrize("kept", ["../../../outside", "/", "0" * 31, "0" * 32])
async def test_an_id_of_copies_that_is_none_reaches_no_path(kept: str, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    with tempfile.TemporaryDirectory() as data:
        trees = GitTrees(tmp_path / "work", data=Path(data), environment={"PATH": os.defpath})
        error = await failure_of(trees.carry_out(kept, session="s"))
        assert error.code is ErrorCode.UNAVAILABLE
        assert await trees.take_back(kept, session="s") == ()
