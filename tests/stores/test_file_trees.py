"""Trees of files: whatever is done to a folder, every state that was recorded can be had back."""

import asyncio
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haptera.model.entry_bytes import decode_entries
from haptera.model.errors import ErrorCode, StoreError
from haptera.model.log.workspace import Snapshot
from haptera.stores.file_trees.git_trees import GitTrees, TreeLimits

NAMES = ("a", "b", "a b", "é", ".hidden", "*.py")
ENVIRONMENT = {"PATH": os.defpath}

Act = tuple[str, str, str]

_paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
_acts = st.lists(
    st.tuples(st.sampled_from(["write", "link", "remove", "run", "move"]), _paths, _paths),
    max_size=6,
)


def clear(path: Path) -> None:
    """Remove whatever a path names."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def make_way(root: Path, path: Path) -> None:
    """Make folders of all parents of a path, whatever was in their place."""
    for parent in reversed(path.relative_to(root).parents):
        folder = root / parent
        if folder.is_symlink() or not folder.is_dir():
            clear(folder)
            folder.mkdir()
    clear(path)


def act(root: Path, what: str, one: str, other: str) -> None:
    path = root / one
    if what == "remove":
        if os.path.lexists(path):
            clear(path)
    elif what == "move":
        inside = other.startswith(f"{one}/") or one.startswith(f"{other}/") or one == other
        if os.path.lexists(path) and not inside:
            make_way(root, root / other)
            if os.path.lexists(path):
                path.rename(root / other)
    elif what == "run":
        if path.is_file() and not path.is_symlink():
            path.chmod(0o755 if not path.stat().st_mode & stat.S_IXUSR else 0o644)
    else:
        make_way(root, path)
        if what == "link":
            path.symlink_to(other)
        else:
            path.write_bytes(other.encode() + b"\r\n\0")


def state_of(root: Path) -> dict[str, tuple[str, bool, bytes]]:
    """Return every file and link beneath a folder; folders without any are left out."""
    found: dict[str, tuple[str, bool, bytes]] = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            if path.is_symlink():
                found[str(path)] = ("link", False, os.fsencode(path.readlink()))
            elif path.is_file():
                is_run = bool(path.stat().st_mode & stat.S_IXUSR)
                found[str(path)] = ("file", is_run, path.read_bytes())
    return found


async def restore(trees: GitTrees, now: str, target: str, paths: Sequence[str]) -> None:
    """Make files what they are in a tree, as a rewind does."""
    planned = await trees.plan(now, target, paths, session="s")
    assert (planned.left, planned.refused) == ((), ())
    if planned.kept:
        await trees.carry_out(planned.kept, session="s")


async def walk(root: Path, data: Path, rounds: Sequence[Sequence[Act]]) -> None:
    trees = GitTrees(root, data=data, environment=ENVIRONMENT)
    states = []
    for acts in ([], *rounds):
        for what, one, other in acts:
            act(root, what, one, other)
        states.append(((await trees.take()).tree, state_of(root)))
    for tree, state in (*reversed(states), states[-1]):
        now = (await trees.take()).tree
        changed = [change.path for change in (await trees.difference(now, tree)).changes]
        await restore(trees, now, tree, changed)
        assert state_of(root) == state
        assert (await trees.difference((await trees.take()).tree, tree)).changes == ()


@pytest.mark.slow
@settings(max_examples=12)
@given(st.lists(_acts, min_size=1, max_size=3))
def test_every_state_can_be_had_back(rounds: list[list[Act]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        root, data = Path(place, "root"), Path(place, "data")
        root.mkdir()
        asyncio.run(walk(root, data, rounds))


@pytest.mark.slow
@pytest.mark.parametrize(
    "rounds",
    [
        [[("write", "a/a", "x")], [("link", "a", "b")]],
        [[("write", "a/b/a", "x"), ("write", "b/b/a", "x")], [("link", "a", "b")]],
        [[("link", "a", "b")], [("write", "a/a", "x")]],
        [[("write", "a", "x"), ("write", "b", "x")], [("write", "a", "x"), ("write", "b", "y")]],
    ],
    ids=["a link for a folder", "a link to a twin", "a folder for a link", "the same again"],
)
async def test_special_states_can_be_had_back(rounds: list[list[Act]], tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    await walk(tmp_path / "root", tmp_path / "data", rounds)


async def test_only_the_named_files_are_restored(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    trees = GitTrees(root, data=tmp_path / "data", environment=ENVIRONMENT)
    for name in ("a", "b"):
        (root / name).write_text("old")
    old = (await trees.take()).tree
    for name in ("a", "b", "c"):
        (root / name).write_text("new")
    now = (await trees.take()).tree
    await restore(trees, now, old, ["a"])
    assert [(root / name).read_text() for name in ("a", "b", "c")] == ["old", "new", "new"]


async def test_a_file_that_changed_since_it_was_copied_is_not_overwritten(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    trees = GitTrees(root, data=tmp_path / "data", environment=ENVIRONMENT)
    (root / "a").write_text("old")
    (root / "b").write_text("old")
    old = (await trees.take()).tree
    (root / "a").write_text("new")
    (root / "b").write_text("new")
    now = (await trees.take()).tree
    planned = await trees.plan(now, old, ["a", "b"], session="s")
    (root / "b").write_text("newest, by another program")
    with pytest.raises(StoreError) as caught:
        await trees.carry_out(planned.kept, session="s")
    assert caught.value.code is ErrorCode.CONFLICT
    assert (root / "a").read_text() == "new"
    assert (root / "b").read_text() == "newest, by another program"
    assert sorted(path.name for path in root.iterdir()) == ["a", "b"]


async def test_many_snapshots_at_the_same_time_wait_for_each_other(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").write_text("a")
    several = [GitTrees(root, data=tmp_path / "data", environment=ENVIRONMENT) for _ in range(4)]
    taken = await asyncio.gather(*(trees.take() for trees in several for _ in range(2)))
    assert len({item.tree for item in taken}) == 1


async def test_a_damaged_index_and_a_stale_lock_are_overcome(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").write_text("a")
    trees = GitTrees(root, data=tmp_path / "data", environment=ENVIRONMENT)
    first = await trees.take()
    (place,) = (tmp_path / "data" / "snapshots").iterdir()
    (place / "index").write_bytes(b"not an index")
    (place / "index.lock").write_bytes(b"")
    assert (await trees.take()).tree == first.tree
    assert place.stat().st_mode & 0o077 == 0


async def test_too_many_files_and_home_folders_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / "root").mkdir(exist_ok=True)
        (tmp_path / "root" / name).write_text(name)
    limits = TreeLimits(new_files=2)
    data = tmp_path / "data"
    few = GitTrees(tmp_path / "root", data=data, environment=ENVIRONMENT, limits=limits)
    with pytest.raises(StoreError, match="3 new files"):
        await few.take()
    monkeypatch.setenv("HOME", str(tmp_path / "root"))
    for folder in (tmp_path, tmp_path / "root"):
        trees = GitTrees(folder, data=data, environment=ENVIRONMENT)
        with pytest.raises(StoreError, match="home folder"):
            await trees.take()


async def test_a_git_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    program.chmod(0o755)
    (tmp_path / "root").mkdir()
    trees = GitTrees(
        tmp_path / "root",
        data=tmp_path / "data",
        environment={"PATH": str(program.parent)},
        limits=TreeLimits(seconds=0.05),
    )
    with pytest.raises(StoreError, match="took longer than"):
        await trees.take()


async def test_only_the_owner_can_touch_the_trees_whatever_the_umask_is(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    trees = GitTrees(folder, data=tmp_path / "data", environment=ENVIRONMENT)
    before = os.umask(0)
    try:
        (folder / "a").write_text("one")
        first = await trees.take()
        (folder / "a").write_text("two")
        (folder / "b").mkdir()
        (folder / "b" / "c").write_text("more")
        second = await trees.take()
        os.umask(0o027)
        await restore(trees, second.tree, first.tree, ["a", "b/c"])
    finally:
        os.umask(before)
    kept = [tmp_path / "data", *(tmp_path / "data").rglob("*")]
    assert len(kept) > 10
    assert [path for path in kept if path.stat().st_mode & 0o077] == []
    # What is restored has the mode that it had.
    assert (folder / "a").read_text() == "one"
    assert (folder / "a").stat().st_mode & 0o777 == 0o666


EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
NO_TREES = ("-p", "--", "HEAD", f"{EMPTY_TREE}..{EMPTY_TREE}", f"{EMPTY_TREE}\n", "A" * 40, "")


@pytest.mark.parametrize("tree", ["--output={path}", "--ext-diff={path}", *NO_TREES])
async def test_what_is_no_id_of_a_tree_reaches_no_git(tree: str, tmp_path: Path) -> None:
    folder, precious = tmp_path / "w", tmp_path / "precious"
    folder.mkdir()
    precious.write_text("untouched")
    trees = GitTrees(folder, data=tmp_path / "data", environment=ENVIRONMENT)
    taken = (await trees.take()).tree
    hostile = tree.format(path=precious)
    for work in (
        trees.difference(hostile, taken),
        trees.difference(taken, hostile),
        trees.patch(hostile, taken),
        trees.plan(hostile, taken, ["a"], session="s"),
        trees.plan(taken, hostile, ["a"], session="s"),
    ):
        with pytest.raises(StoreError, match="not that of a tree"):
            await work
    assert precious.read_text() == "untouched"
    assert [path.name for path in tmp_path.iterdir() if path.name not in {"w", "data"}] == [
        "precious"
    ]


async def test_trees_stand_behind_the_end_of_the_options(tmp_path: Path) -> None:
    folder, program, record = tmp_path / "w", tmp_path / "bin" / "git", tmp_path / "record"
    folder.mkdir()
    (folder / "a").write_text("one")
    program.parent.mkdir()
    real = shutil.which("git", path=os.defpath)
    program.write_text(
        f'#!/bin/sh\n{{ printf "%s\\n" "$@"; echo; }} >> "{record}"\nexec "{real}" "$@"\n'
    )
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.defpath}"
    trees = GitTrees(folder, data=tmp_path / "data", environment={"PATH": path})
    old = (await trees.take()).tree
    (folder / "a").write_text("two")
    new = (await trees.take()).tree
    record.write_text("")
    await trees.difference(old, new)
    await trees.patch(old, new)
    await restore(trees, new, old, ["a"])
    assert (folder / "a").read_text() == "one"
    runs = [run.split("\n") for run in record.read_text().split("\n\n") if run]
    named = [run for run in runs if {old, new} & {*run}]
    for run in named:
        end = run.index("--end-of-options")
        assert run[end + 1 :] in ([old, new], [new, old], [old], [new])
    used = {word for run in named for word in run}
    assert used >= {"diff-tree", "ls-tree", "read-tree"}


@pytest.mark.parametrize("tree", ["--output=/x", *NO_TREES])
def test_what_is_no_id_of_a_tree_is_read_as_no_snapshot(tree: str) -> None:
    stored = {"kind": "snapshot", "id": "evt_1", "time": 1, "seq": 2, "tree": tree}
    for entry in decode_entries([json.dumps(stored).encode()] * 2):
        assert isinstance(entry, Snapshot)
        assert entry.tree == ""
    for name in (EMPTY_TREE, "ab" * 32):
        (entry,) = decode_entries([json.dumps({**stored, "tree": name}).encode()])
        assert isinstance(entry, Snapshot)
        assert (entry.tree, entry.error) == (name, None)
