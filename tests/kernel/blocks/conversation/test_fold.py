"""The fold: any prefix of any log leaves a conversation that can be sent, and always the same."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings

from haptera import (
    AssistantMessage,
    ErrorCode,
    Message,
    SessionError,
    Settings,
    ToolResultPart,
    UserMessage,
)
from haptera.kernel.blocks.permission_rules.decisions import CallSite, find_grant
from haptera.kernel.blocks.request_builder import RequestExtras, build_request, lead_with_reminders
from haptera.model.approvals import ApprovalScope
from haptera.model.canonical import approval_key
from haptera.model.entry_bytes import decode_entry, encode_entry
from haptera.model.ids import (
    CallId,
    MessageId,
    SessionId,
    new_approval_id,
    new_message_id,
    new_part_id,
    new_turn_id,
)
from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.log.compactions import Compaction
from haptera.model.log.entry import Entry
from haptera.model.log.fold import fold_entries
from haptera.model.log.history import HistoryEdited, Rewound
from haptera.model.log.queries import InputPromoted, QueryStarted
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.turns import (
    PartCheckpoint,
    PartEnded,
    PartStarted,
    TurnDiscarded,
    TurnEnded,
    TurnStarted,
)
from haptera.model.parts import CompactionPart, ReminderPart, TextPart
from haptera.model.stream_parts import FinishKind
from haptera.system.clock import Stamp
from haptera.testing import FakeClock
from tests.history_grammar import violations
from tests.messages_by_hand import answer, assistant, call, user
from tests.strategies_branches import any_logs
from tests.strategies_logs import LogWriter, QueryWriter, logs

NOTHING = "there is nothing to send"
EXTRAS = RequestExtras(model="one")


def lives_of(log: LogWriter) -> Iterator[SessionFold]:
    """Yield the session as its holder has it after each entry."""
    fold = SessionFold()
    for entry in log.inherited:
        fold.apply(entry)
    for count, entry in enumerate(log.entries, 1):
        fold.apply(entry)
        if isinstance(entry, Rewound):
            fold = fold_entries(log.entries[:count], inherited=log.inherited)
        yield fold


def has_a_prompt(entries: list[Entry]) -> bool:
    """Whether this log has a prompt."""
    return any(
        isinstance(entry, InputPromoted)
        or (isinstance(entry, QueryStarted) and entry.message is not None)
        for entry in entries
    )


def unanswered_calls(messages: tuple[Message, ...]) -> list[str]:
    """Return the calls that the message after them does not answer, and stray answers."""
    asked: set[str] = set()
    wrong: list[str] = []
    for message in messages:
        answers = {part.call_id for part in message.parts if isinstance(part, ToolResultPart)}
        wrong += asked ^ answers
        asked = set()
        if isinstance(message, AssistantMessage):
            asked = {call.call_id for call in message.tool_calls}
    return [*wrong, *asked]


@pytest.mark.slow
@settings(max_examples=200)
@given(any_logs)
def test_every_prefix_of_a_log_can_be_sent_or_says_that_there_is_nothing(log: LogWriter) -> None:
    for fold in lives_of(log):
        view = fold.sent_view()
        # A provider that paused wants its own answer back, so that one may come last.
        assert set(violations(view)) <= {NOTHING, "the last message is not the user's"}
        if any(isinstance(message, UserMessage) for message in view):
            assert build_request(fold.settings, view, EXTRAS).messages == view
        else:
            with pytest.raises(SessionError) as caught:
                build_request(fold.settings, view, EXTRAS)
            assert caught.value.code is ErrorCode.NOTHING_TO_SEND


def a_compaction(kept_from: MessageId | None) -> Compaction:
    return Compaction(
        **Stamp(FakeClock())(),
        trigger="auto",
        strategy="summarise",
        summary="so far",
        kept_from=kept_from,
    )


@pytest.mark.slow
@settings(max_examples=200)
@given(any_logs)
def test_a_compaction_replaces_what_comes_before_the_message_it_keeps(log: LogWriter) -> None:
    """After every prefix, with every message that is sent by then as the first one kept."""
    for prefix in range(0, len(log.entries), 4):
        whole = fold_entries(log.entries[:prefix], inherited=log.inherited)
        whole.settle()  # a compaction comes after what is unfinished by then
        for kept in whole.conversation.wire_view():
            fold = fold_entries(log.entries[:prefix], inherited=log.inherited)
            before = fold.messages()
            fold.apply(a_compaction(kept.id))
            view = fold.sent_view()
            assert set(violations(view)) <= {"the last message is not the user's"}
            assert build_request(fold.settings, view, EXTRAS).messages == view
            assert view[0].parts[0] == CompactionPart(text="so far")
            assert_kept(before, view, kept)
            ids = {message.id for message in fold.messages()}
            assert {message.id for message in before} <= ids, "the history keeps everything"


def assert_kept(before: tuple[Message, ...], view: tuple[Message, ...], kept: Message) -> None:
    """What was sent from a message on is still sent, unless it belongs to an earlier summary."""
    ids = [message.id for message in before]
    place = ids.index(kept.id)
    answers = any(isinstance(part, ToolResultPart) for part in kept.parts)
    first = before[place - 1] if answers else kept
    if not any(isinstance(part, CompactionPart) and part.text for part in first.parts):
        assert {first.id, *ids[place:]} <= {message.id for message in view}


def is_edited(entries: list[Entry]) -> bool:
    """Whether a message may have been taken out on purpose."""
    return any(isinstance(entry, HistoryEdited) for entry in entries)


@given(logs())
def test_a_prefix_that_holds_a_prompt_can_be_sent(entries: list[Entry]) -> None:
    fold = SessionFold()
    for count, entry in enumerate(entries, 1):
        fold.apply(entry)
        if has_a_prompt(entries[:count]) and (fold.messages() or not is_edited(entries)):
            build_request(fold.settings, fold.sent_view(), EXTRAS)


@given(any_logs)
def test_the_whole_history_answers_every_call_too(log: LogWriter) -> None:
    fold = log.fold()
    for messages in (fold.messages(), fold.committed_messages()):
        assert unanswered_calls(messages) == []
        assert len({message.id for message in messages}) == len(messages)


@given(any_logs)
def test_reading_a_log_again_gives_the_same_session(log: LogWriter) -> None:
    *_, live = lives_of(log)
    stored = [decode_entry(encode_entry(entry)) for entry in log.entries]
    again = fold_entries(stored, inherited=log.inherited)
    assert again.head == live.head == len(log.entries)
    assert again.sent_view() == live.sent_view()
    assert again.messages() == live.messages()
    assert again.calls == live.calls
    assert again.settings == live.settings
    assert (again.usage, again.cost) == (live.usage, live.cost)
    assert again.pending_approvals() == live.pending_approvals()
    assert list(again.inputs) == list(live.inputs)
    assert again.unfinished_query() == live.unfinished_query()


@given(logs())
def test_looking_at_a_session_does_not_change_it(entries: list[Entry]) -> None:
    fold = fold_entries(entries)
    first = (fold.sent_view(), fold.messages(), fold.committed_messages())
    assert (fold.sent_view(), fold.messages(), fold.committed_messages()) == first


@given(logs())
def test_no_text_that_was_not_discarded_is_ever_lost(entries: list[Entry]) -> None:
    entries = [entry for entry in entries if not isinstance(entry, HistoryEdited)]
    voided = {entry.turn_id for entry in entries if isinstance(entry, TurnDiscarded)}
    kept = {
        part.id: part.text
        for message in fold_entries(entries).messages()
        for part in message.parts
        if isinstance(part, TextPart)
    }
    texts: dict[str, str] = {}
    for entry in entries:
        if entry.turn_id in voided:
            continue
        if isinstance(entry, PartStarted) and entry.part_kind == "text":
            texts[entry.part_id] = ""
        elif isinstance(entry, PartCheckpoint) and entry.part_id in texts:
            texts[entry.part_id] += entry.text
        elif isinstance(entry, PartEnded) and isinstance(entry.part, TextPart):
            texts[entry.part_id] += entry.part.text
    assert {key: text for key, text in texts.items() if text}.items() <= kept.items()


@given(any_logs)
def test_a_settled_approval_no_longer_waits(log: LogWriter) -> None:
    settled = {entry.approval_id for entry in log.entries if isinstance(entry, ApprovalSettled)}
    assert settled.isdisjoint(item.id for item in log.fold().pending_approvals())


@pytest.mark.slow
@settings(max_examples=300)
@given(any_logs)
def test_a_call_that_was_started_is_never_offered_as_new_on_any_path_that_keeps_it(
    log: LogWriter,
) -> None:
    runs = defaultdict(list)
    for start in log.started:
        runs[start.message_id, start.call_id].append(start.idempotent)
    # The writer ran what the fold offered: after a run that must not be repeated came no other.
    assert all(all(each[:-1]) for each in runs.values())
    for seq, fold in enumerate(lives_of(log), 1):
        known = [start for start in log.started if start.seq <= seq]
        started = {(start.message_id, start.call_id) for start in known}
        once = {start[:2] for start in known if not start.idempotent}
        tip = fold.conversation.tip
        if tip is not None:
            open_calls = {(tip.id, record.part.call_id): record for record in fold.calls.values()}
            assert not any(open_calls[key].may_run for key in once & set(open_calls))
        assert started.isdisjoint(calls_said_not_to_have_run(fold.messages()))


def calls_said_not_to_have_run(messages: tuple[Message, ...]) -> set[tuple[str, str]]:
    """Return the calls of which a model is told that they were not run."""
    return {
        (asked.id, part.call_id)
        for asked, answered in pairwise(messages)
        for part in answered.parts
        if isinstance(part, ToolResultPart) and part.outcome == "interrupted"
    }


@given(logs())
def test_an_ended_part_is_shown_whole_and_stored_once(entries: list[Entry]) -> None:
    fold = SessionFold()
    saved: dict[str, str] = {}
    for entry in entries:
        shown = fold.compose(entry)
        fold.apply(entry)
        if isinstance(entry, PartCheckpoint):
            assert entry.offset == len(saved.get(entry.part_id, ""))
            saved[entry.part_id] = saved.get(entry.part_id, "") + entry.text
        if isinstance(shown, PartEnded) and isinstance(shown.part, TextPart):
            stored = msgspec.structs.asdict(entry)["part"].text
            assert shown.offset == 0
            assert shown.part.text == saved.get(shown.part_id, "") + stored


# Single cases that a generated log meets seldom.


def a_turn(query: QueryWriter, text: str, *, finish: FinishKind = "stop") -> TurnEnded:
    stamp, part_id = query.stamp.of_turn(new_turn_id()), new_part_id()
    message_id = new_message_id()
    ended = TurnEnded(**stamp(), message_id=message_id, finish=finish)
    for entry in (
        TurnStarted(**stamp(), message_id=message_id, provider="scripted", model="one"),
        PartStarted(**stamp(), part_id=part_id, part_kind="text"),
        PartEnded(**stamp(), part_id=part_id, part=TextPart(id=part_id, text=text)),
        ended,
    ):
        query.log.add(entry)
    return ended


def test_discarding_an_answer_that_went_on_keeps_what_it_went_on_with() -> None:
    log = LogWriter(b"")
    query = QueryWriter(log)
    query.start()
    a_turn(query, "first", finish="pause")
    void = a_turn(query, "garbled")
    log.add(TurnDiscarded(**query.stamp(), message_id=void.message_id, reason="named no tools"))
    assert fold_entries(log.entries).messages()[-1].text == "first"


def test_after_a_compaction_inside_an_answer_the_view_still_begins_with_the_user() -> None:
    log = LogWriter(b"")
    query = QueryWriter(log)
    query.start()
    stamp, part_id = query.stamp.of_turn(new_turn_id()), new_part_id()
    part = CompactionPart(id=part_id, text="all of it")
    for entry in (
        TurnStarted(**stamp(), message_id=new_message_id(), provider="scripted", model="one"),
        PartStarted(**stamp(), part_id=part_id, part_kind="compaction"),
        PartEnded(**stamp(), part_id=part_id, part=part),
        TurnEnded(**stamp(), message_id=new_message_id(), finish="compaction"),
    ):
        log.add(entry)
    view = fold_entries(log.entries).sent_view()
    assert [type(message) for message in view] == [UserMessage, AssistantMessage]
    assert view[1].parts == (part,)
    assert build_request(Settings(), view, EXTRAS).messages == view


@pytest.mark.parametrize(
    ("scope", "later", "allowed"),
    [
        ("once", "same", False),
        ("once", "resumed", False),
        ("once", "next", False),
        ("query", "same", True),
        ("query", "resumed", True),
        ("query", "next", False),
        ("session", "same", True),
        ("session", "resumed", True),
        ("session", "next", True),
        ("project", "same", True),
        ("project", "next", True),
    ],
)
@pytest.mark.parametrize(
    ("folder", "known"), [("/work", "t"), ("/elsewhere", "t"), (None, "t"), ("/work", None)]
)
def test_an_approval_reaches_as_far_as_its_scope(
    scope: ApprovalScope, later: str, allowed: bool, folder: str | None, known: str | None
) -> None:
    log = LogWriter(b"")
    query = QueryWriter(log)
    query.start()
    requested = ApprovalRequested(
        **query.stamp(),
        approval_id=new_approval_id(),
        call_id=CallId("1"),
        tool="look",
        arguments={"path": "a"},
        arguments_hash="",
        tool_digest=known,
        folder=folder,
    )
    log.add(requested)
    log.add(
        ApprovalSettled(
            **log.stamp()(),
            approval_id=requested.approval_id,
            call_id=CallId("1"),
            decision="approved",
            scope=scope,
        )
    )
    asking = query
    if later != "same":
        asking = QueryWriter(log, resumes=query.query_id if later == "resumed" else None)
        asking.start()
    fold = fold_entries(log.entries)
    place = CallSite(query_id=asking.query_id, session_id=SessionId("s"), folder="/work")
    key = approval_key("look", {"path": "a"}, "/work", tool_digest="t")
    granted = find_grant(fold.standing.grants, key, place)
    assert (granted is not None) is (allowed and folder == "/work" and known == "t")
    other = approval_key("look", {"path": "b"}, "/work", tool_digest="t")
    assert find_grant(fold.standing.grants, other, place) is None


def a_conversation(*messages: Message) -> SessionFold:
    fold = SessionFold()
    for number, message in enumerate(messages):
        fold.conversation.push(msgspec.structs.replace(message, id=MessageId(f"m{number}")))
    return fold


def test_what_a_compaction_keeps_is_sent_after_its_summary_and_the_rest_is_not() -> None:
    fold = a_conversation(user("one"), assistant("two"), user("three"), assistant("four"))
    replaced, kept = fold.conversation.messages[:3], fold.conversation.messages[3]
    fold.apply(a_compaction(kept.id))
    assert [texts_of(message) for message in fold.conversation.wire_view()] == ["so far", "four"]
    assert fold.conversation.messages[:3] == replaced
    fold.conversation.push(user("five"))
    assert [texts_of(message) for message in fold.sent_view()] == ["so far", "four", "five"]


def test_a_prompt_that_is_kept_first_becomes_one_with_the_summary() -> None:
    fold = a_conversation(user("one"), assistant("two"), user("three"), assistant("four"))
    kept = fold.conversation.messages[2]
    fold.apply(a_compaction(kept.id))
    view = fold.conversation.wire_view()
    assert [texts_of(message) for message in view] == ["so far three", "four"]
    assert view[0].id == kept.id, "it can still be gone back to"


def test_results_are_kept_with_the_message_that_made_the_calls() -> None:
    asking, seen = assistant(call("1", path="a")), user(answer("1"))
    fold = a_conversation(user("one"), asking, seen, assistant("four"))
    _, asked, results, last = fold.conversation.messages
    fold.apply(a_compaction(results.id))
    assert fold.conversation.wire_view()[1:] == (asked, results, last)


@pytest.mark.parametrize("kept_from", [None, "gone", "m0"])
def test_a_compaction_that_keeps_nothing_that_is_sent_replaces_everything(
    kept_from: str | None,
) -> None:
    """A message that an earlier compaction replaced is gone from what is sent, like an unknown."""
    fold = a_conversation(user("one"))
    fold.apply(a_compaction(None))
    fold.conversation.push(assistant("two"))
    fold.apply(a_compaction(None if kept_from is None else MessageId(kept_from)))
    assert [texts_of(message) for message in fold.conversation.wire_view()] == ["so far"]


def test_reminders_come_back_after_a_compaction_that_kept_later_prompts() -> None:
    first = user(ReminderPart(text="rules", persisted=True), "one")
    fold = a_conversation(first, assistant("two"), user("three"), assistant("four"))
    fold.apply(a_compaction(fold.conversation.messages[2].id))
    led = lead_with_reminders(user("five"), ["rules"], fold.sent_view())
    assert led.parts[0] == ReminderPart(text="rules", persisted=True)
    fold.conversation.push(led)
    assert lead_with_reminders(user("six"), ["rules"], fold.sent_view()) == user("six")


def texts_of(message: Message) -> str:
    return " ".join(
        part.text for part in message.parts if isinstance(part, TextPart | CompactionPart)
    )
