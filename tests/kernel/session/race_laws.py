"""What must hold after a race, whatever happened: laws about what was seen outside and the logs."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from haptera.model.canonical import arguments_hash
from haptera.model.ids import EntryId
from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.log.compactions import Compaction
from haptera.model.log.entry import Entry
from haptera.model.log.fold import fold_entries
from haptera.model.log.history import Rewound
from haptera.model.log.paths import current_path
from haptera.model.log.queries import (
    InputDrained,
    InputPromoted,
    InputQueued,
    QueryEnded,
    QueryStarted,
)
from haptera.model.log.sessions import CommandEnded, SessionChanged
from haptera.model.log.tools import ToolEnded, ToolStarted, ToolWaiting
from haptera.model.messages import Message
from haptera.model.parts import ToolCallPart, ToolResultPart

Receipt = Literal["kept", "logged", "drained", "refused", "open"]
"""What the sender of a prompt was told.

`kept`: it is in the log once, and a query answers it in the end. `logged`: it is in the log once.
`drained`: so it is, and no query answers it. `refused`: it is not there. `open`: it is there once
or not at all.
"""

TOOL = "risky"


@dataclass
class Answer:
    """An answer to an approval that was given from outside."""

    by: str
    approval_id: str
    decision: Literal["approved", "denied"]
    outcome: str = "open"
    """`settled`, the code it was refused with, or `open` when its caller gave up."""


@dataclass
class Delivery:
    """An answer of a call that was delivered from outside."""

    text: str
    outcome: str = "open"
    """`settled`, the code it was refused with, or `open` when its caller gave up."""


@dataclass
class Story:
    """What was seen from outside."""

    happenings: list[str] = field(default_factory=list)
    runs: Counter[int] = field(default_factory=Counter)
    """How often the tool ran, by the step that it was called with; each call has its own."""
    answers: list[Answer] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    prompts: dict[str, Receipt] = field(default_factory=dict)
    configured: list[float] = field(default_factory=list)
    """The values that a setting was given, each only once."""
    moves: int = 0
    """How many rewinds and undos were acknowledged."""
    compactions: list[str] = field(default_factory=list)
    """The ids of the compactions that callers got."""
    suspended: list[str] = field(default_factory=list)
    """The ids of queries that were stopped by the closing of their session."""
    found: list[str] = field(default_factory=list)
    """Violations that were seen where nothing could be raised."""


def untrue_offers(messages: Sequence[Message], started: Collection[int]) -> list[str]:
    """Return every call that a conversation calls not run although it was started."""
    untrue, asked = [], dict[str, object]()
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                asked[part.call_id] = part.arguments.get("step")
            elif isinstance(part, ToolResultPart):
                step = asked.get(part.call_id)
                if step in started and part.outcome in ("interrupted", "denied"):
                    untrue.append(f"step {step} was started, and is offered as {part.outcome}")
    return untrue


def check_story(story: Story, log: Sequence[Entry]) -> None:
    """Check a session that was brought to rest against what was seen of it."""
    assert story.found == []
    check_log(log)
    _check_suspended(story, log)
    _check_answers(story, log)
    _check_calls(story, log)
    _check_waits(story, log)
    _check_prompts(story, log)
    _check_settings(story, log)
    _check_commands(story, log)


def check_log(log: Sequence[Entry]) -> None:
    """Check what holds in the log of any session that is at rest."""
    _check_ends(log)
    assert [entry.seq for entry in log] == list(range(1, len(log) + 1))
    asked = [entry.approval_id for entry in log if isinstance(entry, ApprovalRequested)]
    settled = [entry.approval_id for entry in log if isinstance(entry, ApprovalSettled)]
    assert len(set(asked)) == len(asked), "an approval is asked for once"
    assert len(set(settled)) == len(settled), "an approval is settled once"
    assert set(settled) <= set(asked)
    starts = Counter(_steps_started(log))
    assert all(count == 1 for count in starts.values()), f"calls started twice: {starts}"
    _check_permissions(log)


def _check_ends(log: Sequence[Entry]) -> None:
    """Check that a query has one end before the next begins, or is carried on by that.

    The end of a suspended query that was rewound comes with the next prompt.
    """
    started = [entry for entry in log if isinstance(entry, QueryStarted)]
    ended = [entry for entry in log if isinstance(entry, QueryEnded)]
    ends = {entry.query_id: entry.seq for entry in ended}
    assert len(ends) == len(ended), "every query ends once"
    assert ends.keys() <= {entry.query_id for entry in started}
    for entry, following in pairwise(started):
        is_carried_on = following.resumes is not None and entry.query_id not in ends
        has_end = entry.query_id in ends and ends[entry.query_id] < following.seq
        between = (each for each in log if entry.seq < each.seq < following.seq)
        is_left = any(isinstance(each, Rewound) and each.to_seq < entry.seq for each in between)
        assert is_carried_on or has_end or is_left, (
            "every query has one end, before the next begins"
        )
    assert not started or started[-1].query_id in ends, "the last query has its end"


def _check_suspended(story: Story, log: Sequence[Entry]) -> None:
    """Check that a closing is no abort: what it stops is carried on, or cut off by a prompt."""
    for entry in log:
        if isinstance(entry, QueryEnded) and entry.query_id in story.suspended:
            is_cut_off = entry.error is not None and "cut off" in entry.error.message
            assert entry.stop_reason != "aborted" or is_cut_off, f"a closing aborted {entry}"


def check_all_settled(log: Sequence[Entry]) -> None:
    """Check that no question waits; one that was rewound before it was answered never will.

    Nor will one whose call was denied, or started, on another path: that counts on every path.
    """
    calls = {
        entry.approval_id: entry.arguments_hash
        for entry in log
        if isinstance(entry, ApprovalRequested)
    }
    settled = [entry for entry in log if isinstance(entry, ApprovalSettled)]
    decided = {calls[entry.approval_id] for entry in settled if entry.decision == "denied"}
    decided |= {entry.arguments_hash for entry in log if isinstance(entry, ToolStarted)}
    asked = {
        entry.approval_id
        for entry in current_path(log)
        if isinstance(entry, ApprovalRequested) and entry.arguments_hash not in decided
    }
    waiting = asked - {entry.approval_id for entry in settled}
    assert not waiting, f"{waiting} wait in a session that is at rest"


def _steps_started(log: Sequence[Entry]) -> list[int]:
    hashes = {entry.arguments_hash for entry in log if isinstance(entry, ToolStarted)}
    steps = {arguments_hash(TOOL, {"step": step}): step for step in range(100)}
    assert hashes <= set(steps)
    return [steps[entry.arguments_hash] for entry in log if isinstance(entry, ToolStarted)]


def _check_permissions(log: Sequence[Entry]) -> None:
    """Check that a call was started after it was approved, and never once it was denied.

    A permission that was not used before a rewind is gone.
    """
    asked: dict[str, str] = {}
    allowed: set[str] = set()
    denied: set[str] = set()
    for entry in log:
        if isinstance(entry, ApprovalRequested):
            assert entry.arguments_hash not in denied, "a call is asked about after it was denied"
            asked[entry.approval_id] = entry.arguments_hash
        elif isinstance(entry, ApprovalSettled):
            call = asked[entry.approval_id]
            allowed.add(call) if entry.decision == "approved" else allowed.discard(call)
            if entry.decision == "denied":
                denied.add(call)
        elif isinstance(entry, ToolStarted):
            assert entry.arguments_hash in allowed, "a call was started without permission"
            allowed.discard(entry.arguments_hash)
        elif isinstance(entry, Rewound):
            allowed.clear()


def _check_settings(story: Story, log: Sequence[Entry]) -> None:
    """Check that every change of a setting is in the log once, and says where it came from."""
    configured: Counter[float] = Counter()
    for entry in log:
        if isinstance(entry, SessionChanged) and entry.changes:
            (name,) = entry.changes["settings"]
            assert (name, entry.origin) in {("temperature", "configure"), ("seed", "opening")}
            configured.update(entry.changes["settings"].values() if name == "temperature" else ())
    lost = set(story.configured) - configured.keys()
    assert not lost, f"{lost} were configured, and the log does not have them"
    assert all(count == 1 for count in configured.values())


def _check_commands(story: Story, log: Sequence[Entry]) -> None:
    """Check that a command has one end, in the append of its effect, and none is lost."""
    ends = Counter(entry.command_id for entry in log if isinstance(entry, CommandEnded))
    assert all(count == 1 for count in ends.values()), f"commands ended twice: {ends}"
    for before, entry in pairwise(log):
        if isinstance(entry, CommandEnded) and entry.error is None:
            assert isinstance(before, Rewound | SessionChanged | ToolEnded) or _compacted(
                entry, log
            ), entry
    moves = sum(isinstance(entry, Rewound) for entry in log)
    assert moves >= story.moves, f"{story.moves} moves were acknowledged, the log has {moves}"
    made = Counter(entry.id for entry in log if isinstance(entry, Compaction))
    lost = [item for item in story.compactions if made[EntryId(item)] != 1]
    assert not lost, f"{lost} were made, and the log does not have them once"


def _compacted(ended: CommandEnded, log: Sequence[Entry]) -> bool:
    made = (ended.result or {}).get("compaction_id")
    return any(isinstance(entry, Compaction) and entry.id == made for entry in log)


def _check_answers(story: Story, log: Sequence[Entry]) -> None:
    """Check that the log has the answers that were taken, and none that was refused."""
    settled = [entry for entry in log if isinstance(entry, ApprovalSettled)]
    for answer in story.answers:
        own = [(entry.approval_id, entry.decision) for entry in settled if entry.by == answer.by]
        expected = [(answer.approval_id, answer.decision)]
        if answer.outcome == "settled":
            assert own == expected, f"{answer} was taken, and the log has {own}"
        elif answer.outcome == "open":
            assert own in ([], expected)
        else:
            assert own == [], f"{answer} was refused, and the log has it"
    taken = Counter(item.approval_id for item in story.answers if item.outcome == "settled")
    assert all(count == 1 for count in taken.values()), f"two answers were taken: {taken}"


def _check_waits(story: Story, log: Sequence[Entry]) -> None:
    """Check that each call that waited has one end at most, and what was delivered is there once.

    Its outcome is never unknown.
    """
    waited = {(each.turn_id, each.call_id) for each in log if isinstance(each, ToolWaiting)}
    ended = [each for each in log if isinstance(each, ToolEnded)]
    ends = Counter((each.turn_id, each.call_id) for each in ended)
    twice = [call for call in waited if ends[call] > 1]
    assert not twice, f"calls that waited ended twice: {twice}"
    texts = Counter(each.content[0].text for each in ended if each.content)  # type: ignore[union-attr]
    for delivery in story.deliveries:
        allowed = {"settled": (1,), "open": (0, 1)}.get(delivery.outcome, (0,))
        assert texts[delivery.text] in allowed, f"{delivery}: {texts[delivery.text]} in the log"
    for message in fold_entries(log).messages():
        for part in message.parts:
            if isinstance(part, ToolResultPart) and (message.turn_id, part.call_id) in waited:
                assert part.outcome != "unknown", f"{part} waited, and is unknown"


def _check_calls(story: Story, log: Sequence[Entry]) -> None:
    """Check that every run is in the log, and that what was approved ran if its query went on."""
    started = set(_steps_started(log))
    assert all(count == 1 for count in story.runs.values()), f"calls ran twice: {story.runs}"
    hashes = {arguments_hash(TOOL, {"step": step}) for step in started}
    asked = {
        entry.approval_id: entry.arguments_hash
        for entry in log
        if isinstance(entry, ApprovalRequested)
    }
    approved: list[str] = []
    for entry in log:
        if isinstance(entry, QueryStarted):
            approved = []
        elif isinstance(entry, ApprovalSettled) and entry.decision == "approved":
            approved.append(asked[entry.approval_id])
        elif isinstance(entry, QueryEnded) and entry.stop_reason == "complete":
            assert hashes.issuperset(approved), "a call was approved and did not run"


def _check_prompts(story: Story, log: Sequence[Entry]) -> None:
    """Check that every prompt is there as often as its sender was told."""
    said: Counter[str] = Counter()
    inputs: dict[str, str] = {}
    for entry in log:
        if isinstance(entry, InputQueued):
            inputs[entry.input_id] = entry.message.text
        if isinstance(entry, InputQueued | QueryStarted) and entry.message is not None:
            said[entry.message.text] += 1
    allowed = {"kept": (1,), "logged": (1,), "drained": (1,), "refused": (0,), "open": (0, 1)}
    for text, receipt in story.prompts.items():
        assert said[text] in allowed[receipt], f"{text!r} is {receipt}, and said {said[text]} times"
    _check_queue(log)
    promoted = {inputs[entry.input_id] for entry in log if isinstance(entry, InputPromoted)}
    started = {
        entry.message.text for entry in log if isinstance(entry, QueryStarted) and entry.message
    }
    answered = promoted | started
    lost = {text for text, receipt in story.prompts.items() if receipt == "kept"} - answered
    assert not lost, f"no query was started for {lost}"
    sent = {text for text, receipt in story.prompts.items() if receipt == "drained"} & answered
    assert not sent, f"a query was started for {sent}, which had been taken out"


def _check_queue(log: Sequence[Entry]) -> None:
    """Check that every prompt that waited left the queue once."""
    waited = [entry.input_id for entry in log if isinstance(entry, InputQueued)]
    left = [entry.input_id for entry in log if isinstance(entry, InputPromoted | InputDrained)]
    assert sorted(waited) == sorted(left), "a prompt waits on, or left the queue twice"
