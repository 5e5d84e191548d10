"""What must hold in the folder that a killed player of the script leaves, and how it goes on."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from haptera import Agent, AgentSession
from haptera.kernel.session.log_reading import fold_log
from haptera.model.canonical import arguments_hash
from haptera.model.errors import AgentError, ErrorCode
from haptera.model.ids import SessionId
from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.log.entry import Entry
from haptera.model.log.history import Rewound
from haptera.model.log.queries import InputPromoted, InputQueued, QueryStarted
from haptera.model.log.sessions import SessionChanged, SessionOpened
from haptera.model.log.tools import ToolEnded, ToolStarted, ToolWaiting
from haptera.model.messages import AssistantMessage, Message
from haptera.ports.session_store import Store
from haptera.testing.promises import (
    PromiseBrokenError,
    require,
    require_error,
    require_same,
)
from tests.kernel.session.crash_script import TOOLS, TRUNK, DoAsAsked, script_agent
from tests.kernel.session.ends_of_queries import queries_without_end
from tests.kernel.session.noting_session import Acknowledged, Notes, answer_for, line_of

_NEXT = "next"
_ROUNDS = 12
"""More than any state of the script needs to come to its end."""
_BRANCHES = 2
"""How many answers with calls are gone on from, beside the end."""
_TIME_LIMIT_SECONDS = 600.0
"""Only what hangs takes longer: a disk that others use may take seconds for a single sync."""


class Tally(msgspec.Struct):
    """What was looked at, over all deaths."""

    acknowledged: int = 0
    effects: int = 0
    answers: int = 0
    fates: Counter[str] = msgspec.field(default_factory=Counter)
    """How the calls of unfinished queries were found."""


def effects_in(folder: Path) -> Counter[str]:
    """Count how often each line was written."""
    file = folder / "effects"
    return Counter(file.read_text().split() if file.exists() else ())


class Expectations(msgspec.Struct, frozen=True, kw_only=True):
    """What was acknowledged, what was done, and the logs that must fit it."""

    acknowledged: list[Acknowledged]
    effects: Counter[str]
    logs: dict[SessionId, list[Entry]]

    @classmethod
    async def gather(cls, store: Store, folder: Path) -> "Expectations":
        """Read the notes, the effects, and the log of every session that the store has."""
        records = await store.index.browse("local", "durable")
        return cls(
            acknowledged=Notes(folder).read(),
            effects=effects_in(folder),
            logs={record.id: await store.log.read(record.id) for record in records},
        )

    async def check(self, store: Store, *, is_over: bool) -> None:
        """Fail unless nothing is lost and nothing happened twice."""
        for session_id, entries in self.logs.items():
            seqs = [entry.seq for entry in entries]
            require_same(seqs, list(range(1, len(seqs) + 1)), f"a log of {session_id} without gaps")
        self._check_prompts(is_over=is_over)
        if is_over:
            for entries in self.logs.values():
                require_same(queries_without_end(entries), [], "queries without an end")
        self._check_answers()
        self._check_deliveries()
        self._check_settings()
        await self._check_moves(store)
        await self._check_forks(store)
        self._check_effects()

    def entries(self) -> Iterable[Entry]:
        """Return the entries of all logs."""
        return (entry for entries in self.logs.values() for entry in entries)

    def _noted(self, *deeds: str) -> list[Acknowledged]:
        return [item for item in self.acknowledged if item.deed in deeds]

    def _log_of(self, item: Acknowledged) -> list[Entry]:
        require(item.session_id in self.logs, f"the session of {item} is there")
        return self.logs[item.session_id]

    def _check_prompts(self, *, is_over: bool) -> None:
        """Every acknowledged prompt was taken in once; in the end each entered its conversation."""
        taken = Counter(
            entry.message.text
            for entry in self.entries()
            if isinstance(entry, InputQueued | QueryStarted) and entry.message is not None
        )
        del taken[_NEXT]
        twice = [text for text, count in taken.items() if count > 1]
        require_same(twice, [], "prompts that were taken in twice")
        for item in self._noted("prompt"):
            entries = self._log_of(item)
            own = [entry for entry in entries if isinstance(entry, InputQueued | QueryStarted)]
            texts = [entry.message.text for entry in own if entry.message is not None]
            require_same(texts.count(item.subject), 1, f"times that {item.subject!r} is in the log")
        promoted = Counter(e.input_id for e in self.entries() if isinstance(e, InputPromoted))
        require(all(count == 1 for count in promoted.values()), "a prompt was promoted twice")
        if is_over:
            queued = {e.input_id for e in self.entries() if isinstance(e, InputQueued)}
            require_same(queued - promoted.keys(), set(), "prompts without an answer")

    def _check_answers(self) -> None:
        """Every acknowledged answer is the one in the log, and every question has at most one."""
        for session_id, entries in self.logs.items():
            settled = [entry for entry in entries if isinstance(entry, ApprovalSettled)]
            count = Counter(entry.approval_id for entry in settled)
            twice = [approval_id for approval_id, times in count.items() if times > 1]
            require_same(twice, [], f"approvals of {session_id} that were settled twice")
            asked = {entry.approval_id for entry in entries if isinstance(entry, ApprovalRequested)}
            require(count.keys() <= asked, "an answer without a question")
        for item in self._noted("approved", "denied"):
            found = [
                entry.decision
                for entry in self._log_of(item)
                if isinstance(entry, ApprovalSettled) and entry.approval_id == item.subject
            ]
            require_same(found, [item.deed], f"the answer to {item.subject}")

    def _check_deliveries(self) -> None:
        """Every acknowledged answer of a call is in the log once, and no wait has two ends."""
        for session_id, entries in self.logs.items():
            waits = {(e.turn_id, e.call_id) for e in entries if isinstance(e, ToolWaiting)}
            ends = Counter((e.turn_id, e.call_id) for e in entries if isinstance(e, ToolEnded))
            twice = [call for call in waits if ends[call] > 1]
            require_same(twice, [], f"calls of {session_id} that waited and ended twice")
        for item in self._noted("delivered"):
            texts = [_text(entry) for entry in self._log_of(item) if isinstance(entry, ToolEnded)]
            require_same(texts.count(item.subject), 1, f"times that {item} is in the log")

    def _check_settings(self) -> None:
        """Every acknowledged change of a setting is in the log once."""
        for item in self._noted("configured"):
            told = [
                entry.changes.get("settings", {}).get("temperature")
                for entry in self._log_of(item)
                if isinstance(entry, SessionChanged) and entry.origin == "configure"
            ]
            require_same(told.count(float(item.subject)), 1, f"times that {item} is in the log")

    async def _check_moves(self, store: Store) -> None:
        """Every acknowledged rewind and undo is in the log, and leads to where it was said to."""
        for session_id in {item.session_id for item in self._noted("rewind", "undo")}:
            noted = [i for i in self._noted("rewind", "undo") if i.session_id == session_id]
            entries = self.logs[session_id]
            moves = [entry for entry in entries if isinstance(entry, Rewound)]
            require(len(moves) >= len(noted), f"{len(noted)} moves, but {len(moves)} in the log")
            for item, move in zip(noted, moves, strict=False):
                require_same(move.message_id or "", item.subject, "where a rewind goes")
                fold = await fold_log(store.log, entries[: move.seq])
                require_same(_ids(fold.messages()), item.messages, f"messages after {item.deed}")

    async def _check_forks(self, store: Store) -> None:
        """Every acknowledged fork is there, and begins with what it was said to begin with."""
        for item in self._noted("fork"):
            require(item.subject in self.logs, f"fork {item.subject} is there")
            entries = self.logs[SessionId(item.subject)]
            opened = entries[0]
            require(isinstance(opened, SessionOpened), "a fork begins with its opening")
            assert isinstance(opened, SessionOpened)
            require_same(opened.parent, item.session_id, "the parent of a fork")
            fold = await fold_log(store.log, entries[:1])
            require_same(_ids(fold.messages()), item.messages, "messages of a fork")

    def _check_effects(self) -> None:
        """Every line was written once at most, after its start, and only if it was allowed."""
        twice = {line: count for line, count in self.effects.items() if count > 1}
        require_same(twice, {}, "effects that came twice")
        started = Counter(e.arguments_hash for e in self.entries() if isinstance(e, ToolStarted))
        require(all(count == 1 for count in started.values()), "a call was started twice")
        decided = self._decisions()
        for line in self.effects:
            hashes = {word: arguments_hash(tool, {"line": line}) for word, tool in TOOLS.items()}
            began = [word for word, found in hashes.items() if found in started]
            require_same(len(began), 1, f"records of the start of {line!r}")
            allowed = began in (["write"], ["later"]) or "approved" in decided.get(line, ())
            require(allowed, f"{line!r} was written without permission")
            require("denied" not in decided.get(line, ()), f"{line!r} was written though denied")
        for entry in self.entries():
            if isinstance(entry, ToolEnded) and entry.outcome == "ok":
                line = _text(entry).split()[0]
                require_same(self.effects[line], 1, f"effects of {line!r}, which has ended")

    def _decisions(self) -> dict[str, set[str]]:
        """Return every answer that was given about a line."""
        asked = {
            entry.approval_id: line_of(entry.arguments)
            for entry in self.entries()
            if isinstance(entry, ApprovalRequested)
        }
        decided: dict[str, set[str]] = {}
        for entry in self.entries():
            if isinstance(entry, ApprovalSettled):
                decided.setdefault(asked[entry.approval_id], set()).add(entry.decision)
        return decided


def _ids(messages: Iterable[Message]) -> tuple[str, ...]:
    return tuple(message.id for message in messages)


def _text(entry: ToolEnded) -> str:
    return "".join(getattr(piece, "text", "") for piece in entry.content)


class Aftermath:
    """Opens what is left, looks at it, carries on, and looks again.

    There are two ways to go on: to resume what is unfinished and to branch off later, or to branch
    off at once, while it is still unfinished.
    """

    def __init__(
        self, store: Store, folder: Path, tally: Tally, *, branches_first: bool = False
    ) -> None:
        self._store = store
        self._folder = folder
        self._tally = tally
        self._branches_first = branches_first

    async def check(self) -> None:
        """Fail unless every promise was kept, and is kept by the next holder."""
        try:
            async with asyncio.timeout(_TIME_LIMIT_SECONDS):
                await self._check()
        except TimeoutError:
            raise PromiseBrokenError("sessions go on: nothing happened") from None

    async def _check(self) -> None:
        provider = DoAsAsked()
        async with (
            script_agent(self._store, self._folder, provider) as agent,
            AsyncExitStack() as stack,
        ):
            sessions = await self._open_all(agent, stack)
            await self._expect(is_over=False)
            for session in sessions:
                await self._answer_again(session)
                self._tally.fates.update(call.fate for call in session.unfinished.calls)
            await self._go_on(sessions)
            for session in sessions:
                await self._answer_again(session)
        provider.check_requests()
        expectations = await Expectations.gather(self._store, self._folder)
        self._tally.acknowledged += len(expectations.acknowledged)
        self._tally.effects += len(expectations.effects)

    async def _go_on(self, sessions: list[AgentSession]) -> None:
        for session in sessions if self._branches_first else ():
            await _branch_off(session)
            await self._expect(is_over=False)
        for session in sessions:
            await _carry_on(session)
        await self._expect(is_over=True)
        for session in sessions if not self._branches_first else ():
            await _branch_off(session)
            await _carry_on(session)
        await self._expect(is_over=True)

    async def _open_all(self, agent: Agent, stack: AsyncExitStack) -> list[AgentSession]:
        """Open every session; what was sent to them meanwhile is taken in by that."""
        sessions = [await stack.enter_async_context(agent.session(TRUNK))]
        for record in await self._store.index.browse("local", "durable"):
            if record.id != sessions[0].session_id:
                session = agent.session(record.id, must_exist=True)
                sessions.append(await stack.enter_async_context(session))
        for session in sessions:
            await session.wait_idle()
        return sessions

    async def _expect(self, *, is_over: bool) -> None:
        expectations = await Expectations.gather(self._store, self._folder)
        await expectations.check(self._store, is_over=is_over)

    async def _answer_again(self, session: AgentSession) -> None:
        """Every answer that is in the log was the only one."""
        assert session.session_id is not None
        for entry in await self._store.log.read(session.session_id):
            if isinstance(entry, ApprovalSettled):
                again = session.approve(entry.approval_id)
                await require_error(ErrorCode.NOT_FOUND, again, "a second answer is refused")
                self._tally.answers += 1
        waiting = {call.ref for call in session.unfinished.waiting}
        for entry in await self._store.log.read(session.session_id):
            if (
                isinstance(entry, ToolWaiting)
                and entry.ref is not None
                and entry.ref not in waiting
            ):
                again = session.deliver(entry.ref, "another answer")
                codes = (ErrorCode.NOT_FOUND, ErrorCode.CONFLICT)
                require((await _code_of(again)) in codes, "a second delivery is refused")
                self._tally.answers += 1


async def _code_of(work: Awaitable[None]) -> ErrorCode | None:
    try:
        await work
    except AgentError as error:
        return error.code
    return None


async def _carry_on(session: AgentSession) -> None:
    """Approve what is asked and resume until nothing is unfinished, then say something new."""
    await _finish(session)
    require_same((await session.chat(_NEXT)).text, "fine", "the answer to the next prompt")


async def _finish(session: AgentSession) -> None:
    for _ in range(_ROUNDS):
        await session.wait_idle()
        unfinished = session.unfinished
        if unfinished.query_id is None and not unfinished.inputs:
            return
        for request in unfinished.approvals:
            await session.approve(request.id)
        for call in unfinished.waiting:
            await session.deliver(call.call_id, answer_for((call.ref or "").removeprefix("about ")))
        await session.resume()
    raise PromiseBrokenError(f"a session comes to its end: {session.unfinished}")


async def _branch_off(session: AgentSession) -> None:
    """Go on from the last answers with calls: in a fork, and by going back and undoing that."""
    answers = [item for item in session.messages if isinstance(item, AssistantMessage)]
    for answer in [item.id for item in answers if item.tool_calls][-_BRANCHES:]:
        async with await session.fork(after=answer) as fork:
            await _carry_on(fork)
            await fork.rewind(to=answer)
            await _carry_on(fork)
        before = _ids((await session.export()).messages)
        await session.rewind(to=answer)
        await _finish(session)
        await session.undo_rewind()
        after = _ids((await session.export()).messages)
        require_same(after, before, "messages after a rewind that was undone")
