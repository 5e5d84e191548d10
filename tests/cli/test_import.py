"""`haptera import`: what other programs keep on this machine is found, listed and gone on with."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import apsw
import msgspec
import pytest

from haptera.model.entry_bytes import decode_entry
from haptera.model.ids import new_entry_id, new_session_id
from haptera.model.log.sessions import SessionOpened
from haptera.sync import Agent
from tests.attacks.hostile_imports import packed
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


def _everything_at(home: Path, folder: Path, *, prompt: str, time: int) -> None:
    for number, (kind, write) in enumerate(files.WRITERS.items()):
        own = id_for(kind, FIRST[:-2] + f"{number:02}")
        write(home, folder, own, f"{prompt} {number}", time=time)


def _files_below(home: Path) -> dict[str, tuple[bytes, int]]:
    theirs = (".claude", ".codex", ".pi", ".local/share/opencode")
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for name in theirs
        for path in sorted((home / name).rglob("*"))
        if path.is_file()
    }


def test_all_sessions_of_this_machine_are_imported_once_and_found_at_once(
    run: Run, place: Place, home: Path
) -> None:
    count = len(files.WRITERS)
    _everything_at(home, place.project, prompt="Plant a tree", time=1_790_000_000)
    before = _files_below(home)
    dry = run("import", "--all", "--dry-run")
    assert dry.out == f"{count} sessions would be imported\n"
    assert json.loads(run("sessions", "list", "--format", "json").out) == []
    assert run("import", "--all").out == f"{count} sessions imported\n"
    listed = json.loads(run("sessions", "list", "--format", "json").out)
    assert {each["project"] for each in listed} == {str(place.project)}
    assert {each["metadata"]["imported_tool"] for each in listed} == {
        kind.split(maxsplit=1)[0] for kind in files.WRITERS
    }
    assert all("sonnet" in each["metadata"].get("imported_model", "sonnet") for each in listed)
    assert all(each["created"] < 1_800_000_000_000 for each in listed)
    assert run("sessions", "count", "--metadata", "imported_tool=pi").out == "1\n"
    found = json.loads(run("sessions", "search", "--format", "json", "plant").out)
    assert len(found) == count
    again = run("import", "--all")
    assert again.out == f"0 sessions imported; {count} were imported before\n"
    assert run("sessions", "count").out == f"{count}\n"
    assert _files_below(home) == before


def test_a_session_that_went_on_is_imported_again_and_its_first_import_put_away(
    run: Run, place: Place, home: Path
) -> None:
    files.pi(home, place.project, FIRST, "Plant a tree", time=1_790_000_000)
    files.pi(home, place.project, SECOND, "Paint the house", time=1_790_000_000)
    run("import", "--all")
    listed = json.loads(run("sessions", "list", "--format", "json").out)
    (own,) = [each["id"] for each in listed if each["title"] != "Plant a tree"][:1]
    assert run("-r", own, "-p", "Go on").out == "Going on.\n"
    for name, prompt in ((FIRST, "Plant two trees"), (SECOND, "Paint two houses")):
        files.pi(home, place.project, name, prompt, time=1_790_000_500)
    assert run("import", "--all").out == "0 sessions imported; 2 were imported before\n"
    done = run("import", "--all", "--sync")
    assert done.out == "2 sessions imported; 2 of them went on since\n"
    # What was gone on with here stays beside the new import.
    assert run("sessions", "count").out == "3\n"
    assert run("sessions", "count", "--archived").out == "4\n"
    done = run("import", "--all", "--sync")
    assert done.out == "0 sessions imported; 2 were imported before\n"


@pytest.mark.parametrize(
    "planted",
    [
        {"imported_tool": []},
        {"imported_tool": {}, "imported_session": [FIRST]},
        {"imported_tool": "pi", "imported_session": FIRST, "imported_updated": 2**52},
        [],
    ],
)
def test_an_archive_does_not_say_what_was_imported(
    run: Run, place: Place, home: Path, planted: Any
) -> None:
    opened = SessionOpened(id=new_entry_id(), time=1, seq=1, session_id=new_session_id())
    fields = {"kind": "session.changed", "id": new_entry_id(), "time": 1, "seq": 2}
    changed = decode_entry(msgspec.json.encode({**fields, "changes": {"metadata": planted}}))
    (place.project / "theirs").write_bytes(packed([opened, changed]))
    assert run("sessions", "import", "theirs").code == 0
    (listed,) = json.loads(run("sessions", "list", "--format", "json").out)
    assert "metadata" not in listed
    files.pi(home, place.project, FIRST, "Plant a tree", time=1_790_000_000)
    assert run("import", "--all", "--sync").out == "1 session imported\n"
    assert run("import", "--all").out == "0 sessions imported; 1 were imported before\n"


def test_metadata_that_names_no_session_is_passed_over(run: Run, place: Place, home: Path) -> None:
    store = f"sqlite:{place.root / 'chats.db'}"
    with Agent("anthropic/claude-sonnet-5", store=store) as agent:
        agent.sessions.create(metadata={"imported_tool": ["pi"], "imported_session": FIRST})
        agent.sessions.create(metadata={"imported_tool": "pi", "imported_session": {"id": FIRST}})
    files.pi(home, place.project, FIRST, "Plant a tree", time=1_790_000_000)
    assert run("import", "--all", "--store", store).out == "1 session imported\n"


def test_what_cannot_be_read_is_named_and_the_others_are_imported(
    run: Run, place: Place, home: Path
) -> None:
    files.pi(home, place.project, FIRST, "Plant a tree", time=1_790_000_000)
    files.claude(home, place.project, SECOND, "Paint the house")
    (path,) = (home / ".claude").rglob("*.jsonl")
    path.write_bytes(path.read_bytes() + b'{"type":"user","message":' + b"[" * 5000 + b"\n")
    done = run("import", "--all")
    assert done.code == 1
    assert f"{SECOND} of claude was not imported" in done.err
    assert done.out == "1 session imported; 1 could not be read\n"


def test_a_session_of_openai_agents_is_imported_from_its_database(
    run: Run, place: Place, tmp_path: Path
) -> None:
    path = files.openai_agents(tmp_path / "agents.db", {"one": "Plant a tree", "two": "Paint"})
    listed = run("import", "--from", "openai-agents", "--file", str(path), "--format", "json")
    assert {each["id"] for each in json.loads(listed.out)} == {"one", "two"}
    done = run("import", "--from", "openai-agents", "--file", str(path), "one")
    assert done.out.startswith("one: 2 messages\n")
    (own,) = re.findall(r"haptera -r (\S+)", done.out)
    assert "Plant a tree" in run("sessions", "show", own).out
    assert run("import", "--from", "openai-agents").code == 2
    assert run("import").code == 2
    path.write_bytes(b"SQLite format 3\0 but none")
    done = run("import", "--from", "openai-agents", "--file", str(path))
    assert (done.code, "database of openai-agents" in done.err) == (1, True)


def test_a_view_in_place_of_a_table_of_openai_agents_is_refused(run: Run, tmp_path: Path) -> None:
    path = files.openai_agents(tmp_path / "agents.db", {"one": "Plant a tree"})
    with contextlib.closing(apsw.Connection(str(path))) as writing:
        writing.execute("DROP TABLE agent_messages")
        writing.execute(
            "CREATE VIEW agent_messages AS WITH RECURSIVE endless (id, session_id, message_data) AS"
            " (SELECT 1, 'one', '{}' UNION ALL SELECT id + 1, 'one', '{}' FROM endless)"
            " SELECT * FROM endless"
        )
    done = run("import", "--from", "openai-agents", "--file", str(path), "one")
    assert (done.code, "is not a database of openai-agents" in done.err) == (1, True)
