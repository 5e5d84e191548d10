"""Landmarks: where a log was rewound, and where it says what the session was.

They are of the whole log, also of what was rewound. They say which stretches of it are needed to
know the session at an entry, without reading it.
"""

from collections.abc import Iterable, Iterator, Sequence

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

    def way_between(
        self, after: int, to: int, *, until: int, is_at_rest: bool = False
    ) -> list[tuple[int, int]]:
        """Return the stretches of the log that lead from one entry to another, in their order.

        Each is the `seq` after which it begins and the one that it ends with, at which nothing is
        open, as far as a state up to `until` says so. With `is_at_rest` nothing is open at `to`.
        """
        stretches = list[tuple[int, int]]()
        for start, end in self.way_to(to):
            is_closed = is_at_rest and end == to
            last = end if is_closed else self.rest_after(end, until=until)
            stretches.append((max(start - 1, after), last))
            if start <= after:
                break
        return stretches[::-1]

    def rest_after(self, seq: int, *, until: int) -> int:
        """Return the first entry from one on at which nothing is open, by the states.

        `until` where none of them says so.
        """
        return min((place.at for place in self.states if seq <= place.at <= until), default=until)

    def with_branches(
        self, stretches: Sequence[tuple[int, int]], *, until: int
    ) -> list[tuple[int, int]]:
        """Return stretches of the log with what went on from within them later, up to `until`.

        What became of a call counts wherever the call does, so that they belong together.
        """
        together = list(stretches)
        for each in self.rewinds:
            is_read = any(after < each.seq <= last for after, last in together)
            goes_on = any(after <= each.to_seq <= last for after, last in together)
            if goes_on and not is_read and each.seq <= until:
                together.append((each.seq - 1, self.rest_after(each.seq, until=until)))
        joined = list[tuple[int, int]]()
        for after, last in sorted(together):
            if joined and after <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
            else:
                joined.append((after, last))
        return joined

    def reach(self, stretches: Sequence[tuple[int, int]], *, to: int) -> int:
        """Return how far stretches lead on the way to an entry, from where the first one begins."""
        reached = first = stretches[0][0]
        for begun, end in reversed([*self.way_to(to)]):
            start = max(begun, first + 1)
            if start <= end:
                reads = next((last for after, last in stretches if after < start <= last), reached)
                reached = max(reached, min(reads, end))
            if reached < end:
                break
        return reached
