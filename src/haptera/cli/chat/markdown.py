"""Markdown as it streams: whole blocks are rendered once, what is still coming is shown plainly."""

import io
import re
import textwrap

from rich.console import Console
from rich.markdown import Markdown
from rich.syntax import Syntax

from haptera.cli.terminal import safe

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")


class MarkdownBlocks:
    """Cuts a growing text into blocks: paragraphs, lists and fenced code, none of them split."""

    def __init__(self) -> None:
        self._block: list[str] = []
        """The complete lines of the block that is not complete yet."""
        self._fence = ""
        self._line: list[str] = []
        """The pieces of the last line."""

    @property
    def rest(self) -> str:
        """What has come of the block that is not complete yet."""
        return "\n".join([*self._block, "".join(self._line)])

    def feed(self, text: str) -> list[str]:
        """Take more text and return the blocks that are complete by now."""
        blocks: list[str] = []
        # Each line is looked at once, when it is complete.
        *lines, last = text.split("\n")
        for line in lines:
            block = self._take("".join([*self._line, line]))
            self._line = []
            if block is not None and block.strip():
                blocks.append(block)
        self._line.append(last)
        return blocks

    def end(self) -> str:
        """Return what is left, and begin anew."""
        left = self.rest
        self._block, self._fence, self._line = [], "", []
        return left

    def _take(self, line: str) -> str | None:
        """Take a line; returns the block that it completes."""
        mark = _FENCE.match(line)
        self._block.append(line)
        if self._fence:
            # A closing fence is at least as long as the opening one and has nothing after it.
            is_end = (
                mark is not None and mark[1].startswith(self._fence) and line.strip() == mark[1]
            )
            self._fence = "" if is_end else self._fence
        elif mark is not None:
            self._fence = mark[1]
        elif not line.strip():
            block, self._block = "\n".join(self._block), []
            return block
        return None


class Renderer:
    """Turns texts that are not ours into lines for the terminal, with colour where it is wanted."""

    def __init__(self, *, width: int, colour: bool | None = None) -> None:
        self.width = max(20, width)
        self.colour = not Console().no_color if colour is None else colour

    def markdown(self, text: str) -> str:
        """Render one block of Markdown."""
        # No hyperlinks: the text of one could name another target than it leads to.
        return self._rendered(Markdown(safe(text), code_theme="ansi_dark", hyperlinks=False))

    def difference(self, text: str) -> str:
        """Render a diff."""
        shown = Syntax(
            safe(text), "diff", theme="ansi_dark", word_wrap=True, background_color="default"
        )
        return self._rendered(shown)

    def wrapped(self, text: str) -> str:
        """Break lines between words where they are too long; a long word is left as it is."""
        return "\n".join(
            textwrap.fill(
                line,
                self.width,
                break_long_words=False,
                break_on_hyphens=False,
                replace_whitespace=False,
            )
            for line in text.split("\n")
        )

    def dim(self, text: str) -> str:
        """Return text in a faint colour."""
        return self._styled("2", text)

    def bold(self, text: str) -> str:
        """Return text in bold."""
        return self._styled("1", text)

    def accent(self, text: str) -> str:
        """Return text in the colour of names and marks."""
        return self._styled("36", text)

    def bad(self, text: str) -> str:
        """Return text in the colour of errors."""
        return self._styled("31", text)

    def good(self, text: str) -> str:
        """Return text in the colour of what is added."""
        return self._styled("32", text)

    def _styled(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text

    def _rendered(self, what: Markdown | Syntax) -> str:
        console = Console(
            file=(file := io.StringIO()),
            width=self.width,
            # It renders into a string, which is no terminal.
            force_terminal=True,
            color_system="standard" if self.colour else None,
            no_color=not self.colour,
            legacy_windows=False,
            # Words of a model that look like rich's own markup stay as they are.
            emoji=False,
            markup=False,
            highlight=False,
        )
        console.print(what)
        text = file.getvalue() if self.colour else _PLAIN.sub("", file.getvalue())
        return "\n".join(line.rstrip() for line in text.rstrip().split("\n"))


# Without colours rich still writes bold and italic, which some people turn off for a reason.
_PLAIN = re.compile(r"\x1b\[[0-9;]*m")
