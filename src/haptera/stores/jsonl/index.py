"""The index and the search of a jsonl store: both read the logs through their summaries."""

from collections.abc import Iterator, Sequence

from haptera.model.ids import SessionId, parse_session_id
from haptera.model.log.entry import Entry
from haptera.ports.session_store import ANY_SESSION, SearchHit, SessionFilter, SessionRecord
from haptera.stores.append_rules import is_visible, page_of
from haptera.stores.jsonl.lookup import notes_key
from haptera.stores.jsonl.resources import JsonlResources
from haptera.stores.text_search import SEARCHABLE_KINDS, TextScan
from haptera.system.private_files import translated_os_errors


class JsonlIndex:
    """Finds sessions by what their logs say. Stores nothing itself: `Summaries` do."""

    def __init__(self, resources: JsonlResources) -> None:
        self._resources = resources

    async def find(
        self,
        owner: str,
        project: str | None,
        *,
        session_id: SessionId | None = None,
        name: str | None = None,
    ) -> SessionRecord | None:
        """Find by id or by name; a session of another owner or project is not found."""
        return await self._resources.threads.read(
            lambda: self._find((owner, project), session_id, name)
        )

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
            # The session that `after` names need not have notes.
            asks_noted = matching.noted and after is None
            noted = self._noted(owner, project) if asks_noted else None
            records = self._owned(owner, project) if noted is None else noted
            return page_of(records, matching, limit=limit, after=after)

        return await self._resources.threads.read(list_records)

    async def rebuild(self) -> int:
        """Derive the index again from the logs."""
        return await self._resources.threads.read(self._rebuild)

    def _find(
        self, owned: tuple[str, str | None], session_id: SessionId | None, name: str | None
    ) -> SessionRecord | None:
        if session_id is not None and parse_session_id(session_id) is not None:
            record = self._record(session_id)
            if record is not None and is_visible(record, *owned):
                return record
        if name is None:
            return None
        owner, project = owned
        # Names are looked up within a project, so without one all sessions are looked at.
        if project is None:
            records = self._owned(owner, None)
        else:
            with translated_os_errors(self._resources.folder.root):
                records = self._resources.named(owner, project, name)
        page = page_of(records, SessionFilter(name=name), limit=1, after=None)
        return page[0] if page else None

    def _record(self, session_id: SessionId) -> SessionRecord | None:
        with translated_os_errors(self._resources.folder.root):
            return self._resources.summaries.record_of(session_id)

    def _owned(self, owner: str, project: str | None) -> list[SessionRecord]:
        with translated_os_errors(self._resources.folder.root):
            records = self._resources.summaries.records()
        return [
            record
            for record in records
            if record.owner == owner and project in {None, record.project}
        ]

    def _noted(self, owner: str, project: str | None) -> list[SessionRecord] | None:
        """Return the sessions that may have notes; None when all sessions have to be asked."""
        if project is None:
            return None
        with translated_os_errors(self._resources.folder.root):
            ids = self._resources.lookup.sessions(notes_key(owner, project))
        found = None if ids is None else [self._record(each) for each in ids]
        return None if found is None else [each for each in found if each is not None]

    def _rebuild(self) -> int:
        with translated_os_errors(self._resources.folder.root):
            # A store that was never written to stays without files: taking the lock would make one.
            if not self._resources.folder.sessions.is_dir():
                return 0
            # No name may be taken between reading the logs and replacing the file of names.
            with self._resources.lookup.locked():
                self._resources.summaries.forget()
                records = self._resources.summaries.records()
                self._resources.lookup.write_all(records)
            return len(records)


class JsonlSearch:
    """Finds texts by reading the logs of all sessions of an owner, a page of entries at a time."""

    def __init__(self, resources: JsonlResources) -> None:
        self._resources = resources

    async def find(
        self, query: str, *, owner: str, project: str | None = None, limit: int = 50
    ) -> Sequence[SearchHit]:
        """Find texts that hold every word of the query, the best first."""

        def scan() -> list[SearchHit]:
            texts = TextScan(query, limit=limit)
            if texts.is_pointless:
                return []
            with translated_os_errors(self._resources.folder.root):
                records = self._resources.summaries.records()
            for record in records:
                if is_visible(record, owner, project):
                    texts.scan(record.id, self._searchable_entries(record.id))
            return texts.hits()

        return await self._resources.threads.read(scan)

    def _searchable_entries(self, session_id: SessionId) -> Iterator[Entry]:
        for page in self._resources.summaries.pages(session_id, kinds=SEARCHABLE_KINDS):
            yield from page
