"""Long sessions with compactions: they stay below their window, and are read from the last one."""

from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from haptera import Agent, ErrorCode, tool
from haptera.model.compaction_settings import CompactionSettings
from haptera.model.errors import ProviderError, RequestError
from haptera.model.ids import SessionId
from haptera.model.log.compactions import Compaction
from haptera.model.log.entry import Entry
from haptera.model.parts import CompactionPart
from haptera.model.requests import ModelRequest, TokenCount
from haptera.model.stream_parts import StreamPart
from haptera.model.usage import Usage
from haptera.ports.session_store import SessionLog, Store
from haptera.stores.jsonl.store import JsonlStore
from haptera.stores.memory import MemoryStore
from haptera.testing import ScriptedProvider, calls, says
from tests.folded_sessions import state_of
from tests.stores.store_factories import STORE_FACTORIES, open_store

WINDOW = 8_000
MODEL = "scripted/one"
WANTED = CompactionSettings(context_window=WINDOW)


class Talker(ScriptedProvider):
    """Answers whatever it is asked, counts its tokens, and refuses what is above its window."""

    def __init__(self, *, summarises: Callable[[int], str | Exception] | None = None) -> None:
        super().__init__(window=WINDOW)
        self._summarises = summarises or (lambda number: f"# Objective\n- summary {number}")
        self.summaries = self.turns = self.longest = 0

    async def count_tokens(self, request: ModelRequest) -> TokenCount:
        """Count in another way than the estimate: a token is three and a half characters."""
        texts = [*request.system, *(_text_of(message) for message in request.messages)]
        return TokenCount(tokens=int(len("".join(texts)) / 3.5), exact=True)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        """Summarise if that is asked for, otherwise say something long."""
        count = (await self.count_tokens(request)).tokens
        if "You summarise" in "".join(request.system):
            self.summaries += 1
            made = self._summarises(self.summaries)
            self.add(made if isinstance(made, Exception) else says(made))
        else:
            self.turns += 1
            self.longest = max(self.longest, count)
            usage = Usage(input=count, output=60)
            self.add(says(f"answer {self.turns} " + "blah " * 40, usage=usage))
        self.requests.clear()
        async for batch in super().stream(request):
            yield batch


def _text_of(message: Any) -> str:
    return "".join(getattr(part, "text", "") or "" for part in message.parts)


class CountingLog:
    """A log that counts the entries that are read from it."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log
        self.entries_read = 0

    async def read(self, session_id: SessionId, **options: Any) -> list[Entry]:
        """Read entries, and count them."""
        entries = await self._log.read(session_id, **options)
        self.entries_read += len(entries)
        return entries

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class CountingStore:
    """A store with such a log."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.log = CountingLog(store.log)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def on(store: Any, provider: ScriptedProvider, **options: Any) -> Agent:
    told = {"compaction": WANTED, "environment": {}, **options}
    return Agent(MODEL, providers=[provider], store=store, **told)


@pytest.mark.slow
async def test_a_session_of_500_turns_stays_below_its_window_and_is_read_from_its_last_compaction(
    tmp_path: Path,
) -> None:
    provider, store = Talker(), JsonlStore(tmp_path)
    async with on(store, provider) as agent, agent.session("long") as session:
        for number in range(500):
            await session.chat(f"prompt {number} " + "word " * 50)
        whole, usage = session.messages, session._opened().fold.usage
        sent = session._opened().fold.sent_view()
        log = await store.log.read(session.session_id or SessionId(""))
    assert provider.refused == 0
    assert WINDOW // 2 < provider.longest <= WINDOW
    assert provider.turns == 500
    assert sum(isinstance(entry, Compaction) for entry in log) == provider.summaries > 5
    texts = [message.text for message in whole if message.text]
    assert [text.split()[1] for text in texts if text.startswith("prompt")] == [
        str(number) for number in range(500)
    ], "the history is whole"

    counting = CountingStore(store)
    async with on(counting, provider) as agent, agent.session("long") as session:
        assert counting.log.entries_read < len(log) // 10
        assert session._opened().fold.sent_view() == sent, "what is sent is the same"
        assert session._opened().fold.usage == usage
        assert session.messages[-1] == whole[-1]
        assert (await session.chat("and now?")).text.startswith("answer 501")
        assert len((await session.export()).messages) == len(whole) + 2, "an export is whole"
        await session.rewind(to=whole[1].id)
        assert [message.id for message in session.messages] == [item.id for item in whole[:2]]
    async with on(store, provider) as agent, agent.session("long") as session:
        assert [message.id for message in session.messages] == [item.id for item in whole[:2]]
        await session.undo_rewind()
        assert session.messages[-2].text == "and now?"
    await store.close()


@pytest.mark.parametrize("kind", list(STORE_FACTORIES))
async def test_a_reopened_session_is_what_it_was(kind: str, tmp_path: Path) -> None:
    @tool(approval="ask")
    async def look() -> str:
        """Look."""
        return "seen"

    store = open_store(kind, tmp_path)
    provider = ScriptedProvider()
    options: Any = {"tools": [look], "compaction": CompactionSettings()}
    async with on(store, provider, **options) as agent, agent.session("one") as session:
        for number in range(12):
            provider.add(says(f"answer {number}"))
            await session.chat(f"prompt {number} " + "word " * 100)
        await session.note("remember the milk")
        provider.add(calls(("look", {})))
        rested = await session.chat("look")
        await session.approve(rested.pending[0].id, scope="session")
        provider.add(says("looked"))
        await session.resume()
        await session.configure(thinking="high")
        provider.add(says("gist"))
        await session.compact()
        provider.add(says("on"))
        await session.chat("more")
        before = session._opened().fold
    counting = CountingStore(store)
    async with on(counting, provider, **options) as agent, agent.session("one") as session:
        after = session._opened().fold
        assert after.compacted.is_partial
        assert counting.log.entries_read < before.head // 2
        assert after.head == before.head
        assert state_of(after) == state_of(before)
        assert after.sent_view() == before.sent_view()
        assert after.standing.grants != []
        assert after.notes.noted
        provider.add(calls(("look", {})), says("looked again"))
        result = await session.chat("look again")
        assert result.text == "looked again", "it is still approved"
        assert result.messages[: len(before.messages())] == before.messages()
        assert result.messages[-len(result.new_messages) :] == result.new_messages
        assert len({message.id for message in result.messages}) == len(result.messages)
        assert len(await session.expand()) == 20
    await store.close()


async def test_prompts_that_wait_survive_a_compaction_and_a_reopening() -> None:
    store, provider = MemoryStore(), ScriptedProvider()
    async with on(store, provider, compaction=CompactionSettings()) as agent:
        async with agent.session("one") as session:
            for number in range(3):
                provider.add(says(f"answer {number}"))
                await session.chat("word " * 100)
            remote = await agent.remote("one")
        await remote.send("later")
        async with agent.session("one") as session:
            assert len(session.unfinished.inputs) == 1
            provider.add(says("gist"), says("here it is"))
            await session.compact()
            await session.wait_idle()
            assert session.messages[-1].text == "here it is"


@pytest.mark.parametrize(
    "fault",
    [
        ProviderError(ErrorCode.BAD_REQUEST, "broken"),
        RequestError(ErrorCode.CONTEXT_LENGTH, "too long"),
        "",
        "much " * 20_000,
    ],
    ids=["failing", "overflowing", "empty", "over-long"],
)
async def test_with_a_summariser_that_never_works_a_session_goes_on_with_its_end(
    fault: str | Exception,
) -> None:
    provider = Talker(summarises=lambda _: fault)
    async with on(MemoryStore(), provider) as agent, agent.session() as session:
        for number in range(80):
            await session.chat(f"prompt {number} " + "word " * 50)
        view = session._opened().fold.sent_view()
        prompts = [message.text for message in session.messages if "prompt" in message.text]
    assert provider.refused == 0
    assert provider.longest <= WINDOW
    assert len(prompts) == 80, "nothing is lost"
    notes = [part for part in view[0].parts if isinstance(part, CompactionPart)]
    assert len(notes) == 1
    assert notes[0].text.count("There is no summary of them") == 1
