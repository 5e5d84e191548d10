"""A session that goes on after kill -9: run it, kill it while it writes, run it again."""

import asyncio

from haptera import Agent


async def main() -> None:
    """Ask for a story, or continue the one that a killed process left behind."""
    async with (
        Agent(store="sqlite:story.db") as agent,
        agent.session("story") as session,
    ):
        if session.unfinished.query_id is None:
            stream = session.stream("Tell me a long story about a lighthouse.")
        else:
            print(f"kept: {len(session.unfinished.interrupted_text)} characters of the answer")
            stream = session.resume()
        async for text in stream.text():
            print(text, end="", flush=True)
        print()


if __name__ == "__main__":
    asyncio.run(main())
