"""Pages as text: what a person would read of HTML, with its links."""

import re
from html.parser import HTMLParser

_SILENT = frozenset({"script", "style", "noscript", "template", "svg", "head"})
_BLOCKS = frozenset(
    {
        "address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "figure",
        "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav",
        "ol", "p", "pre", "section", "table", "tr", "ul",
    }
)  # fmt: skip
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}


class _Reader(HTMLParser):
    """Collects what is shown, one line per block."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._silent: list[str] = []
        self._link: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SILENT:
            self._silent.append(tag)
        if tag in _BLOCKS:
            self.pieces.append("\n")
        if tag in _HEADINGS:
            self.pieces.append(f"{_HEADINGS[tag]} ")
        elif tag == "li":
            self.pieces.append("- ")
        elif tag == "a":
            self._link = dict(attrs).get("href")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._silent:
            # What was opened inside and not closed ends with it.
            del self._silent[self._silent.index(tag) :]
        if tag in _BLOCKS:
            self.pieces.append("\n")
        if tag == "a" and self._link and self._link.startswith(("http:", "https:", "/")):
            self.pieces.append(f" ({self._link})")
            self._link = None

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.pieces.append(data)


def text_of_page(html: str) -> str:
    """Return the text of a page; scripts, styles and what is not shown are left out."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    lines = (
        re.sub(r"[ \t\r\f\v]+", " ", line).strip() for line in "".join(reader.pieces).split("\n")
    )
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
