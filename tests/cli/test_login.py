"""`haptera login` and `logout`: keys that are typed or piped in, and logins in a browser."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.access.auth.authorization_server import AuthorizationServer, authorization_server
from tests.cli.commands import Place
from tests.cli.scripted_server import ScriptedServer, Turn, scripted_server
from tests.cli.terminal_driver import terminal

pytestmark = pytest.mark.slow

KEY = "made-up-key-that-is-typed"


@dataclass(frozen=True)
class NewPlace(Place):
    """A place without any key in its environment; the model's URL is in the file."""

    browser: str = ""

    @property
    def environment(self) -> dict[str, str]:
        found = super().environment
        for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
            found.pop(name, None)
        return found | ({"BROWSER": self.browser} if self.browser else {})

    def configure(self, text: str) -> None:
        path = self.root / "home" / ".config" / "haptera" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)


@pytest.fixture
def model() -> Iterator[ScriptedServer]:
    with scripted_server(Turn(text="Paris.")) as server:
        yield server


@pytest.fixture
def server() -> Iterator[AuthorizationServer]:
    with authorization_server() as running:
        yield running


@pytest.fixture
def place(tmp_path: Path, model: ScriptedServer) -> NewPlace:
    made = NewPlace(tmp_path, model)
    made.configure(f'[providers.anthropic]\nbase_url = "{model.url}"\n')
    return made


def stored(place: NewPlace) -> Path:
    return place.root / "home" / ".local" / "share" / "haptera" / "credentials.json"


@pytest.mark.slow
def test_a_piped_key_is_stored_used_shown_by_doctor_and_removed(
    place: NewPlace, model: ScriptedServer
) -> None:
    done = place.run("login", "anthropic", "--with-key", stdin=f"{KEY}\n".encode())
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == f"anthropic: login, key in {stored(place)}\n"
    answer = place.run("-p", "Which capital?")
    assert (answer.returncode, answer.stdout) == (0, b"Paris.\n")
    assert model.headers[0]["x-api-key"] == KEY
    findings = json.loads(place.run("doctor", "--format", "json").stdout)
    (keys,) = [each for each in findings if each["subject"] == "keys"]
    assert keys["found"] == f"anthropic (login, key in {stored(place)})"
    assert place.run("logout").stdout == b"anthropic: logged out\n"
    assert KEY not in stored(place).read_text()
    assert place.run("-m", "anthropic/claude-sonnet-5", "-p", "And now?").returncode == 2


def test_a_key_is_typed_without_being_shown(place: NewPlace) -> None:
    with terminal(place, "login", "anthropic") as screen:
        screen.wait_for("Key of anthropic (not shown)")
        screen.say(KEY)
        shown = screen.wait_for("exit=0")
        assert KEY not in shown
        assert "anthropic: login, key in" in shown.replace("\n", "")
    assert KEY in stored(place).read_text()
    assert stored(place).stat().st_mode & 0o777 == 0o600


def test_a_person_is_asked_for_the_provider(place: NewPlace) -> None:
    with terminal(place, "login") as screen:
        screen.wait_for("Log in to")
        screen.say("groq")
        screen.wait_for("Key of groq (not shown)")
        screen.say(KEY)
        screen.wait_for("exit=0")
    assert "groq" in stored(place).read_text()


def test_a_key_that_a_variable_goes_before_is_said_to_be_unused(tmp_path: Path) -> None:
    place = Place(tmp_path)
    line = f"echo {KEY} | OPENAI_API_KEY=from-the-environment $haptera login openai --with-key"
    done = place.shell(line)
    assert done.returncode == 0
    assert b"variable OPENAI_API_KEY goes before it" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("login",), "name a PROVIDER"),
        (("login", "anthropic"), "--with-key"),
        (("login", "anthropic", "--paste"), "--paste is for logins in a browser"),
        (("login", "antropic"), "did you mean 'anthropic'"),
        (("logout",), "logged in: none"),
    ],
)
def test_what_cannot_be_done_says_what_to_do(
    place: NewPlace, arguments: tuple[str, ...], said: str
) -> None:
    done = place.run(*arguments)
    assert done.returncode == 2
    assert said in done.stderr.decode()


@pytest.mark.slow
def test_a_readable_file_of_credentials_is_a_problem_that_doctor_names(place: NewPlace) -> None:
    place.run("login", "anthropic", "--with-key", stdin=KEY.encode())
    stored(place).chmod(0o644)
    for command in (("-p", "hi"), ("logout", "anthropic")):
        done = place.run(*command)
        assert done.returncode == 2
        assert b"chmod 600" in done.stderr
        assert KEY.encode() not in done.stdout + done.stderr
    findings = json.loads(place.run("doctor", "--format", "json").stdout)
    assert [each["verdict"] for each in findings if each["subject"] == "keys"] == ["problem"]


BROWSER = """
import sys, urllib.request
urllib.request.urlopen(sys.argv[1]).read()
"""


@pytest.mark.slow
def test_a_login_in_the_browser_is_refreshed_by_requests_without_one(
    tmp_path: Path, model: ScriptedServer, server: AuthorizationServer
) -> None:
    script = tmp_path / "browser.py"
    script.write_text(BROWSER)
    place = NewPlace(tmp_path, model, f"{sys.executable} {script} %s")
    place.configure(server.config(base_url=model.url))
    server.expire_all()
    done = place.run("login", "house")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"house: login, tokens in" in done.stdout
    place = NewPlace(tmp_path, model, "/bin/false")
    answer = place.run("-m", "house/claude-sonnet-5", "-p", "Which capital?")
    assert (answer.returncode, answer.stdout) == (0, b"Paris.\n")
    assert server.refreshes == 1
    assert model.headers[0]["authorization"] == f"Bearer {server.issued[-1]}"
    assert "x-api-key" not in model.headers[0]
    printed = done.stdout + done.stderr + answer.stderr
    assert not any(secret.encode() in printed for secret in server.issued)


def test_a_login_without_a_browser_is_pasted(
    tmp_path: Path, model: ScriptedServer, server: AuthorizationServer
) -> None:
    place = NewPlace(tmp_path, model)
    place.configure(server.config(base_url=model.url))
    with terminal(place, "login", "house", width=1000) as screen:
        shown = screen.wait_for("paste the URL")
        (url,) = [line for line in shown.splitlines() if line.startswith(server.url)]
        screen.say(server.visit(url))
        screen.wait_for("exit=0")
    assert "access-secret" in stored(place).read_text()


@pytest.mark.slow
def test_a_provider_that_has_to_be_logged_in_to_says_so(
    tmp_path: Path, model: ScriptedServer, server: AuthorizationServer
) -> None:
    place = NewPlace(tmp_path, model)
    place.configure(server.config(base_url=model.url))
    done = place.run("-m", "house/claude-sonnet-5", "-p", "hi")
    assert done.returncode == 2
    assert b"`haptera login house`" in done.stderr
    assert model.requests == []
