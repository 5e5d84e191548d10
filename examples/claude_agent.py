"""A session with Claude Code: it keeps its own history, and the log has all that happened."""

import asyncio

from haptera import Agent, ApprovalRequest, Approve, TextDelta, tool


@tool
def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


async def approve(request: ApprovalRequest) -> Approve:
    """Answer what Claude Code asks before it changes something."""
    print(f"may it run {request.tool} with {request.arguments}? yes")
    return Approve()


def talking_to_claude() -> Agent:
    """Make an agent; each one starts Claude Code anew."""
    return Agent(
        "claude-agent/claude-sonnet-5",
        tools=[count_words],
        approver=approve,
        store="sqlite:~/claude.db",
    )


async def main() -> None:
    """Talk to it, close everything, and go on."""
    async with talking_to_claude() as agent, agent.session("ana") as session:
        async with session.stream("How many words has 'to be or not to be'?") as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    print(event.text, end="", flush=True)
        print(f"\nit calls this session {session.native_session_id}")
    async with talking_to_claude() as agent, agent.session("ana") as session:
        result = await session.chat("What did I ask you?")
        print(result.text)
        print(f"resumed: {result.resumed}, by: {result.resume}, cost: {result.cost}")


if __name__ == "__main__":
    asyncio.run(main())
