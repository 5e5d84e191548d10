"""No command lets a terminal obey what it is told: names, titles, folders and answers of others.

Each command runs on a terminal of its own. Of control characters only our own colours may come out.
"""

import asyncio
import os
import pty
import re
import select
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from haptera import Agent, tool
from haptera.cli.main import haptera
from haptera.model.visible_text import HIDDEN
from haptera.testing import ScriptedProvider, calls, says
from tests.cli import files_of_other_tools as files
from tests.cli.commands import Place
from tests.cli.scripted_server import Turn, scripted_server
from tests.forked_processes import COMMAND, ForkedProcess

pytestmark = pytest.mark.slow

EVIL = (
    "\x1b]52;c;cm0=\x07\x1b[2J\x1b[8m\x1b]8;;file:x\x1b\\\x9b31m\x9d0;t\x9c\x7f\x0e\x08"
    "\u202egnp\u2066\u061c\u3164\u115f\uffa0\ufe01\U000e0041x\u200d\u200cy\u2028z"
)
FOLDER = "project" + EVIL
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LINE_ENDS = re.compile(r"\r+\n|\r(?=[█░])")  # those of the terminal, and of our progress bar
_MOST_WAITS = 400
"""Of 0.05 s each."""


def obeyed(said: bytes) -> str:
    """Return what a terminal would obey or hide, our own colours left out."""
    text = said.decode("utf-8", "surrogateescape")
    assert not re.search(r"\x1b\[[0-9;]*8m", text)  # concealed text is none of our styles
    return "".join(re.findall(f"[{HIDDEN}]", COLOURS.sub("", _LINE_ENDS.sub("\n", text))))


def on_a_terminal(
    place: Place, *arguments: str, typed: bytes = b"", until: bytes | None = None
) -> bytes:
    """Run a command on a terminal of its own, and return what came out of it."""
    master, slave = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), slave)
    where, environment = place.root / FOLDER, place.environment
    said = bytearray()
    try:
        with ForkedProcess(COMMAND, *arguments, cwd=where, env=environment, **streams) as process:
            os.close(slave)
            if typed:
                os.write(master, typed)
            waits = 0
            while waits < _MOST_WAITS:
                if select.select([master], [], [], 0.05)[0]:
                    try:
                        piece = os.read(master, 65536)
                    except OSError:  # the other end is closed
                        break
                    said += piece
                    if until is not None and until in said:
                        break
                elif process.poll() is not None:
                    break
                else:
                    waits += 1
            process.kill()
    finally:
        os.close(master)
    return bytes(said)


async def _fill(store: str) -> str:
    """Make sessions whose every name is hostile; returns the id of the first."""

    @tool(name="look")
    def look(x: str) -> str:
        """Look."""
        return x + EVIL

    steps = [calls(("look", {"x": EVIL})), says(f"a{EVIL}"), says(EVIL)]
    provider = ScriptedProvider(steps)
    fixed = {"environment": {}, "snapshots": False, "tools": [look], "store": store}
    async with Agent(providers=[provider], model=f"scripted/m{EVIL}", **fixed) as agent:  # type: ignore[arg-type]
        first = await agent.session().open()
        await first.chat(f"hi {EVIL}")
        session_id = first.session_id or ""
        await agent.sessions.rename(session_id, f"n{EVIL}")
        await agent.sessions.tag(session_id, f"g{EVIL}")
        await first.close()
        other = await agent.session().open()  # without a name or a title: its prompt is shown
        await other.chat(f"again {EVIL}")
        await agent.sessions.update(other.session_id or "", title=f"t{EVIL}")
        await other.close()
    return session_id


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, str]]:
    root = tmp_path_factory.mktemp("terminal")
    folder = root / FOLDER
    (folder / ".haptera").mkdir(parents=True)
    (folder / ".haptera" / "config.toml").write_text(f"# {EVIL}\n[defaults]\n", encoding="utf-8")
    turn = Turn(text=f"It is {EVIL}.", thinking=f"hm {EVIL}")
    with scripted_server(turn) as server, pytest.MonkeyPatch.context() as patch:
        store = f"sqlite:{root}/chat.db"
        place = Place(root, server, variables={"HAPTERA_STORE": store})
        configured = Path(place.environment["HOME"]) / ".config" / "haptera"
        configured.mkdir(parents=True)
        escaped = "".join(f"\\U{ord(each):08x}" for each in EVIL)
        (configured / "config.toml").write_text(
            f'[mcpServers.bad]\ncommand = "none{escaped}"\nargs = ["a{escaped}"]\n'
        )
        patch.chdir(folder)
        files.claude(Path(place.environment["HOME"]), folder, "own-1", f"do {EVIL}")
        session_id = asyncio.run(_fill(store))
        assert not obeyed(on_a_terminal(place, "keys", "add", f"o{EVIL}", "--label", f"l{EVIL}"))
        yield place, session_id


S = "{session}"
TABLE: dict[str, list[tuple[str, ...]]] = {
    "": [("-p", "hi"), ("-p", "hi", "--output-format", "json"), (f"no{EVIL}",), (f"--no{EVIL}",)],
    "run": [("x", f"@no{EVIL}.txt"), ("hi", "--output-format", "stream-json"), ("hi", "-m", EVIL)],
    "chat": [],  # below
    "completion": [("bash",)],
    "config show": [(), ("--format", "json"), ("--origin",)],
    "doctor": [(), ("--format", "json")],
    "import": [("--from", "claude"), ("--from", "claude", "--format", "json"), ("--from", EVIL)],
    "keys add": [(f"o{EVIL}", "--days", EVIL)],
    "keys list": [()],
    "keys remove": [(EVIL,)],
    "login": [(f"p{EVIL}",), (f"p{EVIL}", "--paste")],
    "logout": [(f"p{EVIL}",)],
    "mcp add": [(f"m{EVIL}", "--", "x"), ("x", "--env", EVIL, "--", "y")],
    "mcp list": [(), ("--format", "json")],
    "mcp remove": [(f"m{EVIL}",)],
    "mcp test": [("bad",), ("bad", "--format", "json"), (f"m{EVIL}",)],
    "models list": [(EVIL,)],
    "models pull": [(EVIL,)],
    "models remove": [(EVIL, "-y")],
    "rpc": [("--model", EVIL)],
    "schema": [()],
    "serve": [("--host", EVIL), ("--allow-host", EVIL, "--port", EVIL)],
    "sessions archive": [(S,), (S, "--undo"), (EVIL,)],
    "sessions compact": [(EVIL,)],
    "sessions delete": [(S,), (EVIL,)],
    "sessions export": [
        (S, "--format", "markdown"),
        (S, "-o", f"no{EVIL}/x"),
        (S, "--format", "html"),
    ],
    "sessions count": [(), ("--tag", f"g{EVIL}"), ("--metadata", EVIL)],
    "sessions deliver": [(S, EVIL, "--result", EVIL), (EVIL, "call", "--error", EVIL)],
    "sessions fork": [(S, "--name", f"f{EVIL}"), (S, "--at", EVIL)],
    "sessions import": [(f"no{EVIL}",), ("../broken" + EVIL,)],
    "sessions list": [(), ("--all",), ("--format", "json"), ("--tag", f"g{EVIL}")],
    "sessions rename": [(S, f"n{EVIL}", "--title", f"t{EVIL}")],
    "sessions repair": [()],
    "sessions rewind": [(S, "--to", EVIL)],
    "sessions search": [("again",), ("again", "--format", "json")],
    "sessions share": [(S, "-o", f"page{EVIL}.html"), (S, "--link")],
    "sessions shares": [(S,), (S, "--format", "json")],
    "sessions show": [(S,), (S, "--format", "json"), ("again",), (EVIL,)],
    "sessions stats": [(S,), (S, "--format", "json")],
    "sessions tag": [(S, f"h{EVIL}"), (S, f"h{EVIL}", "--remove")],
    "sessions unshare": [(S, EVIL)],
    "sessions verify": [(S,)],
    "trust": [(), ("-y",), ("--undo",)],
}
"""By command, the arguments that make it show what others have named."""


def _leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from _leaves(below, (*path, name))


def test_every_command_is_run_on_a_terminal() -> None:
    assert set(TABLE) == {"", *_leaves(haptera)}


@pytest.mark.parametrize("command", [name for name, lines in TABLE.items() if lines])
def test_a_terminal_obeys_nothing_of_what_a_command_shows(
    filled: tuple[Place, str], command: str
) -> None:
    place, session_id = filled
    (place.root / f"broken{EVIL}").write_text(EVIL, encoding="utf-8")
    for line in TABLE[command]:
        arguments = [session_id if each == S else each for each in line]
        typed = b"\x04\x04" if command == "rpc" else b"n\n"
        said = on_a_terminal(place, *command.split(), *arguments, typed=typed)
        assert obeyed(said) == "", (command, line, said)


def test_titles_and_names_are_shown_with_what_is_hidden_in_them(filled: tuple[Place, str]) -> None:
    place, session_id = filled
    said = on_a_terminal(place, "sessions", "show", session_id).decode()
    assert "scripted/m\\x1b]52;c;cm0=\\x07" in said
    assert "\\u202egnp" in said
    trusted = on_a_terminal(place, "trust", typed=b"n\n").decode()
    assert "project\\x1b]52;c;" in trusted
    assert "# \\x1b]52;c;" in trusted


def test_an_export_to_a_pipe_has_the_bytes_of_the_file(filled: tuple[Place, str]) -> None:
    place, session_id = filled
    done = place.run("sessions", "export", session_id, "--format", "markdown")
    place.run("sessions", "export", session_id, "--format", "markdown", "-o", "../same.md")
    assert done.stdout == (place.root / "same.md").read_bytes()
    facts = [line for line in done.stdout.decode().split("\n") if line.startswith(("#", "- "))]
    assert "Model: scripted/m\\x1b]52;c;" in "\n".join(facts)
    assert not re.search(f"[{HIDDEN}]", "\n".join(facts))


def test_a_traceback_on_a_terminal_is_only_shown(filled: tuple[Place, str]) -> None:
    place, _ = filled
    said = on_a_terminal(place, "--debug", "sessions", "show", EVIL)
    said += on_a_terminal(place, "--debug", "-p", "hi", "-m", f"no/{EVIL}")
    assert b"Traceback" in said
    assert obeyed(said) == ""


def test_a_chat_shows_what_it_is_told_and_no_more(filled: tuple[Place, str]) -> None:
    place, session_id = filled
    said = on_a_terminal(place, "chat", "-r", session_id, until=b"x1b]52;c;")
    said += on_a_terminal(place, "chat", "hello", until=b"It is")
    text = said.decode("utf-8", "surrogateescape")
    assert "It is" in text
    sequences = ("\x1b]52", "\x1b[8m", "\x1b]8", "\x1b]0", "\x9b", "\x9d", "\x0e")
    for hostile in (*sequences, "\u202e", "\u3164"):
        assert hostile not in text
