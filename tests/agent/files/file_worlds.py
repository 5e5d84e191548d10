"""Random workspaces, what agents and people do to them, and what stands in them byte for byte."""

import ctypes
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from haptera import Agent, tool
from haptera.testing import FakeClock, ScriptedProvider, calls, says
from tests.scripted_agents import MODEL

BIG, HUGE = (2 << 20) + 1, (256 << 20) + 1
COMPOSED, DECOMPOSED = "caf\u00e9.txt", "cafe\u0301.txt"
FILES = (
    *("a.txt", "A.TXT", COMPOSED, DECOMPOSED, "run.sh", "link", "sub/x", "sub/deep/y", "sub/X"),
    *(".env", "big.bin", "build/out.o", "build/kept", "repo/in.txt", "module/in.txt", "a b/*.py"),
    *("dep/z", os.fsdecode(b"b\xe9"), "locked/r", "new/one/two"),
)
FOLDERS = ("sub", "build", "repo", "module", "sub/deep", "dep", "new")
PATTERNS = (
    ".env",
    "build/",
    "*.bin",
    "sub/deep",
    "a.txt",
    "dep/",
    "node_modules/",
    "new/",
    "*.txt",
)
MODES = (0o600, 0o644, 0o755, 0o400, 0o640, 0o777)
MODES_OF_FOLDERS = (0o555, 0o500, 0o755, 0o700)
STEPS = ("mkdir", "rename", "link", "unlink", "symlink", "rmdir", "open", "fsync", "replace")
"""What changes a file system, or comes before a change."""
_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 24, 1, 2


class Standing(NamedTuple):
    """What stands at a path."""

    kind: str
    mode: int
    content: bytes
    time: int


State = dict[str, Standing]


def state_of(root: Path) -> State:
    """Return everything beneath a folder, except what is inside a `.git`."""
    found: State = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            facts = path.lstat()
            mode, time = facts.st_mode & 0o7777, facts.st_mtime_ns
            key = str(path.relative_to(root))
            if path.is_symlink():
                found[key] = Standing("link", 0, os.fsencode(path.readlink()), time)
            elif path.is_dir():
                found[key] = Standing("folder", mode, b"", 0)
            elif facts.st_size > BIG + 16:
                found[key] = Standing("file", mode, b"%d" % facts.st_size, time)
            else:
                found[key] = Standing("file", mode, path.read_bytes(), time)
    return found


def plain(state: State) -> dict[str, tuple[object, ...]]:
    """Return a state that can be written as text."""
    return {path: tuple(each) for path, each in state.items()}


def files_of(state: State) -> State:
    """Return what a state has of files and links, without times."""
    return {path: each._replace(time=0) for path, each in state.items() if each.kind != "folder"}


def changed_between(old: State, new: State) -> set[str]:
    """Return the paths of files and links that differ."""
    one, other = files_of(old), files_of(new)
    return {path for path in one.keys() | other.keys() if one.get(path) != other.get(path)}


def unlock(root: Path) -> None:
    """Make every folder writable, so that it can be removed."""
    for folder, _, _ in os.walk(root):
        Path(folder).chmod(0o700)


def write_beside(path: Path, content: bytes) -> bool:
    """Write a file as another program does, if nothing else is in its place; whether it did."""
    with suppress(OSError):
        if path.parent.resolve() == path.parent and not path.is_symlink():
            path.write_bytes(content)
            return True
    return False


def clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _make_way(root: Path, path: Path) -> None:
    for parent in reversed(path.relative_to(root).parents):
        folder = root / parent
        if folder.is_symlink() or not folder.is_dir():
            clear(folder)
            folder.mkdir()


def _write(root: Path, name: str, content: bytes) -> None:
    path = root / name
    _make_way(root, path)
    if path.is_symlink() or path.is_dir():
        clear(path)
    path.write_bytes(content)


def _grow(root: Path, name: str, size: int) -> None:
    _write(root, name, b"begin")
    os.truncate(root / name, size)


def _ignore(root: Path, chance: random.Random) -> None:
    patterns = chance.sample(PATTERNS, chance.randint(0, 4))
    if chance.random() < 0.2:
        patterns.append("!node_modules/")
    _write(root, ".gitignore", "".join(f"{each}\n" for each in patterns).encode())


def _nest(root: Path, chance: random.Random) -> None:
    """Make a folder a repository, a submodule, or neither."""
    git = root / chance.choice(("repo", "module")) / ".git"
    if os.path.lexists(git):
        clear(git)
    elif git.parent.name == "repo":
        _write(root, "repo/.git/HEAD", b"ref: refs/heads/main\n")
        for name in ("objects", "refs"):
            (git / name).mkdir()
    else:
        _write(root, "module/.git", b"gitdir: ../.git/modules/module\n")


def _remove(root: Path, name: str, chance: random.Random) -> None:
    if os.path.lexists(root / name):
        clear(root / name)


def _chmod(root: Path, name: str, chance: random.Random) -> None:
    if (root / name).is_file() and not (root / name).is_symlink():
        (root / name).chmod(chance.choice(MODES))


def _link(root: Path, name: str, chance: random.Random) -> None:
    _make_way(root, root / name)
    clear(root / name)
    (root / name).symlink_to(chance.choice(("a.txt", "sub", "/nowhere", ".")))


def _lock(root: Path, chance: random.Random) -> None:
    """Make a folder read-only, or writable again."""
    folder = root / chance.choice(FOLDERS)
    if folder.is_dir() and not folder.is_symlink():
        folder.chmod(chance.choice(MODES_OF_FOLDERS))


def _append(root: Path, name: str, chance: random.Random) -> None:
    if (root / name).is_file() and (root / name).stat().st_size < BIG:
        with (root / name).open("ab") as file:
            file.write(b"+")


def _move(root: Path, name: str, chance: random.Random) -> None:
    path, other = root / name, root / chance.choice(FILES)
    if other.is_relative_to(path) or path.is_relative_to(other) or not os.path.lexists(path):
        return
    _make_way(root, other)
    if os.path.lexists(path):
        clear(other)
        path.rename(other)


def _empty(root: Path, name: str, chance: random.Random) -> None:
    (root / "empty").mkdir(exist_ok=True)
    (root / "empty").chmod(chance.choice((0o700, 0o755, 0o711)))


EDITS: dict[str, Callable[[Path, str, random.Random], None]] = {
    "write": lambda root, name, chance: _write(root, name, chance.randbytes(chance.randint(0, 40))),
    "remove": _remove,
    "chmod": _chmod,
    "link": _link,
    "append": _append,
    "grow": lambda root, name, _: _grow(root, name, BIG),
    "huge": lambda root, name, _: _grow(root, name, HUGE),
    "shrink": lambda root, _, chance: _write(root, "big.bin", chance.randbytes(5)),
    "ignore": lambda root, _, chance: _ignore(root, chance),
    "nest": lambda root, _, chance: _nest(root, chance),
    "move": _move,
    "clear": lambda root, _, chance: clear(root / chance.choice(FOLDERS)),
    "empty": _empty,
    "lock": lambda root, _, chance: _lock(root, chance),
    "modules": lambda root, _, chance: _write(root, "node_modules/m.js", chance.randbytes(4)),
}
OFTEN = ("write",) * 7 + ("remove", "remove", "chmod", "ignore")


def edit(root: Path, chance: random.Random, *, huge: bool = True) -> None:
    """Do one thing to a workspace."""
    name, what = chance.choice(FILES), chance.choice((*EDITS, *OFTEN))
    with suppress(OSError):  # something on the way is read-only, or the name none of this disk's
        EDITS["write" if what == "huge" and not huge else what](root, name, chance)


@contextmanager
def at_step(number: int, act: Callable[[], object]) -> Iterator[None]:
    """Let something happen before one of the steps by which the block changes files."""
    count = 0

    def counted(step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count == number:
                act()
            return step(*arguments, **named)

        return run

    steps = {name: getattr(os, name) for name in STEPS}
    for name, step in steps.items():
        setattr(os, name, counted(step))
    try:
        yield
    finally:
        for name, step in steps.items():
            setattr(os, name, step)


def let_modes_bind() -> None:
    """Let permission bits hold in the program that this process is about to start, also for root.

    For the `preexec_fn` of a process: what root may do all the same is never given to it.
    """
    prctl = ctypes.CDLL(None).prctl
    for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
        prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


def fill(root: Path, chance: random.Random) -> None:
    """Make a workspace of a bit of everything."""
    root.mkdir()
    for name in chance.sample(FILES, chance.randint(4, len(FILES))):
        EDITS["write"](root, name, chance)
    _ignore(root, chance)
    for _ in range(8):
        edit(root, chance)
    for path in list(root.rglob("*")):
        if path.is_file() and not path.is_symlink() and chance.random() < 0.2:
            path.chmod(chance.choice(MODES))


def agent_in(root: Path, store: Any, changes: Sequence[Callable[[], object]]) -> Agent:
    """Make an agent whose tool makes one of the changes in each turn."""

    @tool(effect="write")
    def change(number: int) -> str:
        """Change files."""
        changes[number]()
        return "changed"

    steps = [
        step
        for number in range(len(changes))
        for step in (calls(("change", {"number": number})), says("Done."))
    ]
    return Agent(
        model=MODEL,
        providers=[ScriptedProvider(steps)],
        clock=FakeClock(),
        environment={"HAPTERA_HOME": str(root.parent / "home"), "PATH": os.defpath},
        workspace=root,
        tools=[change],
        store=store,
    )
