"""Approvals in a chat: the card that shows what a tool call would do, and the answer to it."""

import asyncio
from collections import deque
from collections.abc import Callable
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
            return f"these are no arguments: {error}"
        self.answer(Approve(arguments=arguments, by=_BY))
        return None


def approval_card(request: ApprovalRequest, asking: Asking, renderer: Renderer) -> str:
    """Return what is shown above the prompt while a call waits for its answer."""
    lines = [renderer.bold(f"Allow {safe_line(request.tool)}?")]
    facts = request.facts
    if facts.argv is not None:
        lines.append("  " + safe_line(" ".join(facts.argv), width=renderer.width - 2))
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
    if facts.is_confined is False:
        lines.append(renderer.bad("  no sandbox would confine this command"))
    if request.reason:
        lines.append(renderer.dim("  " + safe(request.reason)))
    questions = {
        "choice": "[y]es  [a]lways in this session  [n]o  [e]dit",
        "reason": "Why not? (Enter: no reason)",
        "arguments": "Change the arguments, then Enter",
    }
    lines.append(renderer.accent(questions[asking]))
    return "\n".join(lines) + "\n"
