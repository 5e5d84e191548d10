"""The table `[mcpServers]` of the user's file: what it may say, and how servers come and go."""

import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera import ConfigError, ErrorCode
from haptera.access.config.file import parse_config
from haptera.access.config.mcp_server_edits import add_server, remove_server
from haptera.access.config.schema import KeyReference

PLACE = Path("/c/config.toml")


def test_servers_are_read_as_users_know_them() -> None:
    text = """
[mcpServers.time]
command = "uvx"
args = ["mcp-server-time", "--local-timezone", "Europe/Oslo"]
env = { TZ = "UTC", GITHUB_TOKEN = { env = "MY_TOKEN" } }

[mcpServers.docs]
type = "http"
url = "https://mcp.example.test/mcp"
headers = { "x-team" = "blue" }
token = { command = ["gcloud", "token"] }
disabled = true
"""
    servers = parse_config(text).mcp_servers
    assert servers["time"].command == "uvx"
    assert servers["time"].env == {"TZ": "UTC", "GITHUB_TOKEN": KeyReference(env="MY_TOKEN")}
    assert servers["docs"].token == KeyReference(command=("gcloud", "token"))
    assert servers["docs"].disabled


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ("args = []", "line 1: mcpServers.x: give either command or url"),
        ('command = "a"\nurl = "http://a"', "mcpServers.x: give either command or url"),
        ('comand = "a"', "mcpServers.x.comand: unknown; did you mean 'command'?"),
        ("command = 7", "mcpServers.x.command: Expected `str`, got `int`"),
        ('command = "a"\nargs = "b"', "mcpServers.x.args: Expected `array`, got `str`"),
        ('command = "a"\nenv = { A_TOKEN = "s" }', "mcpServers.x.env.A_TOKEN: secrets are not"),
        ('command = "a"\nenv = { dbPassword = "s" }', "secrets are not written into this file"),
        ('url = "https://a.test"\ntoken = "s"', "mcpServers.x.token: secrets are not"),
        ('url = "https://a.test"\nheaders = { Authorization = "s" }', "secrets are not"),
        ('url = "ftp://a.test"', "mcpServers.x.url: must begin with http:// or https://"),
        ('url = "https://u:p@a.test"', "mcpServers.x.url: must hold no user or password"),
        ('command = "a"\napproval = "maybe"', "mcpServers.x.approval"),
    ],
)
def test_what_is_wrong_in_a_server_is_named_with_its_place(table: str, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"[mcpServers.x]\n{table}\n", path=PLACE)
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert fault in caught.value.message


@pytest.mark.parametrize("name", ["a__b", "mcp", "ü", "a b", "x" * 33])
def test_a_name_that_no_tool_could_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="must be named by"):
        parse_config(f'[mcpServers."{name}"]\ncommand = "a"\n')


OLD = """# my own file
[defaults]
model = "local/smollm2"  # small

[mcpServers.first]
command = "one"
args = [
  "[mcpServers.second]",
]

# keep this
[mcpServers.second]
command = "two"
[mcpServers.second.env]
A = "b"

[prices."a/b"]
input = 1
output = 2
"""


def test_a_server_comes_and_goes_and_the_rest_stays(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(OLD)
    path.chmod(0o600)
    added = add_server(path, "third", {"command": "c", "args": ["-x", 'q"\\'], "env": {"A": "é"}})
    assert added.args == ("-x", 'q"\\')
    assert path.read_text().startswith(OLD.rstrip())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    remove_server(path, "third")
    assert path.read_text() == OLD
    remove_server(path, "second")
    assert "# keep this" in path.read_text()
    assert set(parse_config(path.read_text()).mcp_servers) == {"first"}
    assert "[prices" in path.read_text()


def test_a_file_that_is_missing_is_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "config.toml"
    add_server(path, "time", {"url": "https://a.test/mcp"})
    assert tomllib.loads(path.read_text()) == {
        "mcpServers": {"time": {"url": "https://a.test/mcp"}}
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    remove_server(path, "time")
    assert path.read_text() == ""


@pytest.mark.parametrize(
    ("name", "table", "fault"),
    [
        ("first", {"command": "x"}, "has an MCP server 'first' already"),
        ("x", {"comand": "x"}, "unknown; did you mean 'command'?"),
        ("a__b", {"command": "x"}, "must be named by"),
        ("x", {"command": object()}, "cannot be written"),
        ("x", {"command": "a", "args": ["\udcff"]}, "'\\udcff' is not valid text"),
        ("x", {"command": "x", "env": {"API_KEY": "s"}}, "secrets are not written"),
    ],
)
def test_what_cannot_be_added_leaves_the_file_as_it_was(
    tmp_path: Path, name: str, table: dict[str, Any], fault: str
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(OLD)
    path.chmod(0o600)
    with pytest.raises(ConfigError) as caught:
        add_server(path, name, table)
    assert fault in caught.value.message
    assert path.read_text() == OLD
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["config.lock", "config.toml"]


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"# caf\xe9\n")
    path.chmod(0o600)
    for change in (
        lambda: add_server(path, "x", {"command": "a"}),
        lambda: remove_server(path, "x"),
    ):
        with pytest.raises(ConfigError, match="is not UTF-8 text"):
            change()
    assert path.read_bytes() == b"# caf\xe9\n"


def test_the_ends_of_lines_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    old = OLD.replace("\n", "\r\n").encode()
    path.write_bytes(old)
    path.chmod(0o600)
    add_server(path, "third", {"command": "c"})
    assert path.read_bytes() == old + b'\r\n[mcpServers.third]\r\ncommand = "c"\r\n'
    remove_server(path, "third")
    assert path.read_bytes() == old


def test_a_form_that_only_a_person_can_change_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    text = 'mcpServers = { one = { command = "a" } }\n'
    path.write_text(text)
    path.chmod(0o600)
    for change in (
        lambda: add_server(path, "two", {"command": "b"}),
        lambda: remove_server(path, "one"),
    ):
        with pytest.raises(ConfigError, match="cannot be changed by a program"):
            change()
    with pytest.raises(ConfigError, match="has no MCP server 'two'"):
        remove_server(path, "two")
    assert path.read_text() == text


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=4))
def test_any_argument_is_written_so_that_it_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, args: list[str]
) -> None:
    path = tmp_path_factory.mktemp("servers") / "config.toml"
    assert add_server(path, "x", {"command": "a", "args": args}).args == tuple(args)
