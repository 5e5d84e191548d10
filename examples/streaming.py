"""Watch an answer come, as events or as text."""

import asyncio

from haptera import Agent, QueryEnded, ReasoningDelta, TextDelta


async def main() -> None:
    """Stream two answers."""
    async with Agent() as agent:
        async with agent.stream("Explain the CAP theorem in two sentences.") as stream:
            async for event in stream:
                match event:
                    case ReasoningDelta(text=text):
                        print(f"({text})", end="")
                    case TextDelta(text=text):
                        print(text, end="", flush=True)
                    case QueryEnded(stop_reason=reason):
                        print(f"\n[{reason}]")

        async for text in agent.stream("And PACELC?").text():
            print(text, end="", flush=True)
        print()


if __name__ == "__main__":
    asyncio.run(main())
