"""A client of `haptera serve`: sends a prompt and prints the answer as it comes."""

import asyncio
import json
import sys
from pathlib import Path

import aiohttp

STATE = Path.home() / ".local/state/haptera/server.json"


async def main(prompt: str) -> None:
    """Create a session, send one message and follow the stream of events."""
    server = json.loads(STATE.read_text())
    headers = {"Authorization": f"Bearer {server['token']}", "Accept": "text/event-stream"}
    async with aiohttp.ClientSession(server["url"], headers=headers) as http:
        async with http.post("/api/v1/sessions", json={}) as made:
            made.raise_for_status()
            path = f"/api/v1/sessions/{(await made.json())['id']}/messages"
        kind = ""
        async with http.post(path, json={"content": prompt}) as stream:
            async for line in stream.content:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data" and kind == "text.delta":
                    print(json.loads(value)["text"], end="", flush=True)
                elif name == "data" and kind == "query.ended" and "error" in json.loads(value):
                    sys.exit(json.loads(value)["error"]["message"])
    print()


if __name__ == "__main__":
    try:
        asyncio.run(main(" ".join(sys.argv[1:]) or "Capital of France?"))
    except (FileNotFoundError, aiohttp.ClientConnectorError):
        sys.exit("start `haptera serve` first")  # a server that was killed leaves its file behind
