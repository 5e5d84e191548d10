"""Access tokens of a login: refreshed when they have expired, by one process, with no browser."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from msgspec import json
from msgspec.structs import replace

from haptera.access.auth.credential_storage import CredentialStorage, OAuthTokens, StoredCredential
from haptera.access.auth.oauth import OAuthTokenSource, TokenExchangeFailedError
from haptera.access.auth.oauth_settings import OAuthSettings
from haptera.model.errors import AgentError, ConfigError, ErrorCode, RequestError
from haptera.model.secrets import Secret
from haptera.ports.http import HttpAnswer
from haptera.system.token_source import Origin
from haptera.testing import FakeClock
from tests.access.auth.authorization_server import AuthorizationServer, authorization_server

ORIGIN = Origin(scheme="https", host="models.example", port=443)
SETTINGS = OAuthSettings(
    authorize_url="https://login.example/authorize",
    token_url="https://login.example/token",
    client_id="me",
)
FACTS = StoredCredential(kind="oauth", place="file")


class TokenEndpoint:
    """An `Http` whose refresh tokens are valid once."""

    def __init__(self, first: str = "refresh-0") -> None:
        self.valid = first
        self.forms: list[dict[str, str]] = []
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.answer: HttpAnswer | None = None
        self.failure: AgentError | None = None
        self.rotates = True

    async def post_form(self, url: str, fields: Mapping[str, str | Secret]) -> HttpAnswer:
        assert url == SETTINGS.token_url
        form = {n: v.reveal() if isinstance(v, Secret) else v for n, v in fields.items()}
        self.forms.append(form)
        self.asked.set()
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        if self.answer is not None:
            return self.answer
        if form["refresh_token"] != self.valid:
            told = {"error": "invalid_grant", "error_description": f"no {form['refresh_token']}"}
            return HttpAnswer(status=400, body=json.encode(told))
        count = len(self.forms)
        reply: dict[str, object] = {"access_token": f"access-{count}", "expires_in": 3600}
        if self.rotates:
            self.valid = reply["refresh_token"] = f"refresh-{count}"
        return HttpAnswer(status=200, body=json.encode(reply))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def storage(tmp_path: Path, clock: FakeClock) -> CredentialStorage:
    made = CredentialStorage(tmp_path, keyring=lambda: None)
    keep(made, expires=clock.time_ms() + 3_600_000)
    return made


def keep(storage: CredentialStorage, *, expires: int | None, refresh: str = "refresh-0") -> None:
    tokens = OAuthTokens(
        access=Secret("access-0"), refresh=Secret(refresh) if refresh else None, expires=expires
    )
    storage.save_tokens("house", tokens, FACTS)


def source(storage: CredentialStorage, http: TokenEndpoint, clock: FakeClock) -> OAuthTokenSource:
    return OAuthTokenSource("house", SETTINGS, storage, http=http, clock=clock)


async def token(found: OAuthTokenSource) -> str:
    return (await found.token(ORIGIN)).reveal()


async def test_a_token_is_used_until_it_expires_and_then_refreshed(
    storage: CredentialStorage, clock: FakeClock
) -> None:
    http = TokenEndpoint()
    tokens = source(storage, http, clock)
    assert await token(tokens) == "access-0"
    clock.advance(3590)
    assert await token(tokens) == "access-1"
    assert await token(tokens) == "access-1"
    clock.advance(3590)
    assert await token(tokens) == "access-2"
    assert [form["refresh_token"] for form in http.forms] == ["refresh-0", "refresh-1"]
    assert storage.path.stat().st_mode & 0o777 == 0o600


async def test_a_token_without_an_end_is_not_refreshed(
    storage: CredentialStorage, clock: FakeClock
) -> None:
    keep(storage, expires=None)
    clock.advance(10**8)
    assert await token(source(storage, TokenEndpoint(), clock)) == "access-0"


async def test_a_server_that_keeps_its_refresh_token_is_asked_with_it_again(
    storage: CredentialStorage, clock: FakeClock
) -> None:
    http = TokenEndpoint()
    http.rotates = False
    tokens = source(storage, http, clock)
    for expected in ("access-1", "access-2"):
        clock.advance(3600)
        assert await token(tokens) == expected


async def test_many_requests_at_once_share_one_refresh(
    storage: CredentialStorage, clock: FakeClock
) -> None:
    clock.advance(3600)
    http = TokenEndpoint()
    tokens = source(storage, http, clock)
    found = await asyncio.gather(*(token(tokens) for _ in range(50)))
    assert set(found) == {"access-1"}
    assert len(http.forms) == 1


async def test_a_refresh_outlives_the_request_that_began_it(
    storage: CredentialStorage, clock: FakeClock
) -> None:
    clock.advance(3600)
    http = TokenEndpoint()
    http.gate.clear()
    tokens = source(storage, http, clock)
    request = asyncio.ensure_future(token(tokens))
    await http.asked.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    http.gate.set()
    assert await token(tokens) == "access-1"
    assert len(http.forms) == 1


async def test_the_refresh_of_another_process_is_waited_for_and_used(
    storage: CredentialStorage, clock: FakeClock
) -> None:
    clock.advance(3600)
    http = TokenEndpoint()
    http.gate.clear()
    here, there = (
        source(CredentialStorage(storage.path.parent, keyring=lambda: None), http, clock)
        for _ in range(2)
    )
    first = asyncio.ensure_future(token(here))
    await http.asked.wait()
    second = asyncio.ensure_future(token(there))
    await clock.until_sleeping()
    http.gate.set()
    assert await first == "access-1"
    clock.advance(1)
    assert await second == "access-1"
    assert len(http.forms) == 1


async def test_a_refresh_that_is_refused_names_the_command_and_no_secret(
    storage: CredentialStorage, clock: FakeClock
) -> None:
    clock.advance(3600)
    http = TokenEndpoint(first="another-refresh-token")
    with pytest.raises(TokenExchangeFailedError, match="`haptera login house`") as caught:
        await token(source(storage, http, clock))
    assert "refresh-0" not in f"{caught.value}{caught.value!r}{caught.value.__cause__!r}"
    assert caught.value.code is ErrorCode.AUTH
    assert caught.value.retryable is False


async def test_an_expired_token_that_cannot_be_refreshed_names_the_command(
    storage: CredentialStorage, clock: FakeClock
) -> None:
    keep(storage, expires=clock.time_ms(), refresh="")
    with pytest.raises(AgentError, match="`haptera login house`") as caught:
        await token(source(storage, TokenEndpoint(), clock))
    assert caught.value.code is ErrorCode.AUTH


async def test_a_server_that_is_away_can_be_asked_again(
    storage: CredentialStorage, clock: FakeClock
) -> None:
    clock.advance(3600)
    http = TokenEndpoint()
    tokens = source(storage, http, clock)
    http.failure = RequestError(ErrorCode.NETWORK, "gone")
    with pytest.raises(RequestError):
        await token(tokens)
    http.failure = None
    for status, code in ((503, ErrorCode.SERVER_ERROR), (429, ErrorCode.RATE_LIMITED)):
        http.answer = HttpAnswer(status=status, body=b"")
        with pytest.raises(AgentError) as caught:
            await token(tokens)
        assert (caught.value.code, caught.value.retryable) == (code, True)
    http.answer = None
    assert await token(tokens) == "access-4"


async def test_logging_out_ends_the_requests_of_other_processes(
    storage: CredentialStorage, clock: FakeClock
) -> None:
    tokens = source(storage, TokenEndpoint(), clock)
    storage.remove("house")
    with pytest.raises(ConfigError, match="`haptera login house`") as caught:
        await token(tokens)
    assert caught.value.code is ErrorCode.CONFIG_MISSING


async def test_logging_out_while_tokens_are_refreshed_is_not_undone(
    storage: CredentialStorage, clock: FakeClock
) -> None:
    clock.advance(3600)
    http = TokenEndpoint()
    http.gate.clear()
    request = asyncio.ensure_future(token(source(storage, http, clock)))
    await http.asked.wait()
    storage.remove("house")
    http.gate.set()
    with pytest.raises(ConfigError, match="`haptera login house`"):
        await request
    assert storage.find("house") is None


async def test_a_login_while_tokens_are_refreshed_is_not_undone(
    storage: CredentialStorage, clock: FakeClock
) -> None:
    clock.advance(3600)
    http = TokenEndpoint()
    http.gate.clear()
    tokens = source(storage, http, clock)
    request = asyncio.ensure_future(token(tokens))
    await http.asked.wait()
    anew = OAuthTokens(access=Secret("anew"), expires=clock.time_ms() + 3_600_000)
    storage.save_tokens("house", anew, replace(FACTS, saved=clock.time_ms()))
    http.gate.set()
    assert await request == "anew"
    assert await token(tokens) == "anew"


@pytest.fixture
def server() -> Iterator[AuthorizationServer]:
    with authorization_server() as running:
        yield running


PROCESS = """
import asyncio, sys
from pathlib import Path
from haptera.system.clock import SystemClock
from haptera.access.assembly.stored_sources import TransportHttp
from haptera.access.auth.credential_storage import CredentialStorage
from haptera.access.auth.oauth import OAuthTokenSource
from haptera.access.auth.oauth_settings import OAuthSettings
from haptera.system.token_source import Origin
from haptera.providers.transport.http import AiohttpTransport

async def main(folder, url):
    transport = AiohttpTransport()
    settings = OAuthSettings(authorize_url=url, token_url=url + "/token", client_id="me")
    storage = CredentialStorage(Path(folder), keyring=lambda: None)
    source = OAuthTokenSource(
        "house", settings, storage, http=TransportHttp(transport), clock=SystemClock()
    )
    print("ready", flush=True)
    sys.stdin.readline()
    token = await source.token(Origin(scheme="https", host="models.example", port=443))
    print(token.reveal(), flush=True)
    await transport.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slow
def test_two_processes_that_refresh_at_once_use_one_refresh_token_once(
    tmp_path: Path, server: AuthorizationServer
) -> None:
    refresh = server.secret("refresh")
    server.knows(refresh)
    keep(CredentialStorage(tmp_path, keyring=lambda: None), expires=1, refresh=refresh)
    server.hold = threading.Event()
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(tmp_path), server.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for each in running:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in running:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    server.hold.set()
    printed = {each.communicate(timeout=60)[0].strip() for each in running}
    assert [each.returncode for each in running] == [0, 0]
    assert len(printed) == 1
    assert server.refreshes == 1
