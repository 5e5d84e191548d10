"""Search finds the same in every store, whatever is damaged, and reads no more than it has to.

The promises of the port are checked by `haptera.testing.store_conformance.search_checks`.
"""

import contextlib
import random
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera.ports.session_store import SearchHit, Store
from haptera.stores.jsonl import folder
from haptera.stores.memory import MemoryStore
from haptera.stores.sqlite import migrations
from haptera.stores.sqlite.store import SqliteStore
from haptera.stores.stored_records import LARGEST_ENTRY
from haptera.stores.text_search import TextQuery
from haptera.stores.text_words import INDEX_TOKENIZER, UNSPACED
from haptera.testing.store_conformance.samples import (
    OWNER,
    PROJECT,
    answer,
    new_session,
    note,
    prompt,
)
from tests.samples import sampled
from tests.stores.durable_kinds import durable_kind
from tests.stores.store_factories import DURABLE, STORE_FACTORIES, open_store

WORDS = ("swallow", "nest", "Café", "cafe", "isn't", "snake_case", "x²", "東京", "eaves", "…", "OR")
PIECES = (
    *WORDS,
    *("Straße", "STRASSE", "STRAẞE", "swallows", "nests", "don't", "a", "ab", "abc", "12", "x"),
    *(
        "我喜欢燕子的窝",
        "燕子",
        "燕",
        "的窝",
        "東京都庁へ行く",
        "へ",
        "ツバメの巣",
        "กินข้าวแล้ว",
        "ข้าว",
        "ที่",
    ),
    *(
        "제비의 둥지",
        "I喜欢燕子very much",
        "Ласточка",
        "ласточки",
        "हिन्दी",
        "é",
        "e\u0301",
        "﷽",
        "🐦",
    ),
    "w" * 300,
    "w" * 250 + "é",
)
"""What the texts of the test of all stores are made of."""


async def _find(store: Store, query: str, *, limit: int = 50) -> list[SearchHit]:
    return list(await store.search.find(query, owner=OWNER, project=PROJECT, limit=limit))


@pytest.mark.parametrize("is_searched_before", [False, True])
@pytest.mark.parametrize("kind", DURABLE)
async def test_a_damaged_entry_is_not_found_and_hides_no_other(
    kind: str, is_searched_before: bool, tmp_path: Path
) -> None:
    store = open_store(kind, tmp_path)
    lease, other = await new_session(store), await new_session(store)
    await store.log.append(lease, [prompt(2, "first words"), prompt(3, "damaged words")])
    await store.log.append(lease, [*answer(4, "whole ", "words"), prompt(11, "last words")])
    await store.log.append(other, [prompt(2, "other words")])
    if is_searched_before:
        assert len(await _find(store, "words")) == 5
    await store.close()
    durable_kind(kind).damage_word(tmp_path, lease.session_id, b"damaged words")
    store = open_store(kind, tmp_path)
    found = {(hit.session_id, hit.seq) for hit in await _find(store, "words")}
    kept = {(lease.session_id, seq) for seq in (2, 7, 11)}
    assert found == {*kept, (other.session_id, 2)}
    assert await _find(store, "damaged") == []
    await store.close()


@pytest.mark.parametrize("kind", DURABLE)
async def test_an_answer_with_a_damaged_piece_is_found_by_the_rest_of_its_words(
    kind: str, tmp_path: Path
) -> None:
    store = open_store(kind, tmp_path)
    lease = await new_session(store)
    await store.log.append(lease, [*answer(2, "swallows nest ", "under eaves ", "of barns")])
    await store.close()
    durable_kind(kind).damage_word(tmp_path, lease.session_id, b"under eaves")
    store = open_store(kind, tmp_path)
    (hit,) = await _find(store, "swallows barns")
    assert (hit.seq, hit.snippet) == (5, "swallows nest of barns")
    assert await _find(store, "eaves") == []
    await store.close()


async def test_a_session_whose_row_is_damaged_is_found_by_its_words(
    tmp_path: Path,
) -> None:
    store = open_store("sqlite", tmp_path)
    lease = await new_session(store)
    await store.log.append(lease, [prompt(2, "some words")])
    with contextlib.closing(apsw.Connection(str(tmp_path / "store" / "sessions.db"))) as writing:
        writing.execute("UPDATE session SET title = CAST(x'ff' AS TEXT)")
    (hit,) = await _find(store, "words")
    assert hit.session_id == lease.session_id
    await store.close()


async def test_a_rebuilt_index_finds_the_same(tmp_path: Path) -> None:
    store = open_store("sqlite", tmp_path)
    lease = await new_session(store)
    await store.log.append(lease, [prompt(2, "Where do swallows nest?"), *answer(3, "In a nest.")])
    before = await _find(store, "nest")
    assert len(before) == 2
    await store.index.rebuild()
    assert await _find(store, "nest") == before
    await store.close()


async def test_a_search_brings_the_index_of_a_database_up_to_the_last_entry(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    lease = await new_session(store)
    await store.log.append(lease, [prompt(2, "some words"), *[note(seq) for seq in range(3, 200)]])
    assert len(await _find(store, "words")) == 1
    with contextlib.closing(apsw.Connection(str(tmp_path / "sessions.db"))) as reading:
        assert reading.execute("SELECT indexed FROM session").get == 199
    await store.close()


async def test_a_search_of_files_opens_no_blob_of_an_entry_that_is_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store("jsonl", tmp_path)
    lease = await new_session(store)
    big = "x" * LARGEST_ENTRY
    await store.log.append(lease, [note(2, big), prompt(3, f"{big} needle"), note(4, big + big)])
    opened: list[str] = []
    find_blob = folder.find_blob

    def find_and_count(where: Path, name: str) -> bytes | None:
        opened.append(name)
        return find_blob(where, name)

    monkeypatch.setattr(folder, "find_blob", find_and_count)
    (hit,) = await _find(store, "needle")
    assert hit.seq == 3
    assert len(opened) == 1
    await store.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(STORE_FACTORIES))
async def test_hits_beyond_one_page_of_a_log_are_found(kind: str, tmp_path: Path) -> None:
    store = open_store(kind, tmp_path)
    lease = await new_session(store)
    for first in range(2, 1002, 100):
        await store.log.append(
            lease, [prompt(seq, f"words {seq}") for seq in range(first, first + 100)]
        )
    assert {hit.seq for hit in await _find(store, "words", limit=2000)} == set(range(2, 1002))
    assert [hit.seq for hit in await _find(store, "words 777")] == [777]
    await store.close()


def made_texts(chance: random.Random, count: int) -> list[str]:
    return [
        chance.choice((" ", "", ", ", "\n")).join(chance.choices(PIECES, k=chance.randint(1, 6)))
        for _ in range(count)
    ]


def _queries(chance: random.Random, texts: Sequence[str], count: int) -> Iterator[str]:
    """Yield pieces of the texts and words, also their beginnings."""
    for _ in range(count):
        text = chance.choice(texts)
        start = chance.randrange(len(text))
        cut = text[start : start + chance.randint(1, 8)]
        words = [cut, *chance.choices(PIECES, k=chance.randint(0, 1))]
        yield " ".join(word + chance.choice(("", "", "*")) for word in words)


@pytest.mark.parametrize("kind", DURABLE)
@sampled(40, 600)
async def test_all_stores_find_the_same(kind: str, sample: int, tmp_path: Path) -> None:
    await find_the_same([MemoryStore(), open_store(kind, tmp_path)], sample)


async def find_the_same(stores: Sequence[Store], sample: int) -> None:
    """Search random texts in several stores, which are closed then: all find the same."""
    chance = random.Random(sample)
    texts = made_texts(chance, 60)
    for store in stores:
        lease = await new_session(store)
        await store.log.append(lease, [prompt(seq, text) for seq, text in enumerate(texts, 2)])
    hits = 0
    for query in (*WORDS, *_queries(chance, texts, sample)):
        for prefix in (False, True):
            lists = [
                await store.search.find(
                    query, owner=OWNER, project=PROJECT, limit=1000, prefix=prefix
                )
                for store in stores
            ]
            found = [{(hit.seq, hit.snippet) for hit in each} for each in lists]
            assert found[0] == found[1], (query, prefix)
            hits += len(found[0])
    assert hits > 100
    for store in stores:
        await store.close()


async def test_a_database_of_an_earlier_version_is_indexed_anew(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    lease = await new_session(store)
    await store.log.append(lease, [prompt(2, "我喜欢燕子的窝")])
    await store.close()
    with contextlib.closing(apsw.Connection(str(tmp_path / "sessions.db"))) as connection:
        # As the version before left it: the index has the text as one word.
        connection.execute("DROP TABLE text_index")
        connection.execute(
            "CREATE VIRTUAL TABLE text_index USING fts5 ("
            "text, content = '', contentless_delete = 1)"
        )
        connection.execute(
            "INSERT INTO text_index (rowid, text) VALUES (1 << 32 | 2, '我喜欢燕子的窝')"
        )
        connection.execute("UPDATE session SET indexed = head")
        number = migrations.MIGRATIONS.index(migrations._make_word_index)
        connection.pragma("user_version", number)
    store = SqliteStore(tmp_path / "sessions.db")
    assert len(await _find(store, "燕子")) == 1
    await store.close()


def test_every_letter_of_a_script_without_spaces_is_a_word_of_the_index() -> None:
    letters = [chr(code) for code in range(0x30000) if re.match(f"[{UNSPACED}]", chr(code))]
    with contextlib.closing(apsw.Connection(":memory:")) as connection:
        _, *options = shlex.split(INDEX_TOKENIZER)
        tokenizer: Any = connection.fts5_tokenizer("unicode61", options)
        words = tokenizer(
            " ".join(letters).encode(),
            apsw.FTS5_TOKENIZE_DOCUMENT,
            None,
            include_offsets=False,
            include_colocated=False,
        )
    assert words == letters
    assert len(letters) > 80_000


@given(st.text(max_size=60), st.lists(st.text(max_size=8), max_size=3))
def test_a_text_matches_here_exactly_when_it_does_in_the_index_of_a_database(
    text: str, words: list[str]
) -> None:
    pieces = [piece for word in words for piece in (word, text[len(word) : len(word) + 3])]
    query = TextQuery(" ".join(pieces))
    stored = text.encode(errors="replace").decode()
    with contextlib.closing(apsw.Connection(":memory:")) as connection:
        connection.execute(
            f'CREATE VIRTUAL TABLE t USING fts5 (text, tokenize = "{INDEX_TOKENIZER}")'
        )
        connection.execute("INSERT INTO t VALUES (?)", (query.splitter.indexed(stored),))
        matches = "SELECT count(*) FROM t WHERE t MATCH ?"
        found = bool(query.phrases and connection.execute(matches, (query.match_expression,)).get)
    assert bool(query.score(text)) is found
    if found:
        assert query.snippet(text)
