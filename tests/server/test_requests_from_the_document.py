"""Requests made from the OpenAPI document: none fails the server, and answers are as declared."""

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance

from haptera.server import ServerSettings
from haptera.server.app import OPERATIONS
from haptera.server.openapi import document
from haptera.testing import ScriptedProvider, says
from tests.scripted_agents import make_agent
from tests.server.serving import TOKEN, serving

pytestmark = pytest.mark.slow

EXAMPLES = 10
PUBLIC = {"/healthz", "/readyz", "/openapi.json", "/api/v1/login"}
ENDLESS = {"stream_events", "stream_all"}
"""Their generated requests would never end; the other tests of this folder try them."""
WIDE = ServerSettings(requests_per_second=1e9, failures_per_second=1e9, sessions=1000)


class Endless(ScriptedProvider):
    """A model that always says the same."""

    async def stream(self, request: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        """Answer any request."""
        self.replace_rest(says("hi"))
        async for parts in super().stream(request):
            yield parts


@contextlib.contextmanager
def served_elsewhere() -> Iterator[tuple[str, str]]:
    """Serve in a thread; yields the URL and the id of a session with messages."""
    ready = threading.Event()
    told: dict[str, Any] = {}

    async def serve() -> None:
        agent, _ = make_agent([], providers=[Endless(provider="endless")], model="endless/one")
        async with serving(agent, settings=WIDE) as served:
            session_id = await served.new_session(name="seeded")
            path = f"/api/v1/sessions/{session_id}/messages"
            wait = {"prefer": "wait=30"}
            await served.call("POST", path, {"content": "hello"}, headers=wait)
            stop = asyncio.Event()
            told.update(url=served.url, id=session_id, stop=stop, loop=asyncio.get_running_loop())
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(60)
    try:
        yield told["url"], told["id"]
    finally:
        told["loop"].call_soon_threadsafe(told["stop"].set)
        thread.join(60)


def test_generated_requests_are_answered_as_the_document_says() -> None:
    reached: dict[str, set[int]] = defaultdict(set)
    schema = schemathesis.openapi.from_dict(document(OPERATIONS))
    with served_elsewhere() as (url, session_id):
        client = {"headers": {"Authorization": f"Bearer {TOKEN}"}, "timeout": 30}
        for result in schema.get_all_operations():
            assert isinstance(result, Ok)
            operation = result.ok()
            name = operation.definition.raw["operationId"]
            if name not in ENDLESS:
                _try(operation, name, (url, session_id), client, reached)
        _follow(url, session_id, reached)
    good = {name for name, codes in reached.items() if any(code < 300 for code in codes)}
    assert not any(code >= 500 for codes in reached.values() for code in codes), reached
    assert len(good) >= 0.8 * len(OPERATIONS), set(reached) - good


def _try(
    operation: Any,
    name: str,
    place: tuple[str, str],
    client: dict[str, Any],
    reached: dict[str, set[int]],
) -> None:
    url, session_id = place

    @seed(1)
    @settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def run(case: Any) -> None:
        is_deletion = name == "delete_session"
        if "session_id" in (case.path_parameters or {}) and not is_deletion:
            case.path_parameters["session_id"] = session_id
        if name == "log_out":
            case.cookies = {}
        answer = case.call(base_url=url, **client)
        reached[name].add(answer.status_code)
        # A file or a model's name can be of the right type and yet be refused with 400.
        case.validate_response(answer, excluded_checks=[positive_data_acceptance])

    run()


def _follow(url: str, session_id: str, reached: dict[str, set[int]]) -> None:
    """Try what a generated request cannot: a stream that ends, a link, a session to delete."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=url, headers=headers) as client:
        path = f"/api/v1/sessions/{session_id}"
        answer = client.get(f"{path}/events?follow=false")
        reached["stream_events"].add(answer.status_code)
        made = client.post(f"{path}/shares").json()
        for name, shown in (("session", f"{made['path']}.json"), ("page", made["path"])):
            reached[f"read_shared_{name}"].add(client.get(shown).status_code)
        reached["revoke_share"].add(client.delete(f"{path}/shares/{made['id']}").status_code)
        reached["delete_session"].add(client.delete(path).status_code)


def test_without_a_token_only_public_routes_answer() -> None:
    with served_elsewhere() as (url, session_id), httpx.Client(base_url=url) as client:
        for operation in OPERATIONS:
            named = {"approval_id": "apr_1", "share_id": "shr_1", "token": "A" * 44}
            path = operation.path.format(session_id=session_id, **named)
            answer = client.request(operation.method, path)
            assert answer.is_success == (path in PUBLIC - {"/api/v1/login"}), operation.name
            assert answer.status_code < 500
