"""Whatever is said, compacted, rewound and edited: what is sent is well-formed and short enough."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from haptera import Agent, AgentError, AgentSession, ErrorCode, tool
from haptera.kernel.session.log_reading import fold_log
from haptera.model.compaction_settings import CompactionSettings
from haptera.model.errors import ProviderError
from haptera.model.ids import SessionId
from haptera.model.log.compactions import Compaction
from haptera.model.requests import ModelRequest, TokenCount
from haptera.model.stream_parts import StreamPart
from haptera.stores.memory import MemoryStore
from haptera.testing import ScriptedProvider, calls, says
from tests.folded_sessions import state_of
from tests.history_grammar import violations

WINDOW = 3_000
WIDE = 40
"""So many times as long are windows and results where old results are left out, too."""
REFUSALS = {ErrorCode.MESSAGE_NOT_FOUND, ErrorCode.NOT_FOUND, ErrorCode.NOTHING_TO_SEND}
"""What an operation may be refused with, because there is nothing that it could be done to."""

OF_SUMMARIES = {ErrorCode.PROTOCOL, ErrorCode.BAD_REQUEST, ErrorCode.BUSY}
"""What a compaction may fail with: a bad summary, or a prompt that has no answer yet."""


class Whatever(ScriptedProvider):
    """Answers each request by what its prompt asks for; its summaries may be bad."""

    def __init__(self, scale: int) -> None:
        super().__init__(window=WINDOW * scale)
        self.summary = "the gist"
        self.tools_left = 0
        self.sent: list[ModelRequest] = []

    async def count_tokens(self, request: ModelRequest) -> TokenCount:
        """Count in another way than the estimate: a token is three and a half characters."""
        told = [text for message in request.messages for text in _texts(message.parts)]
        return TokenCount(tokens=int(len("".join((*request.system, *told))) / 3.5), exact=True)

    def stream(self, request: ModelRequest) -> Any:
        """Play the step that fits."""
        self.sent.append(request)
        self.replace_rest(self._step(request))
        return super().stream(request)

    def _step(self, request: ModelRequest) -> list[StreamPart] | Exception:
        if "You summarise" in "".join(request.system):
            fails = self.summary == "fail"
            return ProviderError(ErrorCode.BAD_REQUEST, "no") if fails else says(self.summary)
        if self.tools_left and request.tools:
            self.tools_left -= 1
            return calls(("look", {"n": self.tools_left}))
        return says("well " * 20)


def _texts(parts: Sequence[Any]) -> Iterator[str]:
    for part in parts:
        yield getattr(part, "text", "")
        yield getattr(part, "name", "")


def an_agent(store: MemoryStore, provider: Whatever, scale: int) -> Agent:
    @tool
    async def look(n: int) -> str:
        """Look."""
        return f"{n} " + "seen " * 120 * scale

    return Agent(
        "scripted/one",
        providers=[provider],
        store=store,
        tools=[look],
        loop_threshold=None,
        environment={},
        cached_reminders=["be kind"],
        compaction=CompactionSettings(context_window=WINDOW * scale),
    )


OPERATIONS = st.one_of(
    st.tuples(st.just("chat"), st.integers(1, 300)),
    st.tuples(st.just("chat"), st.integers(1, 300)),
    st.tuples(st.just("tools"), st.integers(1, 9)),
    st.tuples(st.just("compact"), st.sampled_from(["the gist", "", "fail", "long " * 3_000])),
    st.tuples(st.just("summaries"), st.sampled_from(["the gist", "", "fail", "long " * 3_000])),
    st.tuples(st.just("rewind"), st.integers(0, 40)),
    st.tuples(st.just("undo"), st.just(0)),
    st.tuples(st.sampled_from(["replace", "remove", "add"]), st.integers(0, 40)),
    st.tuples(st.just("note"), st.just(0)),
    st.tuples(st.just("reopen"), st.just(0)),
    st.tuples(st.just("fork"), st.just(0)),
)


class Course:
    """One session while operations happen to it."""

    def __init__(self, scale: int) -> None:
        self.store, self.provider, self._scale = MemoryStore(), Whatever(scale), scale
        self.strategies: list[str] = []
        """Of the compactions in the log."""

    async def run(self, operations: list[tuple[str, Any]]) -> None:
        """Let operations happen, and look at the session after each."""
        async with an_agent(self.store, self.provider, self._scale) as agent:
            session = await agent.session("one").open()
            for name, value in operations:
                if name == "reopen":
                    await session.close()
                    session = await agent.session("one").open()
                elif name == "fork":
                    session = await self._fork(session)
                else:
                    await self._do(session, name, value)
                await self._look_at(session)
            await session.close()
        assert self.provider.refused == 0

    async def _fork(self, session: AgentSession) -> AgentSession:
        branch = await session.fork()
        await branch.close()
        return session

    async def _do(self, session: AgentSession, name: str, value: Any) -> None:
        self.provider.tools_left = 0
        try:
            if name == "compact":
                before, self.provider.summary = self.provider.summary, value
                try:
                    await session.compact()
                finally:
                    self.provider.summary = before
            elif name == "summaries":
                self.provider.summary = value
            elif name == "note":
                await session.note("remember")
            elif name in {"chat", "tools"}:
                self.provider.tools_left = value if name == "tools" else 0
                await session.chat("word " * (value if name == "chat" else 1))
            else:
                await self._go_back_or_edit(session, name, value)
        except AgentError as error:
            assert error.code in (REFUSALS | (OF_SUMMARIES if name == "compact" else set())), error

    async def _go_back_or_edit(self, session: AgentSession, name: str, value: int) -> None:
        messages = session.messages
        chosen = messages[value % len(messages)].id if messages else "none"
        match name:
            case "rewind":
                await session.rewind(to=chosen)
            case "undo":
                await session.undo_rewind()
            case "replace":
                await session.replace_message(chosen, "something else")
            case "remove":
                await session.remove_message(chosen)
            case "add":
                await session.add_message("by hand", after=chosen, role="assistant")

    async def _look_at(self, session: AgentSession) -> None:
        """Compare the session with its whole log; check every request that was sent."""
        log = self.store.log
        entries = await log.read(session.session_id or SessionId(""))
        whole, live = await fold_log(log, entries), session._opened().fold
        assert live.sent_view() == whole.sent_view()
        assert live.head == whole.head
        assert state_of(live) == state_of(whole)
        self.strategies = [entry.strategy for entry in entries if isinstance(entry, Compaction)]
        for request in self.provider.sent:
            assert violations(request.messages) == []
        self.provider.sent.clear()


def _plays(operations: list[tuple[str, Any]], *, scale: int = 1) -> list[str]:
    course = Course(scale)
    asyncio.run(course.run(operations))
    return course.strategies


_LONG: list[tuple[str, Any]] = [("chat", 300)] * 9
_COMPACTED: list[tuple[str, Any]] = [("compact", "the gist"), ("reopen", 0)]


@pytest.mark.slow
@example(operations=[*_LONG, ("reopen", 0), *_LONG, ("reopen", 0), ("rewind", 3), ("reopen", 0)])
@example(operations=[("tools", 9), ("tools", 9), ("reopen", 0), ("compact", ""), ("chat", 9)])
@example(operations=[*_LONG, ("remove", 0), ("reopen", 0), *_LONG, ("reopen", 0)])
@example(operations=[("summaries", "fail"), *_LONG, ("reopen", 0), ("tools", 9), ("reopen", 0)])
@example(operations=[("tools", 9), ("note", 0), ("tools", 3), ("reopen", 0)])
@example(operations=[("tools", 3), ("tools", 9), ("compact", "the gist"), ("reopen", 0)])
@example(operations=[("note", 0), ("tools", 5), *_COMPACTED, ("chat", 1), *_COMPACTED])
@given(operations=st.lists(OPERATIONS, max_size=14))
@settings(max_examples=25, deadline=None)
def test_what_is_sent_is_well_formed_and_fits_and_reopening_changes_nothing(
    operations: list[tuple[str, Any]],
) -> None:
    _plays(operations)


_PRUNED: list[tuple[str, Any]] = [("tools", 9)] * 3


@pytest.mark.slow
@example(after=[("replace", 0), *_PRUNED, ("reopen", 0)])
@example(after=[("add", 6), ("reopen", 0), *_PRUNED, ("remove", 3), *_PRUNED])
@given(after=st.lists(OPERATIONS, max_size=8))
@settings(max_examples=15, deadline=None)
def test_the_same_where_old_results_are_left_out(after: list[tuple[str, Any]]) -> None:
    assert "prune" in _plays([*_PRUNED, *after, *_PRUNED], scale=WIDE)


@pytest.mark.soak
@given(operations=st.lists(OPERATIONS, max_size=60))
@settings(max_examples=1_000, deadline=None)
def test_the_same_for_many_more_and_longer_courses(operations: list[tuple[str, Any]]) -> None:
    _plays(operations)
