"""Stamps: the id, time and belonging that every entry gets when it is made."""

from typing import TypedDict

from holdfast.ports.clock import Clock
from holdfast.vocabulary.ids import EntryId, QueryId, TurnId, new_entry_id


class StampFields(TypedDict):
    """The fields that all entries share."""

    id: EntryId
    time: int
    query_id: QueryId | None
    turn_id: TurnId | None


class Stamp:
    """Gives entries their id and time, for one query and turn or for none."""

    def __init__(
        self, clock: Clock, *, query_id: QueryId | None = None, turn_id: TurnId | None = None
    ) -> None:
        self.clock = clock
        self.query_id = query_id
        self.turn_id = turn_id

    def __call__(self) -> StampFields:
        """Make the shared fields of one new entry."""
        return {
            "id": new_entry_id(),
            "time": self.clock.time_ms(),
            "query_id": self.query_id,
            "turn_id": self.turn_id,
        }

    def of_turn(self, turn_id: TurnId) -> "Stamp":
        """Return a stamp for a turn of the same query."""
        return Stamp(self.clock, query_id=self.query_id, turn_id=turn_id)
