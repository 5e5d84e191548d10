"""Messages of libraries are imported whole: what has no place in a session is counted."""

import io
import json
from typing import Any

import pytest

from haptera.formats.formats import FORMATS, READ_FORMATS, WRITTEN_FORMATS, read_session
from haptera.formats.values import ImportedSession
from haptera.model.errors import ConfigError
from haptera.model.messages import AssistantMessage
from haptera.model.parts import (
    MediaPart,
    Part,
    ProviderPart,
    ReasoningPart,
    ReminderPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from haptera.model.usage import Usage
from tests.formats.conversations import A_CONVERSATION, exported
from tests.formats.library_documents import AI_SDK, DOCUMENTS, LANGCHAIN, PICTURE, PYDANTIC_AI


def imported(document: Any, name: str | None = None) -> ImportedSession:
    return read_session(io.BytesIO(json.dumps(document).encode()), name)


def parts_of(session: ImportedSession) -> list[list[Part]]:
    return [list(each.message.parts) for each in session.messages]


def size_call(number: int, arguments: Any) -> ToolCallPart:
    return ToolCallPart(call_id=f"c{number}", name="size", arguments=arguments)  # type: ignore[arg-type]


def size_result(number: int, text: str, outcome: str = "ok") -> ToolResultPart:
    return ToolResultPart(
        call_id=f"c{number}",  # type: ignore[arg-type]
        name="size",
        outcome=outcome,  # type: ignore[arg-type]
        content=(TextPart(text=text),),
    )


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_of_a_library_is_recognised(name: str) -> None:
    assert read_session(io.BytesIO(DOCUMENTS[name])).format == name
    assert {*READ_FORMATS} - {*WRITTEN_FORMATS} == {*DOCUMENTS}
    with pytest.raises(ConfigError, match="can be read, but not written"):
        FORMATS[name].write(exported(*A_CONVERSATION))


def test_messages_of_pydantic_ai_keep_calls_media_usage_and_prompts() -> None:
    session = imported(PYDANTIC_AI)
    assert session.system_prompts == ("Be brief.", "You know cities.")
    assert session.model == "claude-sonnet-5"
    asked, answered, told, last = parts_of(session)
    assert asked[:3] == [
        TextPart(text="How large is Oslo?"),
        MediaPart(mime="image/png", data="+/8="),
        MediaPart(mime="application/octet-stream", url="https://x.example/a.png"),
    ]
    assert isinstance(asked[3], ProviderPart)
    assert answered[:4] == [
        ReasoningPart(text="Look it up.", signature="sig"),
        TextPart(text="I look it up."),
        size_call(1, {"city": "Oslo"}),
        size_call(2, {"city": 1}),
    ]
    assert told == [
        size_result(1, '{"km2":454}'),
        size_result(2, '[{"loc":["city"],"msg":"not a text"}]', "error"),
    ]
    assert last == [TextPart(text="454 km².")]
    answer = session.messages[1].message
    assert isinstance(answer, AssistantMessage)
    assert answer.usage == Usage(input=50, output=9, cache_read=20, cache_write=10, reasoning=4)
    assert (answer.provider, str(answer.cost)) == ("anthropic", "0.25")
    report = session.report
    assert report.opaque_parts == {"?": 2}
    assert set(report.warnings) == {
        "left out: 1 lists of citations",
        "left out: 1 metadata of tool results",
    }
    assert (report.tool_calls, report.tool_results) == (2, 2)


@pytest.mark.parametrize("form", ["messages_to_dict", "model_dump", "dumps", "state"])
def test_messages_of_langchain_are_read_in_each_form(form: str) -> None:
    document: Any = LANGCHAIN
    if form in {"model_dump", "state"}:
        document = [each["data"] for each in LANGCHAIN]
    if form == "state":
        document = {"messages": document, "plan": "x"}
    if form == "dumps":
        names = {"human": "HumanMessage", "ai": "AIMessage", "tool": "ToolMessage"}
        document = [
            {
                "lc": 1,
                "type": "constructor",
                "id": ["langchain", "schema", "messages", names.get(each["type"], "SystemMessage")],
                "kwargs": {name: it for name, it in each["data"].items() if name != "type"},
            }
            for each in LANGCHAIN[:-1]
        ]
    session = imported(document)
    assert session.format == "langchain"
    assert session.system_prompts == ("You know cities.",)
    asked, answered, told, last = parts_of(session)
    picture = MediaPart(mime="image/png", data=PICTURE)
    assert asked == [TextPart(text="How large is Oslo?"), picture, picture]
    assert answered[:2] == [ReasoningPart(text="Look it up."), TextPart(text="I look it up.")]
    assert answered[3:] == [
        size_call(1, {"city": "Oslo"}),
        ToolCallPart(call_id="c2", name="size", invalid="{"),  # type: ignore[arg-type]
    ]
    assert told == [size_result(1, "454 km²")]
    assert last == [TextPart(text="454 km².")]
    answer = session.messages[1].message
    assert isinstance(answer, AssistantMessage)
    assert answer.usage == Usage(input=50, output=9, cache_read=20, cache_write=10, reasoning=4)
    assert (answer.provider, answer.model) == ("openai", "gpt-5")
    report = session.report
    assert report.opaque == ({} if form == "dumps" else {"remove": 1})
    assert report.opaque_parts == {"non_standard": 1}
    beside = {"left out: 1 fields of the state beside its messages"} if form == "state" else set()
    assert set(report.warnings) == {"left out: 1 artifacts of tool results", *beside}


def test_messages_of_the_ai_sdk_are_several_where_results_stand_inside_an_answer() -> None:
    session = imported(AI_SDK)
    assert session.system_prompts == ("You know cities.",)
    asked, answered, told, sourced, steered, last = parts_of(session)[:6]
    assert asked[0] == TextPart(text="How large is Oslo?")
    assert asked[1] == MediaPart(mime="image/png", filename="a.png", data=PICTURE)
    assert answered == [
        ReasoningPart(text="Look it up.", signature="sig"),
        TextPart(text="I look it up."),
        size_call(1, {"city": "Oslo"}),
        size_call(2, {"city": 1}),
        size_call(3, {}),
        ToolCallPart(call_id="c4", name="size", invalid='{"c'),  # type: ignore[arg-type]
    ]
    assert told == [
        size_result(1, '{"km2":454}'),
        size_result(2, "not a text", "error"),
        size_result(3, "too dear", "denied"),
    ]
    assert all(isinstance(each, ProviderPart) for each in sourced)
    assert steered == [TextPart(text="In km².")]
    assert last == [TextPart(text="454 km².")]
    assert session.messages[0].time == 1_790_000_000_000
    report = session.report
    assert report.opaque_parts == {"source-url": 1, "data-weather": 1}
    assert set(report.warnings) == {
        "left out: 1 metadata of messages",
        "left out: 2 approvals of tool calls",
    }


def test_items_of_the_responses_api_are_a_session() -> None:
    items = [
        {"role": "user", "content": "How large is Oslo?"},
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Look."}]},
        {"type": "function_call", "call_id": "c1", "name": "size", "arguments": '{"city":"Oslo"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "454 km²"},
        {"type": "web_search_call", "id": "ws", "status": "completed"},
        {"type": "item_reference", "id": "x"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "454 km².", "annotations": []}],
        },
    ]
    session = imported(items)
    assert session.format == "openai"
    said = [part for parts in parts_of(session) for part in parts]
    assert size_call(1, {"city": "Oslo"}) in said
    assert size_result(1, "454 km²") in said
    assert said[-1] == TextPart(text="454 km².")
    assert session.report.opaque == {"item_reference": 1}


def test_what_comes_later_than_the_first_message_is_a_note_and_no_prompt() -> None:
    later = [*LANGCHAIN[1:2], {"type": "system", "data": {"content": "Obey."}}]
    session = imported(later)
    assert session.system_prompts == ()
    assert parts_of(session)[0][-1] == ReminderPart(text="Obey.", persisted=True)


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("document", [{}, [], 7, "x", None, {"messages": 3}, [[]], [3]])
def test_what_is_no_list_of_messages_is_refused(name: str, document: Any) -> None:
    with pytest.raises(ConfigError):
        imported(document, name)


def test_a_database_says_what_reads_it() -> None:
    with pytest.raises(ConfigError, match="openai_agents_sessions"):
        read_session(io.BytesIO(b"SQLite format 3\0" + bytes(100)))
