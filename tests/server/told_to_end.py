"""A web application under uvicorn, as a program of users is; started by a test.

The argument says which: `alone` is the application of `create_app`, `mounted` has it under a path,
`recipe` is the page docs/web-apps.md. The model never comes to the end of its answer.
"""

import asyncio
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

import haptera
from haptera import Agent
from haptera.model.settings import RuntimeSettings
from haptera.server import create_app
from haptera.testing import ScriptedProvider, says

TOKEN = "t" * 43
_PAGE = Path(__file__).parents[2] / "docs" / "web-apps.md"


async def _for_ever() -> None:
    await asyncio.Event().wait()


def _agent(store: str) -> Agent:
    said = says("Half", " an answer.")
    provider = ScriptedProvider([[*said[:3], _for_ever, *said[3:]]])
    return Agent(
        "scripted/one",
        providers=[provider],
        store=store,
        runtime=RuntimeSettings(close_drain_seconds=0.1),
    )


def _application(kind: str, agent: Agent) -> Any:
    if kind == "recipe":
        haptera.Agent = lambda *_args, **_options: agent  # type: ignore[misc, assignment]
        code = re.findall(r"```python\n(.*?)```", _PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
        names: dict[str, Any] = {"__name__": "recipe"}
        exec(compile(code, str(_PAGE), "exec"), names)  # noqa: S102 - our own page
        return names["app"]
    sessions = create_app(agent, token=TOKEN)
    if kind == "alone":
        return sessions

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
        async with agent:
            try:
                yield
            finally:
                await sessions.close()

    return Starlette(routes=[Mount("/ai", sessions)], lifespan=lifespan)


def main() -> None:
    """Listen on the port of the arguments until a signal ends the process."""
    kind, store, port = sys.argv[1:]
    uvicorn.run(_application(kind, _agent(store)), port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
