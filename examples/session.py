"""A conversation: steer it, change its model, export it, and go on from the export."""

import asyncio

from haptera import Agent


async def main() -> None:
    """Talk, branch off, go back, take it elsewhere."""
    async with Agent() as agent:
        async with agent.session("ana-1") as session:
            await session.chat("My name is Ana.")
            first = session.messages[-1]
            await session.chat("What is my name?")

            branch = await session.fork(after=first.id)
            async with branch:
                print("branch:", (await branch.chat("Say my name backwards.")).text)

            await session.rewind(to=first.id)
            await session.undo_rewind()
            state = await session.export()

        async with agent.session(restore=state) as restored:
            print("restored:", (await restored.chat("Who am I?")).text)
            print(len(restored.messages), "messages")


if __name__ == "__main__":
    asyncio.run(main())
