"""Approvals in a chat: the card that shows what a tool call would do, and the answer to it."""

import asyncio
import shlex
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import msgspec

from holdfast import ApprovalRequest, Approve, Deny
from holdfast.cli.chat.markdown import Renderer
from holdfast.cli.terminal import safe, safe_line
from holdfast.vocabulary.approvals import Decision

Asking: TypeAlias = Literal["choice", "reason", "arguments"]
"""What the person is asked: yes or no, why not, or which arguments instead."""

_BY = "person at the terminal"
_DIFF_LINES = 20
_COMMAND_LINES = 12
_CHOICES = "[y]es  [a]lways in this session  [n]o  [e]dit"
_SHORT_CHOICES = "[y]es [a]lways [n]o [e]dit"


class Approvals:
    """Puts questions to the person at the prompt, one at a time."""

    def __init__(self, changed: Callable[[], object]) -> None:
        self._waiting: deque[tuple[ApprovalRequest, asyncio.Future[Decision]]] = deque()
        self._changed = changed
        self.asking: Asking = "choice"

    @property
    def current(self) -> ApprovalRequest | None:
        """The question that is asked now."""
        return self._waiting[0][0] if self._waiting else None

    async def ask(self, request: ApprovalRequest) -> Decision:
        """Wait for the person's answer; this is the agent's approver."""
        answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        entry = (request, answer)
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
        arguments = self.current.arguments if self.current else {}
        return msgspec.json.format(msgspec.json.encode(arguments), indent=2).decode()

    def change(self, text: str) -> str | None:
        """Run it with edited arguments; returns what is wrong with them, if they are not JSON."""
        try:
            arguments = msgspec.json.decode(text, type=dict[str, object])
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            return f"the arguments are not valid: {error}"
        self.answer(Approve(arguments=arguments, by=_BY))
        return None


def approval_card(request: ApprovalRequest, asking: Asking, renderer: Renderer) -> str:
    """Return what is shown above the prompt while a call waits for its answer."""
    lines = [renderer.bold(f"Allow {safe_line(request.tool)}?")]
    facts = request.facts
    if facts.argv is not None:
        lines += _command_lines(facts.argv, renderer)
        lines.append(renderer.dim(f"  in {safe_line(facts.folder or facts.root or '.')}"))
    elif facts.path is not None:
        lines.append("  " + safe_line(facts.path, width=renderer.width - 2))
    else:
        shown = msgspec.json.encode(request.arguments).decode()
        lines.append("  " + safe_line(shown, width=renderer.width - 2))
    if facts.difference:
        shown_lines = renderer.difference(facts.difference).split("\n")
        lines += shown_lines[:_DIFF_LINES]
        if len(shown_lines) > _DIFF_LINES:
            lines.append(renderer.dim(f"  … {len(shown_lines) - _DIFF_LINES} more lines"))
    # None says that it is not known, and gives no warning.
    if facts.is_confined is False:
        lines.append(renderer.bad("  no full sandbox would confine this command"))
    if request.reason:
        lines.append(renderer.dim("  " + safe(request.reason)))
    is_wide = renderer.width >= len(_CHOICES)
    questions = {
        "choice": _CHOICES if is_wide else _SHORT_CHOICES,
        "reason": "Why not? (Enter: no reason)",
        "arguments": "Change the arguments, then Enter",
    }
    lines.append(renderer.accent(questions[asking]))
    return "\n".join(lines) + "\n"


def _command_lines(argv: Sequence[str], renderer: Renderer) -> list[str]:
    """Return a command over as many lines as it needs: what is approved has to be seen.

    Of `bash … -c SCRIPT` the script is shown. One that is too long has its beginning and its end.
    """
    script = argv[-1] if len(argv) > 1 and argv[-2] == "-c" else shlex.join(argv)
    width = max(8, renderer.width - 2)
    lines = [
        "  " + line[at : at + width]
        for line in safe(script).expandtabs(4).split("\n")
        for at in range(0, max(1, len(line)), width)
    ]
    if len(lines) <= _COMMAND_LINES:
        return lines
    half = _COMMAND_LINES // 2
    hidden = renderer.bad(f"  … {len(lines) - 2 * half} lines are not shown; [e] shows all")
    return [*lines[:half], hidden, *lines[-half:]]
