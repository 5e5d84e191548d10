"""No credential is in any response, in anything that a server prints, or in a file besides its own.

The process logs everything that any library says, at the level DEBUG.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.requests import Request
from starlette.responses import Response

from haptera.model.secrets import token_digest
from haptera.server import Access, ApiKey
from tests.cli.commands import Place, call
from tests.cli.scripted_server import Turn, scripted_server
from tests.scripted_agents import make_agent
from tests.server.processes import ServeProcess, started
from tests.server.serving import TOKEN, serving

PROVIDER_KEY = "Zq8vLw3xPn5tRk2yHd7m"
"""Without the shape of a key: it is recognised because it is known."""
WRONG = "Wr0ngTokenOfAStranger91"
LOGGING = (
    "import logging, sys\n"
    "logging.basicConfig(level=logging.DEBUG)\n"
    "from haptera.cli.main import main\n"
    "sys.exit(main(sys.argv[1:]))\n"
)
FORMATS = ("native", "markdown", "html", "openai", "anthropic", "text")


def _answers(server: ServeProcess, key: str) -> Iterator[bytes]:
    """Make requests that fail in every way, and some that succeed; yield all that comes back."""

    def ask(method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        with server.answer(method, path, body, **headers) as answer:
            heads = str(answer.headers).encode()
            return answer.status, heads + answer.read()

    wrong: list[dict[str, str]] = [
        {"authorization": f"Bearer {WRONG}"},
        {"authorization": f"Basic {WRONG}"},
        {"authorization": f"Bearer {server.state['token']}x"},
        {"authorization": WRONG, "cookie": f"haptera_session={WRONG}"},
        {"authorization": "", "x_api_key": WRONG},
    ]
    for number, headers in enumerate(wrong):
        told = ask("GET", f"/api/v1/sessions?token={WRONG}&n={number}", **headers)
        yield told[1]
        assert told[0] == 401
    token = server.state["token"]
    for method, path, body in (
        ("GET", f"/api/v1/sessions?token={token}", None),
        ("GET", f"/api/v1/sessions?limit={token}", None),
        ("GET", f"/api/v1/sessions?{token}=1", None),
        ("GET", f"/api/v1/sessions/{token}", None),
        ("GET", f"/{quote(token)}", None),
        ("POST", "/api/v1/sessions", {"model": token}),
        ("POST", "/api/v1/sessions", {token: 1}),
        ("POST", "/api/v1/login", {"token": WRONG}),
        ("POST", "/api/v1/login", {"token": [token]}),
        ("PATCH", "/api/v1/sessions", {"token": token}),
    ):
        status, content = ask(method, path, body)
        yield content
        assert 400 <= status < 500, (method, path, status)
    yield ask("POST", "/api/v1/login", {"token": key})[1]
    yield ask("GET", "/api/v1/info", authorization=f"Bearer {key}")[1]
    yield ask("GET", "/api/v1/models")[1]
    yield ask("GET", "/openapi.json")[1]
    made = json.loads(server.call("POST", "/api/v1/sessions", {})[1])["id"]
    path = f"/api/v1/sessions/{made}"
    status, content = ask("POST", f"{path}/messages", {"content": "go"}, prefer="wait=60")
    assert status == 200
    assert b'"error"' in content
    yield content
    for route in ("", "/messages", "/events?follow=false", "/usage", "/approvals"):
        status, content = ask("GET", path + route)
        yield content
        assert status == 200, route
    for form in FORMATS:
        yield ask("GET", f"{path}/export?format={form}")[1]
    yield ask("GET", "/api/v1/sessions")[1]


@pytest.mark.slow
def test_no_response_no_log_and_no_file_has_a_credential(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = f"the key {PROVIDER_KEY} (x-api-key: {PROVIDER_KEY}) is not valid"
    with scripted_server(Turn(status=401, error=refusal)) as model:
        variables = {"ANTHROPIC_API_KEY": PROVIDER_KEY, "HAPTERA_LOG": "debug"}
        place = Place(tmp_path, model, variables=variables)
        key = call(place, monkeypatch, "keys", "add", "ana").out.strip()
        program = (sys.executable, "-c", LOGGING)
        with started(place, "--behind-proxy", program=program) as server:
            answers = list(_answers(server, key))
            kept = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
            assert server.end() == 0
        said = model.headers[0]
    token = server.state["token"]
    assert said["x-api-key"] == PROVIDER_KEY
    printed = b"".join(server.printed)
    assert b"DEBUG:haptera" in printed
    assert b"uvicorn" in printed
    (cookie,) = [each for each in answers if b"haptera_session=" in each]
    assert b"; Secure" in cookie  # the proxy adds TLS
    secrets = {PROVIDER_KEY, token, key, WRONG, quote(token, safe="")}
    for secret in (each.encode() for each in secrets):
        assert not [content for content in answers if secret in content]
        assert not [line for line in printed.splitlines() if secret in line]
        assert [path.name for path, content in kept.items() if secret in content] == (
            ["server.json"] if secret == token.encode() else []
        )


async def test_a_failure_that_was_not_foreseen_is_logged_without_secrets_and_answers_500(
    caplog: pytest.LogCaptureFixture,
) -> None:
    key = "a-key-of-ana-0123456789"

    async def fail(request: Request) -> Response:
        del request
        raise RuntimeError(f"the request with {key} and {TOKEN} failed")

    agent, _ = make_agent([])
    access = Access(TOKEN, keys=[ApiKey(digest=token_digest(key), owner="local")])
    async with serving(agent, access=access) as served:
        served.app.inner.add_route("/fails", fail)
        hers = {"authorization": f"Bearer {key}"}
        assert (await served.call("GET", "/api/v1/info", headers=hers))[0] == 200
        status, problem = await served.call("GET", "/fails")
    assert (status, problem["code"]) == (500, "INTERNAL")
    assert "RuntimeError" in caplog.text
    assert f"X-Request-Id: {problem['request_id']}" in caplog.text
    for secret in (key, TOKEN):
        assert secret not in caplog.text + json.dumps(problem)
