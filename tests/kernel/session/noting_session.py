"""A session that notes in a side file what was acknowledged to it, before anything else happens.

The notes are what a process that is killed leaves behind to say what it had been promised.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Self

import msgspec

from haptera import AgentSession
from haptera.agent.remote import AgentRemote
from haptera.model.errors import ErrorCode
from haptera.model.events import Event
from haptera.model.ids import SessionId
from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.log.entry import Entry
from haptera.model.log.queries import InputQueued
from haptera.model.messages import AssistantMessage
from haptera.testing.promises import (
    require,
    require_error,
)

Deed = Literal[
    "prompt",
    "approved",
    "denied",
    "delivered",
    "rewind",
    "undo",
    "fork",
    "configured",
]


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a call returned for."""

    deed: Deed
    session_id: SessionId
    subject: str = ""
    """The text of a prompt or of a delivered answer, the id of an approval, of the message gone
    back to, or of a fork; the value of a setting."""
    messages: tuple[str, ...] = ()
    """The ids of the messages of the conversation after a move, or of a fork when it is opened."""


class Notes:
    """What was acknowledged in a folder, in order, over any number of processes."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "acknowledged"

    def add(self, item: Acknowledged) -> None:
        """Write one down, durably, and with a call that no process is killed at."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_DSYNC
        descriptor = os.open(self._file, flags, 0o600)
        try:
            os.writev(descriptor, [msgspec.json.encode(item) + b"\n"])
        finally:
            os.close(descriptor)

    def read(self) -> list[Acknowledged]:
        """Return everything that was written down."""
        if not self._file.exists():
            return []
        lines = self._file.read_bytes().splitlines()
        return [msgspec.json.decode(line, type=Acknowledged) for line in lines]


def line_of(arguments: object) -> str:
    """Return the line that a call of the script's tools is about."""
    assert isinstance(arguments, dict)
    return str(arguments["line"])


def answer_that_calls(session: AgentSession, line: str) -> AssistantMessage:
    """Find the answer with the call for a line."""
    for message in session.messages:
        if isinstance(message, AssistantMessage) and any(
            line_of(call.arguments) == line for call in message.tool_calls
        ):
            return message
    raise LookupError(line)


def ref_of(line: str) -> str:
    """Return what the program calls the call for a line that waits."""
    return f"about {line}"


def answer_for(line: str) -> str:
    """Return the answer that a call is delivered with."""
    return f"{line} is delivered"


async def deliver_once(session: AgentSession | AgentRemote, line: str) -> None:
    """Deliver the answer of a call three times: it is recorded once."""
    for _ in range(2):
        await session.deliver(ref_of(line), answer_for(line))
    other = session.deliver(ref_of(line), "nothing")
    await require_error(ErrorCode.CONFLICT, other, "an answer is delivered once")


class NotingSession:
    """An open session, and the same session as another agent reaches it."""

    def __init__(self, session: AgentSession, remote: AgentRemote, notes: Notes) -> None:
        self.session = session
        self._remote = remote
        self._notes = notes
        self._answered: list[str] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.session.close()

    # Prompts.

    async def chat(self, prompt: str) -> None:
        """Send a prompt and wait until its query rests."""
        await self.session.chat(prompt)
        self._note("prompt", prompt)

    async def steer(self, prompt: str) -> None:
        """Say something into the query that runs, or start one."""
        await self.session.steer(prompt)
        self._note("prompt", prompt)

    async def send(self, prompt: str) -> None:
        """Send a prompt from outside, and wait until the session has taken it in."""
        await self._remote.send(prompt)
        self._note("prompt", prompt)
        await self.until(lambda event: isinstance(event, InputQueued) and _says(event, prompt))

    async def resume(self) -> None:
        """Carry on what is unfinished."""
        await self.session.resume()

    async def configure(self, temperature: str) -> None:
        """Change a setting."""
        await self.session.configure(temperature=float(temperature))
        self._note("configured", temperature)

    # Approvals.

    async def approve(self, line: str) -> None:
        """Let a call run; a second answer is refused."""
        approval_id = self._approval_of(line)
        await self.session.approve(approval_id)
        self._note("approved", approval_id)
        self._answered.append(approval_id)
        await self.answer_again()

    async def deny(self, line: str) -> None:
        """Refuse a call; a second answer is refused."""
        approval_id = self._approval_of(line)
        await self.session.deny(approval_id)
        self._note("denied", approval_id)
        self._answered.append(approval_id)
        await self.answer_again()

    async def approve_from_outside(self, line: str) -> None:
        """Let a call run, then refuse it, both from outside: the first answer counts."""
        approval_id = self._approval_of(line)
        await self._remote.approve(approval_id)
        self._note("approved", approval_id)
        await self._remote.deny(approval_id)
        await self._until_settled(approval_id)

    async def deny_from_outside(self, line: str) -> None:
        """Refuse a call, then let it run, both from outside: the first answer counts."""
        approval_id = self._approval_of(line)
        await self._remote.deny(approval_id)
        self._note("denied", approval_id)
        await self._remote.approve(approval_id)
        await self._until_settled(approval_id)

    async def deliver(self, line: str) -> None:
        """Deliver the answer of a call; another answer is refused, and the same one accepted."""
        await deliver_once(self.session, line)
        self._note("delivered", answer_for(line))

    async def deliver_from_outside(self, line: str) -> None:
        """Have the holder record the answer of a call."""
        await deliver_once(self._remote, line)
        self._note("delivered", answer_for(line))

    async def answer_again(self) -> None:
        """Answer everything that was answered here once more; each is NOT_FOUND."""
        for approval_id in self._answered:
            for answer in (self.session.approve, self.session.deny):
                await require_error(
                    ErrorCode.NOT_FOUND, answer(approval_id), "an answer counts once"
                )

    async def until_asked(self, *lines: str) -> None:
        """Wait for the questions about these calls."""
        waiting = set(lines)

        def was_last(event: Event) -> bool:
            if isinstance(event, ApprovalRequested):
                waiting.discard(line_of(event.arguments))
            return not waiting

        await self.until(was_last)

    async def _until_settled(self, approval_id: str) -> None:
        await self.until(
            lambda event: isinstance(event, ApprovalSettled) and event.approval_id == approval_id
        )
        self._answered.append(approval_id)

    # Branches.

    async def rewind(self, line: str) -> None:
        """Go back to the answer that calls for a line."""
        message_id = answer_that_calls(self.session, line).id
        await self.session.rewind(to=message_id)
        self._note("rewind", message_id, self._message_ids())

    async def undo(self) -> None:
        """Take the last rewind back."""
        await self.session.undo_rewind()
        self._note("undo", "", self._message_ids())

    async def fork(self, line: str, name: str) -> AgentSession:
        """Go on from the answer that calls for a line in a session of its own."""
        fork = await self.session.fork(after=answer_that_calls(self.session, line).id, name=name)
        self._note("fork", str(fork.session_id), tuple(message.id for message in fork.messages))
        return fork

    # From outside, with an outcome.

    async def rewind_from_outside(self, line: str) -> None:
        """Have the holder go back to the answer that calls for a line."""
        message_id = answer_that_calls(self.session, line).id
        await self._remote.rewind(to=message_id)
        self._note("rewind", message_id, await self._stored_ids())
        await self.until_idle()

    async def undo_from_outside(self) -> None:
        """Have the holder take the last rewind back."""
        await self._remote.undo_rewind()
        self._note("undo", "", await self._stored_ids())
        await self.until_idle()

    async def configure_from_outside(self, temperature: str) -> None:
        """Have the holder change a setting."""
        await self._remote.configure(temperature=float(temperature))
        self._note("configured", temperature)

    async def compact_from_outside(self) -> None:
        """Have the holder compact the conversation."""
        await self._remote.compact()

    async def fork_from_outside(self, line: str) -> None:
        """Go on from an answer in a session of the caller's own."""
        after = answer_that_calls(self.session, line).id
        async with await self._remote.fork(after=after) as fork:
            ids = tuple(message.id for message in fork.messages)
            self._note("fork", str(fork.session_id), ids)

    async def _stored_ids(self) -> tuple[str, ...]:
        return tuple(message.id for message in await self._remote.messages())

    async def until(self, found: Callable[[Event], bool]) -> None:
        """Follow the log from its beginning until something is in it."""
        async for event in self.session.events():
            if found(event):
                return
        require(condition=False, promise="the log goes on")

    async def until_idle(self) -> None:
        """Wait until nothing runs."""
        await self.session.wait_idle()

    def _message_ids(self) -> tuple[str, ...]:
        return tuple(message.id for message in self.session.messages)

    def _approval_of(self, line: str) -> str:
        waiting = {line_of(item.arguments): item.id for item in self.session.unfinished.approvals}
        return waiting[line]

    def _note(self, deed: Deed, subject: str, messages: tuple[str, ...] = ()) -> None:
        session_id = self.session.session_id
        assert session_id is not None
        self._notes.add(
            Acknowledged(deed=deed, session_id=session_id, subject=subject, messages=messages)
        )


def _says(entry: Entry, text: str) -> bool:
    return isinstance(entry, InputQueued) and entry.message.text == text
