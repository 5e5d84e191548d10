"""Snapshots of the workspace's files through an agent: what a turn changed, and taking it back."""

import asyncio
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from haptera import Agent, AgentSession, Approve, ErrorCode, tool
from haptera.model.file_snapshots import FileChange
from haptera.model.log.workspace import Snapshot
from haptera.stores.jsonl.store import JsonlStore
from haptera.stores.sqlite.store import SqliteStore
from haptera.testing import FakeClock, ScriptedProvider, calls, says
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import MODEL, failure_of, live_of

pytestmark = pytest.mark.slow

Change = Callable[[Path], object]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "kept.txt").write_text("kept\n")
    (folder / "story.txt").write_text("one\n")
    return folder


def turns(*texts: str) -> list[Step]:
    """Script one query for each text: it calls `change` with it, and says it was done."""
    return [step for text in texts for step in (calls(("change", {"name": text})), says("Done."))]


def make_agent(
    project: Path, steps: Sequence[Step], path: str = os.defpath, /, **changes: Change
) -> Agent:
    """Make an agent whose tool `change` does what the name says to the folder."""

    @tool(effect="write")
    def change(name: str) -> str:
        """Change files."""
        changes[name](project)
        return "changed"

    return Agent(
        model=MODEL,
        providers=[ScriptedProvider(steps)],
        clock=FakeClock(),
        environment={"HAPTERA_HOME": str(project.parent / "home"), "PATH": path},
        workspace=project,
        tools=[change],
    )


def write(name: str, content: str | bytes) -> Change:
    data = content.encode() if isinstance(content, str) else content

    def act(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)

    return act


def state_of(folder: Path) -> dict[str, tuple[str, int, bytes]]:
    """Return everything beneath a folder: kind, executable bits and content of each name."""
    found: dict[str, tuple[str, int, bytes]] = {}
    for path in sorted(folder.rglob("*")):
        name = os.fsdecode(path.relative_to(folder))
        if path.is_symlink():
            found[name] = ("link", 0, os.fsencode(path.readlink()))
        elif path.is_file():
            found[name] = ("file", path.stat().st_mode & 0o111, path.read_bytes())
    return found


def changes_of(diff: Any) -> dict[str, str]:
    return {change.path: change.kind for change in diff.changes}


async def snapshots_of(session: AgentSession) -> list[Snapshot]:
    live = await live_of(session)
    entries = await live.store.log.read(live.session_id)
    return [entry for entry in entries if isinstance(entry, Snapshot)]


async def test_a_turn_that_writes_is_recorded_and_can_be_taken_back(project: Path) -> None:
    before = state_of(project)
    agent = make_agent(project, turns("edit"), edit=write("story.txt", "two\n"))
    async with agent, agent.session() as session:
        result = await session.chat("go")
        first = session.messages[0]
        diff = await session.diff()
        assert changes_of(diff) == {"story.txt": "changed"}
        assert "-one\n+two\n" in diff.patch
        assert diff.is_complete
        taken = await snapshots_of(session)
        assert [item.moment for item in taken] == ["before", "after"]
        assert {item.turn_id for item in taken} != {None}
        assert await session.diff(taken[0].turn_id) == diff
        assert await session.diff(taken[0].query_id) == diff
        assert await session.diff(session.messages[1].id) == diff
        assert changes_of(await session.diff(result.message_id)) == {}
        dry = await session.rewind(to=first.id, files=True, dry_run=True)
        assert (dry.changes, dry.is_done) == (
            (FileChange(path="story.txt", kind="changed"),),
            False,
        )
        assert len(session.messages) > 1
        report = await session.rewind(to=first.id, files=True)
        assert report.changes == dry.changes
        assert report.is_done
        assert state_of(project) == before
        assert session.messages == (first,)
        undone = await session.undo_rewind()
        assert undone.changes == dry.changes
        assert (project / "story.txt").read_text() == "two\n"
        assert session.messages[-1].text == "Done."


async def test_what_a_command_changed_is_in_the_diff(project: Path) -> None:
    steps = [calls(("shell", {"command": "echo made > made.txt; rm kept.txt"})), says("Done.")]
    agent = Agent(
        model=MODEL,
        providers=[ScriptedProvider(steps)],
        environment={"HAPTERA_HOME": str(project.parent / "home"), "PATH": os.defpath},
        workspace=project,
        approver=lambda request: Approve(),
    )
    async with agent, agent.session() as session:
        await session.chat("go")
        assert changes_of(await session.diff()) == {"made.txt": "added", "kept.txt": "deleted"}
        await session.rewind(to=session.messages[0].id, files=True)
    assert set(state_of(project)) == {"kept.txt", "story.txt"}


@pytest.mark.parametrize("name", [".haptera-rewind-0f", ".holdfast-rewind-0f"])
async def test_what_a_rewind_left_is_in_no_snapshot(project: Path, name: str) -> None:
    (project / name).mkdir()
    (project / name / "1").write_text("left")
    agent = make_agent(project, turns("edit"), edit=write(f"{name}/2", "more\n"))
    async with agent, agent.session() as session:
        await session.chat("go")
        assert changes_of(await session.diff()) == {}


async def test_a_turn_that_only_reads_takes_no_snapshot(project: Path) -> None:
    steps = [calls(("read", {"path": "kept.txt"})), says("Read.")]
    agent = make_agent(project, steps)
    async with agent, agent.session() as session:
        await session.chat("go")
        assert await snapshots_of(session) == []
        assert changes_of(await session.diff()) == {}
    assert not (project.parent / "home").exists()


def odd_names(folder: Path) -> None:
    for name in ("a\nb", ":(glob)*", "-rf", 'quo"te', "späße", " lead", "tab\t", "*", "#x", "!y"):
        (folder / name).write_text(name)
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe")).write_bytes(b"no text")


def everything(folder: Path) -> None:
    """Do all that can be done to files, also what git treats in special ways."""
    (folder / "picture.bin").write_bytes(bytes(reversed(range(256))))
    (folder / "gone.txt").unlink()
    (folder / "old.txt").rename(folder / "new.txt")
    (folder / ".gitignore").write_text("secret.log\n")
    (folder / "secret.log").write_text("changed while ignored\n")
    (folder / "link").unlink()
    (folder / "link").symlink_to("story.txt")
    (folder / "run.sh").chmod(0o644)
    (folder / "dos.txt").write_bytes(b"a\r\nc\r\n")
    (folder / "folder" / "inner.txt").unlink()
    (folder / "folder").rmdir()
    (folder / "folder").write_text("a file by now")
    (folder / "file").unlink()
    (folder / "file").mkdir()
    (folder / "file" / "inner.txt").write_text("in a folder by now")
    odd_names(folder)


def prepare_everything(folder: Path) -> None:
    (folder / "picture.bin").write_bytes(bytes(range(256)))
    for name in ("gone.txt", "old.txt", "secret.log", "file"):
        (folder / name).write_text(f"{name} at first\n")
    (folder / "link").symlink_to("/nowhere/at all")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / ".gitattributes").write_text("* text=auto eol=crlf\n*.txt filter=evil\n")
    (folder / "dos.txt").write_bytes(b"a\r\nb\r\nmixed\n")
    (folder / "folder").mkdir()
    (folder / "folder" / "inner.txt").write_text("inner\n")


async def test_every_kind_of_change_is_taken_back_byte_for_byte(project: Path) -> None:
    prepare_everything(project)
    before = state_of(project)
    agent = make_agent(project, turns("all"), all=everything)
    async with agent, agent.session() as session:
        await session.chat("go")
        after = state_of(project)
        changed = changes_of(await session.diff())
        assert changed["secret.log"] == changed["picture.bin"] == changed["run.sh"] == "changed"
        assert changed["old.txt"] == changed["folder/inner.txt"] == "deleted"
        assert changed["new.txt"] == changed["a\nb"] == changed["\udcff\udcfe"] == "added"
        await session.rewind(to=session.messages[0].id, files=True)
        assert state_of(project) == before
        await session.undo_rewind()
        assert state_of(project) == after


def in_repository(folder: Path, *words: str) -> None:
    environment = {"PATH": os.defpath, "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    names = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["/usr/bin/env", "git", *names, *words], cwd=folder, env=environment, check=True)


def digest_of(folder: Path) -> str:
    """Return a digest of every name, mode, time and byte beneath a folder."""
    digest = hashlib.sha256()
    for path in [folder, *sorted(folder.rglob("*"))]:
        found = path.lstat()
        facts = (os.fsencode(path), found.st_mode, found.st_mtime_ns, found.st_size)
        digest.update(repr(facts).encode())
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


async def test_the_projects_own_repository_is_not_touched(project: Path, tmp_path: Path) -> None:
    in_repository(project, "init", "--quiet")
    (project / ".gitignore").write_text("build/\n")
    (project / ".git" / "info" / "exclude").write_text("*.tmp\n")
    in_repository(project, "add", "kept.txt", ".gitignore")
    in_repository(project, "commit", "--quiet", "-m", "first")
    (project / "kept.txt").write_text("staged\n")
    in_repository(project, "add", "kept.txt")
    alarm = tmp_path / "ran"
    for hook in ("post-index-change", "post-checkout", "pre-commit", "fsmonitor-watchman"):
        (project / ".git" / "hooks" / hook).write_text(f"#!/bin/sh\ntouch {alarm}\n")
        (project / ".git" / "hooks" / hook).chmod(0o755)
    in_repository(project, "config", "core.fsmonitor", f"touch {alarm}; false")
    in_repository(project, "config", "filter.evil.clean", f"touch {alarm}; cat")
    (project / ".gitattributes").write_text("* filter=evil\n")
    alarm.unlink(missing_ok=True)
    before = digest_of(project / ".git")

    def change(folder: Path) -> None:
        write("build/out.o", "ignored")(folder)
        write("note.tmp", "excluded")(folder)
        write("kept.txt", "changed\n")(folder)
        write("new.txt", "new\n")(folder)

    agent = make_agent(project, turns("change"), change=change)
    async with agent, agent.session() as session:
        await session.chat("go")
        assert changes_of(await session.diff()) == {"kept.txt": "changed", "new.txt": "added"}
        await session.rewind(to=session.messages[0].id, files=True)
        await session.undo_rewind()
        await session.rewind(to=session.messages[0].id, files=True)
    assert digest_of(project / ".git") == before
    assert (project / "kept.txt").read_text() == "staged\n"
    assert (project / "build/out.o").read_text() == "ignored"
    assert not alarm.exists()


async def test_nested_repositories_and_large_files_are_skipped_and_named(project: Path) -> None:
    (project / "nested").mkdir()
    in_repository(project / "nested", "init", "--quiet")
    (project / "nested" / "inner.txt").write_text("inner\n")
    (project / "large.bin").write_bytes(bytes(3 << 20))

    def change(folder: Path) -> None:
        write("nested/inner.txt", "changed\n")(folder)
        write("large.bin", b"x" * (3 << 20))(folder)
        write("story.txt", "two\n")(folder)

    agent = make_agent(project, turns("change"), change=change)
    async with agent, agent.session() as session:
        await session.chat("go")
        first, _ = await snapshots_of(session)
        assert first.skipped_count == 2
        assert sorted(item.partition(":")[0] for item in first.skipped) == ["large.bin", "nested/"]
        assert changes_of(await session.diff()) == {"story.txt": "changed"}
        await session.rewind(to=session.messages[0].id, files=True)
    assert (project / "nested" / "inner.txt").read_text() == "changed\n"
    assert (project / "story.txt").read_text() == "one\n"


async def test_a_file_that_others_changed_since_is_overwritten_only_by_force(project: Path) -> None:
    changes = {"one": write("story.txt", "two\n"), "two": write("other.txt", "by the agent\n")}
    agent = make_agent(project, turns("one", "two"), **changes)
    async with agent, agent.session() as session:
        await session.chat("go")
        (project / "story.txt").write_text("by a person\n")
        (project / "mine.txt").write_text("never the agent's\n")
        await session.chat("again")
        dry = await session.rewind(to=session.messages[0].id, files=True, dry_run=True)
        assert dry.conflicts == ("story.txt",)
        assert {item.path for item in dry.changes} == {"story.txt", "other.txt"}
        error = await failure_of(session.rewind(to=session.messages[0].id, files=True))
        assert error.code is ErrorCode.CONFLICT
        assert "story.txt" in error.message
        assert (project / "story.txt").read_text() == "by a person\n"
        assert (project / "other.txt").exists()
        assert len(session.messages) == 8
        await session.rewind(to=session.messages[0].id, files=True, force=True)
        assert (project / "story.txt").read_text() == "one\n"
        assert not (project / "other.txt").exists()
        assert (project / "mine.txt").read_text() == "never the agent's\n"
        (project / "story.txt").write_text("after the rewind\n")
        error = await failure_of(session.undo_rewind())
        assert error.code is ErrorCode.CONFLICT
        await session.undo_rewind(force=True)
        assert (project / "story.txt").read_text() == "by a person\n"


async def test_each_turn_can_be_gone_back_to(project: Path) -> None:
    changes = {name: write("story.txt", f"{name}\n") for name in ("two", "three", "four")}
    agent = make_agent(project, turns("two", "three", "four"), **changes)
    async with agent, agent.session() as session:
        answers = [(await session.chat(name)).message_id for name in changes]
        await session.rewind(to=str(answers[0]))  # the conversation alone: files stay
        assert (project / "story.txt").read_text() == "four\n"
        for answer, text in zip(reversed(answers), ("four", "three", "two"), strict=True):
            await session.rewind(to=str(answer), files=True)
            assert (project / "story.txt").read_text() == f"{text}\n"
        fork = await session.fork()
        await fork.rewind(to=fork.messages[0].id, files=True)
        assert (project / "story.txt").read_text() == "one\n"
        await fork.close()


async def test_without_git_it_is_warned_of_once_and_the_query_goes_on(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changes = {"a": write("a", "a"), "b": write("b", "b")}
    agent = make_agent(project, turns("a", "b"), "/nowhere", **changes)
    async with agent, agent.session() as session:
        for prompt in ("a", "b"):
            assert (await session.chat(prompt)).text == "Done."
        said = await snapshots_of(session)
        assert [(item.tree, item.error) for item in said] == [
            ("", "there is no program `git` on this machine")
        ] * 2
        assert [item.message for item in caplog.records] == [
            "no snapshot of the workspace is taken: there is no program `git` on this machine"
        ]
        error = await failure_of(session.rewind(to=session.messages[0].id, files=True))
        assert error.code is ErrorCode.UNAVAILABLE
        assert "git" in error.message
        assert (project / "a").exists()
        assert len(session.messages) == 8


async def test_no_turn_that_wrote_without_a_snapshot_is_said_to_have_changed_nothing(
    project: Path,
) -> None:
    changes = {name: write(name, name) for name in "abcd"}
    two_turns = [calls(("change", {"name": name})) for name in "ab"]
    steps = [*two_turns, says("Done."), *turns("c", "d")]
    agent = make_agent(project, steps, "/nowhere", **changes)
    async with agent, agent.session() as session:
        for prompt in ("ab", "c", "d"):
            await session.chat(prompt)
        answers = [item for item in session.messages if item.role == "assistant"]
        writing = [item for item in answers if item.text != "Done."]
        for name in [item.id for item in writing] + [item.query_id for item in answers]:
            error = await failure_of(session.diff(name))
            assert error.code is ErrorCode.UNAVAILABLE
        # Each turn is followed by one that wrote, but for the last.
        for message in session.messages[:-3]:
            error = await failure_of(session.rewind(to=message.id, files=True))
            assert error.code is ErrorCode.UNAVAILABLE
        assert all((project / name).exists() for name in changes)


async def test_what_was_changed_without_a_snapshot_is_a_conflict_of_an_earlier_rewind(
    project: Path, tmp_path: Path
) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.symlink_to(str(shutil.which("git", path=os.defpath)))
    changes = {"a": write("a", "a"), "b": write("b", "b")}
    agent = make_agent(project, turns("a", "b"), str(program.parent), **changes)
    async with agent, agent.session() as session:
        await session.chat("a")
        program.rename(tmp_path / "kept")
        await session.chat("b")
        (tmp_path / "kept").rename(program)
        first = session.messages[0].id
        dry = await session.rewind(to=first, files=True, dry_run=True)
        assert {change.path: change.kind for change in dry.changes} == dict.fromkeys(
            "ab", "deleted"
        )
        assert dry.conflicts == ("b",)
        await session.rewind(to=first, files=True, force=True)
    assert set(state_of(project)) == {"kept.txt", "story.txt"}


async def test_a_folder_that_cannot_be_written_is_said_and_not_fatal(project: Path) -> None:
    (project.parent / "home").mkdir()
    (project.parent / "home" / "data").write_text("a file where a folder should be")
    agent = make_agent(project, turns("a"), a=write("a", "a"))
    async with agent, agent.session() as session:
        assert (await session.chat("go")).text == "Done."
        (said,) = await snapshots_of(session)
        assert "cannot be used" in str(said.error)


async def test_a_full_disk_is_said_and_not_fatal(project: Path, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\necho 'fatal: write error: No space left on device' >&2; exit 128\n"
    )
    program.chmod(0o755)
    agent = make_agent(project, turns("a"), str(program.parent), a=write("a", "a"))
    async with agent, agent.session() as session:
        assert (await session.chat("go")).text == "Done."
        (said,) = await snapshots_of(session)
        assert "No space left on device" in str(said.error)
        error = await failure_of(session.diff())
        assert "No space left on device" in error.message


async def test_a_killed_process_leaves_what_is_needed_to_go_back(project: Path) -> None:
    worker = Path(__file__).with_name("snapshot_worker.py")
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(worker), str(project)],
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (project / "story.txt").read_text() == "half\n"
    agent = Agent(
        model=MODEL,
        providers=[ScriptedProvider([])],
        environment={"HAPTERA_HOME": str(project.parent / "home"), "PATH": os.defpath},
        workspace=project,
        store=f"sqlite:{project.parent / 'chat.db'}",
    )
    async with agent, agent.session("killed", must_exist=True) as session:
        diff = await session.diff()
        assert changes_of(diff) == {"story.txt": "changed"}
        assert not diff.is_complete
        await session.rewind(to=session.messages[0].id, files=True)
    assert (project / "story.txt").read_text() == "one\n"


async def test_snapshots_can_be_turned_off(project: Path) -> None:
    agent = Agent(
        model=MODEL,
        providers=[ScriptedProvider([says("Hello.")])],
        environment={},
        workspace=project,
        snapshots=False,
    )
    async with agent, agent.session() as session:
        await session.chat("go")
        error = await failure_of(session.diff())
        assert error.code is ErrorCode.CONFIG_MISSING
        error = await failure_of(session.rewind(to=session.messages[0].id, files=True))
        assert error.code is ErrorCode.CONFIG_MISSING
        report = await session.rewind(to=session.messages[0].id)
        assert report.changes == ()


async def test_tools_side_by_side_share_the_snapshot_of_their_turn(project: Path) -> None:
    steps = [calls(*(("change", {"name": name}) for name in "ab")), says("Done.")]
    agent = make_agent(project, steps, a=write("a", "a"), b=write("b", "b"))
    async with agent, agent.session(parallel_tools=True) as session:
        await session.chat("go")
        assert [item.moment for item in await snapshots_of(session)] == ["before", "after"]
        assert changes_of(await session.diff()) == {"a": "added", "b": "added"}


async def test_a_call_that_was_approved_later_belongs_to_its_turn(project: Path) -> None:
    steps = [calls(("write", {"path": "new.txt", "content": "new"})), says("Done.")]
    agent = make_agent(project, steps)
    async with agent, agent.session() as session:
        result = await session.chat("go")
        (asked,) = result.pending
        assert await snapshots_of(session) == []
        await session.approve(asked.id)
        await session.resume()
        assert changes_of(await session.diff(session.messages[1].turn_id)) == {"new.txt": "added"}
        await session.rewind(to=session.messages[0].id, files=True)
    assert not (project / "new.txt").exists()


STORES_IN_A_FOLDER: dict[str, Callable[[Path], Any]] = {
    "jsonl string": lambda folder: f"jsonl:{folder / 'chat'}",
    "sqlite string": lambda folder: f"sqlite:{folder / 'chat.db'}",
    "jsonl object": lambda folder: JsonlStore(folder / "chat"),
    "sqlite object": lambda folder: SqliteStore(folder / "chat.db"),
}


@pytest.mark.parametrize("kind", STORES_IN_A_FOLDER)
async def test_a_store_in_the_workspace_is_never_rewound(kind: str, project: Path) -> None:
    store = STORES_IN_A_FOLDER[kind](project)

    @tool(effect="write")
    def change() -> str:
        """Change files."""
        (project / "story.txt").write_text("two\n")
        return "changed"

    agent = Agent(
        model=MODEL,
        providers=[ScriptedProvider([calls(("change", {})), says("Done.")])],
        environment={"HAPTERA_HOME": str(project / "home"), "PATH": os.defpath},
        workspace=project,
        store=store,
        tools=[change],
    )
    async with agent, agent.session() as session:
        await session.chat("go")
        assert changes_of(await session.diff()) == {"story.txt": "changed"}
        await session.rewind(to=session.messages[0].id, files=True)
        assert len(session.messages) == 1
    if not isinstance(store, str):
        await store.close()


async def test_a_tool_that_was_cut_off_is_in_the_diff_up_to_now(project: Path) -> None:
    started, never = asyncio.Event(), asyncio.Event()

    @tool(effect="write")
    async def change() -> str:
        """Change files and hang."""
        (project / "story.txt").write_text("half\n")
        started.set()
        await never.wait()
        return "never"

    agent = Agent(
        model=MODEL,
        providers=[ScriptedProvider([calls(("change", {}))])],
        environment={"HAPTERA_HOME": str(project.parent / "home"), "PATH": os.defpath},
        workspace=project,
        tools=[change],
    )
    async with agent, agent.session() as session:
        running = asyncio.ensure_future(session.chat("go"))
        await started.wait()
        session.abort()
        await failure_of(running)
        diff = await session.diff()
        assert changes_of(diff) == {"story.txt": "changed"}
        assert not diff.is_complete
        await session.rewind(to=session.messages[0].id, files=True)
    assert (project / "story.txt").read_text() == "one\n"
