"""Haptera as a subject, through its public names alone.

What the installed version cannot do yet is reported as "not available" with the reason.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import ModuleType

from benchmarks.floor import TOOL_RESULT
from benchmarks.frames import TOOL_NAME
from benchmarks.script import Api
from benchmarks.subjects import PROMPT, Ask, GrowingSession, NotAvailable, Outcome, Setup, load

_PROVIDER: dict[Api, str] = {"anthropic": "anthropic", "chat": "openai-chat", "responses": "openai"}
_SESSION = "growing"


@asynccontextmanager
async def query(setup: Setup) -> AsyncIterator[Ask]:
    """Iterate `agent.stream(prompt)`; the tool loop is Haptera's own."""
    with available(*(["tool"] if setup.script.tools else [])) as haptera:
        text_delta = haptera.TextDelta
        calls = 0

        async def lookup(key: str) -> str:  # noqa: ARG001 - the model gives it
            """Look a key up."""
            nonlocal calls
            calls += 1
            return TOOL_RESULT

        lookup.__name__ = TOOL_NAME
        options = {"tools": [haptera.tool(lookup)]} if setup.script.tools else {}
        async with open_agent(haptera, setup, **options) as agent:

            async def ask() -> Outcome:
                characters, before = 0, calls
                async with agent.stream(PROMPT) as stream:
                    async for event in stream:
                        if isinstance(event, text_delta):
                            characters += len(event.text)
                return Outcome(characters, calls - before)

            yield ask


@asynccontextmanager
async def sqlite(setup: Setup) -> AsyncIterator[GrowingSession]:
    """Chat in one named session on the SQLite store."""
    async with _growth(setup, f"sqlite:{Path(setup.folder) / 'sessions.db'}") as session:
        yield session


@asynccontextmanager
async def jsonl(setup: Setup) -> AsyncIterator[GrowingSession]:
    """Chat in one named session on the JSON lines store."""
    async with _growth(setup, f"jsonl:{setup.folder}") as session:
        yield session


@asynccontextmanager
async def one_shot_sqlite(setup: Setup) -> AsyncIterator[Ask]:
    """Run one prompt after the other, each in a new SQLite session."""
    async with _one_shots(setup, f"sqlite:{Path(setup.folder) / 'sessions.db'}") as ask:
        yield ask


@asynccontextmanager
async def one_shot_jsonl(setup: Setup) -> AsyncIterator[Ask]:
    """Run one prompt after the other, each in a new JSON lines session."""
    async with _one_shots(setup, f"jsonl:{setup.folder}") as ask:
        yield ask


@asynccontextmanager
async def _one_shots(setup: Setup, store: str) -> AsyncIterator[Ask]:
    with available() as haptera:
        async with open_agent(haptera, setup, store=store) as agent:

            async def ask() -> Outcome:
                result = await agent.run(PROMPT)
                return Outcome(len(result.text), len(result.tool_calls))

            yield ask


@asynccontextmanager
async def _growth(setup: Setup, store: str) -> AsyncIterator[GrowingSession]:
    with available() as haptera:
        async with (
            open_agent(haptera, setup, store=store) as agent,
            agent.session(_SESSION) as session,
        ):

            async def add_turn(prompt: str) -> int:
                return len((await session.chat(prompt)).text)

            async def count() -> int:
                return len((await session.export()).messages)

            yield GrowingSession(count, add_turn)


@asynccontextmanager
async def open_agent(
    haptera: ModuleType, setup: Setup, **options: object
) -> AsyncIterator[ModuleType]:
    """Open an agent; untyped, since the package may lack what is asked of it."""
    path = "" if setup.api == "anthropic" else "/v1"
    model = f"{_PROVIDER[setup.api]}/{setup.script.model}"
    wanted = {"api_key": "x", "base_url": setup.base_url + path, **options}
    try:
        opening = haptera.Agent(model, **wanted)
    except TypeError as error:
        raise NotAvailable(f"Agent does not take an option yet: {error}") from error
    async with opening as agent:
        yield agent


@contextmanager
def available(*needed: str) -> Iterator[ModuleType]:
    """Tell "cannot do this yet" from a failure: a missing name or module, a refused option."""
    package = load("haptera")
    names = ("Agent", "TextDelta", "ConfigError", *needed)
    missing = [name for name in dict.fromkeys(names) if not hasattr(package, name)]
    if missing:
        raise NotAvailable(f"haptera has no {', '.join(missing)}")
    try:
        yield package
    except (ImportError, package.ConfigError) as error:
        raise NotAvailable(f"{type(error).__name__}: {error}") from error
