"""The contract of model clients: the grammar of a stream, errors, closing and independence."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import aclosing

import msgspec

from haptera.model.errors import AgentError
from haptera.model.requests import ModelRequest
from haptera.model.stream_parts import (
    PartClosed,
    PartDelta,
    PartOpaque,
    PartOpened,
    StreamFinished,
    StreamOpened,
    StreamPart,
)
from haptera.ports.model_client import ModelClient
from haptera.testing.contracts.samples import assistant, user
from haptera.testing.promises import Report, checks_in, require, require_same, run_checks

_SECONDS = 60.0
"""How long one check may take: a client may ask a real model."""

_KINDS = (StreamOpened, PartOpened, PartDelta, PartClosed, PartOpaque, StreamFinished)


def _request(*texts: str) -> ModelRequest:
    messages = [
        user(text) if index % 2 == 0 else assistant(text) for index, text in enumerate(texts)
    ]
    return ModelRequest(model="any", messages=tuple(messages), max_tokens=200)


async def _parts(client: ModelClient, request: ModelRequest) -> list[StreamPart]:
    parts: list[StreamPart] = []
    async with aclosing(client.stream(request)) as stream:
        async for batch in stream:
            require(len(batch) > 0, "a stream yields no empty lists")
            parts.extend(batch)
    return parts


def _check_grammar(parts: list[StreamPart]) -> None:
    """Parts are opened, grow and are closed; the last of all is the end."""
    opened: dict[str, bool] = {}
    for index, part in enumerate(parts):
        require(isinstance(part, _KINDS), f"{part!r} is a stream part")
        match part:
            case StreamOpened():
                require_same(index, 0, "StreamOpened comes first, or not at all")
            case PartOpened(key=key):
                require(key not in opened, f"part {key!r} is opened once")
                opened[key] = True
            case PartDelta(key=key, text=text):
                require(opened.get(key), f"a delta belongs to an open part, not to {key!r}")
                require(isinstance(text, str), "a delta is text")
            case PartClosed(key=key):
                require(opened.get(key), f"part {key!r} is closed once, after it was opened")
                opened[key] = False
    require(not any(opened.values()), "every part is closed")
    ends = [index for index, part in enumerate(parts) if isinstance(part, StreamFinished)]
    require_same(ends, [len(parts) - 1], "the last part, and no other, is StreamFinished")


async def check_an_answer_keeps_to_the_grammar(client: ModelClient) -> None:
    """Parts are opened, grow and are closed; the stream ends with one StreamFinished."""
    _check_grammar(await _parts(client, _request("Say hello.")))


async def check_a_conversation_is_answered(client: ModelClient) -> None:
    """A request with a history is answered, and not changed."""
    request = _request("My name is Ana.", "Hello Ana.", "What is my name?")
    before = msgspec.json.encode(request)
    _check_grammar(await _parts(client, request))
    require_same(msgspec.json.encode(request), before, "the request is not changed")


async def check_nothing_is_sent_before_the_first_step(client: ModelClient) -> None:
    """A stream that is never iterated can be closed."""
    stream = client.stream(_request("Say hello."))
    await stream.aclose()
    _check_grammar(await _parts(client, _request("Say hello.")))


async def check_a_stream_can_be_left(client: ModelClient) -> None:
    """Closing it early ends it, and the next one works."""
    stream = client.stream(_request("Count to ten."))
    await anext(stream)
    await stream.aclose()
    require_same([batch async for batch in stream], [], "nothing comes after the close")
    _check_grammar(await _parts(client, _request("Say hello.")))


async def check_a_stream_can_be_cancelled(client: ModelClient) -> None:
    """A cancelled task ends as cancelled, and the next stream works."""
    begun = asyncio.Event()

    async def read() -> None:
        async with aclosing(client.stream(_request("Count to ten."))) as stream:
            async for _ in stream:
                begun.set()
                await asyncio.Event().wait()

    reading = asyncio.ensure_future(read())
    await begun.wait()
    reading.cancel()
    (outcome,) = await asyncio.gather(reading, return_exceptions=True)
    require(isinstance(outcome, asyncio.CancelledError), "a cancelled stream is cancelled")
    _check_grammar(await _parts(client, _request("Say hello.")))


async def check_requests_do_not_mix(client: ModelClient) -> None:
    """Two at the same time, and one after the other, are answers of their own."""
    requests = [_request("Say one."), _request("Say two.")]
    for parts in await asyncio.gather(*(_parts(client, request) for request in requests)):
        _check_grammar(parts)


async def check_tokens_are_counted(client: ModelClient) -> None:
    """A longer request counts more; whether it was counted or estimated is said."""
    short = await client.count_tokens(_request("Hi."))
    long = await client.count_tokens(_request("Tell me all about lighthouses. " * 50))
    require(0 < short.tokens < long.tokens, "a longer request has more tokens")
    require(isinstance(short.exact, bool), "it says whether it counted")


async def check_the_provider_has_a_name(client: ModelClient) -> None:
    """It is what stands before the slash in `provider/model`."""
    name = client.provider
    require(name and "/" not in name and name == client.provider, "a name without a slash")


async def check_a_closed_client_refuses(client: ModelClient) -> None:
    """After `close`, which may be called twice, a stream raises an AgentError."""
    await client.close()
    await client.close()
    try:
        await _parts(client, _request("Say hello."))
    except AgentError:
        return
    require(condition=False, promise="a stream of a closed client raises")


async def model_client_contract(
    make: Callable[[], ModelClient], *, skip: Collection[str] = ()
) -> Report:
    """Check a model client; `make` returns a new one that answers whatever it is asked.

    A client without connections may skip `check_a_closed_client_refuses`.
    """
    return await run_checks(checks_in(__name__), make, skip=skip, seconds=_SECONDS)
