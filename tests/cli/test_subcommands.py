"""The subcommands: sessions, models, config, doctor, trust, completion."""

import importlib.util
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias, get_args

import click
import pytest

from haptera.cli.main import haptera
from haptera.cli.sessions_commands import command as sessions
from haptera.formats.formats import ARCHIVE, WRITTEN_FORMATS
from haptera.model.agent_defaults import AgentDefaults
from haptera.model.operations.sessions import ShareSession
from haptera.model.settings import Limits, PermissionMode, Thinking
from haptera.options.declarations import declared_fields
from haptera.options.operations import given_fields
from tests.cli.commands import Done, Place, call
from tests.cli.scripted_server import Turn, scripted_server

pytestmark = pytest.mark.slow

Run: TypeAlias = Callable[..., Done]


def _flags(command: click.Command) -> dict[str, click.Option]:
    return {each.name or "": each for each in command.params if isinstance(each, click.Option)}


def _words(option: click.Option) -> tuple[str, ...]:
    assert isinstance(option.type, click.Choice)
    return tuple(option.type.choices)


def test_flags_have_the_words_bounds_and_sentences_of_the_options_that_they_set() -> None:
    flags = _flags(haptera)
    assert _words(flags["effort"]) == get_args(Thinking)
    assert _words(flags["permission_mode"]) == get_args(PermissionMode)
    turns = flags["max_turns"].type
    assert isinstance(turns, click.IntRange)
    assert turns.min == declared_fields(Limits)["turns"].option.least
    stores = declared_fields(AgentDefaults)["store"].option.sentence
    assert stores.startswith((flags["store"].help or "-").removesuffix("."))


def _commands(command: click.Command, *, path: str = "haptera") -> dict[str, click.Command]:
    """Return a command and all beneath it, by what a user writes."""
    found = {path: command}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            found |= _commands(below, path=f"{path} {name}")
    return found


def test_a_flag_that_several_commands_have_is_the_same_in_all_of_them() -> None:
    """Flags of options are declared once; `--store` of one command is that of every other."""
    for name in ("--model", "--store", "--max-turns", "--effort"):
        found = {
            path: (flag.help, flag.opts, flag.metavar, flag.show_default, flag.type.name)
            for path, command in _commands(haptera).items()
            for flag in _flags(command).values()
            if name in flag.opts
        }
        assert len(found) > 1, name
        assert len({str(each) for each in found.values()}) == 1, found


_OF_OTHERS = {"--rm", "--upload-pack", "--compress-program", "--output"}
"""Flags of docker, git and sort that the pages speak of."""


def test_every_flag_that_a_page_names_exists() -> None:
    known = {
        name
        for command in _commands(haptera).values()
        for flag in _flags(command).values()
        for name in (*flag.opts, *flag.secondary_opts)
    }
    pages = Path(__file__).parents[2] / "docs"
    for page in ("command-line", "rpc", "permissions", "managing-sessions", "mcp", "configuration"):
        text = (pages / f"{page}.md").read_text(encoding="utf-8")
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - _OF_OTHERS
        assert named <= known, page


def test_the_days_of_a_link_are_those_of_the_option_and_given_only_if_they_are_said(
    run: Run, session: str
) -> None:
    flag = _flags(sessions.commands["share"])["days"]
    option = given_fields(ShareSession)["days"]
    assert isinstance(flag.type, click.FloatRange)
    assert (flag.type.min, flag.type.max, flag.type.min_open) == (0, option.option.most, True)
    assert (flag.default, flag.show_default) == (None, f"{option.default}")
    assert run("sessions", "share", session, "--link").code == 0
    (made,) = json.loads(run("sessions", "shares", session, "--format", "json").out)
    assert made["expires"] - made["created"] == option.default * 24 * 3600 * 1000


def test_sessions_are_exported_in_every_format_and_imported_in_those_that_are_read() -> None:
    written = _words(_flags(sessions.commands["export"])["to"])
    read = _words(_flags(sessions.commands["import"])["of"])
    assert written == (ARCHIVE, *WRITTEN_FORMATS)
    assert set(written) - set(read) == {"markdown", "html"}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with scripted_server(Turn(text="The capital is Paris.")) as server:
        yield Place(tmp_path, server)


@pytest.fixture
def run(place: Place, monkeypatch: pytest.MonkeyPatch) -> Run:
    return lambda *arguments: call(place, monkeypatch, *arguments)


@pytest.fixture
def session(run: Run) -> str:
    told = json.loads(run("run", "Which capital?", "-n", "cities", "--output-format", "json").out)
    return str(told["session_id"])


def test_sessions_are_listed_and_counted_by_flags(run: Run, session: str) -> None:
    assert run("sessions", "count").out == "1\n"
    assert run("sessions", "count", "--name", "cit", "--status", "idle").out == "1\n"
    assert run("sessions", "count", "--metadata", "plan=1").out == "0\n"
    assert run("sessions", "count", "--since", "2000-01-01").out == "1\n"
    assert session in run("sessions", "list", "--order", "created", "--name", "cities").out
    assert session not in run("sessions", "list", "--sender", "ana").out
    done = run("sessions", "count", "--metadata", "plan")
    assert (done.code, "is not NAME=VALUE" in done.err) == (2, True)


def test_a_list_shows_the_sessions_of_this_folder(run: Run, session: str) -> None:
    assert session in run("sessions", "list").out
    (listed,) = json.loads(run("sessions", "list", "--format", "json").out)
    assert (listed["id"], listed["name"]) == (session, "cities")


def test_a_folder_without_sessions_says_where_others_are(run: Run) -> None:
    done = run("sessions", "list")
    assert done.code == 0
    assert "--all" in done.err


@pytest.mark.parametrize("reference", ["cities", "Paris"])
def test_a_session_is_shown_by_its_name_or_its_words(
    run: Run, session: str, reference: str
) -> None:
    shown = run("sessions", "show", reference).out
    assert session in shown
    assert "Which capital?" in shown
    assert "The capital is Paris." in shown


def test_words_are_found_in_what_was_said(run: Run, session: str) -> None:
    assert session in run("sessions", "search", "paris").out


def test_an_unknown_session_has_its_own_exit_code(run: Run, session: str) -> None:
    for command in ("show", "stats", "export", "verify", "fork"):
        done = run("sessions", command, "nowhere")
        assert done.code == 4
        assert "NOT_FOUND" in done.err
    assert session


def test_a_session_is_renamed_tagged_archived_and_deleted(run: Run, session: str) -> None:
    assert "towns" in run("sessions", "rename", "cities", "towns", "--title", "Capitals").out
    assert "[eu]" in run("sessions", "tag", "towns", "eu").out
    assert "[eu]" not in run("sessions", "tag", "towns", "eu", "--remove").out
    assert "archived" in run("sessions", "archive", "towns").out
    assert session not in run("sessions", "list").out
    assert session in run("sessions", "list", "--archived").out
    assert run("sessions", "archive", "towns", "--undo").code == 0
    refused = run("sessions", "delete", "towns")
    assert refused.code == 2
    assert "--yes" in refused.err
    assert run("sessions", "delete", "towns", "--yes").code == 0
    assert session not in run("sessions", "list").out


def test_statistics_are_added_up(run: Run, session: str) -> None:
    told = json.loads(run("sessions", "stats", session, "--format", "json").out)
    assert told["queries"] == 1
    assert told["usage"] == {"input": 10, "output": 5}


def test_a_fork_and_a_rewind_go_their_own_ways(run: Run, session: str) -> None:
    run("run", "And of Spain?", "-r", session)
    messages = json.loads(run("sessions", "show", session, "--format", "json").out)["messages"]
    first = messages[1]["message"]["id"]
    forked = run("sessions", "fork", session, "--at", first).out.strip()
    assert len(_messages(run, forked)) == 2
    assert run("sessions", "rewind", session, "--to", first).code == 0
    assert len(_messages(run, session)) == 2
    assert run("sessions", "rewind", session, "--undo").code == 0
    assert len(_messages(run, session)) == 4
    assert run("sessions", "rewind", session).code == 2


def _messages(run: Run, session: str) -> list[object]:
    told = json.loads(run("sessions", "show", session, "--format", "json").out)
    found: list[object] = told["messages"]
    return found


@pytest.mark.parametrize("command", ["export", "share"])
def test_a_file_that_cannot_be_written_is_named(run: Run, session: str, command: str) -> None:
    refused = run("sessions", command, session, "-o", "nowhere/out")
    assert refused.code == 1
    assert "nowhere/out cannot be written: No such file or directory" in refused.err


@pytest.mark.parametrize("command", ["show", "archive", "export"])
def test_what_is_no_text_names_no_session(run: Run, session: str, command: str) -> None:
    del session
    refused = run("sessions", command, "\udcff")
    assert refused.code == 4
    assert "NOT_FOUND: " in refused.err


def test_an_exported_session_comes_back(run: Run, session: str, place: Place) -> None:
    assert run("sessions", "export", session, "-o", "out.zip").code == 0
    again = run("sessions", "export", session, "-o", "out.zip")
    assert again.code == 2
    assert "not overwritten" in again.err
    imported = run("sessions", "import", "out.zip", "--name", "copy").out.split()[0]
    assert imported != session
    assert len(_messages(run, imported)) == 2


def test_a_session_is_imported_from_a_pipe(run: Run, session: str, place: Place) -> None:
    assert run("sessions", "export", session, "-o", "out.zip").code == 0
    done = place.shell("cat out.zip | $haptera sessions import - --name copy")
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(_messages(run, "copy")) == 2


def test_a_page_to_share_has_no_path_of_this_machine(run: Run, session: str, place: Place) -> None:
    name = run("sessions", "share", session).out.strip()
    page = (place.project / name).read_text()
    assert "Paris" in page
    assert str(place.project) not in page


def test_a_link_is_made_listed_and_revoked(run: Run, session: str) -> None:
    made = run("sessions", "share", session, "--link", "--days", "1", "--live")
    path = made.out.strip()
    assert re.fullmatch(r"/s/[\w-]{44}", path)
    assert "haptera serve" in made.err
    share_id = re.findall(r"shr_\w+", made.err)[0]
    (listed,) = json.loads(run("sessions", "shares", session, "--format", "json").out)
    assert (listed["id"], listed["live"], listed["redact"]) == (share_id, True, True)
    assert listed["expires"] - listed["created"] == 24 * 3600 * 1000
    assert "as it goes on, masked" in run("sessions", "shares", session).out
    assert path[3:] not in run("sessions", "shares", session, "--format", "json").out
    assert "revoked" in run("sessions", "unshare", session, share_id).out
    assert "no link" in run("sessions", "shares", session).err
    assert run("sessions", "unshare", session, share_id).code == 4


def test_a_link_has_the_url_of_a_server_that_listens(run: Run, session: str, place: Place) -> None:
    assert place.server is not None
    state = Path(place.environment["HOME"]) / ".local" / "state" / "haptera"
    state.mkdir(parents=True)
    known = {"url": place.server.url.rstrip("/"), "pid": 1, "token": "t" * 20}
    (state / "server.json").write_text(json.dumps(known))
    made = run("sessions", "share", session, "--link")
    assert made.out.startswith(f"{known['url']}/s/")
    (state / "server.json").write_text("{")
    assert run("sessions", "share", session, "--link").out.startswith("/s/")


@pytest.mark.parametrize(
    "flags",
    [
        ["--days", "3"],
        ["--live"],
        ["--link", "-o", "x"],
        ["--link", "--days", "0"],
        ["--link", "--days", "366"],
    ],
)
def test_flags_of_a_share_that_contradict_each_other_are_refused(
    run: Run, session: str, flags: list[str]
) -> None:
    assert run("sessions", "share", session, *flags).code == 2


def test_a_sound_session_is_verified_and_the_index_repaired(run: Run, session: str) -> None:
    assert run("sessions", "verify", session).code == 0
    assert "holds 1 session;" in run("sessions", "repair").out


def test_the_configuration_says_where_a_value_comes_from(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAPTERA_MAX_TURNS", "7")
    shown = run("config", "show", "--origin", "--changed").out
    assert re.search(r"limits\.turns +environment +7", shown)
    assert "sk-made-up" not in run("config", "show", "--origin").out


@pytest.mark.slow
def test_the_doctor_looks_at_everything_and_names_the_remedy(run: Run) -> None:
    done = run("doctor", "--format", "json")
    found = {each["subject"]: each for each in json.loads(done.out)}
    assert set(found) == {
        *("versions", "configuration", "keys", "store", "local model", "sandbox", "git", "extras")
    }
    assert found["keys"]["found"] == "anthropic (variable ANTHROPIC_API_KEY)"
    assert "pull" in found["local model"]["remedy"]
    assert "sk-made-up" not in done.out


@pytest.mark.slow
def test_the_doctor_names_variables_that_nothing_reads(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {"HAPTERA_MODLE": "local/smollm2", "HAPTERA_WIRE": "x", "HAPTERA_SEED": "1"}
    told = call(replace(place, variables=variables), monkeypatch, "doctor").out
    assert "note     environment: HAPTERA_MODLE is not read; did you mean 'HAPTERA_MODEL'?" in told
    assert "HAPTERA_WIRE is not read" in told
    assert "HAPTERA_SEED" not in told


def test_a_broken_file_is_the_problem_that_the_doctor_names(run: Run, place: Place) -> None:
    folder = place.root / "home/.config/haptera"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("model = [")
    done = run("doctor")
    assert done.code == 1
    assert "config.toml" in done.out


def test_models_are_listed_with_what_they_cost(run: Run) -> None:
    shown = run("models", "list", "claude-sonnet-5").out
    assert "anthropic/claude-sonnet-5" in shown
    assert "per million tokens" in shown
    local = run("models").out
    assert "haptera models pull smollm2" in local


def test_a_project_file_counts_once_it_is_trusted(run: Run, place: Place) -> None:
    folder = place.project / ".haptera"
    folder.mkdir()
    (folder / "config.toml").write_text("[defaults.limits]\nturns = 3\n")
    assert "limits.turns" not in run("config", "show", "--changed").out
    assert run("trust").code == 2
    assert "turns = 3" in run("trust", "--yes").out
    assert re.search(r"limits\.turns +project +3", run("config", "show", "--origin").out)
    assert run("trust", "--undo").code == 0
    assert "limits.turns" not in run("config", "show", "--changed").out


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_a_shell_learns_to_complete(run: Run, shell: str) -> None:
    assert "_HAPTERA_COMPLETE" in run("completion", shell).out


def test_help_names_every_command_and_loads_no_terminal_library(run: Run) -> None:
    shown = run("--help").out
    for name in ("chat", "run", "sessions", "models", "config", "doctor", "trust", "completion"):
        assert re.search(rf"^  {name} ", shown, re.MULTILINE)
    assert run("--version").out.startswith("haptera ")


def test_a_session_is_compacted(run: Run, place: Place) -> None:
    assert place.server is not None
    long = "The capital of France is Paris, on the Seine. " * 200
    place.server.turns[:] = [
        Turn(text=long),
        Turn(text="Short."),
        Turn(text="# Objective\nFrance."),
    ]
    run("run", long, "-n", "france")
    run("-r", "france", "-p", "And now?")
    done = run("sessions", "compact", "france", "keep", "the", "river")
    assert (done.code, done.err) == (0, "")
    assert re.match(
        r"the conversation was shortened \(summarise\): \d+ tokens, now \d+\n", done.out
    )
    assert "keep the river" in json.dumps(place.server.requests[-1])
    place.server.turns[:] = [Turn(text="ok")]
    run("-r", "france", "-p", "Go on")
    assert "# Objective" in json.dumps(place.server.requests[-1]["messages"])
    assert run("sessions", "compact", "nowhere").code == 4


def test_a_session_without_a_title_is_listed_by_its_first_prompt(run: Run, session: str) -> None:
    copy = run("sessions", "fork", "cities").out.strip()
    listed = {line.split()[0]: line for line in run("sessions", "list").out.splitlines()}
    assert listed[session].endswith("cities: Which capital?")
    assert listed[copy].endswith("copy of: Which capital?")
    run("sessions", "rename", session, "--title", "Capitals")
    assert "cities: Capitals" in run("sessions", "list").out


@pytest.mark.parametrize("command", [("archive",), ("delete", "--yes")])
def test_words_are_not_enough_to_take_a_session_away(
    run: Run, session: str, command: tuple[str, ...]
) -> None:
    done = run("sessions", *command, "Paris")
    assert done.code == 4
    assert session in run("sessions", "list").out


def test_a_search_without_a_hit_says_so(run: Run, session: str) -> None:
    done = run("sessions", "search", "zebra")
    assert (done.code, done.out) == (0, "")
    assert "--all" in done.err
    assert session


def test_the_tokens_of_a_session_are_readable(run: Run, session: str) -> None:
    shown = run("sessions", "stats", session).out
    assert re.search(r"usage +\d+ input, \d+ output", shown)


def test_a_reader_of_an_export_may_go_away(place: Place, session: str) -> None:
    done = place.shell(f'$haptera sessions export {session} | true; echo "${{PIPESTATUS[0]}}"')
    assert done.stdout.split()[-1] == b"0"
    assert done.stderr == b""


def test_the_examples_of_the_help_have_a_line_each(run: Run) -> None:
    lines = run("--help").out.splitlines()
    assert any(line.startswith('  haptera -p "Explain @main.py"') for line in lines)
    assert "\\b" not in "".join(lines)


def test_a_mistyped_command_is_recognised(run: Run) -> None:
    done = run("sesions", "list")
    assert done.code == 2
    assert "did you mean 'sessions'?" in done.err


def test_a_chat_without_a_terminal_is_refused(run: Run) -> None:
    done = run("chat")
    assert (done.code, done.out) == (2, "")
    assert "needs a terminal" in done.err


def test_trusting_nothing_names_the_file_that_is_missing(run: Run) -> None:
    assert ".haptera/config.toml" in run("trust").err


@pytest.mark.slow
def test_the_doctor_names_servers_that_cannot_start(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "MCP" not in run("doctor").out
    run("mcp", "add", "time", "--", "server-of-time")
    assert "ok       MCP servers: time" in run("doctor").out
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "mcp" else found(name)
    )
    done = run("doctor")
    assert done.code == 1
    assert "pip install 'haptera[mcp]'" in done.out
    assert "haptera[mcp]" in run("mcp", "add", "more", "--", "server").err
