"""Output to a terminal, a pipe or a file; what models, tools and files say is made harmless first.

A control character in an answer could move the cursor, change the clipboard or run a command in
some terminals. Every text that is not ours passes `Sanitiser`: only our own styling writes ESC.
"""

import contextlib
import io
import os
import re
import shutil
import sys
from collections.abc import Generator, Sequence
from typing import IO, TextIO

import click
import msgspec

# C0 but tab and newline, DEL, C1, marks that change the direction or the order of what is read,
# line and paragraph separators, invisible tags, and halves of surrogate pairs.
_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


@contextlib.contextmanager
def writing_file(path: str | None) -> Generator[None, None, None]:
    """Say what is wrong with a new file that the block cannot make or write.

    Raises:
        click.ClickException: naming the file.

    """
    try:
        yield
    except FileExistsError as error:
        told = f"{path or error.filename} exists already; it is not overwritten"
        raise click.UsageError(told) from error
    except OSError as error:
        told = f"{path or error.filename or 'the file'} cannot be written: {error.strerror}"
        raise click.ClickException(told) from error


class Sanitiser:
    """Makes a text harmless piece by piece: the same as if it had come as a whole."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """Return what of the text can be shown now; a carriage return waits for its newline."""
        text = self._held + text
        # Whether it is half of a line break or would overwrite the line is known with the next
        # piece.
        self._held = "\r" if text.endswith("\r") else ""
        return _shown(text[: len(text) - len(self._held)])

    def end(self) -> str:
        """Return what was still held."""
        held, self._held = self._held, ""
        return _shown(held)


def safe(text: str) -> str:
    r"""Return a whole text with every control character written out, as in `\x1b`."""
    return _shown(text)


def safe_line(text: str, *, width: int | None = None) -> str:
    """Return a text as one line, shortened where a width is given."""
    line = " ".join(safe(text).split())
    return line if width is None or len(line) <= width else line[: max(0, width - 1)] + "…"


def _shown(text: str) -> str:
    return _HARMFUL.sub(_written_out, text.replace("\r\n", "\n"))


def _written_out(match: re.Match[str]) -> str:
    # `surrogatepass`: half of a surrogate pair is harmful, too, and has to be written out.
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")


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
        """Write text that is already harmless, at once."""
        if self.is_left:
            return
        try:
            self._out.write(text)
            self._out.flush()
        except (BrokenPipeError, ValueError):
            # ValueError is what a stream raises that was closed.
            self.is_left = True
            _discard(self._out)

    def line(self, text: str = "") -> None:
        """Write one line of harmless text."""
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
    """Print any value as one JSON document; control characters are escaped in it."""
    output.line(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


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
    click.confirm(question, abort=True, err=True)


def _usable(stream: TextIO | None) -> TextIO:
    """Return a stream that takes every character; one that was closed before we began drops all."""
    if stream is None:
        return io.StringIO()
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
