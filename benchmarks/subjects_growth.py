"""Persisted sessions of the floor and the peers: open, add a turn, open again.

The floor writes one SQLite row or one line a message, and syncs it. "On the floor's client" means
that a peer keeps the session and the floor makes the request: what is measured is the peer's
session, not its client.
"""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import apsw
import msgspec

from benchmarks.floor import aiohttp_client, open_floor
from benchmarks.floor_wire import Message
from benchmarks.subjects import PROMPT, Ask, GrowingSession, Outcome, Setup, load

_FILE = "session.db"
_SESSION = "growing"


@asynccontextmanager
async def floor_rows(setup: Setup) -> AsyncIterator[GrowingSession]:
    """Keep one SQLite row a message, each committed and synced before the next step."""
    with closing(_database(setup)) as database:
        rows = database.execute("SELECT body FROM message ORDER BY id")
        messages: list[Message] = [msgspec.json.decode(body) for (body,) in rows]

        def write(row: bytes) -> None:
            database.execute("INSERT INTO message (body) VALUES (?)", (row,))

        async with _floor_session(setup, messages, write) as session:
            yield session


@asynccontextmanager
async def floor_lines(setup: Setup) -> AsyncIterator[GrowingSession]:
    """Keep one line a message in a file, each synced before the next step."""
    with (Path(setup.folder) / "session.jsonl").open("ab+", buffering=0) as file:
        file.seek(0)
        messages: list[Message] = [msgspec.json.decode(line) for line in file.read().splitlines()]

        def write(row: bytes) -> None:
            file.write(row + b"\n")
            os.fdatasync(file.fileno())

        async with _floor_session(setup, messages, write) as session:
            yield session


@asynccontextmanager
async def one_shot_rows(setup: Setup) -> AsyncIterator[Ask]:
    """Ask one prompt after the other, each its own conversation of two rows."""
    client = aiohttp_client(setup.base_url)
    with closing(_database(setup)) as database:
        async with open_floor(setup.api, setup.script, client) as floor:

            def keep(message: Message) -> None:
                row = msgspec.json.encode(message)
                database.execute("INSERT INTO message (body) VALUES (?)", (row,))

            async def ask() -> Outcome:
                prompt: Message = {"role": "user", "content": PROMPT}
                keep(prompt)
                answer = await floor.ask([prompt], lambda _: None)
                text = "".join(answer.texts)
                keep(floor.said(text))
                return Outcome(len(text), 0)

            yield ask


def _database(setup: Setup) -> apsw.Connection:
    database = apsw.Connection(str(Path(setup.folder) / _FILE))
    database.pragma("journal_mode", "wal")
    database.pragma("synchronous", "full")
    database.execute("CREATE TABLE IF NOT EXISTS message (id INTEGER PRIMARY KEY, body BLOB)")
    return database


@asynccontextmanager
async def _floor_session(
    setup: Setup, messages: list[Message], write: Callable[[bytes], None]
) -> AsyncIterator[GrowingSession]:
    def keep(message: Message) -> None:
        messages.append(message)
        write(msgspec.json.encode(message))

    client = aiohttp_client(setup.base_url)
    async with open_floor(setup.api, setup.script, client) as floor:

        async def add_turn(prompt: str) -> int:
            keep({"role": "user", "content": prompt})
            answer = await floor.ask(messages, lambda _: None)
            text = "".join(answer.texts)
            keep(floor.said(text))
            return len(text)

        async def count() -> int:
            return len(messages)

        yield GrowingSession(count, add_turn)


@asynccontextmanager
async def openai_agents(setup: Setup) -> AsyncIterator[GrowingSession]:
    """Run openai-agents with its SQLiteSession, over the openai package as its users do."""
    agents, openai = load("agents"), load("openai")
    # Loopback needs no certificates, and loading them would count as reopening.
    http = openai.DefaultAsyncHttpxClient(verify=False)
    async with openai.AsyncOpenAI(
        api_key="x", base_url=f"{setup.base_url}/v1", max_retries=0, http_client=http
    ) as client:
        model = agents.OpenAIChatCompletionsModel(setup.script.model, client)
        async with _openai_agents_session(setup, model, is_streamed=True) as session:
            yield session


@asynccontextmanager
async def openai_agents_on_floor(setup: Setup) -> AsyncIterator[GrowingSession]:
    """Run openai-agents with its SQLiteSession, over the floor's client."""
    agents, responses = load("agents"), load("openai.types.responses")
    client = aiohttp_client(setup.base_url)
    async with open_floor(setup.api, setup.script, client) as floor:

        async def get_response(_: object, *given: Any, **named: Any) -> object:  # noqa: ANN401 - as the peer
            items = named.get("input") or given[1]
            answer = await floor.ask([_to_message(item) for item in items], lambda _: None)
            part = {"type": "output_text", "text": "".join(answer.texts), "annotations": []}
            said = {"id": "msg_bench", "type": "message", "role": "assistant"}
            item = said | {"status": "completed", "content": [part]}
            output = [responses.ResponseOutputMessage.model_validate(item)]
            return agents.ModelResponse(output=output, usage=agents.Usage(), response_id=None)

        methods = {"get_response": get_response, "stream_response": None}
        model = type("FloorModel", (agents.Model,), methods)()
        async with _openai_agents_session(setup, model, is_streamed=False) as session:
            yield session


def _to_message(item: dict[str, Any]) -> Message:
    content = item["content"]
    text = content if isinstance(content, str) else content[0]["text"]
    return {"role": item["role"], "content": text}


@asynccontextmanager
async def _openai_agents_session(
    setup: Setup, model: object, *, is_streamed: bool
) -> AsyncIterator[GrowingSession]:
    agents = load("agents")
    agents.set_tracing_disabled(True)
    agent = agents.Agent(name="bench", model=model)
    session = agents.SQLiteSession(_SESSION, Path(setup.folder) / _FILE)

    async def add_turn(prompt: str) -> int:
        if not is_streamed:
            return len((await agents.Runner.run(agent, prompt, session=session)).final_output)
        run = agents.Runner.run_streamed(agent, prompt, session=session)
        async for _ in run.stream_events():
            pass
        return len(run.final_output)

    async def count() -> int:
        return len(await session.get_items())

    try:
        yield GrowingSession(count, add_turn)
    finally:
        session.close()


@asynccontextmanager
async def langgraph_saver(setup: Setup) -> AsyncIterator[GrowingSession]:
    """Run a graph of one node with LangGraph's SqliteSaver, over the floor's client."""
    graphs, messages = load("langgraph.graph"), load("langchain_core.messages")
    savers = load("langgraph.checkpoint.sqlite.aio")
    configuration = {"configurable": {"thread_id": _SESSION}}
    async with (
        savers.AsyncSqliteSaver.from_conn_string(str(Path(setup.folder) / _FILE)) as saver,
        open_floor(setup.api, setup.script, aiohttp_client(setup.base_url)) as floor,
    ):

        async def call_model(state: dict[str, Any]) -> dict[str, Any]:
            history: list[Message] = [
                {"role": "user" if said.type == "human" else "assistant", "content": said.content}
                for said in state["messages"]
            ]
            answer = await floor.ask(history, lambda _: None)
            return {"messages": [messages.AIMessage("".join(answer.texts))]}

        builder = graphs.StateGraph(graphs.MessagesState)
        builder.add_node("model", call_model)
        builder.add_edge(graphs.START, "model")
        graph = builder.compile(checkpointer=saver)

        async def add_turn(prompt: str) -> int:
            said = {"messages": [messages.HumanMessage(prompt)]}
            state = await graph.ainvoke(said, configuration)
            return len(state["messages"][-1].content)

        async def count() -> int:
            kept = await graph.aget_state(configuration)
            return len(kept.values.get("messages", ()))

        yield GrowingSession(count, add_turn)
