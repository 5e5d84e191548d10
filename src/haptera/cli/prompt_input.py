"""The prompt of a one-shot command: words, text that is piped in, and files named with `@`."""

import os
import re
import select
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import click

from haptera.cli.terminal import Output

_FILE = re.compile(r"(?:^|(?<=\s))@(?:\"([^\"]+)\"|(\S+))")
_NOTE_AFTER_SECONDS = 3.0


@dataclass(frozen=True, kw_only=True)
class PromptInput:
    """What is sent: a text, and the files that go with it."""

    text: str
    files: tuple[Path, ...] = ()


def read_prompt(words: str | None, *, piped: str | None) -> PromptInput:
    """Join the words of the command and what was piped in, which goes into a fenced block.

    Raises:
        click.UsageError: when there is nothing to send.

    """
    words = (words or "").strip()
    if not words and not (piped or "").strip():
        raise click.UsageError(
            "there is no prompt: write `haptera -p 'your question'`, or pipe text in"
        )
    if not piped:
        return PromptInput(text=words, files=named_files(words))
    if not words:
        # No files: an `@` in text that is piped in was not written to name one, and may be a
        # stranger's.
        return PromptInput(text=piped)
    return PromptInput(text=f"{words}\n\n{fenced(piped)}", files=named_files(words))


def fenced(text: str) -> str:
    """Return what was piped in, in a fenced block, with a fence that does not occur in it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    newline = "" if text.endswith("\n") else "\n"
    return f"{fence}stdin\n{text}{newline}{fence}"


def named_files(text: str) -> tuple[Path, ...]:
    """Return the files that a text names as `@path` or `@"path with spaces"`, and that exist."""
    return tuple(each for each in _named(text) if each.is_file())


def missing_files(text: str) -> tuple[Path, ...]:
    """Return what a text names like a file with `@`, and what is none.

    A word without a dot and a slash may as well be a person or a decorator: it is not returned.
    """
    return tuple(
        each for each in _named(text) if not each.is_file() and ("/" in str(each) or each.suffix)
    )


def _named(text: str) -> tuple[Path, ...]:
    paths = (Path(quoted or plain).expanduser() for quoted, plain in _FILE.findall(text))
    return tuple(dict.fromkeys(paths))


def piped_text(stdin: BinaryIO | None, *, note: str = "") -> str | None:
    """Return what is piped in; None when standard input is a terminal, closed or `/dev/null`.

    A pipe that stays open and silent is waited for; after a few seconds `note` says so.

    Raises:
        click.UsageError: when it is not text.

    """
    if stdin is None or not _holds_text(stdin):
        return None
    # Some programs start others with a pipe that they never close.
    if note and not select.select([stdin], [], [], _NOTE_AFTER_SECONDS)[0]:
        Output().note(note)
    try:
        return stdin.read().decode()
    except UnicodeDecodeError as error:
        raise click.UsageError(
            "what is piped in is not UTF-8 text; attach a file with @path instead"
        ) from error


def _holds_text(stdin: BinaryIO) -> bool:
    try:
        mode = os.fstat(stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    # Not terminals and other devices: reading these would wait for ever.
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)
