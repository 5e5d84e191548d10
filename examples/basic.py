"""One prompt, one answer: with the model that a key in the environment allows, or the local one."""

import asyncio

from haptera import Agent


async def main() -> None:
    """Ask one question."""
    async with Agent(system_prompt="Be brief.") as agent:
        result = await agent.run("What is the capital of France?")
        print(result.text)
        print(f"[{result.provider}/{result.model}, {result.usage.total} tokens]")


if __name__ == "__main__":
    asyncio.run(main())
