"""NativeLink: what a native agent asks, handed to the query that runs.

An agent asks in tasks of its own. The questions are answered in the query's task group, so that
what runs on behalf of a query belongs to it: it is cancelled with it, and its failures are its own.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec

from haptera.kernel.session.native_turns import TurnDriver
from haptera.model.parts import TextPart
from haptera.ports.native_agent import CallResult, NativeCall, Permission, Refuse

Asked: TypeAlias = Literal["announce", "permit", "run_tool"]

_CANCELLED = "cancelled: the query has ended"


Answered: TypeAlias = Any
"""What a question is answered with; each kind of question has its own type of answer."""


class NativeQuestion(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Something that an agent waits for."""

    asked: Asked
    call: NativeCall
    answer: asyncio.Future[Any]

    def settle(self, value: object) -> None:
        """Answer, unless the agent has given up waiting."""
        if not self.answer.done():
            self.answer.set_result(value)


class NativeLink:
    """The host of a native session. Does not answer: the query that runs does.

    Without a query nothing may run: calls are refused. When a query ends, so is everything that
    still waits, and the agent does not hang.
    """

    def __init__(self) -> None:
        self._open: set[NativeQuestion] = set()
        self._take: Callable[[NativeQuestion], None] | None = None

    def begin(self, take: Callable[[NativeQuestion], None]) -> None:
        """Let a query answer from now on."""
        self._take = take

    def end(self) -> None:
        """Refuse what waits, and what comes later."""
        self._take = None
        for question in tuple(self._open):
            question.settle(_refusal(question.asked))

    async def announce(self, call: NativeCall) -> Permission | None:
        """Take note of a call before it runs."""
        answer: Permission | None = await self._ask("announce", call)
        return answer

    async def permit(self, call: NativeCall) -> Permission:
        """Decide whether a call may run."""
        answer: Permission = await self._ask("permit", call)
        return answer

    async def run_tool(self, call: NativeCall) -> CallResult:
        """Run one of our own tools."""
        answer: CallResult = await self._ask("run_tool", call)
        return answer

    async def _ask(self, asked: Asked, call: NativeCall) -> Answered:
        if self._take is None:
            return _refusal(asked)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        question = NativeQuestion(asked=asked, call=call, answer=answer)
        self._open.add(question)
        try:
            self._take(question)
            return await answer
        finally:
            self._open.discard(question)


def _refusal(asked: Asked) -> object:
    if asked == "run_tool":
        return CallResult((TextPart(text=_CANCELLED),), is_error=True)
    return Refuse(_CANCELLED)


class NativeLive(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A native session that is open."""

    driver: TurnDriver
    link: NativeLink
    opened_with: bytes
    """What the process was started with; another value needs another process."""
