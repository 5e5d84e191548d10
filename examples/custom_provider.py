"""A provider of your own: a class with four members. This one repeats what it is told."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from haptera import Agent
from haptera.building_blocks import (
    ModelRequest,
    PartClosed,
    PartDelta,
    PartOpened,
    StreamFinished,
    StreamPart,
    TokenCount,
)


class Echo:
    """Answers with the last prompt, word by word."""

    provider = "echo"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        """Yield the answer in lists of stream parts, as they come."""
        yield [PartOpened(key="0", kind="text")]
        for word in request.messages[-1].text.split():
            yield [PartDelta(key="0", text=f"{word} ")]
        yield [PartClosed(key="0"), StreamFinished(kind="stop")]

    async def count_tokens(self, request: ModelRequest) -> TokenCount:
        """Estimate: four characters are about one token."""
        text = "".join(message.text for message in request.messages)
        return TokenCount(tokens=len(text) // 4 + 1, exact=False)

    async def close(self) -> None:
        """Close nothing: there is no connection."""


async def main() -> None:
    """Ask it as any other model; sessions, tools, retries and stores work as usual."""
    async with Agent("echo/any", providers=[Echo()]) as agent:
        print((await agent.run("What is the capital of France?")).text)


if __name__ == "__main__":
    asyncio.run(main())
