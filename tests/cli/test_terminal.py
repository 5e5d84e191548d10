"""Nothing that a model, a tool or a file says can make a terminal do anything but show text."""

import io
import json
import re
from typing import cast

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haptera.cli.chat.markdown import MarkdownBlocks, Renderer
from haptera.cli.terminal import (
    GuardedStream,
    Output,
    Sanitiser,
    print_json,
    print_json_line,
    safe,
    safe_line,
)
from haptera.model.visible_text import HIDDEN

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
    "\u3164\u115f\u1160\uffa0\u2800\u034f\u180e",  # nothing to see, and no space either
    "a\ufe0fb\ufe01\U000e0100c\U000e0041\U000e007f",
    "x\u200dy\u200cz \u200d",
    "\U0001f469\u200d\u2764\ufe0f\u200d\U0001f469\U0001f44d\U0001f3fd",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
)
_SHAPING = (
    "\U0001f469\u200d\u2764\ufe0f\u200d\U0001f469",
    "\u0645\u06cc\u200c\u062e\u0648",
    "3\ufe0f\u20e3",
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
def test_nothing_hidden_is_left_but_what_words_and_emoji_need(text: str) -> None:
    shown = safe(text)
    assert safe(shown) == shown
    for found in re.finditer(f"[{HIDDEN}]", shown):
        assert found[0] in "\u200c\u200d\ufe0f"


@pytest.mark.parametrize("text", _SHAPING)
def test_what_words_and_emoji_need_is_left_as_it_is(text: str) -> None:
    assert safe(text) == text
    assert safe(f"a{text}b") == f"a{text}b"


@pytest.mark.parametrize(
    "text", ["\U0001f469\u200dx", "x\ufe0f", "\u0645\u200cx", "\u6f22\u200c\u5b57"]
)
def test_a_joiner_where_nothing_is_joined_is_written_out(text: str) -> None:
    assert not re.search(f"[{HIDDEN}]", safe(text))


@given(hostile_texts)
def test_whatever_is_written_only_draws(text: str) -> None:
    out, err = io.StringIO(), io.StringIO()
    output = Output(out, err)
    output.write(text)
    output.line(text)
    output.note(text)
    stream = GuardedStream(err)
    stream.write(text)
    stream.writelines([text])
    assert _told(out.getvalue() + err.getvalue()) <= _ALLOWED
    styles = io.StringIO()
    GuardedStream(styles).write_styled(text)
    assert _told(styles.getvalue()) <= _ALLOWED | {"select_graphic_rendition"}


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), hostile_texts))
def test_json_is_the_same_value_and_hides_nothing(value: dict[str, str]) -> None:
    value = {key: text.encode("utf-8", "replace").decode() for key, text in value.items()}
    out = io.StringIO()
    print_json(Output(out), value)
    print_json_line(Output(out), value)
    assert not re.search(f"[{HIDDEN}]", out.getvalue())
    *_, line = out.getvalue().splitlines()
    assert json.loads(line) == value


def test_the_clipboard_gets_text_and_nothing_else() -> None:
    out = io.StringIO()
    GuardedStream(out).to_clipboard("a\x07\x1b]0;x")
    assert re.fullmatch(r"\x1b\]52;c;[A-Za-z0-9+/=]*\x07\n", out.getvalue())


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
