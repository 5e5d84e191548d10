"""A tool that must be allowed: asked at once, or later, from anywhere."""

import asyncio

from haptera import Agent, ApprovalRequest, Approve, Deny, tool


@tool(approval="ask")
def delete_file(path: str) -> str:
    """Delete one file."""
    return f"{path} is deleted"


async def decide(request: ApprovalRequest) -> Approve | Deny:
    """Allow what is in the scratch folder, and nothing else."""
    if request.arguments["path"].startswith("scratch/"):
        return Approve()
    return Deny("only files in scratch/ may be deleted")


async def main() -> None:
    """Answer at once, then later."""
    async with Agent(tools=[delete_file], approver=decide) as agent:
        print((await agent.run("Delete scratch/a.txt")).text)

    async with Agent(tools=[delete_file]) as agent, agent.session() as session:
        result = await session.chat("Delete scratch/b.txt")
        print(result.stop_reason, [request.tool for request in result.pending])
        for request in result.pending:
            await session.approve(request.id)
        if result.pending:  # a small model may not have called the tool
            print((await session.resume()).text)


if __name__ == "__main__":
    asyncio.run(main())
