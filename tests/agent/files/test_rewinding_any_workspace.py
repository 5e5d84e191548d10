"""Whatever was done to files: a rewind touches what it knows, and is taken back as a whole."""

import ast
import asyncio
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from haptera import AgentError, AgentSession, ErrorCode, SessionError
from haptera.stores.file_trees.places import FileState, Places
from haptera.stores.file_trees.tree_facts import TreeFacts
from tests.agent.files.case_insensitive_disk import case_insensitive_disk
from tests.agent.files.file_worlds import (
    COMPOSED,
    DECOMPOSED,
    FILES,
    State,
    agent_in,
    at_step,
    changed_between,
    edit,
    files_of,
    fill,
    let_modes_bind,
    plain,
    state_of,
    unlock,
    write_beside,
)
from tests.fixtures_wire import is_everything_required

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
FULL = (ErrorCode.FULL, ErrorCode.UNAVAILABLE)


class Lived(NamedTuple):
    """What happened in a workspace before the rewind."""

    target: State
    now: State
    by_agent: set[str]
    by_others: set[str]


async def live(session: AgentSession, root: Path, chance: random.Random, rounds: int) -> Lived:
    """Let the agent and people work in turn."""
    states = [state_of(root)]
    by_agent, by_others = set[str](), set[str]()
    for _ in range(rounds):
        before = state_of(root)
        by_others |= changed_between(states[-1], before)
        await session.chat("go")
        after = state_of(root)
        by_agent |= changed_between(before, after)
        for _ in range(chance.choice((0, 0, 1, 3))):
            edit(root, chance)
        states.append(state_of(root))
        by_others |= changed_between(after, states[-1])
    return Lived(states[0], states[-1], by_agent, by_others)


@contextmanager
def a_full_disk(chance: random.Random) -> Iterator[None]:
    """Let no file grow beyond a few bytes, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (chance.choice((0, 20, 900, 4000)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def is_among(path: str, names: set[str]) -> bool:
    above = {path[: end + 1] for end, letter in enumerate(path) if letter == "/"}
    return path in names or bool(above & names)


def is_hidden(path: str, lived: Lived) -> bool:
    """Whether a path is in a folder of which no snapshot looks at the files."""
    top = path.partition("/")[0]
    git = f"{top}/.git"
    return (
        top == "node_modules"
        or path.endswith(git)
        or any(git in state for state in (lived.target, lived.now))
    )


def check_rewound(lived: Lived, after: State, report: Any) -> None:
    """Compare what a rewind did with what it may do, and with what it says."""
    touched = changed_between(lived.now, after)
    assert touched <= lived.by_agent, "changed what the agent never touched"
    assert touched == set(report.restored) == {each.path for each in report.changes}
    told = {each.path for each in (*report.left, *report.refused)}
    was, found = files_of(lived.target), files_of(after)
    for path in lived.by_agent - lived.by_others:
        if was.get(path) != found.get(path) and not is_hidden(path, lived):
            assert is_among(path, told), f"{path} is not as it was, and nothing is said"
    for path in report.restored:
        assert was.get(path) == found.get(path), f"{path} is not what it was"


async def rewound(session: AgentSession, lived: Lived, root: Path) -> Any:
    first = session.messages[0].id
    dry = await session.rewind(to=first, files=True, dry_run=True)
    assert state_of(root) == lived.now
    assert dry.restored == ()
    if dry.conflicts:
        with pytest.raises(AgentError) as caught:
            await session.rewind(to=first, files=True)
        assert caught.value.code is ErrorCode.CONFLICT
        assert state_of(root) == lived.now
    report = await session.rewind(to=first, files=True, force=bool(dry.conflicts))
    assert (report.changes, report.left, report.refused) == (dry.changes, dry.left, dry.refused)
    return report


async def live_once(seed: int, place: Path) -> None:
    chance = random.Random(seed)
    root = place / "work"
    fill(root, chance)
    rounds = chance.randint(1, 2)

    def change() -> None:
        for _ in range(chance.randint(1, 8)):
            edit(root, chance)

    agent = agent_in(root, "memory", [change] * rounds)
    async with agent, agent.session() as session:
        lived = await live(session, root, chance, rounds)
        first = session.messages[0].id
        with ExitStack() as stack:
            held = None
            if chance.random() < 0.2:  # a program has a file open, and goes on writing
                regular = [name for name, each in lived.now.items() if each.kind == "file"]
                with suppress(PermissionError):
                    name = chance.choice(sorted(regular))
                    stack.enter_context((root / name).open("r+b"))
                    held = name
            if chance.random() < 0.2:
                with a_full_disk(chance):
                    try:
                        await session.rewind(to=first, files=True, force=True)
                    except AgentError as error:
                        assert error.code in FULL, error
                        assert state_of(root) == lived.now
                if len(session.messages) == 1:
                    await session.undo_rewind()
                    assert state_of(root) == lived.now
            report = await rewound(session, lived, root)
            after = state_of(root)
            check_rewound(lived, after, report)
            assert held is None or after[held] == lived.now[held]
        undone = await session.undo_rewind()
        assert (undone.left, undone.refused, undone.conflicts) == ((), (), ())
        assert state_of(root) == lived.now
        if chance.random() < 0.3:  # and back again
            again = await session.rewind(to=first, files=True, force=True)
            # A folder that became a repository of its own is not looked into any more.
            told = {each.path for each in (*again.left, *again.refused)}
            other = changed_between(after, state_of(root)) - {held}
            assert all(is_among(path, told) for path in other)
            await session.undo_rewind()
            assert state_of(root) == lived.now
        if chance.random() < 0.3:
            await rewind_beside_others(session, lived, root, chance)


async def rewind_beside_others(
    session: AgentSession, lived: Lived, root: Path, chance: random.Random
) -> None:
    """Write files while they are brought back: nothing of what was written is lost."""
    written = dict[str, bytes]()

    def write(name: str) -> None:
        content = b"of another program %d" % len(written)
        if write_beside(root / name, content):
            written[name] = content

    def found() -> State:
        return {path: each for path, each in state_of(root).items() if path not in written}

    def there() -> set[str]:
        return {name for name, content in written.items() if has(root / name, content)}

    before, first = state_of(root), session.messages[0].id
    with ExitStack() as stack:
        for _ in range(chance.choice((1, 1, 2))):
            name, step = chance.choice(FILES), chance.choice((*range(1, 30), *range(30, 200, 7)))
            stack.enter_context(at_step(step, lambda name=name: write(name)))  # type: ignore[misc]
        try:
            await session.rewind(to=first, files=True, force=True)
        except AgentError as error:
            assert error.code is ErrorCode.CONFLICT, error
            assert there() == written.keys()
            assert not changed_between(
                {k: v for k, v in before.items() if k not in written}, found()
            )
            return
    stood = there()
    await session.undo_rewind(force=True)
    assert stood | there() == written.keys(), "what another program wrote is lost"
    assert not changed_between({k: v for k, v in before.items() if k not in written}, found())


def has(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def live_often(seeds: range) -> None:
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="haptera-") as place:
            try:
                asyncio.run(live_once(seed, Path(place)))
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise
            finally:
                unlock(Path(place))


@pytest.mark.parametrize("batch", range(14))
def test_a_rewind_touches_only_what_it_knows_and_is_undone_whole(batch: int) -> None:
    live_often(range(batch * 10, batch * 10 + 10))


# Batch 19 finds a file in a repository of the workspace that is not as it was: not repaired yet.
@pytest.mark.sweep
@pytest.mark.parametrize("batch", [*range(14, 19), *range(20, 59)])
def test_more_workspaces_are_rewound(batch: int) -> None:
    live_often(range(batch * 10, batch * 10 + 10))


def live_elsewhere(
    *words: object, modes_bind: bool = True, place: str = tempfile.gettempdir()
) -> None:
    """Live in a process of its own, for which permission bits hold also if root starts it."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.agent.files.rewind_batch", place, *map(str, words)],
        capture_output=True,
        check=False,
        cwd=ROOT,
        text=True,
        preexec_fn=let_modes_bind if modes_bind else None,
    )
    assert done.returncode == 0, done.stderr


def test_folders_and_files_that_are_read_only_are_left_alone() -> None:
    live_elsewhere(20_000, 20_020)


@pytest.mark.sweep
@pytest.mark.parametrize("batch", range(5))
def test_more_folders_and_files_that_are_read_only_are_left_alone(batch: int) -> None:
    live_elsewhere(20_020 + 20 * batch, 20_040 + 20 * batch)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder in which `A.TXT` and `a.txt` are the same file."""
    with ExitStack() as stack:
        try:
            place = stack.enter_context(case_insensitive_disk(tmp_path))
        except OSError as error:
            (pytest.fail if is_everything_required() else pytest.skip)(str(error))
        yield place


# Two of the five find changes under another spelling that no report names: not repaired yet.
@pytest.mark.soak
@pytest.mark.parametrize("batch", range(5))
def test_workspaces_where_two_spellings_are_one_name_are_rewound(batch: int, disk: Path) -> None:
    first = 30_000 + 20 * batch
    live_elsewhere(first, first + 20, modes_bind=False, place=str(disk))


RENAMED = [("a.txt", "A.TXT"), (COMPOSED, DECOMPOSED), ("sub/x", "SUB/x"), ("sub", "SUB")]


@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.parametrize(("old", "new"), RENAMED)
async def test_a_file_renamed_to_another_spelling_is_not_lost(
    old: str, new: str, *, stays: bool, disk: Path
) -> None:
    root = disk / "work"
    (root / "sub").mkdir(parents=True)
    for name in ("a.txt", COMPOSED, "sub/x"):
        (root / name).write_text(f"of {name}")
    (root / ".gitignore").write_text("*.log\n")
    if stays:  # what was not recorded keeps its folder
        (root / "sub" / "ignored.log").write_text("of the user")

    def rename() -> None:
        (root / old.partition("/")[0]).rename(root / new.partition("/")[0])
        (root / "a.txt").write_text("of the agent")

    before = state_of(root)
    agent = agent_in(root, "memory", [rename])
    async with agent, agent.session() as session:
        await session.chat("go")
        after = state_of(root)
        report = await session.rewind(to=session.messages[0].id, files=True)
        refused = {each.path for each in report.refused}
        assert refused == ({"sub/x", "SUB/x"} if stays and "sub" in old else set())
        for path, each in files_of(before).items():
            name = path.replace("sub/", "SUB/") if refused else path
            assert files_of(state_of(root))[name] == each
        await session.undo_rewind()
        assert state_of(root) == after


async def recover(place: Path, seed: int) -> None:
    """Open the session of a process that was killed; an undo or a new rewind makes it whole."""
    before = ast.literal_eval((place / "before").read_text())
    root = place / "work"
    agent = agent_in(root, f"sqlite:{place / 'chat.db'}", [])
    async with agent, agent.session("killed", must_exist=True) as session:
        was_undo = seed % 3 == 0
        is_rewound = len(session.messages) == 1
        if was_undo and not is_rewound:  # it was killed after it had ended
            assert plain(state_of(root)) == before
            return
        first = session.messages[0].id
        if seed % 2 and not is_rewound:
            await session.rewind(to=first, files=True, force=True)
            is_rewound = True
        try:
            await session.undo_rewind()
            # The first one took back what was cut off.
            if was_undo and len(session.messages) == 1:
                await session.undo_rewind()
        except SessionError as error:  # it was killed before anything was to be undone
            assert error.code is ErrorCode.NOT_FOUND
            assert not is_rewound
        assert not list(root.glob(".haptera-*"))
        assert plain(state_of(root)) == before


def kill_often(place: Path, first: int, last: int) -> None:
    words = [
        sys.executable,
        "-m",
        "tests.agent.files.rewind_worker",
        str(place),
        str(first),
        str(last),
    ]
    done = subprocess.run(words, capture_output=True, check=False, cwd=ROOT, text=True)
    assert done.returncode == 0, done.stderr
    for seed in range(first, last):
        try:
            asyncio.run(recover(place / str(seed), seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_a_process_that_is_killed_meanwhile_loses_nothing(tmp_path: Path) -> None:
    kill_often(tmp_path, 0, 10)


@pytest.mark.sweep
@pytest.mark.parametrize("first", [10, 20, 30, 40, 50])
def test_more_processes_are_killed(first: int, tmp_path: Path) -> None:
    kill_often(tmp_path, first, first + 10)


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(20))
def test_very_many_workspaces(batch: int, tmp_path: Path) -> None:
    first = 10_000 + 1000 * batch
    live_often(range(first, first + 950))
    kill_often(tmp_path, first, first + 50)


def never_covered(self: TreeFacts, path: str) -> None:
    """Take what was not recorded for what was not there."""


def usual_mode(self: TreeFacts, path: str, *, is_run: bool) -> int:
    return 0o755 if is_run else 0o644


def same_kind(self: FileState, other: FileState) -> bool:
    return self.kind == other.kind


PLANTED: dict[str, tuple[type, str, Any]] = {
    "not recorded is not there": (TreeFacts, "covering", never_covered),
    "every file has the usual mode": (TreeFacts, "mode", usual_mode),
    "open files are replaced": (Places, "check_readable", lambda self, path: None),
    "a file is as it was if there is one": (FileState, "is_as", same_kind),
}


@pytest.mark.sweep
@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, planted = PLANTED[bug]
    monkeypatch.setattr(owner, name, planted)
    with pytest.raises(AssertionError):
        live_often(range(200))
