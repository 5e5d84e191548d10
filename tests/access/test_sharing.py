"""Links to sessions: who can read what, until when, and what a link never shows."""

import base64
import io
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera import (
    Agent,
    ConfigError,
    ErrorCode,
    MediaPart,
    SessionError,
    TextPart,
    tool,
)
from haptera.access.sharing import (
    MOST_SHARES,
    Share,
    SharedSession,
    find_share,
    new_share_token,
    owner_hint,
    owners_of,
    session_of,
)
from haptera.model.ids import new_session_id
from haptera.model.parts import Part
from haptera.model.secrets import token_digest
from haptera.model.shares import ShareId, StoredShare
from haptera.ports.session_store import Store
from haptera.stores.postgresql.store import PostgresStore
from haptera.testing import FakeClock, calls, says
from tests.scripted_agents import HeldWork, make_agent
from tests.stores.postgresql.server import APP_ROLE, PostgresServer
from tests.stores.store_factories import STORE_FACTORIES

KEY = "sk-ant-" + "a1B2c3D4e5F6g7H8"
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"picture" * 20).decode()
DAY = 24 * 3600

OpenStore = Callable[[], Store]


@pytest.fixture(params=list(STORE_FACTORIES))
async def handles(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[list[Store]]:
    """Two handles on one store: those of two processes, as far as a test of one process goes."""
    open_store = STORE_FACTORIES[request.param](tmp_path)
    stores = [open_store(), open_store()]
    yield stores
    for store in stores:
        await store.close()


@pytest.fixture
async def store(handles: list[Store]) -> Store:
    return handles[0]


def agent_on(store: Store | str, *answers: Any, **options: Any) -> Agent:
    steps = [says(each) if isinstance(each, str) else each for each in answers]
    agent, _ = make_agent(steps, store=store, project="/work/house", **options)
    return agent


async def not_found(agent: Agent, token: str) -> None:
    with pytest.raises(SessionError) as caught:
        await agent.sessions.shared(token)
    assert caught.value.code is ErrorCode.NOT_FOUND
    assert caught.value.message == "this link is not valid; it may have expired or been revoked"


async def texts(agent: Agent, share: Share) -> list[str]:
    assert share.token is not None
    shown = await agent.sessions.shared(share.token)
    return [message.text for message in shown.messages]


async def test_a_link_shows_the_session_as_it_was_and_a_live_one_as_it_is(store: Store) -> None:
    agent = agent_on(store, "Oslo.", "Rome.")
    async with agent, agent.session("talk") as session:
        await session.chat("Norway?")
        await agent.sessions.update("talk", title="Capitals")
        then = await agent.sessions.share("talk")
        now = await agent.sessions.share("talk", live=True, days=1)
        await session.chat("Italy?")
        await agent.sessions.update("talk", title="Towns")
        assert await texts(agent, then) == ["Norway?", "Oslo."]
        assert await texts(agent, now) == ["Norway?", "Oslo.", "Italy?", "Rome."]
        assert (await agent.sessions.shared(then.token or "")).title == "Capitals"
        assert (await agent.sessions.shared(now.token or "")).title == "Towns"
        await session.rewind(to=session.messages[1].id)
        assert await texts(agent, now) == ["Norway?", "Oslo."]
        listed = await agent.sessions.shares("talk")
    assert [(each.id, each.live, each.redact) for each in listed] == [
        (then.id, False, True),
        (now.id, True, True),
    ]
    assert [each.token for each in listed] == [None, None]
    assert now.expires - now.created == DAY * 1000
    assert then.expires - then.created == 7 * DAY * 1000


async def test_the_token_is_in_no_file_and_no_entry(tmp_path: Path) -> None:
    async with agent_on(f"jsonl:{tmp_path}", "hi") as agent:
        async with agent.session("talk") as session:
            await session.chat("hello")
        share = await agent.sessions.share("talk")
    assert share.token is not None
    kept = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert token_digest(share.token).encode() in kept
    assert share.token.encode() not in kept
    assert share.token[-20:].encode() not in kept


async def test_a_link_ends_when_it_expires(store: Store) -> None:
    clock = FakeClock()
    async with agent_on(store, "hi", clock=clock) as agent:
        async with agent.session("talk") as session:
            await session.chat("hello")
        share = await agent.sessions.share("talk", days=2)
        clock.advance(2 * DAY - 1)
        assert await texts(agent, share) == ["hello", "hi"]
        clock.advance(1)
        await not_found(agent, share.token or "")
        assert await agent.sessions.shares("talk") == ()
        with pytest.raises(SessionError):
            await agent.sessions.unshare("talk", share.id)


async def test_a_revoked_link_stays_revoked_whatever_is_done_to_the_session(store: Store) -> None:
    agent = agent_on(store, "one", "two")
    async with agent, agent.session("talk") as session:
        await session.chat("hello")
        share, other = [await agent.sessions.share("talk") for _ in range(2)]
        await agent.sessions.unshare("talk", share.id)
        await not_found(agent, share.token or "")
        assert [each.id for each in await agent.sessions.shares("talk")] == [other.id]
        await session.chat("again")
        await session.rewind(to=session.messages[1].id)
        await not_found(agent, share.token or "")
        await session.undo_rewind()
        await not_found(agent, share.token or "")
        await agent.sessions.repair()
        await not_found(agent, share.token or "")
        assert await texts(agent, other) == ["hello", "one"]


@pytest.mark.parametrize("days", [0, -1, 366, float("nan"), float("inf"), None, "7"])
async def test_every_link_expires(days: Any) -> None:
    async with agent_on("memory") as agent, agent.session("talk"):
        with pytest.raises(ConfigError) as caught:
            await agent.sessions.share("talk", days=days)
        assert caught.value.code is ErrorCode.CONFIG_INVALID


async def test_a_session_has_a_limited_number_of_links() -> None:
    clock = FakeClock()
    async with agent_on("memory", clock=clock) as agent, agent.session("talk"):
        for _ in range(MOST_SHARES):
            await agent.sessions.share("talk", days=1)
        with pytest.raises(SessionError) as caught:
            await agent.sessions.share("talk")
        assert caught.value.code is ErrorCode.BUSY
        clock.advance(DAY)
        await agent.sessions.share("talk")


async def test_forks_and_imports_have_no_link_and_a_deleted_session_neither(store: Store) -> None:
    agent = agent_on(store, "one", "two")
    async with agent:
        async with agent.session("talk") as session:
            await session.chat("hello")
            share = await agent.sessions.share("talk")
            fork = await session.fork()
            await fork.close()
        archive = b"".join([piece async for piece in agent.sessions.export("talk")])
        imported = await agent.sessions.import_from(io.BytesIO(archive))
        for made in (str(fork.session_id), imported.session.id):
            assert await agent.sessions.shares(made) == ()
            raw = base64.urlsafe_b64decode(share.token or "")
            moved = bytes.fromhex(made.replace("-", "")) + raw[16:]
            await not_found(agent, base64.urlsafe_b64encode(moved).decode())
        log = await store.log.read(imported.session.id)
        assert not [entry for entry in log if b"digest" in msgspec.json.encode(entry)]
        assert await texts(agent, share) == ["hello", "one"]
        await agent.sessions.archive("talk")
        assert await texts(agent, share) == ["hello", "one"]
        await agent.sessions.delete("talk")  # its log is kept for the fork
        await not_found(agent, share.token or "")


async def test_a_link_to_a_fork_shows_what_it_inherits(store: Store) -> None:
    agent = agent_on(store, "one", "two")
    async with agent, agent.session("talk") as session:
        await session.chat("hello")
        async with await session.fork() as fork:
            share = await agent.sessions.share(str(fork.session_id))
            await fork.chat("more")
            assert await texts(agent, share) == ["hello", "one"]


async def test_a_link_shows_a_query_that_runs_as_far_as_it_is(store: Store) -> None:
    work = HeldWork()
    agent = agent_on(store, calls(("work", {})), "done", tools=[work.tool])
    async with agent, agent.session("talk") as session:
        share = await agent.sessions.share("talk", live=True)
        assert await texts(agent, share) == []
        await session.send("go")
        await work.started.wait()
        assert (await texts(agent, share))[0] == "go"
        then = await agent.sessions.share("talk")
        work.release.set()
        await session.wait_idle()
        assert (await texts(agent, share))[-1] == "done"
        assert "done" not in await texts(agent, then)


async def check_sharing_while_another_holds(holder: Agent, other: Agent) -> None:
    """Share, read and revoke a session that another agent holds."""
    async with holder, other, holder.session("talk") as session:
        await session.chat("hello")
        share = await other.sessions.share("talk")
        for agent in (other, holder):
            assert await texts(agent, share) == ["hello", "hi"]
            assert [each.id for each in await agent.sessions.shares("talk")] == [share.id]
        await other.sessions.unshare("talk", share.id)
        for agent in (other, holder):
            await not_found(agent, share.token or "")
        await session.chat("still mine")


async def test_a_session_that_another_agent_holds_can_be_shared(handles: list[Store]) -> None:
    holder, other = agent_on(handles[0], "hi", "yes"), agent_on(handles[1])
    await check_sharing_while_another_holds(holder, other)


async def test_a_session_that_another_node_holds_can_be_shared(
    postgres: PostgresServer, emptied_database: str
) -> None:
    url = postgres.url(emptied_database, role=APP_ROLE)
    stores = [PostgresStore(url, owner="local") for _ in range(3)]
    try:
        holder, other = agent_on(stores[0], "hi", "yes"), agent_on(stores[1])
        await check_sharing_while_another_holds(holder, other)
        async with agent_on(stores[2]) as reader:
            share = await reader.sessions.share("talk", days=1)
            assert await texts(reader, share) == ["hello", "hi", "still mine", "yes"]
    finally:
        for store in stores:
            await store.close()


async def test_a_holder_that_does_not_answer_is_told_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haptera.access.sharing._HOLDER_SECONDS", 0.01)
    stores = [STORE_FACTORIES["sqlite"](tmp_path)() for _ in range(2)]
    async with agent_on(stores[0]) as agent:
        async with agent.session("talk") as session:
            session_id = str(session.session_id)
        lease = await stores[1].leases.acquire(session.session_id, "stopped")  # type: ignore[arg-type]
        with pytest.raises(SessionError) as caught:
            await agent.sessions.share(session_id)
        assert caught.value.code is ErrorCode.BUSY
        await stores[1].leases.release(lease)
    for store in stores:
        await store.close()


async def test_sessions_of_other_owners_can_neither_be_shared_nor_read(store: Store) -> None:
    ana, ben = agent_on(store, "hi", owner="ana"), agent_on(store, owner="ben")
    async with ana, ben:
        async with ana.session("talk") as session:
            await session.chat("hello")
        share = await ana.sessions.share("talk")
        for act in (
            ben.sessions.share(share.session_id),
            ben.sessions.shares(share.session_id),
            ben.sessions.unshare(share.session_id, share.id),
        ):
            with pytest.raises(SessionError) as caught:
                await act
            assert caught.value.code is ErrorCode.NOT_FOUND
        await not_found(ben, share.token or "")
        assert await texts(ana, share) == ["hello", "hi"]


@tool
def look(path: str) -> list[TextPart | MediaPart]:
    """Look at a file."""
    return [
        TextPart(text=f"{path}: api_key={KEY}"),
        MediaPart(mime="image/png", data=PIXEL, filename="/home/ana/secret.png"),
    ]


async def secret_session(agent: Agent) -> None:
    """Let a session have everything that a redacted link must not show."""
    async with agent.session("talk", system_prompt="The system prompt is private.") as session:
        prompt: list[Part] = [
            TextPart(text=f"Look, ![x](data:image/png;base64,{PIXEL}) at /work/house/plans.txt"),
            MediaPart(mime="image/png", data=PIXEL),
        ]
        await session.chat(prompt, reminders=["A reminder that is private."])


HIDDEN = (KEY, PIXEL, "/work/house", "/home/ana", "plans.txt", "is private", "qry_", "trn_")


async def test_a_redacted_link_has_no_secret_path_picture_prompt_or_reminder(store: Store) -> None:
    wish = calls(("look", {"path": "/home/ana/notes/plans.txt"}))
    async with agent_on(store, wish, f"It has {KEY} in it.", tools=[look]) as agent:
        await secret_session(agent)
        await agent.sessions.update("talk", title=f"About {KEY} in /home/ana/notes/plans.txt")
        share = await agent.sessions.share("talk")
        shown = await agent.sessions.shared(share.token or "")
        open_one = await agent.sessions.share("talk", redact=False)
        whole = await agent.sessions.shared(open_one.token or "")
    encoded, page = msgspec.json.encode(shown).decode(), shown.html().decode()
    for text in (encoded, page):
        assert [each for each in HIDDEN if each in text] == []
        assert "[path-" in text
        assert "image/png: left out" in text
        assert "It has ****" in text
    assert shown.redacted
    assert not whole.redacted
    told = msgspec.json.encode(whole).decode()
    assert [each for each in (KEY, PIXEL, "/home/ana/notes/plans.txt") if each not in told] == []
    assert f"data:image/png;base64,{PIXEL}" in whole.html().decode()
    for text in (told, whole.html().decode()):
        assert "The system prompt is private" not in text


def test_a_shared_session_has_only_these_fields() -> None:
    """A field that is added here is one that strangers may read."""
    names = [field.name for field in msgspec.structs.fields(SharedSession)]
    assert names == [
        "title",
        "model",
        "created",
        "updated",
        "expires",
        "redacted",
        "live",
        "messages",
    ]


LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@given(
    st.text(LETTERS, min_size=43, max_size=45)
    | st.text(LETTERS + "=+/ .\0\né\ud800", max_size=50)
    | st.binary(max_size=40).map(lambda raw: base64.b64encode(raw).decode())
)
def test_any_text_is_a_token_or_none(text: str) -> None:
    session_id = session_of(text)
    assert (session_id is None) == (not _is_token(text))
    assert find_share((), text) is None
    assert owners_of(text, ["ana"]) in ([], ["ana"])


def _is_token(text: str) -> bool:
    return len(text) == 44 and all(each in LETTERS for each in text)


@given(st.text("anöé@.", min_size=1, max_size=20), st.integers(0, 33 * 8 - 1))
def test_a_token_opens_its_own_share_and_none_with_a_bit_changed(owner: str, bit: int) -> None:
    session_id = new_session_id()
    token = new_share_token(session_id, owner)
    stored = StoredShare(
        id=ShareId("shr_1"), digest=token_digest(token), created=0, expires=1, through=None
    )
    assert session_of(token) == session_id
    assert owners_of(token, [owner]) == [owner]
    assert find_share((stored,), token) is stored
    raw = bytearray(base64.urlsafe_b64decode(token))
    raw[bit // 8] ^= 1 << bit % 8
    assert find_share((stored,), base64.urlsafe_b64encode(raw).decode()) is None


def test_a_token_says_no_more_of_its_owner_than_one_byte() -> None:
    session_id = new_session_id()
    hints = {owner_hint(f"owner-{number}") for number in range(5000)}
    assert hints == set(range(256))
    raw = base64.urlsafe_b64decode(new_share_token(session_id, "ana"))
    assert raw[:17] == bytes.fromhex(session_id.replace("-", "")) + bytes([owner_hint("ana")])
    assert len(raw) == 33
