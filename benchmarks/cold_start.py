"""A process that sends one prompt and ends: what a script costs until its request arrives.

Run as `python -m benchmarks.cold_start floor|holdfast BASE_URL MODEL`. Each way imports
only what it needs, so nothing is imported at the top.
"""

import asyncio
import sys


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


async def ask_holdfast(base_url: str, model: str) -> None:
    """Send one prompt with `run_agent`."""
    import holdfast

    await holdfast.run_agent("Hello", model=f"anthropic/{model}", api_key="x", base_url=base_url)


if __name__ == "__main__":
    ask = {"floor": ask_floor, "holdfast": ask_holdfast}[sys.argv[1]]
    asyncio.run(ask(*sys.argv[2:4]))
