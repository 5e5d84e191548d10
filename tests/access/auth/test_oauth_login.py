"""Logins by OAuth 2 against an authorization server on loopback."""

import socket
import threading
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera.access.assembly.agent_inputs import ConfigurationSources
from haptera.access.auth.oauth import LoginAttempt, pasted_answer
from haptera.access.auth.oauth_settings import OAuthSettings
from haptera.access.credentials import (
    CredentialDescription,
    InvalidAuthorisationCodeError,
    TokenExchangeFailedError,
    find_credentials,
    log_in,
    log_out,
)
from haptera.model.errors import AgentError, ConfigError, ErrorCode, ProviderError
from tests.access.auth.authorization_server import AuthorizationServer, authorization_server


@pytest.fixture
def server() -> Iterator[AuthorizationServer]:
    with authorization_server() as running:
        yield running


@dataclass
class Person:
    """A person who logs in: by a browser of their own, or by pasting."""

    server: AuthorizationServer
    has_browser: bool = True
    pasted: str | None = None
    seen: list[str] = field(default_factory=list)
    _ways: list[threading.Thread] = field(default_factory=list)

    def show(self, url: str) -> bool:
        self.seen.append(url)
        if not self.has_browser:
            return False
        way = threading.Thread(target=self.server.come_back, args=(url,))
        way.start()
        self._ways.append(way)
        return True

    def paste(self) -> str:
        return self.server.visit(self.seen[-1]) if self.pasted is None else self.pasted

    def end(self) -> None:
        for way in self._ways:
            way.join()


@pytest.fixture
def sources(tmp_path: Path, server: AuthorizationServer) -> ConfigurationSources:
    return configured(tmp_path, server)


def configured(home: Path, server: AuthorizationServer, more: str = "") -> ConfigurationSources:
    path = home / "config.toml"
    path.write_text(server.config(base_url="http://127.0.0.1:9", more=more))
    path.chmod(0o600)
    return ConfigurationSources(
        environment={"HAPTERA_HOME": str(home), "HOME": str(home)}, cwd=home
    )


async def attempt(
    person: Person, sources: ConfigurationSources, *, paste: bool = False
) -> CredentialDescription:
    try:
        return await log_in("house", person, paste=paste, keyring=False, sources=sources)
    finally:
        person.end()


async def refused(
    person: Person, sources: ConfigurationSources, *, paste: bool = False
) -> AgentError:
    """Log in, which must fail with nothing stored and no secret in what is said."""
    with pytest.raises(AgentError) as caught:
        await attempt(person, sources, paste=paste)
    told = f"{caught.value}{caught.value!r}{caught.value.__cause__!r}{caught.value.to_dict()}"
    query = dict(parse_qsl(urlsplit(person.seen[-1]).query))
    for secret in (*person.server.issued, query["state"]):
        assert secret not in told
    assert find_credentials(sources) == ()
    return caught.value


def credentials_file(sources: ConfigurationSources) -> Path:
    return Path(str(sources.cwd)) / "data" / "credentials.json"


async def test_a_login_in_the_browser_is_stored_for_its_owner_only(
    server: AuthorizationServer, sources: ConfigurationSources
) -> None:
    found = await attempt(Person(server), sources)
    path = credentials_file(sources)
    assert found.source == f"login, tokens in {path}"
    assert find_credentials(sources) == (found,)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert "access-secret" in path.read_text()
    assert "access-secret" not in f"{found!r}"


async def test_the_login_page_gets_what_the_configuration_says(
    server: AuthorizationServer, tmp_path: Path
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    more = f"redirect_port = {port}\nredirect_path = '/back'\nparameters = {{ audience = 'x' }}"
    person = Person(server)
    await attempt(person, configured(tmp_path, server, more))
    query = dict(parse_qsl(urlsplit(person.seen[0]).query))
    assert query["redirect_uri"] == f"http://127.0.0.1:{port}/back"
    assert (query["scope"], query["audience"]) == ("models offline_access", "x")
    assert query["response_type"] == "code"


async def test_every_login_has_a_state_and_a_challenge_of_its_own(
    server: AuthorizationServer, sources: ConfigurationSources
) -> None:
    person = Person(server)
    await attempt(person, sources)
    await attempt(person, sources)
    first, second = (dict(parse_qsl(urlsplit(url).query)) for url in person.seen)
    assert first["state"] != second["state"]
    assert first["code_challenge"] != second["code_challenge"]


@pytest.mark.parametrize("paste", [True, False], ids=["asked for", "without a browser"])
async def test_the_url_that_a_browser_ended_at_can_be_pasted(
    server: AuthorizationServer, sources: ConfigurationSources, *, paste: bool
) -> None:
    await attempt(Person(server, has_browser=False), sources, paste=paste)
    assert [each.provider for each in find_credentials(sources)] == ["house"]


async def test_a_code_that_a_page_of_the_provider_shows_can_be_pasted_with_its_state(
    server: AuthorizationServer, tmp_path: Path
) -> None:
    sources = configured(tmp_path, server, 'redirect_url = "https://login.example/shown"')

    class Shown(Person):
        def paste(self) -> str:
            query = dict(parse_qsl(urlsplit(super().paste()).query))
            return f"  {query['code']}#{query['state']}\n"

    person = Shown(server, has_browser=False)
    await attempt(person, sources, paste=True)
    query = dict(parse_qsl(urlsplit(person.seen[0]).query))
    assert query["redirect_uri"] == "https://login.example/shown"


@pytest.mark.parametrize(
    "pasted", ["", "\n", "only-a-code", "http://127.0.0.1/callback", "code=a&state=b", "a#b", "://"]
)
async def test_a_paste_that_does_not_belong_to_the_login_is_refused(
    server: AuthorizationServer, sources: ConfigurationSources, pasted: str
) -> None:
    person = Person(server, has_browser=False, pasted=pasted)
    error = await refused(person, sources, paste=True)
    assert isinstance(error, InvalidAuthorisationCodeError)
    assert server.asked == []


@given(st.text(st.characters()) | st.text("://[]?#&=%code state").map("http://[{}".format))
def test_no_paste_but_the_right_one_gives_a_code(pasted: str) -> None:
    settings = OAuthSettings(
        authorize_url="https://login.example/authorize",
        token_url="https://login.example/token",
        client_id="me",
    )
    begun = LoginAttempt.begin(settings, "http://127.0.0.1:7/callback")
    with pytest.raises(InvalidAuthorisationCodeError):
        begun.code_in(pasted_answer(pasted))
    state = begun.state.reveal()
    assert begun.code_in(pasted_answer(f"?code=abc&state={state}")).reveal() == "abc"


@pytest.mark.parametrize("has_browser", [True, False])
async def test_a_wrong_state_is_refused_before_the_code_is_used(
    server: AuthorizationServer, sources: ConfigurationSources, *, has_browser: bool
) -> None:
    server.state = "of-another-login"
    error = await refused(Person(server, has_browser=has_browser), sources)
    assert isinstance(error, InvalidAuthorisationCodeError)
    assert error.code is ErrorCode.AUTH
    assert "state" in error.message
    assert server.asked == []


async def test_a_person_who_denies_is_told_so(
    server: AuthorizationServer, sources: ConfigurationSources
) -> None:
    server.denies = True
    error = await refused(Person(server), sources)
    assert isinstance(error, InvalidAuthorisationCodeError)
    assert "access_denied: the person said no" in error.message


async def test_an_expired_code_is_an_invalid_one(
    server: AuthorizationServer, sources: ConfigurationSources
) -> None:
    server.codes_expired = True
    error = await refused(Person(server), sources)
    assert isinstance(error, InvalidAuthorisationCodeError)
    assert "invalid_grant" in error.message


@pytest.mark.parametrize(
    "answer",
    [
        (200, b""),
        (200, b"<html>"),
        (200, b"[]"),
        (200, b"{}"),
        (200, b'{"access_token": ""}'),
        (200, b'{"access_token": 7}'),
        (200, b'{"access_token": "abcd\\r\\nefgh"}'),
        (200, b'{"access_token": "abcdefgh", "token_type": "mac"}'),
        (200, b'{"access_token": "abcdefgh", "expires_in": "soon"}'),
        (200, b'{"access_token": "abcdefgh", "expires_in": 1e400}'),
        (200, b"\xff" * 100),
        (200, b"x" * 100_000),
        (302, b""),
        (400, b'{"error": "invalid_client", "error_description": "who?"}'),
        (400, b'{"error": {"nested": true}}'),
        (500, b"oops"),
    ],
    ids=lambda answer: f"{answer[0]} {answer[1][:40]!r}",
)
async def test_a_token_endpoint_that_issues_no_token_has_failed(
    server: AuthorizationServer, sources: ConfigurationSources, answer: tuple[int, bytes]
) -> None:
    server.token_answer = answer
    error = await refused(Person(server), sources)
    assert isinstance(error, TokenExchangeFailedError)
    assert isinstance(error, ProviderError)
    assert error.code is ErrorCode.AUTH


async def test_a_token_endpoint_that_is_down_has_failed(
    server: AuthorizationServer, tmp_path: Path
) -> None:
    sources = configured(tmp_path, server)
    path = tmp_path / "config.toml"
    path.write_text(path.read_text().replace(f"{server.url}/token", "http://127.0.0.1:9/token"))
    error = await refused(Person(server), sources)
    assert isinstance(error, TokenExchangeFailedError)
    assert "could not be reached" in error.message


async def test_a_callback_on_a_port_in_use_says_what_to_do(
    server: AuthorizationServer, tmp_path: Path
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        sources = configured(tmp_path, server, f"redirect_port = {other.getsockname()[1]}")
        with pytest.raises(ConfigError, match="--paste"):
            await attempt(Person(server), sources)


async def test_requests_that_are_no_callback_do_not_end_the_login(
    server: AuthorizationServer, sources: ConfigurationSources
) -> None:
    class Noisy(Person):
        def show(self, url: str) -> bool:
            target = urlsplit(dict(parse_qsl(urlsplit(url).query))["redirect_uri"])
            for noise in (
                b"GET /favicon.ico HTTP/1.1\r\n\r\n",
                b"POST /callback\r\n\r\n",
                b"\xff\n",
            ):
                with socket.create_connection((target.hostname, target.port)) as line:
                    line.sendall(noise)
            self.silent = socket.create_connection((target.hostname, target.port))
            return super().show(url)

    person = Noisy(server)
    await attempt(person, sources)
    person.silent.close()
    assert [each.provider for each in find_credentials(sources)] == ["house"]


async def test_logging_out_removes_the_tokens(
    server: AuthorizationServer, sources: ConfigurationSources
) -> None:
    await attempt(Person(server), sources)
    assert log_out("house", sources) is True
    assert log_out("house", sources) is False
    assert "secret" not in credentials_file(sources).read_text()


async def test_a_provider_without_endpoints_cannot_be_logged_in_to(
    server: AuthorizationServer, sources: ConfigurationSources
) -> None:
    with pytest.raises(ConfigError) as caught:
        await log_in("openai", Person(server), sources=sources)
    assert caught.value.code is ErrorCode.CONFIG_MISSING
    with pytest.raises(ConfigError, match="anthropic"):
        await log_in("antropic", Person(server), sources=sources)


@pytest.mark.parametrize("kind", [InvalidAuthorisationCodeError, TokenExchangeFailedError])
def test_the_errors_of_a_login_can_be_copied(
    kind: type[InvalidAuthorisationCodeError] | type[TokenExchangeFailedError],
) -> None:
    error = kind("no", provider="house")
    copy = deepcopy(error)
    assert type(copy) is kind
    assert (copy.message, copy.provider, copy.code) == ("no", "house", ErrorCode.AUTH)
