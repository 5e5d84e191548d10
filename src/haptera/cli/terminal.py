"""The one writer of the command line: to a terminal, a pipe or a file, whatever the text says.

A control character in an answer could move the cursor, change the clipboard or run a command in
some terminals. `Output` and the standard streams of the process (`guard_streams`) write no such
character, whatever they are given; only `GuardedStream.write_styled` lets colours through, and only
`to_clipboard` writes another sequence. What is hidden is said in `model/visible_text.py`.
"""

import base64
import contextlib
import io
import os
import re
import shutil
import sys
from collections.abc import Generator, Iterable, Sequence
from typing import IO, TextIO, cast

import click
import msgspec

from haptera.model.visible_text import MOST_BEFORE, NEEDS_NEXT, visible, visible_in_json

_STYLING = re.compile(r"(\x1b\[[0-9;]*m)")
"""What sets colours and weights, and does nothing else."""


@contextlib.contextmanager
def writing_file(path: str | None) -> Generator[None, None, None]:
    """Say what is wrong with a new file that the block cannot make or write.

    Raises:
        click.ClickException: naming the file.

    """
    try:
        yield
    except FileExistsError as error:
        message = f"{path or error.filename} exists already; it is not overwritten"
        raise click.UsageError(message) from error
    except OSError as error:
        message = f"{path or error.filename or 'the file'} cannot be written: {error.strerror}"
        raise click.ClickException(message) from error


class Sanitiser:
    """Makes a text harmless piece by piece: the same as if it had come as a whole."""

    def __init__(self) -> None:
        self._before = ""
        self._held = ""

    def feed(self, text: str) -> str:
        """Return what of the text can be shown now.

        A carriage return that may be half of a line break waits for the next piece, and so does a
        joiner, which the character after it needs or not.
        """
        text = self._held + text
        shown = len(text) - (text[-1:] in NEEDS_NEXT)
        return self._shown(text[:shown], text[shown:])

    def end(self) -> str:
        """Return what was still held."""
        return self._shown(self._held, "")

    def _shown(self, text: str, held: str) -> str:
        whole = self._before + text + held
        text_shown = visible(whole, start=len(self._before), end=len(self._before) + len(text))
        self._before, self._held = (self._before + text)[-MOST_BEFORE:], held
        return text_shown


def safe(text: str) -> str:
    r"""Return a whole text with what is hidden in it written out, as in `\x1b`."""
    return visible(text)


def safe_line(text: str, *, width: int | None = None) -> str:
    """Return a text as one line, shortened where a width is given."""
    line = " ".join(safe(text).split())
    return line if width is None or len(line) <= width else line[: max(0, width - 1)] + "…"


def styled(text: str) -> str:
    """Return a text with everything that a terminal obeys written out but colours and weights."""
    pieces = _STYLING.split(text)
    return "".join(each if at % 2 else safe(each) for at, each in enumerate(pieces))


class GuardedStream:
    """A standard stream of the process on which nothing that is written is obeyed.

    Has no `buffer`: what a library would write there as bytes comes as text.
    """

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream
        """For what draws the screen itself."""

    def write(self, text: str) -> int:
        """Write any text, made harmless."""
        self.unguarded.write(safe(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write any lines, made harmless."""
        for line in lines:
            self.write(line)

    def write_styled(self, text: str) -> None:
        """Write text with our own colours; what is not ours in it was made harmless before."""
        self.unguarded.write(styled(text))

    def to_clipboard(self, text: str) -> None:
        """Have the terminal put text on the clipboard, also through SSH and tmux (OSC 52)."""
        content = base64.b64encode(text.encode("utf-8", "replace")).decode()
        self.unguarded.write(f"\x1b]52;c;{content}\x07\n")

    def __getattr__(self, name: str) -> object:
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self.unguarded, name)


def guard_streams() -> None:
    """Let standard output and standard error of the process write nothing that is obeyed.

    That covers what no call of ours writes: messages of click, log handlers, tracebacks, warnings.
    """
    if sys.stdout is not None:
        sys.stdout = cast("TextIO", guard(sys.stdout))
    if sys.stderr is not None:
        sys.stderr = cast("TextIO", guard(sys.stderr))


@contextlib.contextmanager
def guarding_streams() -> Generator[None, None, None]:
    """Guard the standard streams as they are in the block, and put them back after it."""
    before = sys.stdout, sys.stderr
    guard_streams()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


@contextlib.contextmanager
def drawing_screen() -> Generator[None, None, None]:
    """Give standard output to what draws the screen in the block, and guard it after that."""
    before = sys.stdout
    sys.stdout = unguarded(before)
    try:
        yield
    finally:
        sys.stdout = before


def guard(stream: TextIO) -> GuardedStream:
    """Return a stream that writes nothing that is obeyed."""
    return stream if isinstance(stream, GuardedStream) else GuardedStream(stream)


def unguarded(stream: TextIO) -> TextIO:
    """Return a stream as it was before it was guarded."""
    return stream.unguarded if isinstance(stream, GuardedStream) else stream


class Output:
    """Standard output and standard error of one command.

    A reader that went away (`| head -1`) makes `is_left` True; what is written after that is
    dropped, and the command may stop early.
    """

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = out or _usable(sys.stdout)
        self._err = err or _usable(sys.stderr)
        self.is_left = False

    @property
    def is_terminal(self) -> bool:
        """Whether a person watches."""
        return self._out.isatty()

    def write(self, text: str) -> None:
        """Write a whole text at once, made harmless."""
        self._write(safe(text))

    def write_piece(self, text: str, *, cleaner: Sanitiser) -> str:
        """Write the next piece of a text, made harmless; returns what could be written by now."""
        cleaned = cleaner.feed(text)
        self._write(cleaned)
        return cleaned

    def write_rest(self, *, cleaner: Sanitiser) -> str:
        """Write what is left of a text that was written in pieces, and return it."""
        cleaned = cleaner.end()
        self._write(cleaned)
        return cleaned

    def redraw(self, text: str) -> None:
        """Write text over the line where the cursor is."""
        self._write("\r" + safe(text))

    def _write(self, text: str) -> None:
        if self.is_left or not text:
            return
        try:
            self._out.write(text)
            self._out.flush()
        except (BrokenPipeError, ValueError):
            # ValueError is what a stream raises that was closed.
            self.is_left = True
            _discard(self._out)

    def line(self, text: str = "") -> None:
        """Write one line, made harmless."""
        self.write(text + "\n")

    def note(self, text: str) -> None:
        """Write one line to standard error, made harmless."""
        try:
            self._err.write(safe(text) + "\n")
            self._err.flush()
        except (BrokenPipeError, ValueError):
            _discard(self._err)


def discard_output() -> None:
    """Drop what is left for standard output, because its reader went away."""
    _discard(sys.stdout)


def print_json(output: Output, value: object) -> None:
    """Print any value as one JSON document; what is hidden in its texts is escaped."""
    output.line(visible_in_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()))


def print_json_line(output: Output, value: object) -> None:
    """Print any value as one line of JSON; what is hidden in its texts is escaped."""
    output.line(visible_in_json(msgspec.json.encode(value).decode()))


def print_table(output: Output, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns; the last one is shortened to the width of the terminal."""
    cells = [list(headings), *([safe_line(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings) - 1)]
    # A program that reads the table gets whole lines.
    total = shutil.get_terminal_size().columns if output.is_terminal else None
    for row in cells:
        line = "".join(f"{cell:<{width}}  " for cell, width in zip(row, widths, strict=False))
        space = None if total is None else max(8, total - len(line))
        output.line((line + safe_line(row[-1], width=space)).rstrip())


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is lost; without a terminal, `--yes` is needed.

    Raises:
        click.UsageError: when there is no terminal to ask on.
        click.Abort: when the answer is no.

    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is no terminal to ask on: confirm with --yes")
    # Escaped here, too: the last character of a question is not written by our stream.
    click.confirm(safe(question), abort=True, err=True)


def _usable(stream: TextIO | None) -> TextIO:
    """Return a stream that takes every character; one that was closed before we began drops all."""
    if stream is None:
        return io.StringIO()
    # `Output` makes everything harmless itself, and rewrites a line.
    stream = unguarded(stream)
    if isinstance(stream, io.TextIOWrapper):
        # A terminal with another encoding than UTF-8 would end the command at the first such
        # character.
        stream.reconfigure(errors="backslashreplace")
    return stream


def _discard(stream: IO[str]) -> None:
    """Let what is still buffered for a reader that went away go nowhere, also at exit."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        # Python flushes the stream once more at exit, and would report the broken pipe there.
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError, io.UnsupportedOperation):
        return
