"""Hooks: a guard before tool calls, a mask for what is sent, and an audit trail."""

import asyncio

import msgspec

from haptera import Agent, Message, TextPart, tool
from haptera.hooks import (
    AfterQuery,
    AfterTool,
    Answer,
    BeforeTool,
    Block,
    HookMessage,
    Hooks,
    Proceed,
    TransformMessages,
)


@tool
def delete_file(path: str) -> str:
    """Delete one file."""
    return f"deleted {path}"


hooks = Hooks()


@hooks.on("before_tool")
async def guard(given: BeforeTool) -> Proceed | Block | Answer:
    """Refuse one file, answer for another, and tidy the path of all others."""
    path = str(given.call.arguments.get("path", ""))
    if path.endswith(".env"):
        return Block("Files with secrets must stay.")
    if path.startswith("cache/"):
        return Answer((TextPart(text="There is nothing to delete."),))
    return Proceed(arguments={"path": path.strip()})


@hooks.on("after_tool")
def audit(given: AfterTool) -> None:
    """Write a line into the log of the session, which is on the stream, too."""
    given.say(f"{given.call.name}: {given.ended.outcome}")


@hooks.on("transform_messages")
def mask(given: TransformMessages) -> list[Message]:
    """Keep a name from the provider; the session keeps it."""
    return [
        msgspec.structs.replace(
            message,
            parts=tuple(
                msgspec.structs.replace(part, text=part.text.replace("Ana", "[name]"))
                if isinstance(part, TextPart)
                else part
                for part in message.parts
            ),
        )
        for message in given.messages
    ]


@hooks.on("after_query")
def show_end(given: AfterQuery) -> None:
    """Print how each query ended."""
    print(f"the query ended: {given.ended.stop_reason}")


async def main() -> None:
    """Ask for three deletions, of which one takes place."""
    async with Agent(tools=[delete_file], hooks=hooks) as agent:
        stream = agent.stream("I am Ana. Delete .env, cache/a and notes.txt.")
        async for event in stream:
            if isinstance(event, HookMessage):
                print(event.text)
        print((await stream.result()).text)


if __name__ == "__main__":
    asyncio.run(main())
