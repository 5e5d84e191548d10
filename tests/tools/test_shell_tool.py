"""The shell tool runs commands, shows what they write, and leaves nothing of them behind."""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from haptera.tools import Sandbox, coding_tools
from tests.architecture.source_tree import ROOT
from tests.tools.processes import marked, new_mark, wait_until_none
from tests.tools.toolbox import INTERPRETER, PYTHON, Toolbox

pytestmark = pytest.mark.slow

CONFINED = {
    "namespaces": Sandbox(),
    "landlock": Sandbox(layers=("landlock", "seccomp"), readable=INTERPRETER),
    "none": None,
}
"""Every way to run a command: what ends it is different in each."""


@pytest.fixture
def tools(tmp_path: Path) -> Toolbox:
    return Toolbox(coding_tools(tmp_path), is_approved=True)


@pytest.fixture(params=CONFINED)
def any_tools(request: pytest.FixtureRequest, tmp_path: Path) -> Toolbox:
    return Toolbox(coding_tools(tmp_path, sandbox=CONFINED[request.param]), is_approved=True)


async def test_output_and_exit_status_are_told(any_tools: Toolbox) -> None:
    told = await any_tools.call("shell", command="echo out; echo err >&2; exit 3")
    assert told == "out\nerr\n[exit status 3]"
    assert await any_tools.call("shell", command="true") == "[exit status 0]"
    assert await any_tools.call("shell", command="kill -9 $$") == (
        "[exit status 137: ended by signal 9]"
    )


async def test_a_list_of_words_is_seen_by_no_shell(any_tools: Toolbox) -> None:
    told = await any_tools.call("shell", command=["printf", "%s\n", "$HOME; `id` *"])
    assert told == "$HOME; `id` *\n[exit status 0]"
    assert "not started" in await any_tools.call("shell", command=["no-such-program"])
    assert "failed" in await any_tools.call("shell", command=[])
    assert "NUL" in await any_tools.call("shell", command="echo a\0b")


async def test_a_command_runs_in_the_folder_it_is_given(tools: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "out").symlink_to("/etc")
    told = await tools.call("shell", command="pwd -P; touch made", folder="src")
    assert told == f"{tmp_path}/src\n[exit status 0]"
    assert (tmp_path / "src/made").exists()
    for folder in ("..", "/etc", "out", "src/../.."):
        assert "out of the root" in await tools.call("shell", command="pwd", folder=folder)


async def test_commands_share_a_temporary_folder_that_is_made_with_the_first_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, root = tmp_path / "tmp", tmp_path / "root"
    place.mkdir()
    root.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    tools = Toolbox(coding_tools(root, sandbox=None), is_approved=True)
    assert list(place.iterdir()) == []
    assert await tools.call("shell", command="echo kept > $TMPDIR/it") == "[exit status 0]"
    assert await tools.call("shell", command="cat $TMPDIR/it") == "kept\n[exit status 0]"
    assert len(list(place.iterdir())) == 1


async def test_a_command_has_no_input(any_tools: Toolbox) -> None:
    assert await any_tools.call("shell", command="cat; echo done") == "done\n[exit status 0]"


async def test_output_is_shown_while_it_comes(tools: Toolbox, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    seen = asyncio.Event()
    tools.watch = lambda value: seen.set()
    running = asyncio.ensure_future(
        tools.call("shell", command="echo before; read line < gate; echo $line")
    )
    await seen.wait()  # the command is waiting now, and what it wrote is here
    await asyncio.to_thread((tmp_path / "gate").write_text, "after\n")
    assert await running == "before\nafter\n[exit status 0]"
    assert "".join(value["output"] for value in tools.progress) == "before\nafter\n"


async def test_bytes_that_are_no_text_are_replaced(tools: Toolbox) -> None:
    told = await tools.call("shell", command=r"printf '\xff\xfe\xe2\x82'; printf '\xac'")
    assert told == "��€\n[exit status 0]"


async def test_long_output_is_cut_and_kept(tools: Toolbox) -> None:
    told = await tools.call("shell", command="seq 1 100000")
    assert told.startswith("1\n2\n3\n")
    assert told.endswith("99999\n100000\n[exit status 0]")
    assert len(told) < 31_000
    name = told.partition('read_output(name="')[2].partition('"')[0]
    page = await tools.call("read_output", name=name, offset=288_894)
    assert page.startswith("50001\n50002\n")


async def test_output_without_end_is_ended(tools: Toolbox) -> None:
    told = await tools.call("shell", command="yes 0123456789012345678901234567890123456789")
    assert "more bytes were not kept" in told
    assert told.endswith("[ended: it wrote more than 64 MiB]")


async def test_a_command_that_takes_too_long_is_ended(any_tools: Toolbox) -> None:
    mark = new_mark()
    told = await any_tools.call("shell", command=f"echo hi; sleep {mark}", timeout=1)
    assert told == "hi\n[ended after 1 s: it took too long]"
    assert marked(mark) == []


STUBBORN = [
    "trap '' TERM HUP INT; sleep {mark} & sleep {mark}",
    "trap '' TERM; (trap '' TERM; setsid sleep {mark} &) ; sleep {mark}",
    "setsid nohup sleep {mark} >/dev/null 2>&1 & sleep {mark}",
    "{python} -c 'import os,time,signal; signal.signal(15,1); os.fork(); os.setsid() if "
    "os.getpid()!=os.getpgid(0) else 0; os.fork(); time.sleep({mark})'",
]


async def test_a_command_that_forks_ignores_the_signal_and_holds_the_pipe_is_gone(
    any_tools: Toolbox,
) -> None:
    mark = new_mark()
    commands = [item.replace("{mark}", mark).replace("{python}", PYTHON) for item in STUBBORN]
    told = await asyncio.gather(
        *(any_tools.call("shell", command=command, timeout=0.5) for command in commands)
    )
    assert told == ["[ended after 0.5 s: it took too long]"] * len(commands)
    assert marked(mark) == []


async def test_what_a_command_leaves_in_the_background_ends_with_it(any_tools: Toolbox) -> None:
    mark = new_mark()
    told = await any_tools.call(
        "shell", command=f"(setsid sleep {mark} &) ; sleep {mark} & echo started"
    )
    assert told == "started\n[exit status 0]"
    assert marked(mark) == []


async def test_a_command_is_told_to_end_before_it_is_killed(any_tools: Toolbox) -> None:
    mark = new_mark()
    told = await any_tools.call(
        "shell",
        command=f"trap 'echo saved; exit 0' TERM; echo on; sleep {mark} & wait",
        timeout=1,
    )
    assert "saved" in told
    assert marked(mark) == []


async def test_a_command_ends_when_its_call_is_cancelled(any_tools: Toolbox) -> None:
    mark = new_mark()
    started = asyncio.Event()
    any_tools.watch = lambda value: started.set()
    running = asyncio.ensure_future(
        any_tools.call("shell", command=f"trap '' TERM; sleep {mark} & echo on; sleep {mark}")
    )
    await started.wait()
    assert marked(mark)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.to_thread(wait_until_none, mark)


@pytest.mark.parametrize("confined", CONFINED)
def test_a_command_ends_when_the_program_that_started_it_is_killed(
    confined: str, tmp_path: Path
) -> None:
    mark = new_mark()
    root, temporary = tmp_path / "root", tmp_path / "temporary"
    root.mkdir()
    temporary.mkdir()
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.tools.shell_worker", str(root), confined, mark],
        cwd=ROOT,
        env={"PYTHONPATH": "src", "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
    )
    with program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"on\n"
        program.kill()
    wait_until_none(mark, but=program.pid)


async def test_many_commands_leave_no_process_and_no_descriptor(tools: Toolbox) -> None:
    await tools.call("shell", command="true")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(10):
        await asyncio.gather(*(tools.call("shell", command="echo hi") for _ in range(3)))
    # Fewer is fine: what earlier tests left may be collected meanwhile.
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


async def test_commands_get_only_the_variables_on_the_list(tmp_path: Path) -> None:
    given = {
        "PATH": "/usr/bin:/bin",
        "LANG": "de_DE.UTF-8",
        "ANTHROPIC_API_KEY": "canary-1",
        "AWS_SECRET_ACCESS_KEY": "canary-2",
        "LD_PRELOAD": "/tmp/canary-3.so",
        "BASH_ENV": "/tmp/canary-4",
        "GIT_SSH_COMMAND": "canary-5",
        "HAPTERA_TOKEN": "canary-6",
        "PYTHONPATH": "/canary-7",
    }
    tools = Toolbox(
        coding_tools(tmp_path, environment=given, variables={"CI": "true"}), is_approved=True
    )
    told = await tools.call("shell", command="env; cat /proc/self/environ")
    assert "canary" not in told
    assert "LANG=de_DE.UTF-8" in told
    assert "CI=true" in told


@pytest.mark.parametrize("confined", CONFINED)
async def test_a_secret_in_our_environment_reaches_no_command(
    confined: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-in-our-environment")
    monkeypatch.setenv("SECRET_TOKEN", "sk-canary-in-our-environment")
    (tmp_path / "script.sh").write_text("env; cat /proc/$PPID/environ /proc/self/environ; env -0")
    tools = Toolbox(
        coding_tools(
            tmp_path,
            environment=os.environ,  # noqa: TID251 - it is what must not get through
            sandbox=CONFINED[confined],
        ),
        is_approved=True,
    )
    commands: list[Any] = [
        "env; export -p; set; cat /proc/self/environ /proc/$PPID/environ 2>&1",
        "bash script.sh",
        ["env"],
        f"{PYTHON} -c 'import os; print(os.environ)'",
    ]
    if confined != "none":  # what is not confined can look at any process of its user
        commands.append("cat /proc/[0-9]*/environ 2>&1 | tr '\\0' '\\n'")
    told = [await tools.call("shell", command=command) for command in commands]
    told += [await tools.call("read", path="/proc/self/environ")]
    told += [await tools.call("grep", pattern="canary")]
    assert "canary-in-our" not in "".join(told)
    assert "PATH=" in told[0]
