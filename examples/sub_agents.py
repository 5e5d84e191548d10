"""An agent that has others work for it, and shows what they do while they do it."""

import asyncio

from haptera import Agent, TextDelta, tool
from haptera.events import SubagentChanged, SubagentEvent


@tool
def search(words: str) -> str:
    """Search the archive."""
    return f"3 documents about {words}"


async def main() -> None:
    """Let a researcher look something up, then show the tree of sessions and what it cost."""
    researcher = Agent(system_prompt="Answer with facts only.", tools=[search])
    research = researcher.as_tool(name="research", description="Answers from the archive.")
    async with Agent(tools=[research]) as agent, agent.session("report") as session:
        stream = session.stream("Write a report about tides.")
        async for event in stream:
            match event:
                case TextDelta(text=text):
                    print(text, end="", flush=True)
                case SubagentChanged(change=change, agent=name):
                    print(f"[{name} {change}]")
                case SubagentEvent(agent=name, event=TextDelta(text=text)):
                    print(f"[{name}] {text}")
        result = await stream.result()
        print(f"\n{result.usage.total} tokens, {result.children_usage.total} of sub-agents")
        for child in (await agent.sessions.tree("report")).children:
            print(child.session.title)


if __name__ == "__main__":
    asyncio.run(main())
