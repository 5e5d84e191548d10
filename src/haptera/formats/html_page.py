"""A session as one HTML file that is safe to open and good to read.

Safe: every text is escaped and there is no other way for text into the page; no script, no event
attribute, no link but to places in the page, nothing is loaded. The page says so to the browser,
too (Content-Security-Policy). Pictures are shown only if they are in the session, of four kinds
that cannot hold a script.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape

import msgspec

from haptera.formats.forms import stand_in, with_content
from haptera.formats.html_style import STYLE
from haptera.formats.markdown import (
    answer_facts,
    answers_calls,
    arguments_text,
    plain_line,
    results_in,
    session_facts,
)
from haptera.formats.values import SessionExport, TimedMessage
from haptera.model.ids import CallId
from haptera.model.messages import AssistantMessage, Message
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    Part,
    ProviderPart,
    ReasoningPart,
    ReminderPart,
    ResultContent,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

FORMAT = "html"

# By digest: `unsafe-inline` would allow any style that found its way into the page.
_STYLE_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
PAGE_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_DIGEST}'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
"""The Content-Security-Policy of a page."""

_PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]")
"""Control characters, and those that turn the direction of writing around."""
_FENCE = re.compile(r"`{3,}+|~{3,}+")
_INLINE = re.compile(r"`(?P<code>[^`\n]+)`|\*\*(?P<strong>[^*\n]+)\*\*")
_HEADING = re.compile(r"#{1,6} (?P<text>[^\n]+)")
_SHOWN_ARGUMENTS = 100
_SLICE = 64 * 1024
"""The most characters that are escaped at once: other threads wait meanwhile."""
_FOLDED: dict[type[Part], tuple[str, str]] = {
    ReasoningPart: ("Reasoning", "reasoning"),
    ReminderPart: ("Note from the program", "note"),
    CompactionPart: ("Summary of what came before", "summary"),
}


def leaves_out(_message: Message, part: Part) -> bool:
    """Whether a part is not shown: only what is empty."""
    if isinstance(part, TextPart | ReasoningPart | ReminderPart | CompactionPart):
        return not part.text.strip()
    return False


def write_html(export: SessionExport) -> Iterator[bytes]:
    """Write the page; results are shown with their calls, what is long is folded."""
    title = plain_line(export.title) or "Session"
    yield _head(title).encode()
    facts = "".join(
        f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>"
        for name, value in session_facts(export)
    )
    yield f"<header><h1>{_text(title)}</h1><dl>{facts}</dl></header>\n<main>\n".encode()
    for index, each in enumerate(export.messages):
        yield _article(export, index, each).encode()
    yield b"</main>\n</body>\n</html>\n"


def _head(title: str) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(PAGE_POLICY)}">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
    )


def _text(text: str) -> str:
    """Return text as it may stand anywhere in the page."""
    slices = (text[at : at + _SLICE] for at in range(0, len(text), _SLICE))
    return "".join(escape(_UNSEEN.sub("\ufffd", each), quote=True) for each in slices)


def _article(export: SessionExport, index: int, each: TimedMessage) -> str:
    following = export.messages[index + 1 : index + 2]
    results = results_in(following[0].message if following else None)
    shown = _Shown(export, results, answers_calls(export, index))
    inner = "".join(
        shown.part(part) for part in each.message.parts if not leaves_out(each.message, part)
    )
    if not inner:
        return ""
    is_answer = isinstance(each.message, AssistantMessage)
    role = "Assistant" if is_answer else "User"
    facts = "".join(f"<span>{_text(fact)}</span>" for fact in answer_facts(each))
    number = index + 1
    link = f'<a href="#m{number}" aria-label="Link to this message">#{number}</a>'
    return (
        f'<article id="m{number}" class="{role.lower()}"><h2>{role}</h2>'
        f'<p class="facts">{facts}{link}</p>\n{inner}</article>\n'
    )


class _Shown:
    """Renders the parts of one message."""

    def __init__(
        self,
        export: SessionExport,
        results: Mapping[CallId, ToolResultPart],
        answered: set[CallId],
    ) -> None:
        self._export = export
        self._results = results
        self._answered = answered

    def part(self, part: Part) -> str:
        if isinstance(part, TextPart):
            return _prose(part.text)
        if isinstance(part, ReasoningPart | ReminderPart | CompactionPart):
            title, kind = _FOLDED[type(part)]
            return _folded(title, _prose(part.text), kind=kind)
        if isinstance(part, MediaPart):
            return self._media(part)
        if isinstance(part, ProviderPart):
            raw = msgspec.json.format(msgspec.json.encode(part.payload), indent=2).decode()
            return _folded(f"Something of {part.provider}", _code(raw), kind="provider")
        return self._tool(part)

    def _tool(self, part: ToolCallPart | ToolResultPart) -> str:
        if isinstance(part, ToolResultPart):
            if part.call_id in self._answered:
                return ""  # it is shown with its call
            name = f"Result of {part.name or 'a tool'}"
            return _folded(name, self._result(part), kind="tool", state=part.outcome)
        arguments, result = arguments_text(part), self._results.get(part.call_id)
        state = result.outcome if result is not None else "unanswered"
        inner = f"<h3>Arguments</h3>{_code(arguments)}"
        if result is not None:
            inner += f"<h3>Result</h3>{self._result(result)}"
        hint = plain_line(arguments)[:_SHOWN_ARGUMENTS]
        return _folded(part.name, inner, kind="tool", state=state, hint=hint)

    def _result(self, part: ToolResultPart) -> str:
        return "".join(map(self._content, part.content)) or _code(part.outcome.replace("_", " "))

    def _content(self, piece: ResultContent) -> str:
        return _code(piece.text) if isinstance(piece, TextPart) else self._media(piece)

    def _media(self, part: MediaPart) -> str:
        media = with_content(part, self._export)
        name = media.filename or media.mime
        if media.mime in _PICTURES and media.data and media.is_readable:
            source = f"data:{media.mime};base64,{media.data}"
            return f'<figure><img src="{escape(source)}" alt="{_text(name)}"></figure>\n'
        return f'<p class="media">{_text(stand_in(media))}</p>\n'


def _folded(title: str, inner: str, *, kind: str, state: str = "", hint: str = "") -> str:
    shown = f'<code class="hint">{_text(hint)}</code>' if hint else ""
    ended = f'<em class="{_text(state)}">{_text(state.replace("_", " "))}</em>' if state else ""
    summary = f"<summary><b>{_text(title)}</b>{shown}{ended}</summary>"
    return f'<details class="{kind}">{summary}\n{inner}</details>\n'


def _code(text: str) -> str:
    return f"<pre><code>{_text(text)}</code></pre>\n"


def _prose(text: str) -> str:
    """Render what people write most: fences, paragraphs, headings, code and stress in a line."""
    return "".join(_prose_blocks(text))


def _prose_blocks(text: str) -> Iterable[str]:
    # Line by line: a pattern for a whole fence would go back from wherever one is not closed.
    lines, fence = list[str](), ""
    *before, last = text.split("\n")
    for line in before:
        mark = _FENCE.match(line)
        if fence and line.rstrip(" \t") != fence:
            lines.append(line)
        elif fence:
            yield _code("\n".join(lines))
            lines, fence = [], ""
        elif mark is not None:
            yield _paragraphs("\n".join(lines))
            lines, fence = [], mark[0]
        else:
            lines.append(line)
    # The last line has no line end: it can close a fence, but not open one.
    if not fence:
        yield _paragraphs("\n".join([*lines, last]))
    elif last.rstrip(" \t") == fence:
        yield _code("\n".join(lines))
    else:
        yield _code("\n".join([*lines, *([last] if last else [])]))


def _paragraphs(text: str) -> str:
    blocks = (block.strip("\n") for block in text.split("\n\n"))
    return "".join(_paragraph(block) for block in blocks if block.strip())


def _paragraph(block: str) -> str:
    heading = _HEADING.fullmatch(block)
    if heading:
        return f'<p class="heading" dir="auto">{_line(heading["text"])}</p>\n'
    return f'<p dir="auto">{_line(block)}</p>\n'


def _line(text: str) -> str:
    pieces: list[str] = []
    end = 0
    for match in _INLINE.finditer(text):
        pieces.append(_text(text[end : match.start()]))
        if match["code"] is not None:
            pieces.append(f"<code>{_text(match['code'])}</code>")
        else:
            pieces.append(f"<strong>{_text(match['strong'])}</strong>")
        end = match.end()
    pieces.append(_text(text[end:]))
    return "".join(pieces)
