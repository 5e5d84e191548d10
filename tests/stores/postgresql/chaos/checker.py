"""Checks the history of a chaos run: the logs, and what the nodes noted of them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import psycopg

from haptera.model.ids import SessionId
from haptera.model.log.entry import Entry
from haptera.model.log.queries import InputDrained, InputQueued, QueryEnded, QueryStarted
from haptera.stores.postgresql.store import PostgresStore
from tests.stores.postgresql.chaos.node import OWNER, PROJECT

WATCHES = """
CREATE TABLE public.stale (session bigint, seq bigint, epoch bigint);
CREATE TABLE public.takeover (session bigint, epoch bigint);
CREATE FUNCTION public.watch_entry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO public.stale SELECT NEW.session, NEW.seq, NEW.epoch
    FROM haptera.session WHERE key = NEW.session AND epoch <> NEW.epoch;
  RETURN NULL;
END
$$;
CREATE TRIGGER watch AFTER INSERT ON haptera.entry
  FOR EACH ROW EXECUTE FUNCTION public.watch_entry();
CREATE FUNCTION public.watch_lease() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO public.takeover VALUES (NEW.key, NEW.epoch);
  RETURN NULL;
END
$$;
CREATE TRIGGER watch AFTER UPDATE OF epoch ON haptera.session FOR EACH ROW
  WHEN (OLD.lease_holder IS NOT NULL AND OLD.lease_node IS DISTINCT FROM NEW.lease_node)
  EXECUTE FUNCTION public.watch_lease();
GRANT INSERT ON public.stale, public.takeover TO PUBLIC;
"""
"""Notes every write under a lease that is not the newest, and every take-over, in the database."""


class Verdict(msgspec.Struct, kw_only=True):
    """What a run did, and what is wrong with its history."""

    takeovers: int = 0
    effects: int = 0
    admitted: int = 0
    entries: int = 0
    ended_by_the_next: int = 0
    """Queries that were cut off and ended by the next prompt."""
    gaps: list[str] = []
    """Sessions whose entries do not follow each other."""
    stale: list[str] = []
    """Entries that were written under a lease which was not the newest."""
    lost: list[str] = []
    """Acknowledged entries that are not in the log."""
    doubled: list[str] = []
    """Tool calls that had their effect twice."""
    stuck: list[str] = []
    """Sessions that a node which does nothing any more holds."""
    endless: list[str] = []
    """Queries that were admitted and did not reach a terminal entry."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        found = self.gaps, self.stale, self.lost, self.doubled, self.endless, self.stuck
        return not any(found)


HELD = """
SELECT s.id FROM haptera.session s JOIN haptera.node n ON n.id = s.lease_node
  WHERE s.lease_holder IS NOT NULL AND n.until > clock_timestamp()
"""
"""The sessions that live nodes hold."""


async def check(url: str, folder: Path, *, stuck: Sequence[str] = ()) -> Verdict:
    """Check what a run left behind."""
    verdict = Verdict(stuck=list(stuck))
    store = PostgresStore(url, owner=OWNER)
    logs: dict[SessionId, Sequence[Entry]] = {}
    for record in await store.index.browse(OWNER, PROJECT):
        logs[record.id] = await store.log.read(record.id)
        assert await store.log.inspect(record.id) == ()
    await store.close()
    with psycopg.connect(url) as connection:
        stale = connection.execute("SELECT session, seq, epoch FROM public.stale").fetchall()
        verdict.stale = [f"session {key}: {seq} under {epoch}" for key, seq, epoch in stale]
        row = connection.execute("SELECT count(*) FROM public.takeover").fetchone()
        verdict.takeovers = row[0] if row else 0
    verdict.entries = sum(map(len, logs.values()))
    for session_id, entries in logs.items():
        if [entry.seq for entry in entries] != list(range(1, len(entries) + 1)):
            verdict.gaps.append(session_id)
    verdict.lost = list(_lost(logs, folder))
    effects = Counter(words[0] for words in _notes(folder, "effects"))
    verdict.effects = sum(effects.values())
    verdict.doubled = [key for key, count in effects.items() if count > 1]
    admitted = {words[1] for words in _notes(folder, "admitted")}
    verdict.admitted = len(admitted)
    verdict.ended_by_the_next = len(admitted & set(_cut_off(logs)))
    verdict.endless = [
        f"{query} {_traces_of(query, logs)}" for query in sorted(admitted - _ended(logs))
    ]
    return verdict


def _notes(folder: Path, name: str) -> list[list[str]]:
    path = folder / name
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def _lost(logs: Mapping[SessionId, Sequence[Entry]], folder: Path) -> Iterator[str]:
    """Yield acknowledged entries that are not in their place."""
    stored = {(key, entry.seq): entry.id for key, log in logs.items() for entry in log}
    for session_id, seq, entry_id, _ in _notes(folder, "acknowledged"):
        if stored.get((SessionId(session_id), int(seq))) != entry_id:
            yield f"{session_id}: {seq} {entry_id}"


def _traces_of(query: str, logs: Mapping[SessionId, Sequence[Entry]]) -> list[str]:
    """Return where a query stands in the logs, for people."""
    return [
        f"{session_id} {entry.seq} {entry.kind}"
        for session_id, entries in logs.items()
        for entry in entries
        if query in str(entry)
    ]


def _cut_off(logs: Mapping[SessionId, Sequence[Entry]]) -> Iterator[str]:
    """Yield the queries that the next prompt ended."""
    for entries in logs.values():
        for entry in entries:
            if isinstance(entry, QueryEnded) and entry.error and "cut off" in entry.error.message:
                yield str(entry.query_id)


def _ended(logs: Mapping[SessionId, Sequence[Entry]]) -> set[str]:
    """Return the queries that reached an end: their own, or that of one that resumes them."""
    ended: set[str] = set()
    for entries in logs.values():
        resumes: dict[str, str | None] = {}
        inputs: dict[str, str] = {}
        for entry in entries:
            match entry:
                case QueryStarted(query_id=query_id, resumes=earlier):
                    resumes[str(query_id)] = earlier
                case InputQueued(input_id=input_id, message=message):
                    inputs[input_id] = str(message.query_id)
                case InputDrained(input_id=input_id):
                    ended.add(inputs[input_id])
                case QueryEnded(query_id=query_id):
                    query = str(query_id) if query_id else None
                    while query is not None:
                        ended.add(query)
                        query = resumes.get(query)
    return ended
