"""`haptera import`: what other programs keep on this machine is found, listed and gone on with."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.cli import files_of_other_tools as files
from tests.cli.commands import Done, Place, call
from tests.cli.scripted_server import Turn, scripted_server
from tests.cli.terminal_driver import terminal

Run: TypeAlias = Callable[..., Done]
FIRST = "01990a5c-0000-7000-8000-00000000a0b1"
SECOND = "01990a5c-0000-7000-8000-00000000a0b2"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with scripted_server(Turn(text="Going on.")) as server:
        yield Place(tmp_path, server)


@pytest.fixture
def home(place: Place) -> Path:
    return Path(place.environment["HOME"])


@pytest.fixture
def run(place: Place, monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME", "PI_CODING_AGENT_DIR"):
        monkeypatch.delenv(name, raising=False)
    return lambda *arguments: call(place, monkeypatch, *arguments)


def id_for(kind: str, own: str) -> str:
    return f"ses_{own.replace('-', '')}" if kind.startswith("opencode") else own


@pytest.mark.parametrize("kind", files.WRITERS)
def test_the_last_session_of_a_program_is_imported_and_continued(
    run: Run, place: Place, home: Path, kind: str
) -> None:
    tool, write = kind.split(maxsplit=1)[0], files.WRITERS[kind]
    write(home, place.project, id_for(kind, FIRST), "Plant a tree", time=1_790_000_000)
    write(home, place.project, id_for(kind, SECOND), "Paint the house", time=1_790_000_100)
    done = run("import", "--from", tool, "--last")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Paint the house: 2 messages\n")
    (own,) = re.findall(r"haptera -r (\S+)", done.out)
    shown = run("sessions", "show", own).out
    assert "Paint the house" in shown
    assert "Done." in shown
    assert run("-r", own, "-p", "Go on").out == "Going on.\n"
    assert place.server is not None
    asked = json.dumps(place.server.requests[-1]["messages"])
    assert "Paint the house" in asked
    assert "Done." in asked


@pytest.mark.parametrize("kind", files.WRITERS)
def test_a_list_has_the_sessions_of_this_folder_the_newest_first(
    run: Run, place: Place, home: Path, kind: str
) -> None:
    tool, write = kind.split(maxsplit=1)[0], files.WRITERS[kind]
    write(home, place.project, id_for(kind, FIRST), "Plant a\n\x1b[31mtree", time=1_790_000_000)
    write(home, place.project, id_for(kind, SECOND), "Paint the house", time=1_790_000_100)
    elsewhere = id_for(kind, FIRST.replace("a0b1", "a0b3"))
    write(home, home / "other", elsewhere, "Far away", time=1_790_000_200)
    done = run("import", "--from", tool)
    assert done.code == 0
    listed = done.out.splitlines()
    assert listed[0].split() == ["number", "updated", "id", "title"]
    assert listed[1].startswith("1")
    assert listed[1].endswith("Paint the house")
    assert listed[2].startswith("2")
    assert listed[2].endswith(r"Plant a \x1b[31mtree")
    assert len(listed) == 3
    assert "--last" in done.err
    everywhere = json.loads(run("import", "--from", tool, "--all", "--format", "json").out)
    assert everywhere[0]["title"] == "Far away"
    assert everywhere[0]["folder"] == str(home / "other")
    assert len(everywhere) == 3


def test_sessions_are_chosen_by_number_and_id(run: Run, place: Place, home: Path) -> None:
    files.codex(home, place.project, FIRST, "Plant a tree", time=1_790_000_000)
    files.codex(home, place.project, SECOND, "Paint the house", time=1_790_000_100)
    assert "Plant a tree: 2 messages" in run("import", "--from", "codex", "2").out
    done = run("import", "--from", "codex", FIRST, "1")
    assert [line for line in done.out.splitlines() if "messages" in line] == [
        "Plant a tree: 2 messages",
        "Paint the house: 2 messages",
    ]
    assert run("import", "--from", "codex", "9").code == 2
    assert "more than one" in run("import", "--from", "codex", "0199").err


def test_everything_that_is_listed_is_imported(run: Run, place: Place, home: Path) -> None:
    files.pi(home, place.project, FIRST, "Plant a tree", time=1_790_000_000)
    files.pi(home, place.project, SECOND, "Paint the house", time=1_790_000_100)
    done = run("import", "--from", "pi", "--everything")
    assert (done.code, done.out.count("haptera -r")) == (0, 2)
    assert len(json.loads(run("sessions", "list", "--format", "json").out)) == 2


def test_what_is_damaged_or_was_never_asked_is_left_out(run: Run, place: Place, home: Path) -> None:
    files.claude(home, place.project, FIRST, "Plant a tree")
    (project,) = (home / ".claude" / "projects").iterdir()
    (project / "agent-1.jsonl").write_text((project / f"{FIRST}.jsonl").read_text())
    (project / "empty.jsonl").write_text("")
    (project / "broken.jsonl").write_bytes(b'{"type": "user", \xff\n[]\nnull\n' + b"[" * 5000)
    (project / "folder.jsonl").mkdir()
    (project / "dangling.jsonl").symlink_to(project / "nowhere")
    found = json.loads(run("import", "--from", "claude", "--all", "--format", "json").out)
    assert [each["id"] for each in found] == [FIRST]


def test_a_dangling_link_in_a_folder_of_codex_is_left_out(
    run: Run, place: Place, home: Path
) -> None:
    files.codex(home, place.project, FIRST, "Plant a tree")
    for folder in {path.parent for path in home.rglob("*.jsonl")}:
        (folder / "rollout-dangling.jsonl").symlink_to(folder / "nowhere")
    found = json.loads(run("import", "--from", "codex", "--all", "--format", "json").out)
    assert [each["id"] for each in found] == [FIRST]


def test_a_database_that_is_none_is_an_error_with_its_name(run: Run, home: Path) -> None:
    path = home / ".local" / "share" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database" * 100)
    done = run("import", "--from", "opencode")
    assert done.code == 1
    assert "opencode.db cannot be read" in done.err


def test_nothing_found_says_where_else_to_look(run: Run, place: Place, home: Path) -> None:
    assert place.project.exists()
    assert home.exists()
    done = run("import", "--from", "claude")
    assert (done.code, done.out) == (0, "")
    assert "--all" in done.err
    assert run("import", "--from", "claude", "--last").code == 4


def test_a_person_is_asked_which_one(place: Place, home: Path) -> None:
    files.claude(home, place.project, FIRST, "Plant a tree")
    with terminal(place, "import", "--from", "claude", width=120) as screen:
        screen.wait_for("Import which")
        screen.say("1")
        shown = screen.wait_for("exit=0")
        assert "Plant a tree: 2 messages" in shown
        assert "continue it with: haptera -r" in shown
