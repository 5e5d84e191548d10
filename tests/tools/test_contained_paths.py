"""No path leads a file tool out of its root: by link, by `..`, absolute, or swapped meanwhile."""

import asyncio
import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest

from haptera.kernel.blocks.tool_registry.tool import AnyTool
from haptera.tools.contained_paths import (
    Opener,
    PathRefusedError,
    Root,
    find_opener,
    open_by_kernel,
    open_by_walk,
)
from haptera.tools.file_contents import SeenFiles
from haptera.tools.files import FileTools
from haptera.tools.finding import FindingTools
from haptera.tools.output import Outputs, RecentBlobs
from tests.fixtures_report import Report
from tests.tools.toolbox import Toolbox, names_beneath

OPENERS = {"kernel": open_by_kernel, "walk": open_by_walk}
SECRET = "the secret outside"

ESCAPES = {
    "dots": "../outside/secret.txt",
    "dots after a folder": "inside/../../outside/secret.txt",
    "dots after a link": "to_inside/../../outside/secret.txt",
    "absolute": "{outside}/secret.txt",
    "absolute with the root's name before it": "{root}/../outside/secret.txt",
    "absolute beside the root": "{root}side/secret.txt",
    "link to a file": "to_secret",
    "link to a folder": "to_outside/secret.txt",
    "relative link": "up/outside/secret.txt",
    "link to a link": "twice/secret.txt",
    "link inside a folder": "inside/up/outside/secret.txt",
    "magic link to the root": "magic_root{outside}/secret.txt",
    "magic link to the working folder": "magic_cwd",
    "magic link to a descriptor": "magic_fd/secret.txt",
    "loop": "loop/secret.txt",
    "NUL": "inside\0/../../outside/secret.txt",
    "empty": "",
    "dot dot alone": "..",
    "dot dot with a slash": "../",
    "many dots": "../../../../../../../../../../etc/passwd",
}


class House:
    """A root with links that lead out of it, and what is outside."""

    def __init__(self, folder: Path, opener: Opener) -> None:
        self.root, self.outside = folder / "root", folder / "outside"
        (self.root / "inside").mkdir(parents=True)
        self.outside.mkdir()
        (folder / "rootside").mkdir()
        for place in (self.outside, folder / "rootside"):
            (place / "secret.txt").write_text(SECRET)
        (self.root / "inside" / "file.txt").write_text("inside\n")
        links = {
            "to_inside": "inside",
            "to_secret": f"{self.outside}/secret.txt",
            "to_outside": str(self.outside),
            "up": "..",
            "twice": "to_outside",
            "inside/up": "../..",
            "magic_root": "/proc/self/root",
            "magic_cwd": "/proc/self/cwd",
            "loop": "loop",
            "inside/file_link": "file.txt",
            "dangling": "inside/made.txt",
        }
        for name, target in links.items():
            (self.root / name).symlink_to(target)
        self._held = os.open(self.outside, os.O_PATH)
        (self.root / "magic_fd").symlink_to(f"/proc/self/fd/{self._held}")
        self.before = self._seen_outside()
        self.tools = Toolbox(tools_of(self.root, opener))

    def close(self) -> None:
        os.close(self._held)

    def spelled(self, path: str) -> str:
        return path.replace("{outside}", str(self.outside)).replace("{root}", str(self.root))

    def _seen_outside(self) -> dict[str, str]:
        above = self.outside.parent
        return {
            name: (above / name).read_text()
            for name in names_beneath(above)
            if not name.startswith("root/")
        }

    def check_outside(self) -> None:
        assert self._seen_outside() == self.before


def tools_of(root: Path, opener: Opener) -> list[AnyTool]:
    place = Root(root, protected=(".git",), opener=opener)
    outputs = Outputs(RecentBlobs())
    return [*FileTools(place, outputs, SeenFiles()).tools(), *FindingTools(place, outputs).tools()]


@pytest.fixture(params=OPENERS)
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path, OPENERS[request.param])
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("way", ESCAPES)
async def test_no_path_leads_a_tool_out_of_the_root(house: House, way: str) -> None:
    path = house.spelled(ESCAPES[way])
    told = [
        await house.tools.call("read", path=path),
        await house.tools.call("write", path=path, content="changed"),
        await house.tools.call("write", path=f"{path}/new.txt", content="changed"),
        await house.tools.call("edit", path=path, edits=[{"old": "secret", "new": "changed"}]),
        await house.tools.call("list", path=path),
        await house.tools.call("glob", pattern="*", path=path),
        await house.tools.call("grep", pattern="secret", path=path),
    ]
    assert all(text.startswith("failed: ") for text in told), told
    assert SECRET not in "".join(told)
    house.check_outside()


async def test_a_search_follows_no_link(house: House) -> None:
    found = await house.tools.call("grep", pattern=".")
    names = await house.tools.call("glob", pattern="**/*.txt")
    assert found == "inside/file.txt:1: inside"
    assert names == "inside/file.txt"


async def test_links_that_stay_inside_are_followed(house: House) -> None:
    assert await house.tools.call("read", path="to_inside/file.txt") == "1\tinside"
    assert await house.tools.call("read", path="inside/file_link") == "1\tinside"
    assert await house.tools.call("read", path=f"{house.root}/inside/file.txt") == "1\tinside"
    edited = await house.tools.call(
        "edit", path="inside/file_link", edits=[{"old": "inside", "new": "here"}]
    )
    assert "+here" in edited
    assert (house.root / "inside/file_link").is_symlink()
    assert (house.root / "inside/file.txt").read_text() == "here\n"
    await house.tools.call("write", path="dangling", content="made\n")
    assert (house.root / "inside/made.txt").read_text() == "made\n"


async def test_a_file_that_has_another_name_outside_is_not_changed_there(house: House) -> None:
    outside = house.outside / "linked.txt"
    outside.write_text("one\n")
    os.link(outside, house.root / "linked.txt")
    await house.tools.call("read", path="linked.txt")
    await house.tools.call("edit", path="linked.txt", edits=[{"old": "one", "new": "two"}])
    assert (house.root / "linked.txt").read_text() == "two\n"
    assert outside.read_text() == "one\n"


async def test_what_is_no_regular_file_is_not_opened_to_read(house: House) -> None:
    os.mkfifo(house.root / "pipe")
    assert "not a regular file" in await house.tools.call("read", path="pipe")
    assert "failed" in await house.tools.call("grep", pattern="x", path="pipe")
    assert "failed" in await house.tools.call("write", path="pipe", content="x")


@pytest.mark.parametrize(
    "path", [".git/config", ".git/hooks/pre-commit", "config_link", "repo/x", ".GIT/config", ".git"]
)
async def test_a_protected_name_is_not_written_by_any_way_to_it(house: House, path: str) -> None:
    (house.root / ".git").mkdir()
    (house.root / ".git/config").write_text("[core]\n")
    (house.root / "config_link").symlink_to(".git/config")
    (house.root / "repo").symlink_to(".git")
    before = names_beneath(house.root)
    await house.tools.call("read", path=path)
    told = await house.tools.call("write", path=path, content="evil")
    assert "protected" in told or "folder" in told
    assert names_beneath(house.root) == before
    assert (house.root / ".git/config").read_text() == "[core]\n"


async def test_a_protected_name_that_does_not_exist_yet_is_not_made(house: House) -> None:
    told = await house.tools.call("write", path=".git/hooks/post-checkout", content="evil")
    assert "protected" in told
    assert not (house.root / ".git").exists()


def test_a_guard_is_asked_about_where_a_file_really_is(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/key").write_text("k")
    (tmp_path / "alias").symlink_to("secrets")
    asked: list[str] = []

    def guard(access: str, path: str) -> str | None:
        asked.append(f"{access} {path}")
        return "closed" if path.startswith("secrets") else None

    root = Root(tmp_path, guard=guard)
    with pytest.raises(PathRefusedError, match="closed"), root.opened("alias/key", os.O_RDONLY):
        pass
    assert asked == ["read secrets/key"]


def test_this_kernel_opens_beneath_by_itself() -> None:
    assert find_opener() is open_by_kernel


_libc = ctypes.CDLL(None, use_errno=True)


def exchange(one: bytes, other: bytes) -> None:
    """Swap two names in one step."""
    if _libc.renameat2(-100, one, -100, other, 2) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


class Swapper:
    """Swaps a folder for a link that leads out, and back, again and again, in a thread."""

    def __init__(self, root: Path, outside: Path, times: int) -> None:
        self._root, self._outside, self._times = root, outside, times
        self.swaps = 0
        self._thread = threading.Thread(target=self._swap)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._times = 0
        self._thread.join()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def _swap(self) -> None:
        (self._root / "link").symlink_to(self._outside)
        names = [os.fsencode(self._root / name) for name in ("swapped", "link")]
        while self.swaps < self._times:
            exchange(*names)
            self.swaps += 1


async def hammer(tmp_path: Path, opener: Opener, times: int) -> tuple[int, int]:
    """Read and write while a folder is swapped; returns swaps and calls."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "swapped").mkdir(parents=True)
    outside.mkdir()
    for place, text in ((root / "swapped", "inside"), (outside, SECRET)):
        (place / "file.txt").write_text(text)
    calls = 0
    with Swapper(root, outside, times) as swapper:
        tools = Toolbox(tools_of(root, opener))
        while swapper.is_running:
            told = [
                await tools.call("read", path="swapped/file.txt"),
                await tools.call("write", path=f"swapped/new{calls % 7}.txt", content="new"),
                await tools.call(
                    "edit", path="swapped/file.txt", edits=[{"old": "s", "new": "s s"}]
                ),
                await tools.call("list", path="swapped"),
                await tools.call("glob", pattern="*.txt", path="swapped"),
            ]
            calls += len(told)
            assert SECRET not in "".join(told)
            await asyncio.to_thread(lambda: None)
    assert names_beneath(outside) == {"file.txt"}
    assert (outside / "file.txt").read_text() == SECRET
    return swapper.swaps, calls


@pytest.mark.slow
@pytest.mark.parametrize("way", OPENERS)
async def test_a_folder_that_is_swapped_for_a_link_meanwhile_leads_nowhere(
    way: str, tmp_path: Path, report: Report
) -> None:
    swaps, calls = await hammer(tmp_path, OPENERS[way], 100_000)
    report(f"swapped folder, {way}: {swaps} swaps, {calls} tool calls, 0 escapes")
    assert calls > 0


def test_a_path_that_is_checked_as_text_is_led_out_by_the_same_swaps(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "swapped").mkdir(parents=True)
    outside.mkdir()
    for place, text in ((root / "swapped", "inside"), (outside, SECRET)):
        (place / "file.txt").write_text(text)
    path, escaped = root / "swapped/file.txt", False
    with Swapper(root, outside, 10_000_000) as swapper:
        while not escaped and swapper.is_running:
            with suppress(OSError):  # swapped while it was looked at
                if os.path.realpath(path).startswith(f"{root}/"):
                    escaped = path.read_text() == SECRET
    assert escaped


@pytest.mark.soak
@pytest.mark.parametrize("way", OPENERS)
async def test_a_folder_that_is_swapped_a_million_times_leads_nowhere(
    way: str, tmp_path: Path, report: Report
) -> None:
    swaps, calls = await hammer(tmp_path, OPENERS[way], 1_000_000)
    report(f"swapped folder, {way}: {swaps} swaps, {calls} tool calls, 0 escapes")
