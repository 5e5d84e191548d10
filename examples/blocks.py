"""A complete agent of building blocks: the program holds the conversation and runs the loop.

It streams text, calls a tool, asks before another one, keeps its conversation in a file of the
program's own, and stops a query on Ctrl-C. There is no session and no store.
"""

import asyncio
import signal
from pathlib import Path

import msgspec

from haptera import ApprovalRequest, Approve, Deny, Message, TextDelta, ToolEnded, tool
from haptera.building_blocks import Conversation, UnstoredSession, heal_history, make_blocks

FILE = Path("conversation.json")
PROMPTS = ("How warm is it in Lisbon?", "Send that to Ana.")


@tool
def temperature(city: str) -> float:
    """Return the temperature of a city, in degrees Celsius."""
    return {"Lisbon": 21.5, "Oslo": 4.0}.get(city, 15.0)


@tool(approval="ask")
def send(to: str, text: str) -> str:
    """Send a message."""
    return f"sent {text!r} to {to}"


async def approve(request: ApprovalRequest) -> Approve | Deny:
    """Let messages go to friends only."""
    return Approve() if "Ana" in str(request.arguments) else Deny("only to Ana")


def load() -> Conversation:
    """Read the conversation back; calls that were left without a result get one."""
    stored = msgspec.json.decode(FILE.read_bytes(), type=list[Message]) if FILE.exists() else []
    return Conversation(heal_history(stored))


def save(talk: UnstoredSession) -> None:
    """Write down what was said."""
    FILE.write_bytes(msgspec.json.encode(talk.conversation.messages))


async def main() -> None:
    """Wire the blocks, then answer each prompt and save, also what failed."""
    async with make_blocks("local/smollm2", tools=[temperature, send]) as blocks:
        talk = blocks.hold(load(), approver=approve)
        talk.channel.on(TextDelta, lambda delta: print(delta.text, end="", flush=True))
        talk.channel.on(ToolEnded, lambda ended: print(f"  {ended.tool}: {ended.outcome}"))
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, talk.abort, "Ctrl-C")
        for prompt in PROMPTS:
            print(f"> {prompt}")
            outcome = await talk.run(prompt)
            print(f"\n[{outcome.stop_reason}]" if outcome.error is None else f"\n{outcome.error}")
            save(talk)


if __name__ == "__main__":
    asyncio.run(main())
