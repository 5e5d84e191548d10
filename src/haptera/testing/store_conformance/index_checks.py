"""Promises of the index: it follows the logs, keeps owners apart and can be made anew."""

from typing import Any

from msgspec.structs import replace

from haptera.model.errors import ErrorCode, ErrorReport
from haptera.model.ids import (
    EntryId,
    InputId,
    SessionId,
    new_entry_id,
    new_message_id,
    new_session_id,
)
from haptera.model.log.entry import Entry
from haptera.model.log.notes import ContextNoted
from haptera.model.log.queries import InputQueued, QueryEnded, QueryStarted
from haptera.model.messages import Sender, UserMessage
from haptera.model.parts import TextPart
from haptera.model.results import SessionOrder
from haptera.model.shares import ShareId, StoredShare, sharing, unsharing
from haptera.ports.session_store import SessionFilter, SessionRecord
from haptera.testing.promises import (
    require,
    require_error,
    require_same,
)
from haptera.testing.store_conformance.samples import (
    OWNER,
    PROJECT,
    OpenStore,
    change,
    new_session,
    note,
    opened,
    opening,
    seqs_of,
)


async def check_a_session_is_found_by_id_and_by_name(open_store: OpenStore) -> None:
    """Both lead to the same record, through any handle, as soon as it is appended."""
    async with opened(open_store) as store, opened(open_store) as other:
        lease = await new_session(store, name="ana-1")
        await new_session(store, name="ana-10")
        expected = SessionRecord(
            id=lease.session_id,
            owner=OWNER,
            project=PROJECT,
            name="ana-1",
            created=1,
            updated=1,
            head=1,
        )
        for handle in (store, other):
            record = await handle.index.find(OWNER, PROJECT, session_id=lease.session_id)
            require_same(record, expected, "found by id")
            require_same(
                await handle.index.find(OWNER, PROJECT, name="ana-1"), expected, "found by name"
            )
        require(await store.index.find(OWNER, PROJECT, name="ana") is None, "no name by its start")
        require(await store.index.find(OWNER, PROJECT) is None, "asking for nothing finds nothing")
        unknown = await store.index.find(OWNER, PROJECT, session_id=new_session_id())
        require(unknown is None, "an unknown id is not found")


async def check_owners_and_projects_are_kept_apart(open_store: OpenStore) -> None:
    """Nothing of one owner or project shows in another, however alike they are spelled."""
    pairs = [("ana", "p"), ("ana", "p2"), ("an", "ap"), ("ana%", "p"), ("", "anap"), ("ANA", "p")]
    async with opened(open_store) as store:
        leases = {
            pair: await new_session(store, name="same", owner=pair[0], project=pair[1])
            for pair in pairs
        }
        for pair, lease in leases.items():
            listed = [record.id for record in await store.index.browse(*pair)]
            require_same(listed, [lease.session_id], f"what {pair} sees")
            named = await store.index.find(*pair, name="same")
            require_same(named and named.id, lease.session_id, "a name belongs to its owner")
        theirs = leases["ana", "p2"].session_id
        require(await store.index.find("ana", "p", session_id=theirs) is None, "ids cross nothing")
        require_same(
            list(await store.index.browse("a", "nap")), [], "owner and project do not join"
        )


async def check_a_taken_name_is_a_conflict(open_store: OpenStore) -> None:
    """Neither opening nor renaming takes a name of another session; nothing is stored then."""
    async with opened(open_store) as store, opened(open_store) as other:
        await new_session(store, name="taken")
        session_id = new_session_id()
        lease = await other.leases.acquire(session_id, "conformance")
        refused = other.log.append(lease, [opening(session_id, name="taken")])
        await require_error(ErrorCode.CONFLICT, refused, "opening under a taken name")
        require_same(await seqs_of(store, session_id), [], "nothing of it is stored")
        await other.log.append(lease, [opening(session_id, name="free")])
        renamed = other.log.append(lease, [change(2, name="taken")])
        await require_error(ErrorCode.CONFLICT, renamed, "renaming to a taken name")
        await other.log.append(lease, [change(2, name="free")])
        require_same(await seqs_of(store, session_id), [1, 2], "one may keep one's own name")


async def check_a_name_that_was_given_up_is_free(open_store: OpenStore) -> None:
    """After a rename the old name can be taken and leads to its new bearer."""
    async with opened(open_store) as store:
        first = await new_session(store, name="old")
        await store.log.append(first, [change(2, name="new")])
        second = await new_session(store, name="old")
        found = await store.index.find(OWNER, PROJECT, name="old")
        require_same(found and found.id, second.session_id, "the new bearer of a name")


async def check_fields_change_and_can_be_cleared(open_store: OpenStore) -> None:
    """A change names only what changed: the rest stays, and null is a value that clears."""
    async with opened(open_store) as store:
        lease = await new_session(store, name="fields")
        settings = {"model": "anthropic/x"}
        await store.log.append(
            lease, [change(2, title="T", native_session_id="cli-1", settings=settings)]
        )
        await store.log.append(lease, [change(3, native_session_id=None)])
        await store.log.append(lease, [note(4)])
    async with opened(open_store) as store:
        found = await store.index.find(OWNER, PROJECT, session_id=lease.session_id)
        expected = SessionRecord(
            id=lease.session_id,
            owner=OWNER,
            project=PROJECT,
            name="fields",
            title="T",
            model="anthropic/x",
            created=1,
            updated=4,
            head=4,
        )
        require_same(found, expected, "a field that was cleared, and others that were not")


async def check_sessions_are_listed_last_updated_first_in_pages(open_store: OpenStore) -> None:
    """Pages join without gaps or repeats, in one order."""
    async with opened(open_store) as store:
        leases = [await new_session(store) for _ in range(7)]
        for turn, index in enumerate((3, 0, 6, 1), start=10):
            await store.log.append(leases[index], [note(2, time=turn)])
        whole = [record.id for record in await store.index.browse(OWNER, PROJECT)]
        require_same(
            whole[:4],
            [leases[index].session_id for index in (1, 6, 0, 3)],
            "the last updated first",
        )
        pages = []
        after = None
        while page := await store.index.browse(OWNER, PROJECT, limit=3, after=after):
            pages += [record.id for record in page]
            after = page[-1].id
        require_same(pages, whole, "pages join to the whole list")
        require_same(len(set(whole)), 7, "every session is listed once")
        require_same(list(await store.index.browse(OWNER, PROJECT, limit=0)), [], "a limit of zero")


async def check_rebuilding_changes_nothing(open_store: OpenStore) -> None:
    """The index is derived: made anew from the logs it says the same."""
    async with opened(open_store) as store:
        for number in range(4):
            lease = await new_session(store, name=f"n{number}")
            changed = change(2, title=f"t{number}", tags=["a"], metadata={"n": number})
            await store.log.append(lease, [changed, note(3)])
        before = await store.index.browse(OWNER, PROJECT)
        require_same(await store.index.rebuild(), 4, "rebuilding counts the sessions")
        require_same(
            list(await store.index.browse(OWNER, PROJECT)), list(before), "a rebuilt index"
        )


async def check_lists_are_filtered(open_store: OpenStore) -> None:
    """A filter selects by tag, parent, archive and time; pages hold only what matches."""
    async with opened(open_store) as store:
        leases = [await new_session(store, name=f"f{number}") for number in range(6)]
        for number, lease in enumerate(leases):
            tags = ["even"] if number % 2 == 0 else ["odd"]
            changed = change(2, tags=tags, metadata={"number": number, "gone": 1})
            await store.log.append(lease, [changed])
        await store.log.append(leases[4], [change(3, archived=7, metadata={"gone": None})])
        ids = [lease.session_id for lease in leases]
        for matching, expected in (
            (SessionFilter(tags=("even",)), {ids[0], ids[2], ids[4]}),
            (SessionFilter(tags=("even",), archived=False), {ids[0], ids[2]}),
            (SessionFilter(archived=True), {ids[4]}),
            (SessionFilter(name="f3"), {ids[3]}),
            (SessionFilter(tags=("even",), updated_after=2), {ids[4]}),
            (SessionFilter(updated_before=3), set(ids) - {ids[4]}),
            (SessionFilter(phase="idle"), set(ids)),
            (SessionFilter(phase="running"), set()),
            (SessionFilter(parent=ids[0]), set()),
            (SessionFilter(spawned_by=ids[0]), set()),
            (SessionFilter(spawned=True), set()),
            (SessionFilter(spawned=False), set(ids)),
            (SessionFilter(tags=("even", "odd")), set()),
            (SessionFilter(metadata={"number": 3}), {ids[3]}),
            (SessionFilter(metadata={"number": 2, "gone": 1}), {ids[2]}),
            (SessionFilter(metadata={"number": "3"}), set()),
            (SessionFilter(metadata={"gone": 1}), set(ids) - {ids[4]}),
            (SessionFilter(name_prefix="f"), set(ids)),
            (SessionFilter(name_prefix="f3"), {ids[3]}),
            (SessionFilter(name_prefix="3"), set()),
            (SessionFilter(status="idle"), set(ids)),
            (SessionFilter(since=3), {ids[4]}),
            (SessionFilter(since=4), set()),
            (SessionFilter(noted=True), set()),
            (SessionFilter(noted=False), set(ids)),
        ):
            count = await store.index.count(OWNER, PROJECT, matching=matching)
            require_same(count, len(expected), f"the number of {matching}")
            records = await store.index.browse(OWNER, PROJECT, matching=matching)
            require_same({record.id for record in records}, expected, f"{matching}")
            one = await store.index.browse(OWNER, PROJECT, matching=matching, limit=1)
            require_same(list(one), list(records[:1]), "a limit counts what matches")
        last = await store.index.find(OWNER, PROJECT, name="f4")
        require_same(last and last.metadata, {"number": 4}, "metadata is merged, null removes")
        require_same(last and last.archived, 7, "when it was archived")
        everywhere = await store.index.browse(OWNER, None)
        require_same({record.id for record in everywhere}, set(ids), "no project means all")
        named = await store.index.find(OWNER, None, name="f1")
        require_same(named and named.id, ids[1], "a name is found in all projects")


async def check_sessions_are_found_by_who_spoke(open_store: OpenStore) -> None:
    """Senders are those of queries and of queued prompts, also after a rebuild."""
    async with opened(open_store) as store, opened(open_store) as other:
        lease, silent = await new_session(store), await new_session(store)
        for seq, user in enumerate(("bo", "ana", "bo"), start=2):
            spoken = (TextPart(text="hi"),)
            message = UserMessage(id=new_message_id(), parts=spoken, sender=Sender(user_id=user))
            started: Entry = QueryStarted(id=new_entry_id(), time=seq, seq=seq, message=message)
            if user == "ana":
                started = InputQueued(
                    id=new_entry_id(),
                    time=seq,
                    seq=seq,
                    input_id=InputId("inp_1"),
                    message=message,
                    delivery="queue",
                )
            await store.log.append(lease, [started])
        await store.log.append(lease, [change(5, metadata={"status": "in review"})])
        await store.log.append(silent, [change(2, tags=["x" * 500])])
        for rebuilt in range(2):
            for matching, expected in (
                (SessionFilter(sender="ana"), [lease.session_id]),
                (SessionFilter(sender="an"), []),
                (SessionFilter(sender="bo", status="in review"), [lease.session_id]),
                (SessionFilter(status="running"), []),
                (SessionFilter(phase="running"), [lease.session_id]),
                (SessionFilter(tags=("x" * 500,)), [silent.session_id]),
            ):
                listed = await other.index.browse(OWNER, PROJECT, matching=matching)
                what = f"{matching}{', rebuilt' * rebuilt}"
                require_same([each.id for each in listed], expected, what)
                counted = await other.index.count(OWNER, PROJECT, matching=matching)
                require_same(counted, len(expected), what)
                require(
                    not await other.index.count("another", None, matching=matching), "of its owner"
                )
            (record,) = await other.index.browse(
                OWNER, PROJECT, matching=SessionFilter(sender="bo")
            )
            require_same(record.senders, ("ana", "bo"), "who spoke")
            await other.index.rebuild()


async def check_lists_have_an_order(open_store: OpenStore) -> None:
    """Pages follow each other in every order; among equals the id decides."""
    async with opened(open_store) as store:
        made = {}
        for name, created, updated in (("b", 5, 9), (None, 3, 9), ("a", 4, 4), ("B", 3, 7)):
            session_id = new_session_id()
            lease = await store.leases.acquire(session_id, "holder")
            opened_at = replace(opening(session_id, name=name), time=created)
            await store.log.append(lease, [opened_at, replace(change(2, tags=["t"]), time=updated)])
            made[session_id] = (name, created, updated)
        by_order: dict[SessionOrder, list[SessionId]] = {
            "updated": sorted(made, key=lambda each: (made[each][2], each), reverse=True),
            "created": sorted(made, key=lambda each: (made[each][1], each), reverse=True),
            "oldest": sorted(made, key=lambda each: (made[each][1], each)),
            "name": sorted(made, key=lambda each: (made[each][0] is None, made[each][0] or "")),
        }
        for order, expected in by_order.items():
            for limit in (1, 2, 10):
                pages: list[SessionId] = []
                after: SessionId | None = None
                while page := await store.index.browse(
                    OWNER,
                    PROJECT,
                    matching=SessionFilter(tags=("t",)),
                    order=order,
                    limit=limit,
                    after=after,
                ):
                    pages += [each.id for each in page]
                    after = pages[-1]
                require_same(pages, expected, f"by {order}, {limit} at a time")


async def check_a_deleted_session_is_hidden(open_store: OpenStore) -> None:
    """A session that was deleted and is kept for its forks is found only by asking for it."""
    async with opened(open_store) as store:
        lease = await new_session(store, name="hidden")
        await store.log.append(lease, [change(2, deleted=9, name=None)])
        for found in (
            await store.index.find(OWNER, PROJECT, session_id=lease.session_id),
            await store.index.find(OWNER, None, name="hidden"),
            *await store.index.browse(OWNER, PROJECT),
        ):
            require(found is None, "it is neither found nor listed")
        asked = await store.index.browse(OWNER, PROJECT, matching=SessionFilter(deleted=True))
        require_same([record.id for record in asked], [lease.session_id], "asked for, it is listed")
        await new_session(store, name="hidden")


async def check_the_record_says_how_the_last_query_went(open_store: OpenStore) -> None:
    """Status and error follow the starts and ends of queries, through any handle."""
    error = ErrorReport(
        tag="ProviderError", code=ErrorCode.NETWORK, message="no route", retryable=True
    )
    ends: tuple[tuple[dict[str, Any], tuple[str, str | None]], ...] = (
        ({"stop_reason": "complete"}, ("idle", None)),
        ({"stop_reason": "approval"}, ("waiting", None)),
        ({"stop_reason": "error", "error": error}, ("failed", "no route")),
    )
    async with opened(open_store) as store, opened(open_store) as other:
        lease = await new_session(store)

        async def shown() -> tuple[str | None, str | None]:
            found = await other.index.find(OWNER, PROJECT, session_id=lease.session_id)
            return (found.status, found.error) if found else (None, None)

        require_same(await shown(), ("idle", None), "before any query")
        for number, (fields, expected) in enumerate(ends):
            seq = 2 + 2 * number
            started = QueryStarted(id=EntryId(f"ent_s{seq}"), time=seq, seq=seq)
            await store.log.append(lease, [started])
            require_same(await shown(), ("running", None), "while a query runs")
            ended = QueryEnded(id=EntryId(f"ent_e{seq}"), time=seq, seq=seq + 1, **fields)
            await store.log.append(lease, [ended])
            require_same(await shown(), expected, f"after {fields['stop_reason']}")


async def check_sessions_with_notes_for_their_project_are_listed(open_store: OpenStore) -> None:
    """Listed are those in which a note was made and not taken back, also after a rebuild."""
    async with opened(open_store) as store, opened(open_store) as other:
        lease = await new_session(store)
        await new_session(store, name="without")
        noted = ContextNoted(id=new_entry_id(), time=2, seq=2, text="Use tabs.")
        heard = ContextNoted(id=new_entry_id(), time=3, seq=3, text="Ask.", source=new_session_id())
        await store.log.append(lease, [noted, heard])
        also = ContextNoted(id=new_entry_id(), time=4, seq=4, text="No emoji.")
        await store.log.append(lease, [also])
        wanted = SessionFilter(noted=True)
        for project in (PROJECT, None):
            found = await other.index.browse(OWNER, project, matching=wanted)
            shown = [(each.id, each.notes) for each in found]
            require_same(shown, [(lease.session_id, (2, 4))], "with two notes")
        elsewhere = await store.index.browse(OWNER, "/elsewhere", matching=wanted)
        require(not elsewhere, "notes of another project are not listed")
        await other.index.rebuild()
        require(len(await store.index.browse(OWNER, PROJECT, matching=wanted)) == 1, "rebuilt")
        await store.log.append(lease, [change(5, forgotten_notes=[2])])
        (left,) = await other.index.browse(OWNER, PROJECT, matching=wanted)
        require_same(left.notes, (4,), "one was taken back")
        await store.log.append(lease, [change(6, forgotten_notes=[4])])
        require(not await other.index.browse(OWNER, PROJECT, matching=wanted), "taken back")


async def check_links_to_a_session_are_in_its_record(open_store: OpenStore) -> None:
    """A link is there until it is revoked; one that has expired may be there or not."""
    async with opened(open_store) as store, opened(open_store) as other:
        lease = await new_session(store)
        links = [
            StoredShare(
                id=ShareId(f"shr_{number}"),
                digest=f"{number:064x}",
                created=number,
                expires=number * 10,
                through=number % 2 or None,
                redact=bool(number % 3),
            )
            for number in (1, 2, 3)
        ]

        async def shown() -> tuple[StoredShare, ...] | None:
            found = await other.index.find(OWNER, PROJECT, session_id=lease.session_id)
            return (
                tuple(each for each in found.shares if each.expires > found.updated)
                if found
                else None
            )

        require_same(await shown(), (), "before any link")
        added = [change(seq, **sharing(link)) for seq, link in enumerate(links, start=2)]
        await store.log.append(lease, added)
        require_same(await shown(), tuple(links), "with three links")
        await store.log.append(lease, [change(5, title="changed"), change(6, shared={"id": 1})])
        require_same(await shown(), tuple(links), "after other changes, and one without sense")
        await other.index.rebuild()
        require_same(await shown(), tuple(links), "rebuilt")
        await store.log.append(lease, [change(7, **unsharing(links[1].id))])
        require_same(await shown(), (links[0], links[2]), "revoked")
        await store.log.append(lease, [change(8), change(9), change(10), change(11, unshared=[])])
        require_same(await shown(), (links[2],), "expired")
