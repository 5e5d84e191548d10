"""One stored session driven in turn by every way there is: the log and the results agree."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from haptera import Agent, sync
from tests.cli.commands import Place
from tests.cli.scripted_server import ScriptedServer, Turn, scripted_server
from tests.server.rpc_client import RpcClient, pipes, websocket
from tests.server.serving import Served, serving

MODEL = "anthropic/claude-sonnet-5"
WAYS = ("library", "blocking", "command line", "HTTP", "pipes", "websocket")


class Ways:
    """Says something to one session by each way, and returns the answer."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.store = f"sqlite:{place.root / 'sessions.db'}"
        self.session_id = ""

    def options(self) -> dict[str, Any]:
        """Return what agents in this process are made with."""
        return {
            "store": self.store,
            "project": str(self.place.project),
            "environment": self.place.environment,
            "cwd": self.place.project,
            "snapshots": False,
        }

    async def library(self, prompt: str) -> str:
        agent = Agent(MODEL, **self.options())
        async with agent, agent.session(self.session_id or None) as session:
            self.session_id = str(session.session_id)
            return (await session.chat(prompt)).text

    async def blocking(self, prompt: str) -> str:
        def say() -> str:
            with (
                sync.Agent(MODEL, **self.options()) as agent,
                agent.session(self.session_id) as session,
            ):
                return session.chat(prompt).text

        return await asyncio.to_thread(say)

    async def command_line(self, prompt: str) -> str:
        arguments = ("-p", prompt, "--resume", self.session_id, "--store", self.store)
        done = await asyncio.to_thread(self.place.run, *arguments, "--model", MODEL)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode().strip()

    async def http(self, prompt: str) -> str:
        async with serving(Agent(MODEL, **self.options())) as served:
            path = f"/api/v1/sessions/{self.session_id}/messages"
            status, told = await served.call(
                "POST", path, {"content": prompt}, headers={"prefer": "wait=60"}
            )
            assert status == 200, told
            return str(told["text"])

    async def by_rpc(self, client: RpcClient, prompt: str) -> str:
        told = await client.call(
            "message/send", session_id=self.session_id, content=prompt, wait=60
        )
        return str(told["text"])

    async def pipes(self, prompt: str) -> str:
        async with pipes(self.place, "--store", self.store, "--model", MODEL) as (client, _):
            return await self.by_rpc(client, prompt)

    async def websocket(self, prompt: str) -> str:
        agent = Agent(MODEL, **self.options())
        async with serving(agent) as served, websocket(served) as client:
            return await self.by_rpc(client, prompt)

    async def say(self, way: str, prompt: str) -> str:
        """Say something by one way."""
        answer: str = await getattr(self, way.lower().replace(" ", "_"))(prompt)
        return answer


async def _events(client: RpcClient, session_id: str) -> list[Any]:
    await client.call("session/events", session_id=session_id, follow=False)
    found: list[Any] = []
    while (told := await client.others.get())["method"] == "event":
        params = told["params"]
        found.append((params["seq"], params["kind"], params["event"]))
    return found


async def _logs(ways: Ways, served: Served) -> dict[str, list[Any]]:
    """Return the log of the session by each way that shows it as events."""
    path = f"/api/v1/sessions/{ways.session_id}/events?follow=false"
    async with served.events(path) as events:
        by_http = [(each.seq, each.kind, each.data) async for each in events]
    async with websocket(served) as client:
        by_socket = await _events(client, ways.session_id)
    async with pipes(ways.place, "--store", ways.store) as (client, _):
        by_pipes = await _events(client, ways.session_id)
    return {"HTTP": by_http, "websocket": by_socket, "pipes": by_pipes}


async def _texts(ways: Ways, agent: Agent, served: Served) -> dict[str, list[tuple[str, str]]]:
    """Return the messages of the session by each way."""

    def shown(data: Any) -> list[tuple[str, str]]:
        messages = [each["message"] for each in data]
        return [(each["role"], each["parts"][0]["text"]) for each in messages]

    def blocking() -> list[tuple[str, str]]:
        with sync.Agent(MODEL, **ways.options()) as other:
            return shown(msgspec.to_builtins(other.sessions.messages(ways.session_id)))

    found = await agent.sessions.messages(ways.session_id)
    _, by_http = await served.call("GET", f"/api/v1/sessions/{ways.session_id}/messages")
    async with websocket(served) as client:
        by_socket = await client.call("message/list", session_id=ways.session_id)
    exported = await asyncio.to_thread(
        ways.place.run,
        "--store",
        ways.store,
        "sessions",
        "export",
        ways.session_id,
        "--format",
        "openai",
    )
    assert exported.returncode == 0, exported.stderr
    return {
        "library": shown(msgspec.to_builtins(found)),
        "blocking": await asyncio.to_thread(blocking),
        "HTTP": shown(by_http["data"]),
        "websocket": shown(by_socket["data"]),
        "command line": _openai(json.loads(exported.stdout)),
    }


def _openai(exported: Any) -> list[tuple[str, str]]:
    found = exported if isinstance(exported, list) else exported["messages"]
    return [(each["role"], each["content"]) for each in found]


def _asked(server: ScriptedServer) -> list[list[tuple[str, str]]]:
    """Return what each request told the model, as text."""
    return [
        [
            (each["role"], "".join(part["text"] for part in each["content"]))
            for each in request["messages"]
        ]
        for request in server.requests
    ]


@pytest.mark.slow
async def test_one_session_is_driven_by_every_way_and_all_agree(tmp_path: Path) -> None:
    turns = [Turn([f"answer {number}", "."]) for number in range(len(WAYS))]
    with scripted_server(*turns) as server:
        ways = Ways(Place(tmp_path, server))
        for number, way in enumerate(WAYS):
            assert await ways.say(way, f"question {number}") == f"answer {number}.", way
        conversation = [
            said
            for number in range(len(WAYS))
            for said in (("user", f"question {number}"), ("assistant", f"answer {number}."))
        ]
        assert _asked(server) == [conversation[: 2 * number + 1] for number in range(len(WAYS))]
        agent = Agent(MODEL, **ways.options())
        async with serving(agent) as served:
            for way, texts in (await _texts(ways, agent, served)).items():
                assert texts == conversation, way
            logs = await _logs(ways, served)
            head = (await agent.sessions.get(ways.session_id)).head
    assert logs["HTTP"] == logs["websocket"] == logs["pipes"]
    assert [seq for seq, *_ in logs["HTTP"] if seq] == list(range(1, head + 1))
    ended = [data for _, kind, data in logs["HTTP"] if kind == "query.ended"]
    assert [each["stop_reason"] for each in ended] == ["complete"] * len(WAYS)
