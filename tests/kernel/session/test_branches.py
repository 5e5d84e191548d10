"""Going back, branching off and moving away: whatever the order, nothing is lost or mixed up."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haptera import Agent, AgentSession, tool
from haptera.kernel.session.log_reading import fold_log
from haptera.model.entry_bytes import decode_entry, encode_entry
from haptera.model.errors import ErrorCode, SessionError, StoreError
from haptera.model.ids import SessionId
from haptera.model.log.entry import Entry
from haptera.model.log.history import Rewound
from haptera.model.messages import Message
from haptera.model.session_state import check_state
from haptera.stores.memory import MemoryLog, MemoryStore
from haptera.testing import Gate, calls, says
from tests.attacks.moments import others_run
from tests.attacks.slow_store import HeldStore
from tests.history_grammar import violations
from tests.kernel.session.three_turns import ThreeTurns, durable_agent
from tests.scripted_agents import failure_of, live_of, make_agent
from tests.stores.store_factories import DURABLE, STORE_FACTORIES

_EXAMPLES = {"memory": 60, **dict.fromkeys(DURABLE, 6)}

_steps = st.lists(
    st.tuples(
        st.sampled_from(["chat", "tools", "rewind", "undo", "fork", "restore", "reopen"]),
        st.integers(0, 30),
    ),
    max_size=12,
)


class Walk:
    """One session after another, each a branch of the one before, with what it should hold."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.session = agent.session()
        self.others: list[tuple[AgentSession, tuple[Message, ...]]] = []
        """Sessions that were left behind, and what they held then."""
        self.before: list[tuple[Message, ...]] = []
        """What the session held before each rewind that can be undone."""

    async def step(self, what: str, number: int) -> None:
        """Do one thing and check what it did."""
        await getattr(self, what)(number)
        for other, messages in self.others:
            assert other.messages == messages

    async def chat(self, number: int) -> None:
        """Say something that is answered at once."""
        del number
        earlier = self.session.messages
        await self.session.chat("next")
        # A prompt after a prompt joins it; everything else stays as it was.
        kept = earlier[:-1]
        assert self.session.messages[: len(kept)] == kept
        self.before.clear()

    async def tools(self, number: int) -> None:
        """Say something that is answered in several turns."""
        await self.session.chat(f"Write lines, {number}.")
        self.before.clear()

    async def rewind(self, number: int) -> None:
        """Go back to any message."""
        messages = self.session.messages
        if messages:
            place = number % len(messages)
            await self.session.rewind(to=messages[place].id)
            assert _texts(self.session.messages[: place + 1]) == _texts(messages[: place + 1])
            # Calls keep their results, in one message more.
            assert len(self.session.messages) <= place + 2
            self.before.append(messages)

    async def undo(self, number: int) -> None:
        """Take the last rewind back."""
        del number
        if self.before:
            await self.session.undo_rewind()
            assert self.session.messages == self.before.pop()

    async def fork(self, number: int) -> None:
        """Go on in a branch, from any message."""
        messages = self.session.messages
        place = number % len(messages) if messages else None
        after = None if place is None else messages[place].id
        branch = await self.session.fork(after=after)
        await branch.open()
        kept = messages if place is None else messages[: place + 1]
        assert _texts(branch.messages[: len(kept)]) == _texts(kept)
        self._go_to(branch)

    async def restore(self, number: int) -> None:
        """Go on in a session that is restored from an export."""
        del number
        state = await self.session.export()
        assert check_state(msgspec.json.decode(msgspec.json.encode(state))) == state
        restored = self._agent.session(restore=state)
        await restored.open()
        assert restored.messages == self.session.messages
        self._go_to(restored)

    async def reopen(self, number: int) -> None:
        """Close the session and open it again; its log, written out and read, is the same."""
        del number
        live = await live_of(self.session)
        entries = await live.store.log.read(live.session_id)
        again = [decode_entry(encode_entry(entry)) for entry in entries]
        assert (await fold_log(live.store.log, again)).messages() == self.session.messages
        messages = self.session.messages
        await self.session.close()
        self.session = self._agent.session(live.session_id, must_exist=True)
        await self.session.open()
        assert self.session.messages == messages

    async def close(self) -> None:
        """Close every session."""
        for other, _ in self.others:
            await other.close()
        await self.session.close()

    def _go_to(self, session: AgentSession) -> None:
        self.others.append((self.session, self.session.messages))
        self.session = session
        self.before.clear()


def _texts(messages: tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages]


def _on_store(kind: str, work: Callable[[Agent], Coroutine[None, None, None]]) -> None:
    async def run() -> None:
        with TemporaryDirectory() as folder:
            provider = ThreeTurns()
            async with durable_agent(kind, Path(folder), provider) as agent:
                await work(agent)
            for request in provider.requests:
                assert violations(request.messages) == []

    asyncio.run(run())


def _walk(kind: str, steps: list[tuple[str, int]]) -> None:
    async def walk(agent: Agent) -> None:
        walker = Walk(agent)
        await walker.session.open()
        for what, number in steps:
            await walker.step(what, number)
        await walker.close()

    _on_store(kind, walk)


def _walk_often(kind: str, examples: int) -> None:
    @settings(max_examples=examples)
    @given(_steps)
    def check(steps: list[tuple[str, int]]) -> None:
        _walk(kind, steps)

    check()


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", STORE_FACTORIES)
def test_any_order_of_going_back_and_branching_off_keeps_every_conversation(kind: str) -> None:
    _walk_often(kind, _EXAMPLES[kind])


@pytest.mark.parametrize("kind", STORE_FACTORIES)
@pytest.mark.parametrize("last", [("fork", 4), ("rewind", 4)], ids=str)
def test_results_that_a_prompt_had_joined_are_gone_to_as_they_are_shown(
    kind: str, last: tuple[str, int]
) -> None:
    steps = [("tools", 0), ("rewind", 3), ("chat", 0), ("restore", 0), ("rewind", 3), last]

    _walk(kind, steps)


@pytest.mark.soak
@pytest.mark.parametrize("kind", STORE_FACTORIES)
def test_many_orders_of_going_back_and_branching_off(kind: str) -> None:
    _walk_often(kind, 40 * _EXAMPLES[kind])


@pytest.mark.parametrize("kind", STORE_FACTORIES)
async def test_rewinds_are_taken_back_one_after_the_other(kind: str, tmp_path: Path) -> None:
    async with durable_agent(kind, tmp_path, ThreeTurns()) as agent, agent.session() as session:
        first = await session.chat("next")
        await session.chat("and next")
        whole = session.messages
        await session.rewind(to=whole[2].id)
        shorter = session.messages
        assert first.message_id is not None
        await session.rewind(to=first.message_id)
        await session.undo_rewind()
        assert session.messages == shorter
        await session.undo_rewind()
        assert session.messages == whole
        assert (await failure_of(session.undo_rewind())).code is ErrorCode.NOT_FOUND


@pytest.mark.parametrize("kind", STORE_FACTORIES)
async def test_a_branch_goes_its_own_way(kind: str, tmp_path: Path) -> None:
    async with (
        durable_agent(kind, tmp_path, ThreeTurns()) as agent,
        agent.session("trunk") as trunk,
    ):
        first = await trunk.chat("next")
        await trunk.chat("and next")
        async with await trunk.fork(after=first.message_id, name="branch") as branch:
            await branch.chat("the branch is next")
            async with await branch.fork() as twig:
                await twig.chat("the twig is next")
                assert len(twig.messages) == 6
            assert len(branch.messages) == 4
        assert _texts(trunk.messages) == ["next", "fine", "and next", "fine"]


@pytest.mark.parametrize("kind", STORE_FACTORIES)
async def test_a_branch_is_in_the_store_when_fork_returns(kind: str, tmp_path: Path) -> None:
    async with durable_agent(kind, tmp_path, ThreeTurns()) as agent, agent.session() as trunk:
        said = await trunk.chat("next")
        branch = await trunk.fork(name="branch")
        assert (await agent.remote("branch")).session_id == branch.session_id
        assert branch.messages[-1].id == said.message_id
        await branch.close()


@pytest.mark.parametrize("kind", STORE_FACTORIES)
async def test_a_message_from_before_the_fork_can_be_gone_back_to(
    kind: str, tmp_path: Path
) -> None:
    async with durable_agent(kind, tmp_path, ThreeTurns()) as agent, agent.session() as trunk:
        first = await trunk.chat("next")
        await trunk.chat("and next")
        async with await trunk.fork() as branch:
            await branch.chat("the branch is next")
            whole = branch.messages
            assert first.message_id is not None
            await branch.rewind(to=first.message_id)
            assert _texts(branch.messages) == ["next", "fine"]
            async with await branch.fork(after=whole[0].id) as twig:
                assert _texts(twig.messages) == ["next"]
            await branch.undo_rewind()
            assert branch.messages == whole


@pytest.mark.parametrize("kind", STORE_FACTORIES)
async def test_a_restored_conversation_can_be_gone_back_into(kind: str, tmp_path: Path) -> None:
    async with durable_agent(kind, tmp_path, ThreeTurns()) as agent, agent.session() as origin:
        await origin.chat("Write lines.")
        state = await origin.export()
        async with agent.session(restore=state) as restored:
            await restored.rewind(to=restored.messages[1].id)
            await restored.chat("next")
            assert _texts(restored.messages)[-2:] == ["next", "fine"]


@pytest.mark.parametrize("kind", STORE_FACTORIES)
async def test_a_branch_does_not_take_a_name_that_is_taken(kind: str, tmp_path: Path) -> None:
    async with (
        durable_agent(kind, tmp_path, ThreeTurns()) as agent,
        agent.session("trunk") as trunk,
    ):
        await trunk.chat("next")
        with pytest.raises(StoreError) as raised:
            await (await trunk.fork(name="trunk")).open()
        assert raised.value.code is ErrorCode.CONFLICT


@pytest.mark.parametrize("kind", STORE_FACTORIES)
async def test_deleting_a_branch_leaves_its_trunk(kind: str, tmp_path: Path) -> None:
    async with durable_agent(kind, tmp_path, ThreeTurns()) as agent, agent.session() as trunk:
        await trunk.chat("next")
        branch = await trunk.fork(name="branch")
        live = await live_of(branch)
        await branch.close()
        await live.store.log.delete(live.session_id)
        with pytest.raises(SessionError) as raised:
            await agent.session("branch", must_exist=True).open()
        assert raised.value.code is ErrorCode.NOT_FOUND
        await trunk.chat("next")
        assert len(trunk.messages) == 4


@pytest.mark.parametrize("kind", STORE_FACTORIES)
async def test_a_branch_of_a_deleted_session_says_what_is_gone(kind: str, tmp_path: Path) -> None:
    async with durable_agent(kind, tmp_path, ThreeTurns()) as agent:
        trunk = agent.session()
        await trunk.chat("next")
        branch = await trunk.fork(name="branch")
        live = await live_of(branch)
        await branch.close()
        await trunk.close()
        await live.store.log.delete((await live.store.log.read(live.session_id))[0].parent)  # type: ignore[attr-defined]
        with pytest.raises(StoreError) as raised:
            await agent.session("branch").open()
        assert raised.value.code is ErrorCode.CORRUPT


@pytest.mark.parametrize("kind", STORE_FACTORIES)
async def test_a_session_that_was_deleted_meanwhile_has_nothing_to_branch_from(
    kind: str, tmp_path: Path
) -> None:
    async with durable_agent(kind, tmp_path, ThreeTurns()) as agent, agent.session() as session:
        said = (await session.chat("next")).message_id
        assert said is not None
        live = await live_of(session)
        await live.store.log.delete(live.session_id)
        for attempt in (session.fork(), session.fork(after=said), session.rewind(to=said)):
            with pytest.raises(SessionError) as raised:
                await attempt
            assert raised.value.code is ErrorCode.NOT_FOUND


@pytest.mark.slow
async def test_a_branch_may_have_any_number_of_generations_before_it(tmp_path: Path) -> None:
    async with durable_agent("memory", tmp_path, ThreeTurns()) as agent:
        session = agent.session()
        await session.chat("next")
        for _ in range(1200):
            branch = await session.fork()
            await branch.open()
            await session.close()
            session = branch
        assert _texts(session.messages) == ["next", "fine"]


async def test_two_sessions_of_a_new_name_opened_at_once_are_one(tmp_path: Path) -> None:
    async with (
        durable_agent("jsonl", tmp_path, ThreeTurns()) as one,
        durable_agent("jsonl", tmp_path, ThreeTurns()) as other,
    ):
        opened = await asyncio.gather(
            *(agent.session("new").open() for agent in (one, other)), return_exceptions=True
        )
        refused = [item for item in opened if isinstance(item, SessionError)]
        assert [item.code for item in refused] == [ErrorCode.BUSY]


class _HeldReads(MemoryLog):
    """A log whose next reader waits until the test lets it go on."""

    gate: Gate | None = None

    async def read(
        self, session_id: SessionId, *, after: int = 0, limit: int | None = None
    ) -> list[Entry]:
        gate, self.gate = self.gate, None
        if gate is not None:
            await gate.wait()
        return await super().read(session_id, after=after, limit=limit)


async def test_a_rewind_whose_session_is_closed_meanwhile_is_refused() -> None:
    """The store has another holder by then perhaps; that is no business of the caller's."""
    store = MemoryStore()
    store.log = log = _HeldReads(store._sessions)
    agent, _ = make_agent([says("one")], store=store)
    async with agent:
        session = agent.session()
        result = await session.chat("go")
        log.gate = gate = Gate()
        rewinding = asyncio.ensure_future(session.rewind(to=result.messages[0].id))
        await gate.reached.wait()
        await session.close()
        gate.open()
        assert (await failure_of(rewinding)).code is ErrorCode.CLOSED
        entries = await log.read(session.session_id or SessionId(""))
        assert not any(isinstance(entry, Rewound) for entry in entries)


@tool(approval="ask")
async def _pay() -> str:
    """Pay."""
    return "paid"


async def test_an_answer_to_a_question_that_is_being_rewound_is_too_late() -> None:
    """It would stand in the log where the question was never asked, and count for nothing."""
    store = HeldStore()
    agent, _ = make_agent([calls(("_pay", {}))], store=store, tools=[_pay])
    async with agent, agent.session() as session:
        result = await session.chat("go")
        store.log.hold = lambda entries: any(isinstance(item, Rewound) for item in entries)
        rewinding = asyncio.ensure_future(session.rewind(to=result.messages[0].id))
        await store.log.held.wait()
        denying = asyncio.ensure_future(session.deny(result.pending[0].id))
        for _ in range(20):
            await others_run()
        store.log.go_on.set()
        await rewinding
        assert (await failure_of(denying)).code is ErrorCode.NOT_FOUND
        await session.undo_rewind()
        assert session.unfinished.approvals == result.pending
        await session.deny(result.pending[0].id)
