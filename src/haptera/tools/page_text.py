"""The process that reads HTML of the web: it can be killed, whatever the page does.

The tokens are those of the HTML standard. What is not closed takes the rest of the page, as in a
browser, so no search begins anew behind it: the time is linear in the length of the page, which
that of `html.parser` is not. Standard library only, run by `python -I -S` without the rest of the
package.
"""

import re
import signal
import sys
from html import unescape

_LONGEST_LIFE = 60
_SILENT = frozenset({"script", "style", "noscript", "template", "svg", "head", "title"})
_IN_HEAD = frozenset(
    {
        "base", "basefont", "bgsound", "head", "html", "link", "meta", "noframes", "noscript",
        "script", "style", "template", "title",
    }
)  # fmt: skip
"""Every other element ends a head whose end tag was left out."""
_HTML_IN_SVG = frozenset({"foreignobject", "desc"})
"""Elements of a drawing that may hold elements of HTML; so may its `title`."""
_BLOCKS = frozenset(
    {
        "address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "figure",
        "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav",
        "ol", "p", "pre", "section", "table", "tr", "ul",
    }
)  # fmt: skip
_ENDS_SVG = _BLOCKS | {"body", "img", "span", "b", "i", "em", "strong", "code"}
"""Elements of HTML that end a drawing whose end tag was left out."""
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_RAW = frozenset({"script", "style"})
"""Their content has no tags in it."""

_TAG_NAME = re.compile(r"[a-zA-Z][^\t\n\r\f />]*+")
_ATTRIBUTE = re.compile(
    r"[\s/]*+(?:(?P<end>>)|(?P<name>=?+[^\s/>=]*+)"
    r"(?:\s*+=\s*+(?:(?P<quote>[\"'])|(?P<bare>[^\s>]*+)))?+)"
)
_COMMENT_END = re.compile(r"--!?>")
_RAW_ENDS = {name: re.compile(rf"(?i)</(?={name}[\s/>])") for name in _RAW}
_NUMBER = re.compile(r"&#0*+([0-9]*+);?")
_LARGEST_NUMBER = 7
"""Digits of the largest character; `int` refuses thousands of them."""


def main() -> None:
    """Write the text of the page on standard input; the last argument is its encoding."""
    signal.alarm(_LONGEST_LIFE)  # whatever becomes of the process that started this one
    page = sys.stdin.buffer.read().decode(sys.argv[-1], "replace")
    sys.stdout.buffer.write(text_of_page(page).encode("utf-8", "replace"))


def text_of_page(html: str) -> str:
    """Return the text of a page; scripts, styles and what is not shown are left out."""
    shown = _Shown()
    _Tokens(html, shown).read()
    lines = (
        re.sub(r"[ \t\r\f\v]+", " ", line).strip() for line in "".join(shown.pieces).split("\n")
    )
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


class _Shown:
    """Collects what is shown, one line per block."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._silent: list[str] = []
        # How often each is in the list above, which a page can make long.
        self._counts: dict[str, int] = {}
        self._link: str | None = None

    def begin(self, tag: str, link: "str | None", *, is_closed: bool) -> None:
        """Take a start tag; `is_closed` if it ends with a slash, which counts in drawings."""
        while self._silent and _ends(tag, self._silent[-1]):
            self._pop()
        if is_closed and (tag == "svg" or self._counts.get("svg")):
            return
        if tag in _SILENT or (tag in _HTML_IN_SVG and self._counts.get("svg")):
            self._silent.append(tag)
            self._counts[tag] = self._counts.get(tag, 0) + 1
        if self._silent:
            return
        if tag in _BLOCKS:
            self.pieces.append("\n")
        if tag in _HEADINGS:
            self.pieces.append(f"{_HEADINGS[tag]} ")
        elif tag == "li":
            self.pieces.append("- ")
        elif tag == "a":
            self._link = link

    def end(self, tag: str) -> None:
        """Take an end tag."""
        if self._counts.get(tag):
            # What was opened inside and not closed ends with it.
            while self._pop() != tag:
                pass
            return
        if self._silent:
            return
        if tag in _BLOCKS:
            self.pieces.append("\n")
        if tag == "a" and self._link and self._link.startswith(("http:", "https:", "/")):
            self.pieces.append(f" ({self._link})")
            self._link = None

    def text(self, text: str) -> None:
        """Take text between tags."""
        if self._silent == ["head"] and text.strip(" \t\r\n\f"):
            self._pop()  # a head has no text of its own
        if not self._silent:
            self.pieces.append(text)

    def _pop(self) -> str:
        tag = self._silent.pop()
        self._counts[tag] -= 1
        return tag


def _ends(tag: str, silent: str) -> bool:
    """Say whether a start tag ends an element that is not shown, without its end tag."""
    if silent == "head":
        return tag not in _IN_HEAD
    if silent == "svg":
        return tag in _ENDS_SVG
    return tag == "body" and silent != "template"


class _Tokens:
    """Goes through a page once, from left to right."""

    def __init__(self, html: str, shown: _Shown) -> None:
        self._html = html
        self._shown = shown
        self._at = 0

    def read(self) -> None:
        """Read everything."""
        html = self._html
        begin = 0
        while (sign := html.find("<", self._at)) >= 0:
            self._at = sign + 1
            is_end = html.startswith("/", sign + 1)
            if name := _TAG_NAME.match(html, sign + 1 + is_end):
                self._take_text(begin, sign)
                self._take_tag(name, is_end=is_end)
            elif html.startswith(("!", "?", "/"), sign + 1):
                self._take_text(begin, sign)
                self._skip_comment(sign)
            else:
                continue  # a sign in a text
            begin = self._at
        self._take_text(begin, len(html))

    def _take_text(self, begin: int, end: int) -> None:
        if begin < end:
            self._shown.text(_unescaped(self._html[begin:end]))

    def _skip_comment(self, sign: int) -> None:
        if not self._html.startswith("<!--", sign):
            self._go_behind(self._html.find(">", sign), 1)
            return
        # `<!-->` and `<!--->` are whole comments.
        for short in ("<!-->", "<!--->"):
            if self._html.startswith(short, sign):
                self._at = sign + len(short)
                return
        match = _COMMENT_END.search(self._html, sign + 4)
        self._go_behind(match.end() if match else -1)

    def _go_behind(self, place: int, length: int = 0) -> None:
        """Go on behind something, or at the end of the page if it was not found."""
        self._at = place + length if place >= 0 else len(self._html)

    def _take_tag(self, name: "re.Match[str]", *, is_end: bool) -> None:
        tag = name[0].lower()
        self._at = name.end()
        link = self._take_attributes()
        if self._at > len(self._html):
            self._at = len(self._html)  # the page ends in the tag, which then counts for nothing
        elif is_end:
            self._shown.end(tag)
        else:
            is_closed = self._html[self._at - 2] == "/"
            self._shown.begin(tag, link, is_closed=is_closed)
            if tag in _RAW:
                match = _RAW_ENDS[tag].search(self._html, self._at)
                self._go_behind(match.start() if match else -1)

    def _take_attributes(self) -> "str | None":
        """Go behind a tag, and return what its `href` says; behind the page if it does not end."""
        html, link = self._html, None
        while match := _ATTRIBUTE.match(html, self._at):
            self._at = match.end()
            if match["end"]:
                return link
            if not match[0]:
                break
            value = match["bare"]
            if match["quote"]:
                end = html.find(match["quote"], self._at)
                if end < 0:
                    break
                value = html[self._at : end]
                self._at = end + 1
            if link is None and value is not None and match["name"].lower() == "href":
                link = _unescaped(value).strip()
        self._at = len(html) + 1
        return None


def _unescaped(text: str) -> str:
    return unescape(_NUMBER.sub(_short_number, text)) if "&" in text else text


def _short_number(found: "re.Match[str]") -> str:
    return found[0] if len(found[0]) <= _LARGEST_NUMBER + 3 else _of_digits(found[1])


def _of_digits(digits: str) -> str:
    return "\ufffd" if len(digits) > _LARGEST_NUMBER else f"&#{digits or '0'};"


if __name__ == "__main__":
    main()
