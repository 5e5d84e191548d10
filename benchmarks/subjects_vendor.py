"""The vendors' SDKs as subjects: the raw stream of events, and the helper that folds them."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

from benchmarks.floor import TOOL_RESULT
from benchmarks.frames import TOOL_NAME
from benchmarks.subjects import PROMPT, Ask, Outcome, Setup, load

Call = tuple[str, str, str]
"""Id, name and arguments of a tool call."""
Round = Callable[[list[Any]], Awaitable[tuple[int, list[Call]]]]
"""Makes one request; gives the characters of text and the tool calls of its answer."""

_SCHEMA = {
    "type": "object",
    "properties": {"key": {"type": "string"}},
    "required": ["key"],
    "additionalProperties": False,
}
_FUNCTION = {"name": TOOL_NAME, "description": "Look a key up."}


async def _query(one_round: Round, reply: Callable[[Call], list[Any]]) -> Outcome:
    """Answer one prompt to rest: what every user of a vendor's SDK writes by hand."""
    messages: list[Any] = [{"role": "user", "content": PROMPT}]
    characters = tool_calls = 0
    while True:
        added, calls = await one_round(messages)
        characters += added
        if not calls:
            return Outcome(characters, tool_calls)
        tool_calls += len(calls)
        for call in calls:
            messages += reply(call)


def _anthropic_reply(call: Call) -> list[Any]:
    use = {"type": "tool_use", "id": call[0], "name": call[1], "input": json.loads(call[2])}
    result = {"type": "tool_result", "tool_use_id": call[0], "content": TOOL_RESULT}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


def _anthropic_options(setup: Setup) -> dict[str, Any]:
    options: dict[str, Any] = {"model": setup.script.model, "max_tokens": 1024}
    if setup.script.tools:
        options["tools"] = [{**_FUNCTION, "input_schema": _SCHEMA}]
    return options


@asynccontextmanager
async def anthropic_raw(setup: Setup) -> AsyncIterator[Ask]:
    """Iterate the events of `messages.create(stream=True)`."""
    options = _anthropic_options(setup)
    package = load("anthropic")
    async with package.AsyncAnthropic(
        api_key="x", base_url=setup.base_url, max_retries=0
    ) as client:

        async def one_round(messages: list[Any]) -> tuple[int, list[Call]]:
            characters, calls = 0, list[Call]()
            events = await client.messages.create(messages=messages, stream=True, **options)
            async for event in events:
                if event.type == "content_block_delta":
                    if event.delta.type == "text_delta":
                        characters += len(event.delta.text)
                    elif event.delta.type == "input_json_delta":
                        call_id, name, arguments = calls[-1]
                        calls[-1] = call_id, name, arguments + event.delta.partial_json
                elif event.type == "content_block_start" and event.content_block.type == "tool_use":
                    calls.append((event.content_block.id, event.content_block.name, ""))
            return characters, calls

        yield lambda: _query(one_round, _anthropic_reply)


@asynccontextmanager
async def anthropic_helper(setup: Setup) -> AsyncIterator[Ask]:
    """Iterate the text of `messages.stream()` and take its final message."""
    options = _anthropic_options(setup)
    package = load("anthropic")
    async with package.AsyncAnthropic(
        api_key="x", base_url=setup.base_url, max_retries=0
    ) as client:

        async def one_round(messages: list[Any]) -> tuple[int, list[Call]]:
            characters = 0
            async with client.messages.stream(messages=messages, **options) as stream:
                async for text in stream.text_stream:
                    characters += len(text)
                message = await stream.get_final_message()
            blocks = (block for block in message.content if block.type == "tool_use")
            return characters, [(b.id, b.name, json.dumps(b.input)) for b in blocks]

        yield lambda: _query(one_round, _anthropic_reply)


@asynccontextmanager
async def openai_raw(setup: Setup) -> AsyncIterator[Ask]:
    """Iterate the events of `create(stream=True)`."""
    async with _openai(setup) as client:
        if setup.api == "chat":
            yield lambda: _query(_chat_raw(client, setup), _chat_reply)
        else:
            yield lambda: _query(_responses_raw(client, setup), _responses_reply)


@asynccontextmanager
async def openai_helper(setup: Setup) -> AsyncIterator[Ask]:
    """Iterate the events of `stream()` and take its final answer."""
    async with _openai(setup) as client:
        if setup.api == "chat":
            yield lambda: _query(_chat_helper(client, setup), _chat_reply)
        else:
            yield lambda: _query(_responses_helper(client, setup), _responses_reply)


@asynccontextmanager
async def _openai(setup: Setup) -> AsyncIterator[ModuleType]:
    package = load("openai")
    async with package.AsyncOpenAI(
        api_key="x", base_url=f"{setup.base_url}/v1", max_retries=0
    ) as client:
        yield client


def _chat_options(setup: Setup) -> dict[str, Any]:
    options: dict[str, Any] = {"model": setup.script.model}
    options["stream_options"] = {"include_usage": True}
    if setup.script.tools:
        function = {**_FUNCTION, "parameters": _SCHEMA, "strict": True}
        options["tools"] = [{"type": "function", "function": function}]
    return options


def _chat_reply(call: Call) -> list[Any]:
    function = {"name": call[1], "arguments": call[2]}
    calls = [{"id": call[0], "type": "function", "function": function}]
    result = {"role": "tool", "tool_call_id": call[0], "content": TOOL_RESULT}
    return [{"role": "assistant", "content": None, "tool_calls": calls}, result]


def _chat_raw(client: ModuleType, setup: Setup) -> Round:
    options = _chat_options(setup)

    async def one_round(messages: list[Any]) -> tuple[int, list[Call]]:
        characters, calls = 0, list[Call]()
        chunks = await client.chat.completions.create(messages=messages, stream=True, **options)
        async for chunk in chunks:
            for choice in chunk.choices:
                if choice.delta.content:
                    characters += len(choice.delta.content)
                for piece in choice.delta.tool_calls or ():
                    if piece.id:
                        calls.append((piece.id, piece.function.name, ""))
                    call_id, name, arguments = calls[-1]
                    calls[-1] = call_id, name, arguments + piece.function.arguments
        return characters, calls

    return one_round


def _chat_helper(client: ModuleType, setup: Setup) -> Round:
    options = _chat_options(setup)

    async def one_round(messages: list[Any]) -> tuple[int, list[Call]]:
        characters = 0
        async with client.chat.completions.stream(messages=messages, **options) as stream:
            async for event in stream:
                if event.type == "content.delta":
                    characters += len(event.delta)
            completion = await stream.get_final_completion()
        calls = completion.choices[0].message.tool_calls or ()
        return characters, [(c.id, c.function.name, c.function.arguments) for c in calls]

    return one_round


def _responses_options(setup: Setup) -> dict[str, Any]:
    options: dict[str, Any] = {"model": setup.script.model, "store": False}
    if setup.script.tools:
        function = {**_FUNCTION, "parameters": _SCHEMA, "strict": True}
        options["tools"] = [{"type": "function", **function}]
    return options


def _responses_reply(call: Call) -> list[Any]:
    made = {"type": "function_call", "call_id": call[0], "name": call[1], "arguments": call[2]}
    return [made, {"type": "function_call_output", "call_id": call[0], "output": TOOL_RESULT}]


def _responses_raw(client: ModuleType, setup: Setup) -> Round:
    options = _responses_options(setup)

    async def one_round(messages: list[Any]) -> tuple[int, list[Call]]:
        characters, calls = 0, list[Call]()
        events = await client.responses.create(input=messages, stream=True, **options)
        async for event in events:
            if event.type == "response.output_text.delta":
                characters += len(event.delta)
            elif event.type == "response.output_item.done" and event.item.type == "function_call":
                calls.append((event.item.call_id, event.item.name, event.item.arguments))
        return characters, calls

    return one_round


def _responses_helper(client: ModuleType, setup: Setup) -> Round:
    options = _responses_options(setup)

    async def one_round(messages: list[Any]) -> tuple[int, list[Call]]:
        characters = 0
        async with client.responses.stream(input=messages, **options) as stream:
            async for event in stream:
                if event.type == "response.output_text.delta":
                    characters += len(event.delta)
            response = await stream.get_final_response()
        items = (item for item in response.output if item.type == "function_call")
        return characters, [(i.call_id, i.name, i.arguments) for i in items]

    return one_round
