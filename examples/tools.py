"""Plain typed functions as tools."""

import asyncio
from typing import Annotated

from haptera import Agent, ToolContext, ToolEnded, ToolStarted, tool


@tool(timeout=5, effect="read")
def read_temperature(city: Annotated[str, "The city's name"]) -> dict[str, float]:
    """Read the temperature in a city, in degrees Celsius."""
    return {"celsius": 21.5 if city == "Lisbon" else 12.0}


@tool
async def count_to(number: int, context: ToolContext) -> str:
    """Count, and say how far it is."""
    for step in range(1, number + 1):
        context.progress({"step": step})
    return f"counted to {number}"


async def main() -> None:
    """Let a model use both tools."""
    async with Agent(tools=[read_temperature, count_to]) as agent:
        async with agent.stream("How warm is it in Lisbon? Then count to 3.") as stream:
            async for event in stream:
                match event:
                    case ToolStarted(tool=name):
                        print(f"-> {name}")
                    case ToolEnded(tool=name, outcome=outcome):
                        print(f"<- {name}: {outcome}")
            result = await stream.result()
        print(result.text)
        print([call.name for call in result.tool_calls])


if __name__ == "__main__":
    asyncio.run(main())
