"""Landmarks: where a log was rewound, and where it says what the session was.

They are of the whole log, also of what was rewound. They say which stretches of it are needed to
know the session at an entry, without reading it.
"""

from collections.abc import Iterable, Iterator

import msgspec

MOST_REWINDS = 1_000
"""With more of them nothing is stored of what the session is."""


class RewindPlace(msgspec.Struct, frozen=True, array_like=True):
    """The `seq` of a rewind, and the `seq` that it goes back to."""

    seq: int
    to_seq: int


class StatePlace(msgspec.Struct, frozen=True, array_like=True):
    """The `seq` of an entry that says what the session was, and the `seq` after which it was so."""

    seq: int
    at: int


class Landmarks(msgspec.Struct, frozen=True):
    """The rewinds and the stored states of a log, in their order."""

    rewinds: tuple[RewindPlace, ...] = ()
    states: tuple[StatePlace, ...] = ()

    def with_rewinds(self, places: Iterable[RewindPlace]) -> "Landmarks":
        """Return them with rewinds that follow."""
        return Landmarks((*self.rewinds, *places), self.states)

    def with_state(self, place: StatePlace) -> "Landmarks":
        """Return them with a stored state that follows."""
        return Landmarks(self.rewinds, (*self.states, place))

    def without_states(self) -> "Landmarks":
        """Return them where no state holds any more."""
        return Landmarks(self.rewinds)

    def way_to(self, seq: int) -> Iterator[tuple[int, int]]:
        """Yield the stretches of the log that lead to an entry, the last one first.

        Each is the `seq` that it begins with and the one that it ends with.
        """
        for rewind in reversed(self.rewinds):
            if rewind.seq <= seq:
                yield rewind.seq, seq
                # Before a rewind comes what it went back to.
                seq = min(rewind.to_seq, rewind.seq - 1)
        yield 0, seq

    def states_on_way_to(self, seq: int) -> Iterator[StatePlace]:
        """Yield the states that hold for what leads to an entry, the last one first."""
        way = self.way_to(seq)
        first, last = next(way)
        for place in reversed(self.states):
            while place.at < first:
                first, last = next(way)
            if place.at <= last:
                yield place

    def is_closed(self, first: int, last: int, *, until: int) -> bool:
        """Whether nothing between a stretch of the log and another entry went back into it.

        What did could have added to it: what became of a call counts wherever the call does.
        """
        return not any(
            last < each.seq <= until and first < each.to_seq < last for each in self.rewinds
        )
