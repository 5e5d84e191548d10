"""One-shot commands in processes of their own: output formats, exit codes, pipes and signals."""

import json
import shutil
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest

from haptera.model.events import LiveEvent
from haptera.model.known_events import KnownEntry
from haptera.model.schemas import stream_json_schema
from haptera.sync import Agent
from tests.cli.commands import Place
from tests.cli.scripted_server import Turn, scripted_server
from tests.fixtures_wire import is_everything_required

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with scripted_server(Turn(text=["Hel", "lo"])) as server:
        yield Place(tmp_path, server)


def _script(place: Place, *turns: Turn) -> None:
    assert place.server is not None
    place.server.turns[:] = turns


def _requests(place: Place) -> list[dict[str, Any]]:
    assert place.server is not None
    return place.server.requests


def test_the_answer_is_printed_and_nothing_else(place: Place) -> None:
    for is_new in (True, False):
        done = replace(place, is_new=is_new).run("-p", "Hi")
        assert (done.returncode, done.stdout, done.stderr) == (0, b"Hello\n", b"")


def test_the_result_object_has_the_names_that_claude_gives_its_fields(place: Place) -> None:
    told = json.loads(place.run("run", "Hi", "--output-format", "json").stdout)
    assert told["type"] == "result"
    assert told["subtype"] == "success"
    assert told["is_error"] is False
    assert told["result"] == "Hello"
    assert told["num_turns"] == 1
    assert told["stop_reason"] == "complete"
    assert told["total_cost_usd"] > 0
    assert told["usage"] == {"input": 10, "output": 5}
    assert told["permission_denials"] == []
    assert {"session_id", "duration_ms"} <= told.keys()


def test_stream_json_begins_with_the_session_and_ends_with_the_result(place: Place) -> None:
    done = place.run("-p", "Hi", "--output-format", "stream-json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [line["type"] for line in lines]
    assert kinds[0] == "session"
    assert kinds[-1] == "result"
    assert "turn.ended" in kinds
    assert "text.delta" not in kinds


def test_partial_messages_are_in_the_stream_where_they_are_asked_for(place: Place) -> None:
    flags = ("--output-format", "stream-json", "--include-partial-messages")
    lines = [json.loads(line) for line in place.run("-p", "Hi", *flags).stdout.splitlines()]
    assert [line["text"] for line in lines if line["type"] == "text.delta"] == ["Hel", "lo"]


def test_piped_text_goes_into_a_fence_that_it_cannot_close(place: Place) -> None:
    place.run("-p", "Review", stdin=b"a\n```\nb")
    sent = _requests(place)[-1]["messages"][-1]["content"][0]["text"]
    assert sent == "Review\n\n````stdin\na\n```\nb\n````"


def test_piped_text_alone_is_the_prompt(place: Place) -> None:
    assert place.run(stdin=b"What is this?").stdout == b"Hello\n"
    assert _requests(place)[-1]["messages"][-1]["content"][0]["text"] == "What is this?"


def test_a_file_that_is_named_is_attached(place: Place) -> None:
    (place.project / "notes.txt").write_text("remember the milk")
    assert place.run("-p", "Read @notes.txt").returncode == 0
    assert "remember the milk" in json.dumps(_requests(place)[-1]["messages"])


def test_a_session_goes_on_by_folder_id_name_and_words(place: Place) -> None:
    first = json.loads(
        place.run("-p", "red apple", "-n", "fruit", "--output-format", "json").stdout
    )
    for reference in (["-c"], ["-r", first["session_id"]], ["-r", "fruit"], ["-r", "apple"]):
        told = json.loads(place.run(*reference, "-p", "more", "--output-format", "json").stdout)
        assert told["session_id"] == first["session_id"]
    assert len(_requests(place)[-1]["messages"]) == 9


def test_a_fork_leaves_the_session_as_it_was(place: Place) -> None:
    first = json.loads(place.run("-p", "one", "--output-format", "json").stdout)
    forked = json.loads(place.run("-c", "--fork", "-p", "two", "--output-format", "json").stdout)
    assert forked["session_id"] != first["session_id"]
    again = ("-r", first["session_id"], "-p", "three", "--output-format", "json")
    assert json.loads(place.run(*again).stdout)["session_id"] == first["session_id"]
    assert len(_requests(place)[-1]["messages"]) == 3


def test_nothing_is_stored_without_a_session(place: Place) -> None:
    assert place.run("-p", "Hi", "--no-session").returncode == 0
    assert not list((place.root / "home").rglob("*.db"))
    assert place.run("-c", "-p", "more").returncode == 4


EXITS = {
    "ok": (("-p", "Hi"), 0),
    "an error of the provider": (("-p", "Hi", "-m", "anthropic/refused"), 1),
    "an unknown flag": (("--colour",), 2),
    "no prompt": (("-p",), 2),
    "an unknown model": (("-p", "Hi", "-m", "anthropc/claude"), 2),
    "a mistyped command": (("sesions",), 2),
    "a limit": (("-p", "Hi", "--max-turns", "1"), 3),
    "no such session": (("-r", "nothing", "-p", "Hi"), 4),
    "no approver": (("-p", "Hi"), 5),
}


@pytest.mark.parametrize("what", EXITS)
def test_the_exit_code_says_how_it_ended(place: Place, what: str) -> None:
    arguments, code = EXITS[what]
    if what == "an error of the provider":
        _script(place, Turn(status=400))
    if what in {"a limit", "no approver"}:
        _script(place, Turn(calls=[("write", {"path": "a", "content": "b"})]), Turn(text="ok"))
    done = place.run(*arguments)
    assert done.returncode == code, done.stderr
    assert (done.stderr == b"") == (code == 0)
    assert b"Traceback" not in done.stderr


def test_a_query_that_takes_too_long_ends_with_code_3(place: Place) -> None:
    _script(place, Turn(text=["a", "b"], hold=threading.Event()))
    assert place.run("-p", "Hi", "--timeout", "1").returncode == 3


def test_a_call_that_needs_approval_is_denied_and_listed(place: Place) -> None:
    _script(place, Turn(calls=[("write", {"path": "a", "content": "b"})]), Turn(text="I may not."))
    done = place.run("-p", "Hi", "--output-format", "json")
    told = json.loads(done.stdout)
    assert done.returncode == 5
    assert told["result"] == "I may not."
    assert [each["tool_name"] for each in told["permission_denials"]] == ["write"]
    assert b"--allow-tool" in done.stderr
    assert not (place.project / "a").exists()


def test_a_tool_that_is_allowed_runs_without_a_question(place: Place) -> None:
    _script(place, Turn(calls=[("write", {"path": "a", "content": "b"})]), Turn(text="done"))
    assert place.run("-p", "Hi", "--allow-tool", "write").returncode == 0
    assert (place.project / "a").read_text() == "b"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_still_prints_the_result_object(place: Place, number: int, code: int) -> None:
    _script(place, Turn(text=["Half", " an answer"], hold=threading.Event()))
    flags = ("--output-format", "stream-json", "--include-partial-messages")
    process = replace(place, is_new=True).start("-p", "Hi", *flags)
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["type"] == "text.delta":
            break
    process.send_signal(number)
    told = json.loads(process.stdout.read().splitlines()[-1])
    assert process.wait(60) == code
    process.stdout.close()
    assert process.stderr is not None
    process.stderr.close()
    assert told["stop_reason"] == "aborted"
    assert told["result"] == "Half"
    # Ctrl-C is an abort; a process that is ended leaves the query to the next one.
    (listed,) = json.loads(place.run("sessions", "list", "--format", "json").stdout)
    assert listed.get("phase", "idle") == ("idle" if number is signal.SIGINT else "running")


def test_a_reader_that_goes_away_ends_it_quietly(place: Place) -> None:
    done = place.shell("$haptera -p Hi --output-format stream-json | head -1")
    assert json.loads(done.stdout)["type"] == "session"
    assert done.stderr == b""


def test_a_closed_output_is_no_error(place: Place) -> None:
    assert place.shell("$haptera -p Hi >&-").returncode == 0


def test_jq_reads_the_stream(place: Place) -> None:
    if shutil.which("jq") is None:
        if is_everything_required():
            pytest.fail("jq is not installed")
        pytest.skip("jq is not installed (Debian: apt-get install jq)")
    done = place.shell(
        "$haptera -p Hi --output-format stream-json | jq -r 'select(.result).result'"
    )
    assert done.stdout == b"Hello\n"


_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer", "minimum": 0}},
    "required": ["city", "people"],
}


def test_an_answer_has_to_match_the_schema(place: Place) -> None:
    (place.project / "city.json").write_text(json.dumps(_SCHEMA))
    wrong, right = (
        Turn(text='{"city": "Ulm", "people": -1}'),
        Turn(text='{"city": "Ulm", "people": 7}'),
    )
    _script(place, wrong, right)
    done = place.run("-p", "Where?", "--output-schema", "city.json", "--output-format", "json")
    assert json.loads(done.stdout)["structured_output"] == {"city": "Ulm", "people": 7}
    assert len(_requests(place)) == 2


def test_an_answer_that_never_matches_names_the_file_of_the_schema(place: Place) -> None:
    (place.project / "city.json").write_text(json.dumps(_SCHEMA))
    _script(place, Turn(text='{"city": "Ulm"}'))
    done = place.run("-p", "Where?", "--output-schema", "city.json")
    assert done.returncode == 1
    assert "is not the output 'city' that was asked for, after 3 attempts" in done.stderr.decode()


def test_a_file_that_is_no_schema_is_named(place: Place) -> None:
    (place.project / "bad.json").write_text('{"type": 7}')
    done = place.run("-p", "Where?", "--output-schema", "bad.json")
    assert done.returncode == 2
    assert b"bad.json is not a JSON Schema" in done.stderr


def test_every_line_of_a_stream_matches_the_published_schema(place: Place) -> None:
    schema = json.loads(place.run("schema").stdout)
    checker = jsonschema.Draft202012Validator(schema)
    call = ("write", {"path": "a.txt", "content": "b"})
    _script(place, Turn(thinking="Hm.", text="I write.", calls=[call]), Turn(status=400))
    flags = ("--output-format", "stream-json", "--include-partial-messages")
    lines = place.run("-p", "Hi", *flags, "--allow-tool", "write").stdout.splitlines()
    lines += place.run("-p", "Hi", *flags).stdout.splitlines()
    kinds = set()
    for line in map(json.loads, lines):
        checker.validate(line)
        kinds.add(line["type"])
    assert {"session", "result", "tool.ended", "reasoning.delta", "query.ended"} <= kinds


def test_the_schema_names_every_event() -> None:
    known = {
        value
        for shape in stream_json_schema()["$defs"].values()
        for value in shape.get("properties", {}).get("kind", {}).get("enum", ())
    }
    entries = {kind.__struct_config__.tag for kind in get_args(KnownEntry)}
    live = {kind.__struct_config__.tag for kind in _leaves(LiveEvent)}
    assert entries | live <= known


def _leaves(kind: type[LiveEvent]) -> list[type[LiveEvent]]:
    return [leaf for own in kind.__subclasses__() for leaf in _leaves(own)] or [kind]


@pytest.mark.parametrize("flags", [("--fork",), ("-c", "-r", "x"), ("-n", "new", "--fork")])
def test_flags_that_choose_no_session_or_two_are_refused(
    place: Place, flags: tuple[str, ...]
) -> None:
    done = place.run(*flags, "-p", "Hi")
    assert done.returncode == 2
    assert b"-c" in done.stderr
    assert _requests(place) == []


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--no-session", "-c"), b"--no-session stores nothing"),
        (("--no-session", "-r", "x"), b"--no-session stores nothing"),
        (("--session-id", "ana"), b"--session-id is a UUID in lower case, not 'ana'"),
    ],
)
def test_flags_that_cannot_be_meant_are_refused(
    place: Place, flags: tuple[str, ...], told: bytes
) -> None:
    done = place.run(*flags, "-p", "Hi")
    assert done.returncode == 2
    assert told in done.stderr
    assert _requests(place) == []


@pytest.mark.parametrize("flags", [(), ("--fork",)])
def test_a_session_of_another_folder_goes_on_by_its_id(
    place: Place, flags: tuple[str, ...]
) -> None:
    first = json.loads(place.run("-p", "one", "--output-format", "json").stdout)["session_id"]
    elsewhere = replace(place, variables={"HAPTERA_PROJECT": "/elsewhere"})
    assert elsewhere.run("-c", "-p", "two").returncode == 4
    assert elsewhere.run("-r", first, *flags, "-p", "two").returncode == 0
    assert len(_requests(place)[-1]["messages"]) == 3


def test_a_session_that_another_program_holds_goes_on_in_a_copy(place: Place) -> None:
    first = json.loads(place.run("-p", "one", "--output-format", "json").stdout)["session_id"]
    (store,) = (place.root / "home").rglob("sessions.db")
    model, other = "anthropic/claude-sonnet-5", "anthropic/claude-opus-4-5"
    agent = Agent(model, store=f"sqlite:{store}", project=str(place.project), environment={})
    with agent, agent.session(first, must_exist=True):
        done = place.run("-r", first, "-p", "two")
        assert done.returncode == 1
        assert b"BUSY" in done.stderr
        assert b"or add --fork" in done.stderr
        again = ("-r", first, "--fork", "-p", "two", "-m", other, "--output-format", "json")
        assert json.loads(place.run(*again).stdout)["session_id"] != first
        assert place.run("sessions", "fork", first).returncode == 0
    sent = _requests(place)[-1]
    assert (f"anthropic/{sent['model']}", len(sent["messages"])) == (other, 3)


def test_a_session_has_no_tools_that_the_environment_of_the_command_denies(place: Place) -> None:
    first = json.loads(place.run("-p", "one", "--output-format", "json").stdout)["session_id"]
    assert {"read", "shell"} <= {each["name"] for each in _requests(place)[-1]["tools"]}
    (store,) = (place.root / "home").rglob("sessions.db")
    agent = Agent(store=f"sqlite:{store}", project=str(place.project), environment={})
    with agent, agent.session(first, must_exist=True) as session:
        session.configure(allowed_tools=["read", "shell"], denied_tools=[])
    denying = replace(place, variables={"HAPTERA_DENIED_TOOLS": "shell"})
    assert denying.run("-r", first, "-p", "two").returncode == 0
    assert [each["name"] for each in _requests(place)[-1]["tools"]] == ["read"]


def test_a_file_that_does_not_exist_is_named(place: Place) -> None:
    done = place.run("-p", "Compare @src/none.py with @property and @notes.txt")
    assert done.returncode == 0
    told = done.stderr.decode().splitlines()
    assert [line.split("'")[1] for line in told] == ["src/none.py", "notes.txt"]


@pytest.mark.parametrize(
    ("command", "rule"), [("git status -s", "shell(git status -s)"), ("rm *; ls", "shell")]
)
def test_a_denied_command_is_offered_as_narrow_a_rule_as_possible(
    place: Place, command: str, rule: str
) -> None:
    _script(place, Turn(calls=[("shell", {"command": command})]), Turn(text="I may not."))
    done = place.run("-p", "Hi")
    assert done.returncode == 5
    assert done.stderr.decode().rstrip().endswith(f"--allow-tool '{rule}'")


def test_a_refused_key_says_where_to_look(place: Place) -> None:
    _script(place, Turn(status=401))
    done = place.run("-p", "Hi")
    assert done.returncode == 1
    assert b"haptera doctor" in done.stderr
    assert b"haptera login anthropic" in done.stderr


def test_a_missing_key_is_not_answered_with_a_local_model(place: Place) -> None:
    done = place.run("-p", "Hi", "-m", "openai/gpt-5")
    assert b"haptera login openai" in done.stderr
    assert b"smollm2" not in done.stderr


@pytest.mark.parametrize(
    ("flags", "name"), [((), "smollm2"), (("-m", "local/qwen2.5-coder-1.5b"), "qwen2.5-coder-1.5b")]
)
def test_a_local_model_that_is_not_here_is_named_with_its_command(
    tmp_path: Path, flags: tuple[str, ...], name: str
) -> None:
    done = Place(tmp_path).run("-p", "Hi", *flags)
    assert done.returncode == 2
    assert f"`haptera models pull {name}`" in done.stderr.decode()


def test_a_part_of_a_models_name_is_recognised(place: Place) -> None:
    done = place.run("-p", "Hi", "-m", "sonnet")
    assert done.returncode == 2
    assert b"did you mean 'anthropic/claude-sonnet-" in done.stderr


@pytest.mark.parametrize("arguments", ["--version", "sessions list", "-p hello"])
def test_an_output_that_cannot_be_written_is_an_error_of_one_line(
    place: Place, arguments: str
) -> None:
    _script(place, Turn(text="Hello."))
    done = place.shell(f"$haptera {arguments} </dev/null >/dev/full")
    last = done.stderr.decode().splitlines()[-1]
    assert (done.returncode, last) == (
        1,
        "haptera: the output cannot be written: No space left on device",
    )


def test_a_native_session_is_adopted_by_models_that_keep_one_in_sessions_that_begin(
    place: Place,
) -> None:
    native = ("--native-session", "11111111-1111-4111-8111-111111111111")
    for words in (("-c", *native), ("-r", "one", *native)):
        done = place.run("-p", "Hi", *words)
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"--native-session begins a session" in done.stderr
    done = place.run("-p", "Hi", *native)
    assert done.stdout == b""
    assert b"CONFIG_INVALID" in done.stderr
    assert _requests(place) == []
    assert place.run("sessions", "count").stdout == b"0\n"
