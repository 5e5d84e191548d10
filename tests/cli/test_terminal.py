"""Nothing that a model, a tool or a file says can make a terminal do anything but show text."""

import io
import json
from typing import cast

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.cli.chat.markdown import MarkdownBlocks, Renderer
from holdfast.cli.terminal import Sanitiser, safe, safe_line

_HOSTILE = (
    "\x1b]52;c;cm0gLXJmIC8=\x07",  # the clipboard
    "\x1b]0;title\x07",
    "\x1b]8;;file:///etc/passwd\x1b\\click\x1b]8;;\x1b\\",
    "\x1bP$q q\x1b\\",  # a device control string
    "\x1b[2J\x1b[H",
    "\x1b[6n",  # asks the terminal to type something
    "\x1bc",
    "\x9b31m",
    "\x9d52;c;QQ==\x9c",
    "\x0e\x0f\x08\x7f\x05",
    "a\rb",
    "\u202egnp.exe\u2066",
    "\ud83d",
    "\x1b[?1049h\x1b[>4;2m",
)
_ALLOWED = {"draw", "linefeed", "tab"}


def _told(text: str) -> set[str]:
    """Return what a terminal does with a text."""
    done = io.StringIO()
    pyte.Stream(cast("pyte.Screen", pyte.DebugScreen(to=done))).feed(text)
    return {json.loads(line)[0] for line in done.getvalue().splitlines()}


hostile_texts = st.lists(
    st.one_of(st.sampled_from(_HOSTILE), st.text(st.characters(max_codepoint=0x2FFF)), st.text()),
    max_size=6,
).map("".join)


@pytest.mark.slow
@settings(max_examples=1_000)
@given(hostile_texts)
def test_a_terminal_only_draws_what_was_said(text: str) -> None:
    assert _told(safe(text)) <= {"draw", "linefeed", "tab"}


@pytest.mark.parametrize("text", _HOSTILE, ids=range(len(_HOSTILE)))
def test_a_text_is_the_same_split_at_every_character(text: str) -> None:
    for place in range(len(text) + 1):
        cleaner = Sanitiser()
        pieces = cleaner.feed(text[:place]) + cleaner.feed(text[place:]) + cleaner.end()
        assert pieces == safe(text)


@given(hostile_texts, st.integers(min_value=1, max_value=7))
def test_any_split_gives_the_same(text: str, size: int) -> None:
    cleaner = Sanitiser()
    pieces = [cleaner.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join(pieces) + cleaner.end() == safe(text)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(hostile_texts)
def test_rendered_markdown_only_draws_and_styles(text: str) -> None:
    renderer = Renderer(width=40, colour=True)
    assert _told(renderer.markdown(text)) <= _ALLOWED | {"select_graphic_rendition"}
    assert _told(Renderer(width=40, colour=False).markdown(text)) <= _ALLOWED


@given(hostile_texts)
def test_one_line_stays_one_line(text: str) -> None:
    line = safe_line(text, width=20)
    assert "\n" not in line
    assert len(line) <= 20


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", "\n", "\n\n", "```\n", "~~~\n", "- b\n", "  c\n"])))
def test_blocks_lose_nothing(pieces: list[str]) -> None:
    blocks = MarkdownBlocks()
    found = [block for piece in pieces for block in blocks.feed(piece)]
    found.append(blocks.end())
    together = [line for block in found for line in block.split("\n") if line.strip()]
    assert together == [line for line in "".join(pieces).split("\n") if line.strip()]


def test_code_in_a_fence_stays_one_block() -> None:
    blocks = MarkdownBlocks()
    assert blocks.feed("Look:\n\n```python\na = 1\n\nb = 2\n") == ["Look:\n"]
    assert blocks.feed("```\n\nDone") == ["```python\na = 1\n\nb = 2\n```\n"]
    assert blocks.end() == "Done"
