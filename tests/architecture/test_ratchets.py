"""What there is too much of, pinned: each count may fall, and none may rise."""

import sys
from collections.abc import Mapping, Sequence
from functools import cache

import pytest

from benchmarks.shape import Shape
from benchmarks.ways import PROMPT, traced_ways
from tests.architecture.source_tree import PACKAGE

pytestmark = pytest.mark.slow

PINNED_CLASSES = {
    "bags": "",
    "wide classes": "",
    "lone bases": "",
    "Protocols with one production implementation": "AnswerInterface"
    " ApprovalCoordinatorInterface ByteStream ChatFace ChildCall ChildHost"
    " Clock CommandedSession ContextSource ControlChannelInterface"
    " ConversationInterface Http InspectedTool JoinedBlocks LoginDialogue"
    " ModelCatalogue NativeAgent NativeSession ProjectGrants Reply Runner"
    " SharedQueries Snapshotter StreamProcessorInterface ToolRegistryInterface"
    " Transport TurnRunnerInterface WatchedLeases",
}
PINNED_LOCALS = {
    "told": 43,
    "found": 66,
    "given": 35,
    "known": 27,
    "said": 8,
    "kept": 19,
    "made": 7,
}
MOST_FUNCTIONS, MOST_FILES = 239, 46
"""What `chat("hi")` may pass through."""

PINS = {name: len(classes.split()) for name, classes in PINNED_CLASSES.items()} | PINNED_LOCALS
"""How many there may be; `benchmarks/shape.py` says how each is counted."""


@cache
def counted() -> Mapping[str, Sequence[str]]:
    """Return what is counted, each with its place, by the names of the pins."""
    shape = Shape()
    classes = {
        "bags": shape.bags(),
        "wide classes": shape.wide_classes(),
        "lone bases": [*shape.lone_bases()],
        "Protocols with one production implementation": [*shape.protocols.single],
    }
    places = {name: [str(one) for one in found] for name, found in classes.items()}
    return places | shape.vague_locals()


def new_among(name: str, places: Sequence[str]) -> list[str]:
    """Return the places that are not pinned by name, or all where only their number is."""
    pinned = PINNED_CLASSES.get(name, "").split()
    return [place for place in places if place.rpartition(":")[2] not in pinned]


def complaint(name: str, places: Sequence[str]) -> str | None:
    """Say what is wrong with a count, if it has risen."""
    if len(places) <= PINS[name]:
        return None
    new = new_among(name, places)[:20]
    return f"{len(places)} {name}, and at most {PINS[name]}; new among {new}"


@pytest.mark.parametrize("name", PINS)
def test_there_are_no_more_than_there_were(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    places = counted()[name]
    risen = complaint(name, places)
    assert risen is None, risen
    if len(places) < PINS[name]:
        with capsys.disabled():  # a request, and no failure: what is better may be merged
            sys.stderr.write(f"\n{name}: only {len(places)} are left; lower the pin {PINS[name]}\n")


def test_the_ratchet_names_what_is_new() -> None:
    bags = [f"agent/x.py:{name}" for name in PINNED_CLASSES["bags"].split()]
    assert complaint("bags", bags) is None
    assert complaint("bags", bags[1:]) is None
    text = complaint("bags", [*bags, "agent/y.py:NewBag"])
    more = f"{len(bags) + 1} bags, and at most {len(bags)}"
    assert text == f"{more}; new among ['agent/y.py:NewBag']"
    assert "kernel/session/x.py:7" in str(
        complaint("told", ["kernel/session/x.py:7"] * (PINS["told"] + 1))
    )


def test_a_prompt_passes_through_no_more_functions_and_files() -> None:
    trace = traced_ways(PACKAGE)[PROMPT]
    passed = {"functions": len(trace.named), "files": len(trace.files)}
    assert passed["functions"] <= MOST_FUNCTIONS, passed
    assert passed["files"] <= MOST_FILES, passed
