"""A real model behind llama.cpp's server, asked in Anthropic's words."""

import pytest

from haptera.model.errors import ErrorCode
from haptera.model.parts import TextPart
from haptera.model.requests import ModelRequest
from haptera.model.settings import Timeouts
from haptera.model.stream_parts import PartDelta, StreamFinished, StreamOpened
from tests.providers.exchanges import ask, client_for, text_of
from tests.providers.golden_requests import user

SHORT = ModelRequest(
    model="smollm2",
    messages=(user(TextPart(text="Say hello.")),),
    max_tokens=8,
    temperature=0.0,
    timeouts=Timeouts(first_byte=20.0),
)
LONG = ModelRequest(
    model="smollm2",
    messages=(user(TextPart(text="Count from 1 to 1000, one number per line.")),),
    max_tokens=1900,
    temperature=0.0,
)

pytestmark = pytest.mark.timeout(120)


async def test_a_real_model_streams_an_answer(llama: str) -> None:
    client = client_for(llama)
    parts, error = await ask(client, SHORT)
    count = await client.count_tokens(SHORT)
    await client.close()
    assert error is None
    assert isinstance(parts[0], StreamOpened)
    assert text_of(parts)
    finished = parts[-1]
    assert isinstance(finished, StreamFinished)
    assert finished.reason in {"end_turn", "max_tokens"}
    assert 0 < finished.usage.output <= 8
    assert finished.usage.input == count.tokens
    assert count.exact


async def test_leaving_a_real_stream_stops_the_model(llama: str) -> None:
    client = client_for(llama)
    stream = client.stream(LONG)
    async for batch in stream:
        if any(isinstance(part, PartDelta) for part in batch):
            break
    await stream.aclose()
    # The server has one slot: it would be minutes before it answered, were it still counting.
    parts, error = await ask(client, SHORT)
    await client.close()
    assert error is None
    assert text_of(parts)


async def test_a_prompt_that_is_too_long_for_a_real_model_is_told(llama: str) -> None:
    client = client_for(llama)
    long = ModelRequest(model="smollm2", messages=(user(TextPart(text="tide " * 4000)),))
    parts, error = await ask(client, long)
    await client.close()
    assert parts == []
    assert error is not None
    assert error.code is ErrorCode.CONTEXT_LENGTH
