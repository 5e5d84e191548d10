"""Holdfast as a subject, through its public names alone.

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
    """Iterate `agent.stream(prompt)`; the tool loop is Holdfast's own."""
    with _available(*(["tool"] if setup.script.tools else [])) as holdfast:
        text_delta = holdfast.TextDelta
        calls = 0

        async def lookup(key: str) -> str:  # noqa: ARG001
            """Look a key up."""
            nonlocal calls
            calls += 1
            return TOOL_RESULT

        lookup.__name__ = TOOL_NAME
        options = {"tools": [holdfast.tool(lookup)]} if setup.script.tools else {}
        async with _agent(holdfast, setup, **options) as agent:

            async def ask() -> Outcome:
                characters, before = 0, calls
                async with agent.stream(PROMPT) as stream:
                    async for event in stream:
                        if isinstance(event, text_delta):
                            characters += len(event.text)
                return Outcome(characters, calls - before)

            yield ask


@asynccontextmanager
async def growth(setup: Setup) -> AsyncIterator[GrowingSession]:
    """Chat in one named session on the SQLite store."""
    with _available() as holdfast:
        store = f"sqlite:{Path(setup.folder) / 'sessions.db'}"
        async with (
            _agent(holdfast, setup, store=store) as agent,
            agent.session(_SESSION) as session,
        ):

            async def add_turn(prompt: str) -> int:
                return len((await session.chat(prompt)).text)

            yield GrowingSession(len((await session.export()).messages), add_turn)


@asynccontextmanager
async def _agent(
    holdfast: ModuleType, setup: Setup, **options: object
) -> AsyncIterator[ModuleType]:
    """Open an agent; untyped, since the package may lack what is asked of it."""
    path = "" if setup.api == "anthropic" else "/v1"
    model = f"{_PROVIDER[setup.api]}/{setup.script.model}"
    wanted = {"api_key": "x", "base_url": setup.base_url + path, **options}
    try:
        opening = holdfast.Agent(model, **wanted)
    except TypeError as error:
        raise NotAvailable(f"Agent does not take an option yet: {error}") from error
    async with opening as agent:
        yield agent


@contextmanager
def _available(*needed: str) -> Iterator[ModuleType]:
    """Tell "cannot do this yet" from a failure: a missing name or module, a refusal at the door."""
    package = load("holdfast")
    names = ("Agent", "TextDelta", "ConfigError", *needed)
    missing = [name for name in dict.fromkeys(names) if not hasattr(package, name)]
    if missing:
        raise NotAvailable(f"holdfast has no {', '.join(missing)}")
    try:
        yield package
    except (ImportError, package.ConfigError) as error:
        raise NotAvailable(f"{type(error).__name__}: {error}") from error
