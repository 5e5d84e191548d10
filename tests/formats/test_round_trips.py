"""Ours to theirs and back: texts, calls, results and their order survive, in each format."""

import io
import json
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from msgspec.structs import replace

from haptera.formats.formats import FORMATS, READ_FORMATS, WRITTEN_FORMATS, read_session, recognised
from haptera.formats.values import ImportedSession, SessionExport, TimedMessage
from haptera.model.ids import CallId, EntryId, new_session_id
from haptera.model.log.entry import Entry
from haptera.model.log.fold import fold_entries
from haptera.model.log.sessions import SessionOpened
from haptera.model.messages import AssistantMessage, Message
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    Part,
    ProviderPart,
    ReminderPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from tests.formats.conversations import (
    A_CONVERSATION,
    A_SESSION,
    A_TIME,
    Said,
    assistant,
    call,
    exported,
    heard_of,
    result,
    user,
)
from tests.formats.strategies import EXPORTS
from tests.strategies_logs import logs

READABLE = sorted({*READ_FORMATS} & {*WRITTEN_FORMATS})
PICTURE = MediaPart(mime="image/png", data="iVBORw0KGgo=")


class Keeps(NamedTuple):
    """What a format can tell."""

    errors: bool = True
    summaries: bool = True
    facts: bool = True


KEEPS = {
    "claude-code": Keeps(),
    "codex": Keeps(errors=False),
    "opencode": Keeps(),
    "pi": Keeps(),
    "openai": Keeps(errors=False, summaries=False, facts=False),
    "anthropic": Keeps(summaries=False, facts=False),
}


def written(export: SessionExport, name: str) -> bytes:
    return b"".join(FORMATS[name].write(export))


def again(export: SessionExport, name: str) -> ImportedSession:
    read = FORMATS[name].read
    assert read is not None
    session: ImportedSession = read(io.BytesIO(written(export, name)))  # type: ignore[call-arg]
    return session


def with_parts(export: SessionExport, change: Callable[[Message], Iterable[Part]]) -> SessionExport:
    """Return an export with other parts in its messages."""
    messages: list[TimedMessage] = []
    for each in export.messages:
        message: Message = replace(each.message, parts=tuple(change(each.message)))
        messages.append(replace(each, message=message))
    return replace(export, messages=tuple(messages))


def as_told_in(name: str, message: Message) -> Iterable[Part]:
    """Return the parts of a message in the order and the kinds that a format has for them."""
    parts: list[Part] = list(message.parts)
    if not KEEPS[name].summaries:
        parts = [TextPart(text=p.text) if isinstance(p, CompactionPart) else p for p in parts]
    if name == "openai" and isinstance(message, AssistantMessage):
        parts.sort(key=lambda part: isinstance(part, ToolCallPart))
    if name in {"openai", "anthropic"}:
        parts = [
            TextPart(text=f"<system-reminder>\n{p.text}\n</system-reminder>")
            if isinstance(p, ReminderPart)
            else p
            for p in parts
        ]
    return parts


def in_order_of_calls(said: list[Said]) -> list[Said]:
    """Sort results that stand together: one format keeps each in its call."""
    ordered: list[Said] = []
    together: list[Said] = []
    for each in [*said, None]:
        if each is not None and each.by == "result":
            together.append(each)
            continue
        ordered += sorted(together)
        together = []
        ordered += [each] if each is not None else []
    return ordered


def told(session: SessionExport | ImportedSession, name: str) -> list[Said]:
    said = heard_of(session, errors=KEEPS[name].errors)
    return in_order_of_calls(said) if name == "opencode" else said


# Drawing a conversation takes longer than writing it, so each is written in all formats.


@pytest.mark.slow
@given(EXPORTS)
def test_texts_calls_results_and_their_order_survive_in_every_format(export: SessionExport) -> None:
    for name in READABLE:
        session = again(export, name)
        expected = with_parts(export, partial(as_told_in, name))
        assert told(session, name) == told(expected, name), name
        assert session.report.opaque_parts == {}, name
        assert session.report.warnings == (), name
        assert {record.kind for record in session.opaque} <= {"system"}, name
        assert can_be_sent(session), name


def can_be_sent(session: ImportedSession) -> bool:
    """Whether a log that begins with these messages goes on."""
    opened = SessionOpened(
        id=EntryId("e"),
        time=1,
        seq=1,
        session_id=new_session_id(),
        history=tuple(each.message for each in session.messages),
    )
    return bool(fold_entries([opened]).sent_view())


@given(logs())
def test_whatever_a_log_folds_to_is_told_in_every_format(entries: list[Entry]) -> None:
    export = exported(*fold_entries(entries).messages())
    if not heard_of(export):
        return
    for name in READABLE:
        expected = with_parts(export, partial(as_told_in, name))
        assert prose(again(export, name), name) == prose(expected, name), name


def prose(session: SessionExport | ImportedSession, name: str) -> str:
    """Return what was said and summed up, in one piece."""
    said = told(session, name)
    return "".join(str(each.what) for each in said if each.by not in {"call", "result"})


@pytest.mark.parametrize("name", READABLE)
def test_an_export_is_recognised_and_the_same_each_time(name: str) -> None:
    export = exported(*A_CONVERSATION, title="Mountains")
    raw = written(export, name)
    assert written(export, name) == raw
    assert recognised(raw) == name
    assert read_session(io.BytesIO(raw)).format == name


@pytest.mark.parametrize("name", [name for name in READABLE if KEEPS[name].facts])
def test_what_is_known_of_a_session_survives(name: str) -> None:
    export = exported(*A_CONVERSATION, title="Mountains", cwd="/home/ana/work")
    session = again(export, name)
    assert (session.title, session.cwd) == (None if name == "codex" else "Mountains", export.cwd)
    assert session.source_id == A_SESSION
    assert session.messages[0].time == A_TIME
    assert (session.created, session.format) == (A_TIME, name)
    counts = session.report
    assert (counts.messages, counts.tool_calls, counts.tool_results) == (6, 3, 3)


@pytest.mark.parametrize("name", ["claude-code", "opencode", "pi", "codex"])
def test_usage_survives(name: str) -> None:
    session = again(exported(*A_CONVERSATION), name)
    answers = [
        each.message for each in session.messages if isinstance(each.message, AssistantMessage)
    ]
    assert [
        (each.usage.input, each.usage.output, each.usage.cache_read)
        for each in answers
        if each.usage
    ] == [(12, 7, 3)] * 3


@pytest.mark.parametrize("name", ["opencode", "pi"])
def test_costs_survive(name: str) -> None:
    export = exported(*A_CONVERSATION)
    priced = tuple(replace(each, cost=Decimal("0.25")) for each in export.messages)
    session = again(replace(export, messages=priced), name)
    assert [
        each.cost for each in session.messages if isinstance(each.message, AssistantMessage)
    ] == [Decimal("0.25")] * 3


@pytest.mark.parametrize("name", ["codex", "openai", "anthropic"])
def test_system_prompts_survive_where_there_is_a_place_for_them(name: str) -> None:
    session = again(exported(*A_CONVERSATION, system_prompts=("Be brief.",)), name)
    assert session.system_prompts == ("Be brief.",)


@pytest.mark.parametrize("name", ["claude-code", "codex", "opencode", "pi"])
def test_notes_of_the_program_stay_notes(name: str) -> None:
    note = ReminderPart(text="The user switched the branch.", persisted=True)
    session = again(exported(user(1, "hi", note), assistant(2, "ho")), name)
    notes = [part for each in session.messages for part in each.message.parts if part == note]
    assert notes == [note]


@pytest.mark.parametrize("name", READABLE)
def test_a_picture_of_the_user_survives(name: str) -> None:
    session = again(exported(user(1, "look", PICTURE), assistant(2, "I see")), name)
    media = [part for part in session.messages[0].message.parts if isinstance(part, MediaPart)]
    assert [(part.mime, part.data) for part in media] == [(PICTURE.mime, PICTURE.data)]


@pytest.mark.parametrize("name", [name for name in READABLE if name != "openai"])
def test_a_picture_in_a_result_survives(name: str) -> None:
    shown = ToolResultPart(
        call_id=result("shot", "c1", "").call_id, name="shot", content=(PICTURE,)
    )
    export = exported(user(1, "go"), assistant(2, call("shot", "c1")), user(3, shown))
    (found,) = [
        part
        for each in again(export, name).messages
        for part in each.message.parts
        if isinstance(part, ToolResultPart)
    ]
    assert [piece.data for piece in found.content if isinstance(piece, MediaPart)] == [PICTURE.data]


@pytest.mark.parametrize("name", READABLE)
def test_a_payload_beside_the_log_is_put_into_the_file_or_named(name: str) -> None:
    there = MediaPart(mime="image/png", blob="a" * 64)
    gone = MediaPart(mime="image/png", blob="b" * 64, filename="gone.png")
    export = exported(user(1, "look", there, gone), assistant(2, "ok"), contents={"a" * 64: b"png"})
    raw = written(export, name).decode()
    assert "cG5n" in raw
    assert "gone.png: not part of this file" in raw


@pytest.mark.parametrize("name", sorted(WRITTEN_FORMATS))
def test_no_call_id_is_used_twice_in_an_export(name: str) -> None:
    raw = written(exported(*A_CONVERSATION), name).decode()
    assert raw.count("2452 m") >= 1
    if name in {"markdown", "html"}:
        return
    ids: list[Any] = []
    for line in raw.splitlines() if name in {"claude-code", "codex", "pi"} else [raw]:
        ids += call_ids(json.loads(line))
    assert len(ids) == len(set(ids)) == 3


def call_ids(value: Any) -> list[str]:
    """Find the ids of calls in any of the formats."""
    if isinstance(value, list):
        return [found for item in value for found in call_ids(item)]
    if not isinstance(value, dict):
        return []
    found = [found for item in value.values() for found in call_ids(item)]
    match value.get("type"):
        case "tool_use" | "toolCall" | "function":
            return [value["id"], *found]
        case "function_call":
            return [value["call_id"], *found]
        case "tool":
            return [value["callID"], *found]
        case _:
            return found


def test_an_empty_text_beside_a_picture_is_no_piece_of_a_result() -> None:
    picture = PICTURE
    content = (TextPart(text=""), picture)
    seen = ToolResultPart(call_id=CallId("call_1"), name="look", content=content)
    export = exported(user(1, "look"), assistant(2, call("look", "call_1")), user(3, seen))
    back = again(export, "codex")
    (found,) = back.messages[2].message.parts
    assert isinstance(found, ToolResultPart)
    assert found.content == (picture,)


def test_a_document_of_anthropic_holds_what_a_request_would() -> None:
    payload = {"type": "server_tool_use", "id": 7, "name": "web_search", "input": {}}
    searched = ProviderPart(provider="anthropic", model="m", payload=payload)
    told = user(3, "And?", result("look", "call_1", "seen"))
    export = exported(user(1, "look"), assistant(2, searched, call("look", "call_1")), told)
    document = json.loads(written(export, "anthropic"))
    # The API refuses an id that is no text, and anything before the results of the calls.
    assert document["messages"][1]["content"][0]["id"] == "7"
    kinds = [block["type"] for block in document["messages"][2]["content"]]
    assert kinds == ["tool_result", "text"]
