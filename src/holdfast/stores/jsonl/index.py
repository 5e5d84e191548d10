"""The index of a jsonl store: finds sessions by the summaries of their logs."""

from collections.abc import Sequence

from holdfast.ports.session_store import SessionRecord
from holdfast.stores.jsonl.resources import JsonlResources
from holdfast.stores.private_files import translated_os_errors
from holdfast.vocabulary.ids import SessionId, parse_session_id


class JsonlIndex:
    """Finds sessions by what their logs say. Stores nothing itself: `Summaries` do."""

    def __init__(self, resources: JsonlResources) -> None:
        self._resources = resources

    async def find(
        self,
        owner: str,
        project: str,
        *,
        session_id: SessionId | None = None,
        name: str | None = None,
    ) -> SessionRecord | None:
        """Find by id or by name; a session of another owner or project is not found."""
        return await self._resources.threads.read(
            lambda: self._find((owner, project), session_id, name)
        )

    async def browse(
        self, owner: str, project: str, *, limit: int | None = None, after: SessionId | None = None
    ) -> Sequence[SessionRecord]:
        """List sessions, the last updated first."""
        records = await self._resources.threads.read(lambda: self._records((owner, project)))
        records.sort(key=lambda record: (record.updated, record.id), reverse=True)
        if after is not None:
            places = [place for place, record in enumerate(records) if record.id == after]
            records = records[places[0] + 1 :] if places else []
        return records[:limit]

    async def rebuild(self) -> int:
        """Derive the index again from the logs."""
        return await self._resources.threads.read(self._rebuild)

    def _find(
        self, owned: tuple[str, str], session_id: SessionId | None, name: str | None
    ) -> SessionRecord | None:
        if session_id is not None and parse_session_id(session_id) is not None:
            record = self._record(session_id)
            if record is not None and (record.owner, record.project) == owned:
                return record
        if name is None:
            return None
        # A session that had the name at the last look most likely still has it.
        for known in self._resources.summaries.named(name):
            record = self._record(known)
            if record is not None and (record.owner, record.project, record.name) == (*owned, name):
                return record
        named = (record for record in self._records(owned) if record.name == name)
        return next(named, None)

    def _record(self, session_id: SessionId) -> SessionRecord | None:
        with translated_os_errors(self._resources.folder.root):
            return self._resources.summaries.of(session_id).record

    def _records(self, owned: tuple[str, str]) -> list[SessionRecord]:
        with translated_os_errors(self._resources.folder.root):
            records = self._resources.summaries.records()
        return [record for record in records if (record.owner, record.project) == owned]

    def _rebuild(self) -> int:
        with translated_os_errors(self._resources.folder.root):
            self._resources.summaries.forget()
            return len(self._resources.summaries.records())
