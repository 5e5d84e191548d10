"""A tool whose answer comes later: delivered from anywhere."""

import asyncio

from haptera import Agent, ToolContext, tool


@tool(deferred=True)
async def order_part(part: str, context: ToolContext) -> str:
    """Order a spare part; the answer is what the supplier says."""
    print("ordering:", part)
    return f"order-{context.call_id}"


async def main() -> None:
    """Ask, let the answer come, and go on."""
    async with Agent(tools=[order_part], store="sqlite:orders.db") as agent:
        async with agent.session("ana-1") as session:
            result = await session.chat("Order a new pump, and tell me when it comes")
            print(result.stop_reason, [call.tool for call in result.waiting])

        # Later, perhaps in another process that has the same store.
        remote = await agent.remote("ana-1")
        for call in result.waiting:
            await remote.deliver(call.ref or call.call_id, {"confirmed": True, "days": 3})

        async with agent.session("ana-1") as session:
            if result.waiting:  # a small model may not have called the tool
                print((await session.resume()).text)


if __name__ == "__main__":
    asyncio.run(main())
