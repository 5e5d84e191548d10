"""The interactive client in a real terminal: tmux types, the screens are kept as snapshots."""

import json
import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import Place
from tests.cli.scripted_server import Turn, scripted_server
from tests.cli.terminal_driver import Terminal, terminal
from tests.fixtures_wire import is_everything_required

pytestmark = pytest.mark.slow

SCREENS = Path(__file__).parent / "screens"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    if shutil.which("tmux") is None:
        if is_everything_required():
            pytest.fail("tmux is not installed")
        pytest.skip("tmux is not installed (Debian: apt-get install tmux)")
    with scripted_server(Turn(text="ok")) as server:
        yield Place(tmp_path, server)


def _script(place: Place, *turns: Turn) -> None:
    assert place.server is not None
    place.server.turns[:] = turns


def _ready(shown: Terminal) -> Terminal:
    shown.wait_for("/help for commands")
    shown.wait_for("tokens")
    return shown


def _snapshot(name: str, screen: str) -> None:
    """Compare a screen with the one that is kept; what differs from run to run is replaced."""
    screen = re.sub(r"\d+\.\d s", "0.0 s", screen)
    screen = re.sub(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", "⠋", screen)
    screen = re.sub(r"\n{2,}(?=[^\n]*tokens)", "\n\n", screen)
    kept = SCREENS / f"{name}.txt"
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(screen + "\n")
        pytest.fail(f"{kept} was written: look at it and commit it")
    assert screen == kept.read_text().rstrip("\n")


_ANSWER = Turn(
    thinking="A greeting. I answer it.",
    text=[
        "# Hello\n\nThis is **bold** and `code`.\n\n",
        "```python\nprint(1)\n```\n\n- one\n- two",
    ],
)


@pytest.mark.parametrize("width", [80, 40])
def test_a_streamed_answer_is_rendered(place: Place, width: int) -> None:
    _script(place, _ANSWER)
    with terminal(place, width=width) as shown:
        _ready(shown).say("hello")
        shown.wait_for("two")
        screen = shown.wait_for(lambda text: "15 tokens" in text)
        _snapshot(f"answer_{width}", shown.screen() or screen)


def test_without_colour_nothing_is_styled(place: Place) -> None:
    _script(place, _ANSWER)
    with terminal(place, NO_COLOR="1") as shown:
        _ready(shown).say("hello")
        shown.wait_for("15 tokens")
        assert not re.search(r"\x1b\[(?:[0-9;]*;)?3[0-7]m", shown.screen(styled=True))


def test_an_approval_shows_the_change_and_yes_makes_it(place: Place) -> None:
    call = ("write", {"path": "a.txt", "content": "hello\nworld\n"})
    _script(place, Turn(text="I write it.", calls=[call]), Turn(text="Done."))
    with terminal(place) as shown:
        _ready(shown).say("write a file")
        shown.wait_for("[y]es")
        # What is above the prompt is printed a moment later, and then the line below it.
        screen = shown.wait_for(lambda text: "I write it." in text and "15 tokens" in text)
        _snapshot("approval", screen)
        assert not (place.project / "a.txt").exists()
        shown.press("y")
        shown.wait_for("Done.")
    assert (place.project / "a.txt").read_text() == "hello\nworld\n"


def test_a_denial_carries_its_reason_to_the_model(place: Place) -> None:
    call = ("write", {"path": "a.txt", "content": "x"})
    _script(place, Turn(calls=[call]), Turn(text="As you wish."))
    with terminal(place) as shown:
        _ready(shown).say("write a file")
        shown.wait_for("[y]es")
        shown.press("n")
        shown.wait_for("Why not?")
        shown.say("use b.txt")
        shown.wait_for("As you wish.")
    assert place.server is not None
    assert "use b.txt" in str(place.server.requests[-1])
    assert not (place.project / "a.txt").exists()


def test_arguments_can_be_edited_before_the_call_runs(place: Place) -> None:
    call = ("write", {"path": "a.txt", "content": "x"})
    _script(place, Turn(calls=[call]), Turn(text="Done."))
    with terminal(place) as shown:
        _ready(shown).say("write a file")
        shown.wait_for("[y]es")
        shown.press("e")
        shown.wait_for("Change the arguments")
        shown.press("C-u", *["BSpace"] * 120)
        shown.say('{"path": "b.txt", "content": "y"}')
        shown.wait_for("Done.")
    assert (place.project / "b.txt").read_text() == "y"
    assert not (place.project / "a.txt").exists()


@pytest.mark.parametrize("key", ["Escape", "C-c"])
def test_an_interrupt_keeps_what_was_said(place: Place, key: str) -> None:
    _script(place, Turn(text=["Half", " a story"], hold=threading.Event()), Turn(text="Again."))
    with terminal(place) as shown:
        _ready(shown).say("tell")
        shown.wait_for("Half")
        shown.press(key)
        shown.wait_for("interrupted; what was said is kept")
        shown.wait_for("0 tokens and more")  # what the answer used is reported at its end
        shown.say("go on")
        shown.wait_for("Again.")
    assert place.server is not None
    assert "Half" in str(place.server.requests[-1]["messages"])


def test_ctrl_c_twice_leaves(place: Place) -> None:
    with terminal(place) as shown:
        _ready(shown).press("C-c")
        shown.wait_for("Ctrl-C again leaves")
        shown.press("C-c")
        shown.wait_for("exit=0")


def test_typing_while_it_works_steers(place: Place) -> None:
    hold = threading.Event()
    call = ("read", {"path": "none.txt"})
    _script(place, Turn(text=["Look", "ing"], hold=hold, calls=[call]), Turn(text="In German."))
    with terminal(place) as shown:
        _ready(shown).say("explain")
        shown.wait_for("Look")
        shown.say("in German, please")
        hold.set()
        shown.wait_for("In German.")
    assert place.server is not None
    assert "in German, please" in str(place.server.requests[-1]["messages"])


def test_a_session_goes_on_after_kill_nine(place: Place) -> None:
    _script(place, Turn(text="My name is Ada."), Turn(text=["Half", "way"], hold=threading.Event()))
    with terminal(place) as shown:
        _ready(shown).say("who are you?")
        shown.wait_for("Ada")
        shown.say("and more")
        shown.wait_for("Half")
        os.kill(_program_in(shown), signal.SIGKILL)
        shown.wait_for("exit=137")
    _script(place, Turn(text="Still Ada."))
    with terminal(place, "-c") as shown:
        shown.wait_for("My name is Ada.")
        shown.wait_for("was cut off")
        shown.say("/resume")
        shown.wait_for("Still Ada.")


def test_slash_commands_say_what_they_did(place: Place) -> None:
    with terminal(place, height=50) as shown:
        _ready(shown).say("hello")
        shown.wait_for("15 tokens")
        shown.say("/help")
        screen = shown.wait_for("Ctrl-C interrupts.")
        _snapshot("help", screen.partition("> /help\n")[2].partition("\n>")[0])
        shown.say("/name a greeting")
        shown.wait_for("is called 'a greeting'")
        shown.say("/model anthropic/claude-opus-5")
        shown.wait_for("model: anthropic/claude-opus-5")
        shown.say("/effort nonsense")
        shown.wait_for("the effort is one of")
        shown.say("/permissions plan")
        shown.wait_for("permission mode: plan")
        shown.say("/usage")
        shown.wait_for("1 query, 1 turn, 0 tool calls")
        shown.say("/export out.md")
        shown.wait_for("written to out.md")
        shown.say("/export out.md")
        shown.wait_for("out.md exists already; it is not overwritten")
        shown.say("/fork its copy")
        shown.wait_for("a copy of the session")
        shown.wait_for("its copy ·")
        shown.say("/new second try")
        shown.wait_for("second try ·")
        shown.say("/resume a greeting")
        shown.wait_for(lambda text: text.count("> hello") == 2 and "15 tokens" in text)
        shown.say("/nonsense")
        shown.wait_for("there is no command /nonsense")
        shown.say("/exit")
        shown.wait_for("exit=0")
    assert "hello" in (place.project / "out.md").read_text()


def test_a_copy_that_is_made_while_a_query_runs_stops_that_query_at_once(place: Place) -> None:
    _script(place, Turn(text=["one\n\n", "two"], hold=threading.Event()), Turn(text="three"))
    with terminal(place) as shown:
        _ready(shown).say("first")
        shown.wait_for("one")
        shown.say("/fork its copy")
        shown.wait_for("interrupted; what was said is kept")
        shown.wait_for("its copy ·")
        shown.say("second")
        shown.wait_for("three")


def test_rewinding_goes_back_before_a_prompt(place: Place) -> None:
    _script(place, Turn(text="one"), Turn(text="two"), Turn(text="three"))
    with terminal(place) as shown:
        _ready(shown).say("first")
        shown.wait_for("15 tokens")
        shown.say("second")
        shown.wait_for("30 tokens")
        shown.say("/rewind")
        shown.wait_for("2  second")
        shown.say("/rewind 2")
        shown.wait_for("back to before: second")
        shown.say("third")
        shown.wait_for("45 tokens")
    assert place.server is not None
    sent = str(place.server.requests[-1]["messages"])
    assert "third" in sent
    assert "second" not in sent


def test_a_conversation_is_compacted_in_the_chat(place: Place) -> None:
    long = "The capital of France is Paris, on the Seine. " * 200
    _script(place, Turn(text=long), Turn(text="Short."), Turn(text="# Objective\nFrance."))
    place.run("run", long, "-n", "france")
    place.run("-r", "france", "-p", "And now?")
    with terminal(place, "-r", "france") as shown:
        _ready(shown)
        shown.say("/compact keep the river")
        screen = shown.wait_for("the conversation was shortened")
        assert screen.count("the conversation was shortened") == 1
    assert place.server is not None
    assert "keep the river" in str(place.server.requests[-1])


def test_a_compaction_that_fails_says_so_once(place: Place) -> None:
    long = "The capital of France is Paris, on the Seine. " * 200
    refused = Turn(status=400, error="this model is asleep")
    _script(place, Turn(text=long), Turn(text="Short."), refused)
    place.run("run", long, "-n", "france")
    place.run("-r", "france", "-p", "And now?")
    with terminal(place, "-r", "france") as shown:
        _ready(shown)
        shown.say("/compact")
        shown.wait_for("this model is asleep")
        shown.say("/name paris")
        screen = shown.wait_for("is called 'paris'")
        assert screen.count("this model is asleep") == 1
        assert "shortened" not in screen


def test_a_query_that_fails_when_it_is_resumed_says_so_once(place: Place) -> None:
    _script(place, Turn(text=["Half", "way"], hold=threading.Event()))
    with place.start("-p", "tell", "-n", "tale") as cut_off:
        assert place.server is not None
        assert place.server.arrived.acquire(timeout=30)
        cut_off.kill()
    _script(place, Turn(status=400, error="this model is asleep"))
    with terminal(place, "-c") as shown:
        shown.wait_for("was cut off")
        shown.say("/resume")
        shown.wait_for("this model is asleep")
        shown.say("/name tales")
        screen = shown.wait_for("is called 'tales'")
        assert screen.count("this model is asleep") == 1


@pytest.mark.parametrize("width", [120, 60])
def test_remarks_and_errors_are_broken_between_words(place: Place, width: int) -> None:
    told = " ".join(f"word{number:03}" for number in range(60))
    _script(place, Turn(status=400, error=told))
    with terminal(place, width=width, height=50) as shown:
        _ready(shown).say("/help")
        screen = shown.wait_for("interrupts.")
        assert "Alt-Enter queues" in " ".join(screen.split())
        shown.say("hello")
        screen = shown.wait_for("word059")
        assert set(told.split()) <= set(screen.split())


def test_the_line_below_shows_a_cost_when_there_is_one(place: Place) -> None:
    with terminal(place) as shown:
        _ready(shown)
        assert "$" not in shown.screen()
        shown.say("hello")
        shown.wait_for("15 tokens · $0.00")


def test_resuming_without_a_name_shows_what_there_is(place: Place) -> None:
    assert place.run("-p", "an apple", "-n", "fruit").returncode == 0
    assert place.run("-p", "a car", "-n", "wheels").returncode == 0
    with terminal(place, "-r") as shown:
        shown.wait_for("Which one")
        assert "1  " in shown.screen()
        shown.say("2")
        shown.wait_for("> an apple")


def test_the_embedded_model_answers_in_a_terminal(
    place: Place, smollm2: Path, tmp_path: Path
) -> None:
    # What a small model says may go on until its context is full.
    alone = Place(tmp_path / "alone", variables={"HAPTERA_MAX_TOKENS": "24"})
    (alone.root / "home/.cache/haptera").mkdir(parents=True)
    (alone.root / "home/.cache/haptera/models").symlink_to(smollm2.parent)
    with terminal(alone) as shown:
        _ready(shown).say("Say hello.")
        shown.wait_for(lambda text: re.search(r"[1-9]\d* tokens", text) is not None)
        assert "local/smollm2" in shown.screen()
        shown.say("/exit")
        shown.wait_for("exit=0")
    assert place.server is not None
    assert place.server.requests == []


@pytest.mark.parametrize("key", ["Escape", "C-c"])
def test_arguments_that_were_being_edited_are_not_the_next_prompt(place: Place, key: str) -> None:
    call = ("write", {"path": "a.txt", "content": "x"})
    _script(place, Turn(calls=[call]), Turn(text="Again."))
    with terminal(place) as shown:
        _ready(shown).say("write a file")
        shown.wait_for("[y]es")
        shown.press("e")
        shown.wait_for("Change the arguments")
        shown.press(key)
        shown.wait_for("interrupted; what was said is kept")
        shown.say("go on")
        shown.wait_for("Again.")
    assert place.server is not None
    last = place.server.requests[-1]["messages"][-1]["content"]
    assert [part["text"] for part in last if part["type"] == "text"][-1] == "go on"


def test_the_whole_command_is_shown_before_it_is_approved(place: Place) -> None:
    command = "echo one two three four five six seven eight\ntouch the-last-word"
    _script(place, Turn(calls=[("shell", {"command": command})]), Turn(text="As you wish."))
    with terminal(place, width=40) as shown:
        _ready(shown).say("run it")
        screen = shown.wait_for("[e]dit")
        assert "touch the-last-word" in screen
        assert "eight" in screen


def test_all_of_a_long_call_is_shown_by_a_key(place: Place) -> None:
    content = "".join(f"line {number}\n" for number in range(90))
    call = ("write", {"path": "a.txt", "content": content})
    _script(place, Turn(calls=[call]), Turn(text="As you wish."))
    with terminal(place) as shown:
        _ready(shown).say("write it")
        assert "│   line 42" not in shown.wait_for("[v]iew all")
        shown.press("v")
        shown.wait_for("│   line 42")
        shown.press("y")
        shown.wait_for("As you wish.")
    assert (place.project / "a.txt").read_text() == content


def test_leaving_says_how_to_continue(place: Place) -> None:
    _script(place, Turn(text="Hello."))
    with terminal(place) as shown:
        _ready(shown).say("see @none.txt")
        shown.wait_for("there is no file 'none.txt'")
        shown.wait_for("Hello.")
        shown.say("/exit")
        shown.wait_for("exit=0")
        assert "continue it with: haptera -r " in shown.screen()


def test_a_project_file_that_is_not_trusted_is_named(place: Place) -> None:
    folder = place.project / ".haptera"
    folder.mkdir()
    (folder / "config.toml").write_text('model = "anthropic/claude-opus-5"\n')
    with terminal(place) as shown:
        _ready(shown)
        shown.wait_for("haptera trust")


def _program_in(shown: Terminal) -> int:
    """Return the process of the chat, which the shell of the terminal started."""
    pane = int(shown.tmux("list-panes", "-F", "#{pane_pid}"))
    return int(Path(f"/proc/{pane}/task/{pane}/children").read_text().split()[0])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_suspends_the_query_and_resume_carries_it_on(
    place: Place, number: signal.Signals, code: int
) -> None:
    hold = threading.Event()
    _script(place, Turn(text=["Half", " an answer."], hold=hold), Turn(text=" and the rest."))
    with terminal(place) as shown:
        _ready(shown).say("hello")
        shown.wait_for("Half")
        os.kill(_program_in(shown), number)
        shown.wait_for(f"exit={code}")
    (listed,) = json.loads(place.run("sessions", "list", "--format", "json").stdout)
    assert listed["phase"] == "running", "the query has no end"
    hold.set()
    with terminal(place, "-c") as shown:
        _ready(shown)
        shown.wait_for("/resume carries it on")
        shown.say("/resume")
        shown.wait_for("and the rest.")
