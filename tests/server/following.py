"""Clients that follow a session over connections that are cut, and what they must have at a cut."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.server.serving import RefusedError, Sent, Served

_SHUTTING_DOWN = 503


class PartTexts:
    """The text of parts, put together by part id and offset as docs/server.md tells clients to."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self._turns: dict[str, str] = {}

    def take(self, kind: str, data: Any) -> None:
        """Take one event in."""
        if kind == "part.started" and data["part_kind"] == "text":
            self._turns[data["part_id"]] = data["turn_id"]
            self.texts.setdefault(data["part_id"], "")
        elif kind in {"text.delta", "part.checkpoint"}:
            known, offset = self.texts[data["part_id"]], data.get("offset", 0)
            if offset <= len(known):  # what lies beyond is in the next checkpoint
                self.texts[data["part_id"]] += data["text"][len(known) - offset :]
        elif kind == "part.ended":
            self.texts[data["part_id"]] = data["part"]["text"]
        elif kind == "turn.discarded":
            gone = [part for part, turn in self._turns.items() if turn == data["turn_id"]]
            for part in gone:
                self.texts.pop(part, None)

    def copy(self) -> "PartTexts":
        """Return the same, to go on with by itself."""
        copied = PartTexts()
        copied.texts, copied._turns = dict(self.texts), dict(self._turns)
        return copied


@dataclass(frozen=True)
class Cut:
    """What a client had when its connection was cut."""

    seq: int
    texts: dict[str, str]


@dataclass
class FollowingClient:
    """Follows a session; is cut after every `stride` events and reconnects with its last id."""

    stride: int
    seqs: list[int] = field(default_factory=list)
    parts: PartTexts = field(default_factory=PartTexts)
    cuts: list[Cut] = field(default_factory=list)
    has_answer: bool = False
    """Whether it has the end of a query that was not cut off."""
    is_following: bool = False
    """Whether it has what was stored and waits for more."""
    on_change: Callable[[], None] = lambda: None

    @property
    def last(self) -> int:
        """The id that it reconnects with."""
        return self.seqs[-1] if self.seqs else 0

    async def follow(self, served: Served, session_id: str) -> None:
        """Connect again and again until there is an answer or the server ends its streams."""
        try:
            while not self.has_answer and await self._connect(served, session_id):
                pass
        except RefusedError as refused:
            assert refused.status == _SHUTTING_DOWN, refused

    async def _connect(self, served: Served, session_id: str) -> bool:
        """Follow one connection; returns whether the client, not the server, ended it."""
        left = self.stride
        headers = {"last_event_id": str(self.last)} if self.seqs else {}
        async with served.events(f"/api/v1/sessions/{session_id}/events", **headers) as events:
            async for event in events:
                self._take(event)
                left -= event.kind not in {"log.synced", "ping"}
                if left <= 0 or self.has_answer:
                    break
        self._note(is_following=False)
        self.cuts.append(Cut(self.last, dict(self.parts.texts)))
        return left <= 0 or self.has_answer

    def _take(self, event: Sent) -> None:
        if event.seq is not None:
            self.seqs.append(event.seq)
        self.parts.take(event.kind, event.data)
        if event.kind == "query.ended" and event.data["stop_reason"] == "complete":
            self.has_answer = True
        if event.kind == "log.synced":
            self._note(is_following=True)

    def _note(self, *, is_following: bool) -> None:
        self.is_following = is_following
        self.on_change()


class Pace:
    """Lets a script go on when every client has caught up and waits for the next event."""

    def __init__(self, clients: Sequence[FollowingClient]) -> None:
        self._clients = clients
        self._changed = asyncio.Event()
        for client in clients:
            client.on_change = self._changed.set

    async def wait(self) -> None:
        """Wait until all clients follow."""
        while not all(client.is_following for client in self._clients):
            self._changed.clear()
            await self._changed.wait()


def check_clients(
    clients: Iterable[FollowingClient], log: Sequence[Sent], *, said: Sequence[str]
) -> int:
    """Compare what clients had at every cut with the log; returns how many cuts there were.

    `log` is the whole log as a client gets it that is never cut; `said` is what the model says, one
    text for each part in order. Until a part ends, a client has what the log has of it, and may
    have more of what the model said, from deltas that are not stored yet.
    """
    seqs = [entry.seq for entry in log]
    assert seqs == list(range(1, len(log) + 1))
    stored = [PartTexts()]
    for entry in log:
        stored.append(stored[-1].copy())
        stored[-1].take(entry.kind, entry.data)
    begun = [entry.data["part_id"] for entry in log if entry.kind == "part.started"]
    whole = dict(zip(begun, said, strict=True))
    cuts = 0
    for client in clients:
        assert client.seqs == seqs
        assert client.parts.texts == stored[-1].texts
        for cut in client.cuts:
            cuts += 1
            must = stored[cut.seq].texts
            assert cut.texts.keys() == must.keys()
            for part, text in cut.texts.items():
                assert text.startswith(must[part])
                assert whole[part].startswith(text)
    return cuts
