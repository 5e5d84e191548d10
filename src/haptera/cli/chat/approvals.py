"""Approvals in a chat: the card that shows what a tool call would do, and the answer to it."""

import asyncio
import re
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from rich.cells import cell_len

from haptera import ApprovalRequest, Approve, Deny
from haptera.cli.chat.markdown import Renderer
from haptera.model.approval_cards import ApprovalCard, CardPart, card_of
from haptera.model.approvals import Decision
from haptera.model.visible_text import visible_exactly

Asking: TypeAlias = Literal["choice", "reason", "arguments"]
"""What the person is asked: yes or no, why not, or which arguments instead."""

_BY = "person at the terminal"
_MARK, _GOES_ON = "│ ", "┆ "
"""In front of each line of what others say, and of what goes on from the line above."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,64}")
_LABELS = {"program": "runs", "folder": "in", "path": "file", "change": "changes", "reason": "why"}
_ARGUMENTS = {
    "model": "arguments, in the model's words",
    "tool": "arguments, in the words of the tool or its server",
}
_LEAST_LINES, _MOST_LINES, _OTHER_LINES = 6, 20, 8
"""Of a card above the prompt, and what else is on the screen."""
_CHOICES = "[y]es  [a]lways in this session  [n]o  [e]dit"
_SHORT_CHOICES = "[y]es [a]lways [n]o [e]dit"
_ALL_CHOICES = (_CHOICES, _SHORT_CHOICES)
_VIEW, _SHORT_VIEW = "  [v]iew all", " [v]iew"
"""Where the card has more than is shown."""


class Approvals:
    """Puts questions to the person at the prompt, one at a time."""

    def __init__(self, changed: Callable[[], object]) -> None:
        self._waiting: deque[tuple[ShownCard, asyncio.Future[Decision]]] = deque()
        self._changed = changed
        self.asking: Asking = "choice"

    @property
    def current(self) -> "ShownCard | None":
        """The question that is asked now."""
        return self._waiting[0][0] if self._waiting else None

    async def ask(self, request: ApprovalRequest) -> Decision:
        """Wait for the person's answer; this is the agent's approver."""
        answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        entry = (ShownCard(request), answer)
        self._waiting.append(entry)
        self._changed()
        try:
            return await answer
        finally:
            # Also when the query was aborted: a question that nothing waits for must not be shown.
            self._waiting.remove(entry)
            self.asking = "choice"
            self._changed()

    def answer(self, decision: Decision) -> None:
        """Answer the question that is asked now."""
        if self._waiting and not self._waiting[0][1].done():
            self._waiting[0][1].set_result(decision)

    def yes(self) -> None:
        """Run it this once."""
        self.answer(Approve(by=_BY))

    def always(self) -> None:
        """Run it now, and the same call again in this session without a question."""
        self.answer(Approve(by=_BY, scope="session"))

    def no(self, reason: str) -> None:
        """Do not run it; the model hears the reason."""
        self.answer(Deny(reason=reason.strip() or None, by=_BY))

    def ask_for(self, asking: Asking) -> None:
        """Ask for the reason of a denial, or for other arguments."""
        self.asking = asking
        self._changed()

    def arguments_text(self) -> str:
        """Return the arguments of the call as text to be edited."""
        arguments = self.current.request.arguments if self.current else {}
        return msgspec.json.format(msgspec.json.encode(arguments), indent=2).decode()

    def change(self, text: str) -> str | None:
        """Run it with edited arguments; returns what is wrong with them, if they are not JSON."""
        try:
            arguments = msgspec.json.decode(text, type=dict[str, object])
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            return f"the arguments are not valid: {error}"
        self.answer(Approve(arguments=arguments, by=_BY))
        return None


class ShownCard:
    """The lines of one question, made once: the prompt is drawn several times in a second.

    Lines of others begin with a mark, on the screen, too: long ones are broken here. No line of
    ours has it, so that nothing in a call looks like a heading, a warning or a choice.
    """

    def __init__(self, request: ApprovalRequest) -> None:
        self.request = request
        self._lines = tuple(_card_lines(card_of(request)))
        self._broken: tuple[int, list[_Line]] = (0, [])

    def whole(self, renderer: Renderer) -> str:
        """Return all of it."""
        return "\n".join(_coloured(line, renderer) for line in self._broken_for(renderer.width))

    def head(self, renderer: Renderer, *, height: int) -> tuple[str, bool]:
        """Return the beginning and the end of it, and whether that is less than all."""
        lines = self._broken_for(renderer.width)
        if len(lines) <= height:
            return self.whole(renderer), False
        last = height // 3
        first = height - last - 1
        left_out = f"… {len(lines) - first - last} lines are not shown; [v] shows all"
        shown = [*lines[:first], _Line(left_out, "warning"), *lines[len(lines) - last :]]
        return "\n".join(_coloured(line, renderer) for line in shown), True

    def _broken_for(self, width: int) -> list["_Line"]:
        if self._broken[0] != width:
            self._broken = width, [each for line in self._lines for each in _broken(line, width)]
        return self._broken[1]


def approval_card(card: ShownCard, asking: Asking, renderer: Renderer) -> str:
    """Return what is shown above the prompt while a call waits for its answer."""
    height = max(_LEAST_LINES, min(_MOST_LINES, shutil.get_terminal_size().lines - _OTHER_LINES))
    shown, is_cut = card.head(renderer, height=height)
    wide, short = (_CHOICES + _VIEW, _SHORT_CHOICES + _SHORT_VIEW) if is_cut else _ALL_CHOICES
    questions = {
        "choice": wide if renderer.width >= len(wide) else short,
        "reason": "Why not? (Enter: no reason)",
        "arguments": "Change the arguments, then Enter",
    }
    return f"{shown}\n{renderer.accent(questions[asking])}\n"


class _Line(NamedTuple):
    """A line of a card: ours, or quoted, which is what others have said."""

    text: str
    style: Literal["heading", "label", "warning", "quoted", "added", "removed"]


def _card_lines(card: ApprovalCard) -> Iterator[_Line]:
    """Yield the lines of a card, of any length, each section under a label of ours."""
    shown = {part.text for part in card.parts if part.kind in {"program", "path"}}
    label = ""
    for part in card.parts:
        if part.kind == "tool":
            is_plain = _PLAIN_NAME.fullmatch(part.text) is not None
            yield _Line(
                f"Allow {part.text}?" if is_plain else "Allow the tool of this name?", "heading"
            )
            if not is_plain:
                yield from _quoted(part.text)
            continue
        if part.kind == "warning":
            yield _Line(part.text, "warning")
            continue
        # What is shown as the program or the path is not shown again.
        if part.kind == "argument" and not part.is_json and part.text in shown:
            continue
        heading = _LABELS.get(part.kind) or _ARGUMENTS[part.words]
        if heading != label:
            label = heading
            yield _Line(label, "label")
        if part.kind == "argument":
            yield from _argument_lines(part)
        else:
            is_change = part.kind == "change"
            # A diff ends with a line end, after which there is no line.
            text = part.text.removesuffix("\n") if is_change else part.text
            yield from _quoted(text, is_change=is_change)


def _argument_lines(part: CardPart) -> Iterator[_Line]:
    name = visible_exactly(part.name)
    if "\n" in part.text:
        yield _Line(f"{name}:", "quoted")
        yield from (_Line(f"  {visible_exactly(each)}", "quoted") for each in part.text.split("\n"))
    else:
        sign = " = " if part.is_json else ": "
        yield _Line(f"{name}{sign}{visible_exactly(part.text)}", "quoted")


def _quoted(text: str, *, is_change: bool = False) -> Iterator[_Line]:
    for each in text.split("\n"):
        style: Literal["quoted", "added", "removed"] = "quoted"
        if is_change and each[:1] in {"+", "-"}:
            style = "added" if each[0] == "+" else "removed"
        yield _Line(visible_exactly(each), style)


def _broken(line: _Line, width: int) -> Iterator[_Line]:
    """Break a line where the terminal would, so that each piece has its mark."""
    if line.style in {"heading", "label", "warning"}:
        yield line
        return
    mark, start, used, room = _MARK, 0, 0, max(8, width - len(_MARK))
    for at, character in enumerate(line.text):
        size = cell_len(character)
        if used + size > room:
            yield line._replace(text=mark + line.text[start:at])
            mark, start, used = _GOES_ON, at, 0
        used += size
    yield line._replace(text=mark + line.text[start:])


def _coloured(line: _Line, renderer: Renderer) -> str:
    styles = {
        "heading": renderer.bold,
        "label": renderer.dim,
        "warning": renderer.bad,
        "added": renderer.good,
        "removed": renderer.bad,
    }
    style = styles.get(line.style)
    return line.text if style is None else style(line.text)
