"""Sessions as files: exported from any store, imported into any other, by `agent.sessions`."""

import io
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from haptera import Agent, ErrorCode, MediaPart, SessionError, tool
from haptera.formats.archive import ArchivedLog, ArchiveExport, write_archive
from haptera.model.entry_bytes import encode_entry
from haptera.model.ids import EntryId, new_session_id
from haptera.model.log.notes import ContextNoted
from haptera.model.log.sessions import SessionOpened
from haptera.model.stream_parts import PartClosed, PartDelta, PartOpened, StreamOpened
from haptera.ports.session_store import Store
from haptera.providers.vendors import VENDORS
from haptera.stores.memory import MemoryStore
from haptera.testing import ScriptedProvider, calls, says
from haptera.testing.scripted_provider import Step
from tests.agent.queries.test_first_steps import write_config
from tests.kernel.session.failing_store import FailingStore
from tests.scripted_agents import failure_of, make_agent
from tests.stores.store_factories import STORE_FACTORIES, open_store

pytestmark = pytest.mark.slow

READABLE = ("claude-code", "codex", "opencode", "pi", "openai", "anthropic")
PNG = "iVBORw0KGgo="


@pytest.fixture(params=list(STORE_FACTORIES))
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = open_store(request.param, tmp_path)
    yield opened
    await opened.close()


@tool
def depth(place: str) -> str:
    """Say how deep it is."""
    return f"{place}: 383 m"


STEPS: Sequence[Step] = (
    calls(("depth", {"place": "Bergen"}), text="Let me look."),
    says("It is 383 m deep."),
    says("Yes."),
)


def agent_on(store: Store, steps: Sequence[Step] = (), **options: Any) -> Agent:
    agent, _ = make_agent(steps, store=store, project="/home/ana/house", tools=[depth], **options)
    return agent


async def talk(store: Store) -> Agent:
    agent = agent_on(store, STEPS)
    async with agent.session("fjord") as session:
        await session.chat("How deep is the fjord? See /home/ana/house/map.txt")
        await session.chat("Sure?")
    return agent


async def bytes_of(agent: Agent, reference: str, **options: Any) -> bytes:
    return b"".join([piece async for piece in agent.sessions.export(reference, **options)])


def texts_of(session: Any) -> list[str]:
    return [message.text for message in session.messages]


async def test_an_archive_comes_back_as_the_same_conversation_under_new_ids(
    store: Store, tmp_path: Path
) -> None:
    agent = await talk(store)
    archive = await bytes_of(agent, "fjord")
    target = open_store("sqlite", tmp_path / "target")
    other = agent_on(target, [says("Still 383 m.")])
    imported = await other.sessions.import_from(io.BytesIO(archive), name="fjord")
    again = await other.sessions.import_from(io.BytesIO(archive))
    assert (imported.format, imported.session.name, again.session.name) == (
        "archive",
        "fjord",
        None,
    )
    async with agent.session("fjord") as old, other.session("fjord", must_exist=True) as new:
        assert texts_of(old) == texts_of(new)
        assert old.session_id != new.session_id
        old_ids = {message.id for message in old.messages}
        assert old_ids.isdisjoint(message.id for message in new.messages)
        await new.chat("And now?")
    before = await store.log.read((await agent.sessions.get("fjord")).id)
    after = await target.log.read(again.session.id)
    kinds = [entry.kind for entry in before]
    assert [entry.kind for entry in after] == [*kinds, "session.imported"]
    await target.close()


async def test_an_archive_gets_the_metadata_that_the_program_names(store: Store) -> None:
    agent = await talk(store)
    archive = io.BytesIO(await bytes_of(agent, "fjord"))
    imported = await agent.sessions.import_from(archive, metadata={"tenant": "x"})
    assert imported.session.metadata == {"tenant": "x"}
    (listed,) = await agent.sessions.list(metadata={"tenant": "x"})
    assert listed.id == imported.session.id


async def test_exporting_what_was_imported_gives_the_same_entries(store: Store) -> None:
    agent = await talk(store)
    first = await agent.sessions.import_from(io.BytesIO(await bytes_of(agent, "fjord")))
    once = await store.log.read(first.session.id)
    stored = [encode_entry(entry) for entry in once]
    archive = await bytes_of(agent, first.session.id)
    for raw in stored:
        assert msgspec.json.encode(msgspec.Raw(raw)) in archive


async def test_an_archive_of_a_fork_brings_its_parents(store: Store, tmp_path: Path) -> None:
    agent = await talk(store)
    async with agent.session("fjord") as parent:
        fork = await parent.fork(name="branch", after=parent.messages[0].id)
        await fork.close()
    archive = await bytes_of(agent, "branch")
    target = open_store("jsonl", tmp_path / "target")
    other = agent_on(target)
    imported = await other.sessions.import_from(io.BytesIO(archive), name="branch")
    async with other.session("branch", must_exist=True) as session:
        assert len(session.messages) == 1
    assert imported.session.parent is not None
    await target.close()


async def test_an_archive_of_a_fork_that_cannot_be_stored_leaves_no_parents() -> None:
    source, target = MemoryStore(), FailingStore()
    agent = await talk(source)
    async with agent.session("fjord") as parent:
        fork = await parent.fork(name="branch", after=parent.messages[0].id)
        await fork.close()
    target.log.fail_at = 2  # the first log is that of the parent
    other = agent_on(target)
    error = await failure_of(
        other.sessions.import_from(io.BytesIO(await bytes_of(agent, "branch")))
    )
    assert error.code is ErrorCode.UNAVAILABLE
    assert len(target.log.appends) == 2
    assert not await other.sessions.list()


async def test_media_travel_in_an_archive_and_in_foreign_formats(store: Store) -> None:
    agent = agent_on(store, [says("A dot.")])
    async with agent.session("picture") as session:
        await session.chat("What is it?", attachments=[MediaPart(mime="image/png", data=PNG)])
    for name in ("archive", "anthropic", "openai"):
        imported = await agent.sessions.import_from(
            io.BytesIO(await bytes_of(agent, "picture", to=name))
        )
        async with agent.session(imported.session.id) as session:
            media = [part for part in session.messages[0].parts if isinstance(part, MediaPart)]
            assert [part.mime for part in media] == ["image/png"], name


@pytest.mark.slow
@pytest.mark.parametrize("name", READABLE)
async def test_a_session_goes_to_another_program_s_file_and_back(name: str, store: Store) -> None:
    agent = await talk(store)
    file = await bytes_of(agent, "fjord", to=name)
    imported = await agent.sessions.import_from(io.BytesIO(file))
    assert (imported.format, imported.report.tool_calls) == (name, 1)
    async with agent.session("fjord") as old, agent.session(imported.session.id) as new:
        assert texts_of(new) == texts_of(old)
    found = await agent.sessions.search("383 m deep")
    assert imported.session.id in {each.session.id for each in found}


@pytest.mark.parametrize("name", ["archive", "html", "markdown", "codex"])
async def test_a_redacted_export_shows_no_path(name: str, store: Store) -> None:
    agent = await talk(store)
    assert b"/home/ana/house/map.txt" in await bytes_of(agent, "fjord", to=name)
    assert b"/home/ana" not in await bytes_of(agent, "fjord", to=name, redact=True)


async def test_the_name_of_a_project_is_masked_nowhere(store: Store) -> None:
    steps = [says("The shop keeps its list in /srv/shop/a.txt.")]
    agent, _ = make_agent(steps, store=store, project="shop")
    async with agent.session("sales") as session:
        await session.chat("What does the shop sell?")
    for name in ("archive", "markdown", "html"):
        told = (await bytes_of(agent, "sales", to=name, redact=True)).decode()
        assert "What does the shop sell?" in told
        assert "The shop keeps its list in [path-1]" in told


async def test_a_damaged_archive_leaves_nothing_behind(store: Store) -> None:
    agent = await talk(store)
    archive = await bytes_of(agent, "fjord")
    for broken in (archive[:-40], archive.replace(b"383", b"384", 1)):
        error = await failure_of(agent.sessions.import_from(io.BytesIO(broken)))
        assert error.code is ErrorCode.CORRUPT
    assert len(await agent.sessions.list(everywhere=True)) == 1


async def test_a_file_is_written_once_and_only_for_a_session_that_exists(
    store: Store, tmp_path: Path
) -> None:
    agent = await talk(store)
    path = tmp_path / "fjord.html"
    await agent.sessions.export_to(path, "fjord", to="html")
    assert b"383 m deep" in path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        await agent.sessions.export_to(path, "fjord", to="html")
    missing = tmp_path / "missing.html"
    with pytest.raises(SessionError):
        await agent.sessions.export_to(missing, "no such", to="html")
    assert not missing.exists()
    imported = await agent.sessions.import_from(await exported(agent, tmp_path))
    assert imported.session.title


async def exported(agent: Agent, folder: Path) -> Path:
    path = folder / "fjord.jsonl"
    await agent.sessions.export_to(path, "fjord", to="pi")
    return path


APIS = {
    "messages": "anthropic-messages",
    "responses": "openai-responses",
    "chat": "openai-completions",
    "generate_content": "google-generative-ai",
    "ollama": "openai-completions",
    "process": "openai-completions",
}
"""What pi calls the protocols."""
REMOTE = [row for row in VENDORS.values() if row.is_remote]
SEALED: Step = [
    StreamOpened(model="m"),
    PartOpened(key="0", kind="reasoning"),
    PartDelta(key="0", text="hm"),
    PartClosed(key="0", signature="seal"),
    *says("Yes.")[1:],
]


@pytest.mark.parametrize(
    ("provider", "protocol", "table"),
    [
        *((row.name, row.protocol, "") for row in VENDORS.values() if row.protocol != "native"),
        *(("house", row.protocol, f'kind = "{row.name}"') for row in REMOTE),
        ("house", "chat", 'base_url = "https://models.example.org"'),
        ("scripted", "chat", ""),
    ],
)
async def test_pi_is_told_the_protocol_of_the_provider_that_answered(
    provider: str, protocol: str, table: str, tmp_path: Path
) -> None:
    client = ScriptedProvider([SEALED], provider=provider)
    folder = write_config(tmp_path, f"[providers.house]\n{table}\n" if table else "")
    options: dict[str, Any] = {"environment": {"HOME": str(tmp_path)}, "config_dir": folder}
    async with Agent(f"{provider}/m", providers=[client], **options) as agent:
        async with agent.session("a") as session:
            await session.chat("Sure?")
        lines = (await bytes_of(agent, "a", to="pi")).splitlines()
    messages = [line.get("message", {}) for line in map(msgspec.json.decode, lines)]
    (answer,) = (each for each in messages if each.get("role") == "assistant")
    assert (answer["api"], answer["provider"]) == (APIS[protocol], provider)
    # Elsewhere pi keeps something of its own in that field.
    kept = [block.get("thinkingSignature") for block in answer["content"]]
    assert kept[0] == ("seal" if protocol == "messages" else None)


async def test_an_unknown_format_names_those_there_are(store: Store) -> None:
    agent = await talk(store)
    error = await failure_of(bytes_of(agent, "fjord", to="htlm"))
    assert (error.code, "'html'" in error.message) == (ErrorCode.CONFIG_INVALID, True)
    error = await failure_of(agent.sessions.import_from(io.BytesIO(b"hello")))
    assert error.code is ErrorCode.CONFIG_INVALID


@pytest.mark.parametrize("name", ["archive", "anthropic"])
async def test_what_the_agent_names_ranks_above_the_settings_of_a_file(
    name: str, store: Store
) -> None:
    theirs = agent_on(store, STEPS, system_prompt="Obey.", seed=7)
    async with theirs.session("fjord") as session:
        await session.chat("How deep is the fjord?")
    file = await bytes_of(theirs, "fjord", to=name)
    ours = agent_on(store, system_prompt="Be brief.")
    imported = await ours.sessions.import_from(io.BytesIO(file))
    async with ours.session(imported.session.id, must_exist=True) as session:
        assert session.settings.system_prompts == ("Be brief.",)
    silent = agent_on(store)
    again = await silent.sessions.import_from(io.BytesIO(file))
    async with silent.session(again.session.id, must_exist=True) as session:
        assert session.settings.system_prompts == ("Obey.",)
        assert session.settings.seed == (7 if name == "archive" else None)


@pytest.mark.parametrize("form", ["html", "markdown", "archive"])
async def test_an_export_is_made_outside_the_event_loop(form: str) -> None:
    agent, _ = make_agent([], store=MemoryStore())
    text = "see /srv/shop/a.txt and **this** `code`\n\n" * 20_000
    file = json.dumps([{"role": "user", "content": text}]).encode()
    made = await agent.sessions.import_from(io.BytesIO(file), of="openai")
    begin, all_begin = time.thread_time(), time.process_time()
    pieces = [piece async for piece in agent.sessions.export(made.session.id, to=form, redact=True)]
    here, everywhere = time.thread_time() - begin, time.process_time() - all_begin
    assert sum(map(len, pieces)) > len(text) / 2
    assert here < everywhere / 3


async def test_an_archive_is_taken_over_outside_the_event_loop(tmp_path: Path) -> None:
    session_id, text = new_session_id(), 'a "text"\\\n' * 5000
    opened = SessionOpened(id=EntryId("evt_1"), time=1, seq=1, session_id=session_id)
    notes = [
        ContextNoted(id=EntryId(f"evt_{seq}"), time=1, seq=seq, text=text) for seq in range(2, 200)
    ]
    log = ArchivedLog(session_id=session_id, entries=[opened, *notes])
    export = ArchiveExport(session_id=session_id, logs=[log], created=5)
    file = io.BytesIO(b"".join(write_archive(export)))
    agent, _ = make_agent([], store=f"sqlite:{tmp_path / 'sessions.db'}")
    async with agent:
        await agent.sessions.list()  # it opens the store
        begin, all_begin = time.thread_time(), time.process_time()
        made = await agent.sessions.import_from(file)
        here, everywhere = time.thread_time() - begin, time.process_time() - all_begin
    assert made.report.records > len(notes)
    assert here < everywhere / 3


async def _opened(agent: Agent, session_id: str) -> None:
    async with agent.session(session_id, must_exist=True):
        pass


async def _forked(agent: Agent, session_id: str) -> None:
    async with await agent.sessions.fork(session_id):
        pass


async def _shown_to_others(agent: Agent, session_id: str) -> None:
    made = await agent.sessions.share(session_id)
    assert made.token is not None
    await agent.sessions.shared(made.token)


async def _exported(agent: Agent, session_id: str) -> None:
    async for _ in agent.sessions.export(session_id, to="markdown"):
        pass


_USES: dict[str, Callable[[Agent, str], Awaitable[object]]] = {
    "opened": _opened,
    "forked": _forked,
    "shown": _shown_to_others,
    "exported": _exported,
    "listed": lambda agent, session_id: agent.sessions.messages(session_id),
}


@pytest.mark.parametrize("use", _USES)
async def test_a_long_import_is_used_outside_the_event_loop(use: str, tmp_path: Path) -> None:
    """All that another program's session said is in one entry."""
    said = [
        {"role": "assistant" if number % 2 else "user", "content": "word"}
        for number in range(20_000)
    ]
    file = io.BytesIO(json.dumps(said).encode())
    agent, _ = make_agent([], store=f"sqlite:{tmp_path / 'sessions.db'}")
    async with agent:
        made = await agent.sessions.import_from(file, of="openai")
        begin, all_begin = time.thread_time(), time.process_time()
        await _USES[use](agent, made.session.id)
        here, everywhere = time.thread_time() - begin, time.process_time() - all_begin
    assert here < everywhere / 2
