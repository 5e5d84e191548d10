"""A client of `haptera rpc`: sends a prompt over a pipe and prints the answer as it comes."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from typing import Any


async def main(prompt: str) -> None:
    """Create a session, send one message and follow its events."""
    command = (sys.executable, "-P", "-m", "haptera.cli", "rpc")
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, limit=2**26)
    stdin, stdout = process.stdin, process.stdout
    if stdin is None or stdout is None:
        return

    async def call(method: str, **params: object) -> dict[str, Any]:
        request = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
        stdin.write(json.dumps(request).encode() + b"\n")
        while (answer := json.loads(await stdout.readline())).get("id") != method:
            pass
        if "error" in answer:
            raise SystemExit(answer["error"]["message"])
        result: dict[str, Any] = answer["result"]
        return result

    session = await call("session/create")
    await call("message/send", session_id=session["id"], content=prompt, stream=True)
    while (line := json.loads(await stdout.readline()))["method"] == "event":
        event = line["params"]["event"]
        if line["params"]["kind"] == "text.delta":
            print(event["text"], end="", flush=True)
        if "error" in event:
            raise SystemExit(event["error"]["message"])
    print()
    stdin.close()
    await process.wait()


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "Capital of France?"))
