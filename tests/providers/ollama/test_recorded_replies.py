"""Every recorded reply of Ollama, against its own client."""

from pathlib import Path

import pytest

from haptera.model.errors import ErrorCode
from haptera.providers.wire.ollama import PROTOCOL
from tests.providers.recorded import SMALL, cases, result_of, usage_of_ollama
from tests.providers.replies import body_of, decode

STREAMS = cases("ollama-native", kind="stream")


@pytest.mark.parametrize("meta", STREAMS)
def test_a_recorded_stream_says_what_the_vendors_client_makes_of_it(meta: Path) -> None:
    reply, expected = decode(PROTOCOL, body_of(meta.parent)), result_of(meta.parent)
    assert reply.error is None
    assert reply.finished is not None
    assert reply.text == expected["text"]
    assert reply.reasoning == expected["reasoning"]
    assert [(call.name, call.arguments) for call in reply.calls] == [
        (call["name"], call["arguments"]) for call in expected["tool_calls"]
    ]
    assert reply.finished.reason == expected["stop_reason"]
    assert reply.finished.usage == usage_of_ollama(expected["usage"])
    assert reply.opened is not None
    assert reply.opened.model == expected["model"]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("meta", STREAMS)
def test_reads_of_any_size_give_the_same_parts(meta: Path, size: int) -> None:
    body = body_of(meta.parent)
    assert decode(PROTOCOL, body, size).stream == decode(PROTOCOL, body).stream


@pytest.mark.slow
@pytest.mark.parametrize("meta", STREAMS)
def test_the_start_of_a_stream_can_be_split_anywhere(meta: Path) -> None:
    body = body_of(meta.parent)[:SMALL]
    whole = decode(PROTOCOL, body)
    for position in range(1, len(body)):
        assert decode(PROTOCOL, body, [position]).stream == whole.stream


@pytest.mark.parametrize("meta", STREAMS)
def test_a_stream_without_its_end_is_interrupted(meta: Path) -> None:
    body = body_of(meta.parent)
    reply = decode(PROTOCOL, body[: body.rstrip().rfind(b"\n") + 1])
    assert reply.finished is None
    assert reply.error is not None
    assert reply.error.code is ErrorCode.STREAM_INTERRUPTED
