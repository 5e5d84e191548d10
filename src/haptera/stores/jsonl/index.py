"""The index and the search of a jsonl store: both read the folder, and store nothing themselves."""

from collections.abc import Iterator, Sequence

from haptera.model.entries import Entry
from haptera.model.ids import SessionId, parse_session_id
from haptera.ports.session_store import ANY_SESSION, SearchHit, SessionFilter, SessionRecord
from haptera.stores.append_rules import is_visible, page_of
from haptera.stores.jsonl.resources import JsonlResources
from haptera.stores.text_search import SEARCHABLE_KINDS, TextScan


class JsonlIndex:
    """Finds sessions by the records in their lock files."""

    def __init__(self, resources: JsonlResources) -> None:
        self._reader = resources.reader
        self._threads = resources.threads

    async def find(
        self,
        owner: str,
        project: str | None,
        *,
        session_id: SessionId | None = None,
        name: str | None = None,
    ) -> SessionRecord | None:
        """Find by id or by name; a session of another owner or project is not found."""

        def find_record() -> SessionRecord | None:
            if session_id is not None and parse_session_id(session_id) is not None:
                record = self._reader.record(session_id)
                if record is not None and is_visible(record, owner, project):
                    return record
            named = SessionFilter(name=name)
            owned = [] if name is None else self._owned(owner, project)
            page = page_of(owned, named, limit=1, after=None)
            return page[0] if page else None

        return await self._threads.read(find_record)

    async def browse(
        self,
        owner: str,
        project: str | None,
        *,
        matching: SessionFilter = ANY_SESSION,
        limit: int | None = None,
        after: SessionId | None = None,
    ) -> Sequence[SessionRecord]:
        """List sessions, the last updated first."""

        def list_records() -> list[SessionRecord]:
            return page_of(self._owned(owner, project), matching, limit=limit, after=after)

        return await self._threads.read(list_records)

    async def rebuild(self) -> int:
        """Derive the index again from the logs."""
        return await self._threads.read(self._reader.rebuild)

    def _owned(self, owner: str, project: str | None) -> list[SessionRecord]:
        return [
            record
            for record in self._reader.records()
            if record.owner == owner and project in {None, record.project}
        ]


class JsonlSearch:
    """Finds texts by reading the logs of all sessions of an owner, some appends at a time."""

    def __init__(self, resources: JsonlResources) -> None:
        self._reader = resources.reader
        self._threads = resources.threads

    async def find(
        self, query: str, *, owner: str, project: str | None = None, limit: int = 50
    ) -> Sequence[SearchHit]:
        """Find texts that hold every word of the query, the best first."""

        def scan() -> list[SearchHit]:
            texts = TextScan(query, limit=limit)
            for record in [] if texts.is_pointless else self._reader.records():
                if is_visible(record, owner, project):
                    texts.scan(record.id, self._searchable_entries(record.id))
            return texts.hits()

        return await self._threads.read(scan)

    def _searchable_entries(self, session_id: SessionId) -> Iterator[Entry]:
        for piece in self._reader.pieces(session_id, kinds=SEARCHABLE_KINDS):
            yield from piece.entries
