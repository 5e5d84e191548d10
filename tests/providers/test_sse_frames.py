"""Server-sent events and lines: the same frames whatever the split of the bytes."""

import base64
import json
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera.model.errors import ErrorCode, ProviderError
from haptera.providers.transport.frames import JsonBodyParser, NdjsonParser, new_frame_parser
from haptera.providers.transport.sse import SseParser
from haptera.providers.wire.protocol import Frame
from tests.fixtures_report import Report

# Chromium's own reading of each body is in the recorded cases; these are for a clone alone.
OWN_CASES: dict[bytes, list[tuple[str, str, str]]] = {
    b"data: a\n\n": [("message", "a", "")],
    b"event: x\ndata: a\n\nevent: x\ndata: b\n\n": [("x", "a", ""), ("x", "b", "")],
    b"event: x\ndata: a\n\ndata: b\n\n": [("x", "a", ""), ("message", "b", "")],
    b"data: a\r\n\r\ndata: b\r\rdata: c\n\n": [(("message"), text, "") for text in "abc"],
    b"data: a\ndata: b\n\n": [("message", "a\nb", "")],
    b"\xef\xbb\xbfdata: a\n\n": [("message", "a", "")],
    b": comment\n\ndata: a\n: more\n\n": [("message", "a", "")],
    b"data:  a\n\ndata:b\n\ndata\n\n": [
        ("message", " a", ""),
        ("message", "b", ""),
        ("message", "", ""),
    ],
    b"id: 7\ndata: a\n\ndata: b\n\n": [("message", "a", "7"), ("message", "b", "7")],
    b"id: 7\0\ndata: a\n\n": [("message", "a", "")],
    b"event: x\n\ndata: a\n\n": [("message", "a", "")],
    b"event: \ndata: a\n\n": [("message", "a", "")],
    b"\n\n\ndata: a\n\n\n\ndata: b\n\n": [("message", "a", ""), ("message", "b", "")],
    b"data: a\n\ndata: cut": [("message", "a", "")],
    b"unknown: 1\nDATA: 2\ndata: a\n\n": [("message", "a", "")],
    b"event: x\ndata: a\nid: 3\n\nevent: x\ndata: b\n\n": [("x", "a", "3"), ("x", "b", "3")],
    "data: Grüße 🌍\n\n".encode(): [("message", "Grüße 🌍", "")],
}


def read(pieces: Sequence[bytes], *, flush: bool = False) -> list[tuple[str, str, str]]:
    """Return the frames of a stream that arrives in `pieces`, in comparable form."""
    parser, out = SseParser(), list[Frame]()
    for piece in pieces:
        parser.feed(piece, out)
    if flush:
        parser.flush(out)
    return [(frame.event, frame.data.decode("utf-8", "replace"), frame.id) for frame in out]


def splits(body: bytes) -> list[list[bytes]]:
    """Return the body cut in two at every place, and byte by byte."""
    halves = [[body[:place], body[place:]] for place in range(len(body) + 1)]
    return [*halves, [body[place : place + 1] for place in range(len(body))]]


@pytest.mark.parametrize("body", OWN_CASES, ids=repr)
def test_frames_are_read_the_same_at_every_split(body: bytes) -> None:
    assert all(read(pieces) == OWN_CASES[body] for pieces in splits(body))


def test_frames_are_what_a_browser_makes_of_them(wire: Path, report: Report) -> None:
    lines = (wire / "sse" / "cases.jsonl").read_bytes().splitlines()
    cases = [json.loads(line) for line in lines]
    wrong = []
    for case in cases:
        expected = [(event["event"], event["data"], event["id"]) for event in case["events"]]
        body = base64.b64decode(case["body_b64"])
        if not all(read(pieces) == expected for pieces in splits(body)):
            wrong.append(case["name"])
    report(f"SSE framing, every split: {len(cases) - len(wrong)} of {len(cases)}")
    assert wrong == []
    assert cases


@given(
    st.lists(st.sampled_from([b"data: ", b"event: ", b"\n", b"\r", b"\r\n", b"x", b":", b"id:"]))
)
def test_any_split_of_any_bytes_gives_the_same_frames(tokens: list[bytes]) -> None:
    body = b"".join(tokens)
    whole = read([body], flush=True)
    assert read(tokens, flush=True) == whole
    assert read([body[place : place + 1] for place in range(len(body))], flush=True) == whole


@given(
    st.lists(st.sampled_from([b"data: ", b"event: ", b"\n", b"\r", b"x", b":", b"id:", b"{"])),
    st.booleans(),
)
def test_a_long_frame_that_is_read_line_by_line_gives_the_same_frames(
    tokens: list[bytes], takes_json: bool
) -> None:
    body = b"".join(tokens)
    whole, by_line = list[Frame](), list[Frame]()
    for pieces, long, out in (([body], 1 << 16, whole), (tokens, 4, by_line)):
        parser = SseParser(takes_json_blocks=takes_json, long=long)
        for piece in pieces:
            parser.feed(piece, out)
        parser.flush(out)
    assert by_line == whole


SIZES = {"1-byte lines": 1, "8-byte lines": 8, "1 MB lines": 1 << 20}


@pytest.mark.slow
@pytest.mark.parametrize("framing", ["sse", "ndjson", "json"])
@pytest.mark.parametrize("step", [1, 7, 64, 4096, 1 << 20])
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_the_work_for_a_byte_does_not_depend_on_what_came_before_it(
    size: int, step: int, framing: str
) -> None:
    line = b"x" * (size - 1) + b"\n" if size > 1 else b"\n"
    body = (b"data: " + line) * ((1 << 18) // (size + 6) + 1)
    parsers: dict[str, SseParser | NdjsonParser | JsonBodyParser] = {
        "sse": SseParser(takes_json_blocks=True),
        "ndjson": NdjsonParser(),
        "json": JsonBodyParser(),
    }
    parser = parsers[framing]
    if framing == "json":
        body = b"[" + body
    for start in range(0, len(body), step):
        parser.feed(body[start : start + step], [])
    parser.flush([])
    assert parser.copied <= 3 * len(body)


@pytest.mark.slow
def test_a_long_frame_takes_no_more_memory_than_its_bytes() -> None:
    parser = SseParser()
    parser.feed(b"data: x\n", [])
    tracemalloc.start()
    try:
        for _ in range(1 << 16):
            parser.feed(b"data: x\n", [])
            parser.feed(b"data: ", [])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * 14 * (1 << 16)


def test_a_last_frame_without_blank_line_is_kept_only_when_asked_for() -> None:
    body = b"event: x\ndata: a"
    assert read([body]) == []
    assert read([body], flush=True) == [("x", "a", "")]
    assert read([b"\xef"], flush=True) == []


@pytest.mark.parametrize(
    "parser", [SseParser(limit=100), NdjsonParser(limit=100)], ids=["sse", "nd"]
)
def test_a_frame_without_end_is_refused(parser: SseParser | NdjsonParser) -> None:
    for _ in range(10):
        parser.feed(b"data: 1234", [])
    with pytest.raises(ProviderError) as caught:
        parser.feed(b"data: 1234", [])
    assert caught.value.code is ErrorCode.PROTOCOL


@given(st.lists(st.binary(max_size=8)))
def test_lines_are_cut_the_same_at_every_split(pieces: list[bytes]) -> None:
    body = b"".join(pieces)
    split, whole = list[Frame](), list[Frame]()
    parser = new_frame_parser("ndjson")
    for piece in pieces:
        parser.feed(piece, split)
    parser.flush(split)
    other = new_frame_parser("ndjson")
    other.feed(body, whole)
    other.flush(whole)
    expected = [line.strip() for line in body.split(b"\n") if line.strip()]
    assert [frame.data for frame in split] == [frame.data for frame in whole] == expected


def test_a_frame_is_a_plain_value() -> None:
    assert msgspec.to_builtins(Frame(b"a")) == {"data": "YQ==", "event": "message", "id": ""}


JSON_BLOCK = b'data: a\n\n{\n  "error": {\n    "code": 499\n  }\n}\n\ndata: b\n\n'


def test_plain_json_between_events_is_a_frame_where_it_is_asked_for() -> None:
    for pieces in splits(JSON_BLOCK):
        parser, out = new_frame_parser("sse"), list[Frame]()
        for piece in pieces:
            parser.feed(piece, out)
        assert [frame.data for frame in out] == [
            b"a",
            b'{\n  "error": {\n    "code": 499\n  }\n}',
            b"b",
        ]
    assert read([JSON_BLOCK]) == [("message", "a", ""), ("message", "b", "")]


def test_a_json_body_is_one_frame_and_a_stream_under_that_name_is_a_stream() -> None:
    for body, expected in (
        (b' {"a":\n\n1}\n', [b'{"a":\n\n1}']),
        (b"[1]", [b"[1]"]),
        (b"\ndata: a\n\ndata: b", [b"a", b"b"]),
        (b"  ", []),
    ):
        for pieces in splits(body):
            parser, out = new_frame_parser("sse", "application/json"), list[Frame]()
            for piece in pieces:
                parser.feed(piece, out)
            parser.flush(out)
            assert [frame.data for frame in out] == expected
