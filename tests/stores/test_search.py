"""Search finds what was said, by whole words, and its index can always be made anew."""

from pathlib import Path

import msgspec

from holdfast.ports.session_store import Lease
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.store_conformance.samples import OWNER, PROJECT, new_session, opening
from holdfast.vocabulary.entries import (
    Entry,
    PartCheckpoint,
    PartEnded,
    PartStarted,
    QueryStarted,
    TurnEnded,
    TurnStarted,
)
from holdfast.vocabulary.ids import MessageId, PartId, new_entry_id, new_session_id
from holdfast.vocabulary.messages import UserMessage
from holdfast.vocabulary.parts import ReasoningPart, TextPart


def said(seq: int, text: str) -> QueryStarted:
    message = UserMessage(id=MessageId(f"msg_{seq}"), parts=(TextPart(text=text),))
    return QueryStarted(id=new_entry_id(), time=seq, seq=seq, message=message)


def answered(first: int, *pieces: str, thought: str = "") -> list[Entry]:
    """Make the entries of a turn that streamed its answer in pieces."""
    part, mind = PartId("prt_a"), PartId("prt_b")
    message_id = MessageId(f"msg_{first}")
    offsets = [sum(map(len, pieces[:place])) for place in range(len(pieces))]
    bare: list[Entry] = [
        TurnStarted(id=new_entry_id(), time=0, message_id=message_id, provider="p", model="m"),
        PartStarted(id=new_entry_id(), time=0, part_id=mind, part_kind="reasoning"),
        PartEnded(id=new_entry_id(), time=0, part_id=mind, part=ReasoningPart(text=thought)),
        PartStarted(id=new_entry_id(), time=0, part_id=part, part_kind="text"),
        *(
            PartCheckpoint(id=new_entry_id(), time=0, part_id=part, offset=offset, text=piece)
            for offset, piece in zip(offsets[:-1], pieces[:-1], strict=True)
        ),
        PartEnded(
            id=new_entry_id(),
            time=0,
            part_id=part,
            part=TextPart(text=pieces[-1]),
            offset=offsets[-1],
        ),
        TurnEnded(id=new_entry_id(), time=0, message_id=message_id, finish="stop"),
    ]
    return [msgspec.structs.replace(entry, seq=first + n) for n, entry in enumerate(bare)]


async def places(store: SqliteStore, words: str, owner: str = OWNER) -> list[int]:
    return sorted(found.seq for found in await store.search.find(owner, PROJECT, words))


async def conversation(store: SqliteStore) -> Lease:
    lease = await new_session(store)
    await store.log.append(lease, [said(2, "Where do swallows nest?")])
    await store.log.append(lease, answered(3, "Under the ea", "ves of bar", "ns.", thought="hmm"))
    return lease


async def test_words_of_users_and_models_are_found(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    await conversation(store)
    assert await places(store, "swallows") == [2]
    assert await places(store, "SWALLOWS nest") == [2]
    assert await places(store, "nothing") == []
    await store.close()


async def test_a_word_that_was_streamed_in_two_pieces_is_found(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    await conversation(store)
    assert await places(store, "eaves barns") == [6]
    assert await places(store, "ves") == []
    assert await places(store, "hmm") == []
    await store.close()


async def test_an_answer_is_found_whole_though_searched_for_while_it_streamed(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path / "s.db")
    lease = await new_session(store)
    await store.log.append(lease, [said(2, "question")])
    turn = answered(3, "beginning ", "middle ", "end")
    for entry in turn:
        await store.log.append(lease, [entry])
        assert await places(store, "question") == [2]
    assert await places(store, "beginning middle end") == [6]
    await store.close()


async def test_what_looks_like_an_operator_is_just_a_word(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    await conversation(store)
    odd = ("\0", "nest\0", "\ud800")
    for words in ('"', "nest OR", "NEAR(", "text_index:", "*", "a AND NOT", "'; --", "  ", *odd):
        await store.search.find(OWNER, PROJECT, words)
    await store.close()


async def test_search_stays_with_its_owner_and_forgets_deleted_sessions(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    lease = await conversation(store)
    assert await places(store, "swallows", owner="bob") == []
    await store.log.delete(lease.session_id)
    assert await places(store, "swallows") == []
    await store.close()


async def test_a_rebuilt_index_finds_the_same(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    await conversation(store)
    before = await places(store, "swallows")
    await store.index.rebuild()
    assert await places(store, "swallows") == before
    await store.close()


async def test_a_history_that_was_restored_is_found(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    session_id = new_session_id()
    lease = await store.leases.acquire(session_id, "exam")
    history = (UserMessage(id=MessageId("msg_0"), parts=(TextPart(text="where do swifts sleep"),)),)
    await store.log.append(lease, [msgspec.structs.replace(opening(session_id), history=history)])
    assert await places(store, "swifts") == [1]
    await store.close()
