"""Promises of search: what is found, what is not, and for whom."""

from collections.abc import Sequence

import msgspec

from haptera.model.ids import MessageId, PartId, SessionId, new_entry_id, new_session_id
from haptera.model.log.turns import TurnDiscarded
from haptera.ports.session_store import SearchHit, Store
from haptera.testing.promises import (
    require,
    require_same,
)
from haptera.testing.store_conformance.samples import (
    OWNER,
    PROJECT,
    OpenStore,
    answer,
    new_session,
    note,
    opened,
    opening,
    prompt,
)


async def check_what_users_and_models_said_is_found(open_store: OpenStore) -> None:
    """With where it is and what it says, through any handle, also after reopening."""
    async with opened(open_store) as store, opened(open_store) as other:
        lease = await new_session(store)
        await store.log.append(lease, [prompt(2, "Where do swallows nest?")])
        await store.log.append(lease, answer(3, "Under the ea", "ves of bar", "ns."))
        asked = SearchHit(
            session_id=lease.session_id,
            seq=2,
            message_id=MessageId("msg_2"),
            snippet="Where do swallows nest?",
        )
        answered = SearchHit(
            session_id=lease.session_id,
            seq=6,
            message_id=MessageId("msg_3"),
            part_id=PartId("prt_3"),
            snippet="Under the eaves of barns.",
        )
        for handle in (store, other):
            require_same(await _find(handle, "swallows"), [asked], "a word of a prompt")
            require_same(await _find(handle, "eaves barns"), [answered], "words of an answer")
    async with opened(open_store) as store:
        require_same(await _find(store, "swallows"), [asked], "after reopening")


async def check_words_are_found_whole_in_any_case_and_order(open_store: OpenStore) -> None:
    """All words of a query have to be there; accents and punctuation do not count."""
    async with opened(open_store) as store:
        lease = await new_session(store)
        await store.log.append(
            lease,
            [
                prompt(2, "Where do SWALLOWS nest?"),
                prompt(3, "Un café, s'il vous plaît"),
                prompt(4, "set the snake_case option; it isn't default"),
                prompt(5, "a case for the snake"),
                prompt(6, "東京 2020, Ελλάδα"),
            ],
        )
        expected = {
            "nest swallows": {2},
            "sWALLOWs, NEST!": {2},
            "swallow": set(),
            "wallows": set(),
            "swallows fly": set(),
            "cafe plait": {3},
            "CAFÉ": {3},
            "snake case": {4, 5},
            "snake_case": {4},
            "snake-case": {4},
            "isn't": {4},
            "t'isn": set(),
            "東京": {6},
            "2020 ελλάδα": {6},
        }
        for query, seqs in expected.items():
            require_same(await _seqs(store, query), seqs, f"what {query!r} finds")


async def check_a_query_has_no_other_operators(open_store: OpenStore) -> None:
    """But `*` behind a word, what another language would take for one is a word, or nothing."""
    async with opened(open_store) as store:
        lease = await new_session(store)
        texts = ["swallows nest", "to nest or not to nest", "nest and near the text index"]
        await store.log.append(lease, [prompt(seq, text) for seq, text in enumerate(texts, 2)])
        expected: dict[str, set[int]] = {
            "nest OR": {3},
            "nest OR swallows": set(),
            "NOT nest": {3},
            "nest AND": {4},
            "NEAR(": {4},
            "text_index:": {4},
            "text:nest": set(),
            "nest*": {2, 3, 4},
            "ne*": {2, 3, 4},
            "^nest": {2, 3, 4},
            '"swallows nest"': {2},
            '"': set(),
            "*": set(),
            "'; --": set(),
            "  ": set(),
            "": set(),
            "\0": set(),
            "nest\0swallows": {2},
            "\ud800": set(),
        }
        for query, seqs in expected.items():
            require_same(await _seqs(store, query), seqs, f"what {query!r} finds")


async def check_words_are_found_by_their_beginning(open_store: OpenStore) -> None:
    """With `*` or as an option; a word without either is found whole."""
    async with opened(open_store) as store:
        lease = await new_session(store)
        texts = ("Swallows nest", "a swallow", f"{'w' * 400} ends", "isn't")
        await store.log.append(lease, [prompt(seq, text) for seq, text in enumerate(texts, 2)])
        for query, is_prefix, expected in (
            ("swallow", False, {3}),
            ("swallow*", False, {2, 3}),
            ("SWAL* nest", False, {2}),
            ("swal ne", True, {2}),
            ("swal", False, set()),
            ("wallow*", False, set()),
            ("*", False, set()),
            ("w" * 30, True, {4}),
            ("w" * 300, True, {4}),
            (f"{'w' * 300}e", True, set()),
            ("isn'*", False, {5}),
            ("isn't*", False, {5}),
            ("isn's*", False, set()),
        ):
            hits = await store.search.find(query, owner=OWNER, project=PROJECT, prefix=is_prefix)
            what = f"{query[:20]} {'by its beginning' * is_prefix}"
            require_same({hit.seq for hit in hits}, expected, what)


async def check_scripts_without_spaces_are_searched(open_store: OpenStore) -> None:
    """A run of characters is found wherever it stands, and ß is ss."""
    async with opened(open_store) as store:
        lease = await new_session(store)
        texts = ("我喜欢燕子的窝", "ツバメの巣とhotel2", "กินข้าวแล้ว", "Hauptstraße", "STRAẞE ss")
        await store.log.append(lease, [prompt(seq, text) for seq, text in enumerate(texts, 2)])
        for query, expected in (
            ("燕子", {2}),
            ("我喜欢燕子的窝", {2}),
            ("燕", {2}),
            ("窝", {2}),
            ("窝 我", {2}),
            ("子燕", set()),
            ("喜子", set()),
            ("巣とhotel2", {3}),
            ("hotel2", {3}),
            ("とhotel", set()),
            ("ข้าว", {4}),
            ("hauptstrasse", {5}),
            ("Straße", {6}),
            ("strasse", {6}),
            ("ß", {6}),
        ):
            hits = await _find(store, query)
            require_same({hit.seq for hit in hits}, expected, query)


async def check_only_what_was_said_is_searched(open_store: OpenStore) -> None:
    """Not reasoning, not notes of hooks, not a turn that was discarded or has not ended."""
    async with opened(open_store) as store:
        lease = await new_session(store)
        answered = answer(2, "the answer", reasoning="a thought")
        dropped = answer(8, "never mind", ended=False)
        discarded = TurnDiscarded(
            id=new_entry_id(), time=0, seq=13, message_id=MessageId("msg_8"), reason="retry"
        )
        growing = answer(15, "not yet whole", ended=False)
        await store.log.append(
            lease, [*answered, *dropped, discarded, note(14, "a note"), *growing]
        )
        for word in ("thought", "mind", "note", "whole"):
            require_same(await _seqs(store, word), set(), f"what {word!r} finds")
        require_same(await _seqs(store, "answer"), {5}, "the answer is found")
        await store.log.append(lease, answer(15, "not yet whole")[len(growing) :])
        require_same(await _seqs(store, "whole"), {18}, "a turn that has ended")


async def check_an_answer_that_was_searched_for_while_it_grew_is_found_whole(
    open_store: OpenStore,
) -> None:
    """A search in the middle of a turn changes nothing for later ones; no text is found twice."""
    async with opened(open_store) as store:
        lease = await new_session(store)
        await store.log.append(lease, [prompt(2, "the question")])
        for entry in answer(3, "beginning mid", "dle ", "end"):
            await store.log.append(lease, [entry])
            hits = await _find(store, "question")
            require_same([hit.seq for hit in hits], [2], "the question")
        hits = await _find(store, "beginning middle end")
        require_same([hit.seq for hit in hits], [6], "the answer")
        require_same(hits[0].snippet, "beginning middle end", "the text of the answer")


async def check_search_stays_with_its_owner_and_project(open_store: OpenStore) -> None:
    """However alike they are spelled; without a project all projects of the owner are searched."""
    pairs = [("ana", "p"), ("ana", "p2"), ("an", "p"), ("ana%", "p"), ("", "p"), ("ANA", "p")]
    async with opened(open_store) as store:
        sessions: dict[tuple[str, str], SessionId] = {}
        for owner, project in pairs:
            lease = await new_session(store, owner=owner, project=project)
            await store.log.append(lease, [prompt(2, "the same words")])
            sessions[owner, project] = lease.session_id
        for owner, project in pairs:
            hits = await store.search.find("words", owner=owner, project=project)
            expected = [sessions[owner, project]]
            require_same([hit.session_id for hit in hits], expected, f"{owner} in {project}")
        everywhere = {hit.session_id for hit in await store.search.find("words", owner="ana")}
        require_same(everywhere, {sessions["ana", "p"], sessions["ana", "p2"]}, "all projects")
        require_same(list(await store.search.find("words", owner="bob")), [], "another owner")


async def check_deleted_sessions_are_not_found(open_store: OpenStore) -> None:
    """Deleting takes the words along; another session keeps its own."""
    async with opened(open_store) as store:
        doomed, kept = await new_session(store), await new_session(store)
        for lease in (doomed, kept):
            await store.log.append(lease, [prompt(2, "the same words")])
        require_same(len(await _find(store, "words")), 2, "before deleting")
        await store.log.delete(doomed.session_id)
        hits = [hit.session_id for hit in await _find(store, "words")]
        require_same(hits, [kept.session_id], "after deleting")


async def check_the_best_hits_come_first_up_to_the_limit(open_store: OpenStore) -> None:
    """Of texts with the same number of words, the one with more of those that were asked for."""
    async with opened(open_store) as store:
        lease = await new_session(store)
        for seq, count in ((2, 1), (3, 4), (4, 2), (5, 3), (6, 0)):
            text = " ".join(["swift"] * count + ["bird"] * (6 - count))
            await store.log.append(lease, [prompt(seq, text)])
        ranked = [hit.seq for hit in await _find(store, "swift")]
        require_same(ranked, [3, 5, 4, 2], "the best first")
        for limit in (0, 1, 3):
            hits = await store.search.find("swift", owner=OWNER, project=PROJECT, limit=limit)
            require_same([hit.seq for hit in hits], ranked[:limit], f"a limit of {limit}")


async def check_a_restored_history_is_found(open_store: OpenStore) -> None:
    """Under the entry that opens the session; rebuilding the index changes nothing."""
    async with opened(open_store) as store:
        session_id = new_session_id()
        lease = await store.leases.acquire(session_id, "conformance")
        messages = (prompt(0, "where do swifts sleep").message, prompt(1, "and why").message)
        history = tuple(message for message in messages if message is not None)
        await store.log.append(
            lease, [msgspec.structs.replace(opening(session_id), history=history)]
        )
        hits = await _find(store, "swifts why")
        require_same([(hit.seq, hit.message_id) for hit in hits], [(1, None)], "a history")
        await store.index.rebuild()
        require_same(await _find(store, "swifts why"), hits, "after rebuilding the index")


async def check_a_snippet_shows_the_words_of_a_long_text(open_store: OpenStore) -> None:
    """It is one line, short, and says where it was cut."""
    async with opened(open_store) as store:
        lease = await new_session(store)
        text = "before " * 500 + "the needle\n\nis here " + "after " * 500
        await store.log.append(lease, [prompt(2, text), prompt(3, "short")])
        (hit,) = await _find(store, "NEEDLE")
        require("needle is here" in hit.snippet, "the snippet has the word")
        require(len(hit.snippet) < len(text) // 10, "the snippet is short")
        require(hit.snippet[0] == hit.snippet[-1] == "…", "the snippet says where it was cut")


async def _find(store: Store, query: str) -> Sequence[SearchHit]:
    return list(await store.search.find(query, owner=OWNER, project=PROJECT))


async def _seqs(store: Store, query: str) -> set[int]:
    return {hit.seq for hit in await _find(store, query)}
