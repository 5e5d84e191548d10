"""A process that sends one prompt and ends: what a script costs until its request arrives.

Run as `python -m benchmarks.cold_start WAY BASE_URL MODEL`. Each way imports only what it needs, so
nothing is imported at the top. `haptera-command` and `llm-command` are whole command lines, with a
store in a folder of their own; for the model `--help` they print their help instead.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path


async def ask_floor(base_url: str, model: str) -> None:
    """Send one prompt through aiohttp and read the answer."""
    import aiohttp
    import msgspec

    body = {"model": model, "max_tokens": 100, "stream": True}
    body["messages"] = [{"role": "user", "content": "Hello"}]
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{base_url}/v1/messages", data=msgspec.json.encode(body)) as response,
    ):
        await response.read()


async def ask_haptera(base_url: str, model: str) -> None:
    """Send one prompt with `run_agent`."""
    import haptera

    await haptera.run_agent("Hello", model=f"anthropic/{model}", api_key="x", base_url=base_url)


def command_haptera(base_url: str, model: str, folder: Path) -> None:
    """Run `haptera -p`, which stores its session."""
    os.environ |= {"HAPTERA_HOME": str(folder), "ANTHROPIC_API_KEY": "made-up"}
    os.environ["ANTHROPIC_BASE_URL"] = base_url
    sys.argv = [
        "haptera",
        *(["--help"] if model == HELP else ["-p", "Hi", "-m", "anthropic/" + model]),
    ]
    from haptera.cli import main

    sys.exit(main())


def command_llm(base_url: str, model: str, folder: Path) -> None:
    """Run `llm`, which stores its conversation as well."""
    os.environ |= {
        "LLM_USER_PATH": str(folder),
        "LLM_LOAD_PLUGINS": "",
        "OPENAI_API_KEY": "made-up",
    }
    known = f"- model_id: {model}\n  model_name: {model}\n  api_base: {base_url}/v1\n"
    (folder / "extra-openai-models.yaml").write_text(known, encoding="utf-8")
    sys.argv = ["llm", *(["--help"] if model == HELP else ["Hi", "-m", model])]
    cli = import_module("llm.cli").cli

    cli()


HELP = "--help"
_COMMANDS: dict[str, Callable[[str, str, Path], None]] = {
    "haptera-command": command_haptera,
    "llm-command": command_llm,
}


def main(way: str, base_url: str, model: str) -> None:
    """Start one way."""
    if way in _COMMANDS:
        with tempfile.TemporaryDirectory() as folder:
            _COMMANDS[way](base_url, model, Path(folder))
    else:
        asyncio.run({"floor": ask_floor, "haptera": ask_haptera}[way](base_url, model))


if __name__ == "__main__":
    main(*sys.argv[1:4])
