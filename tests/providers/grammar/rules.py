"""What a grammar of requests is made of: rules with their sources, and ways to break them."""

import copy
from collections.abc import Callable, Iterator
from typing import NamedTuple

from haptera.model.json_types import Json, JsonObject


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


class Rule(NamedTuple):
    """One thing that a provider refuses."""

    name: str
    source: str
    """Where it is said: the provider's documentation, a recorded reply, a public issue."""
    faults: Callable[[JsonObject], Iterator[str]]


def breaches(rules: tuple[Rule, ...], body: JsonObject) -> dict[str, list[str]]:
    """Return what `body` breaks, by the name of the rule."""
    found = {rule.name: list(rule.faults(body)) for rule in rules}
    return {name: faults for name, faults in found.items() if faults}


class Mutation(NamedTuple):
    """A change to an accepted body, and the rule that it breaks."""

    rule: str
    change: Callable[[JsonObject], None]
    note: str = ""

    def applied(self, body: JsonObject) -> JsonObject:
        changed = copy.deepcopy(body)
        self.change(changed)
        assert changed != body, "the mutation changes nothing"
        return changed


def put(*path: str | int, value: Json) -> Callable[[JsonObject], None]:
    """Return a change that puts a value at a path."""

    def change(body: JsonObject) -> None:
        here: Json = body
        for step in path[:-1]:
            here = here[step]
        here[path[-1]] = value

    return change


def drop(*path: str | int) -> Callable[[JsonObject], None]:
    """Return a change that takes out what is at a path."""

    def change(body: JsonObject) -> None:
        here: Json = body
        for step in path[:-1]:
            here = here[step]
        del here[path[-1]]

    return change


def add(*path: str | int, value: Json) -> Callable[[JsonObject], None]:
    """Return a change that appends a value to the list at a path."""

    def change(body: JsonObject) -> None:
        here: Json = body
        for step in path:
            here = here[step]
        here.append(value)

    return change
