"""What only one program writes: branches, notes, summaries, old forms. Made by hand, small."""

import io
import json
from collections.abc import Sequence
from typing import Any

import pytest

from haptera.formats.formats import FORMATS
from haptera.formats.values import ImportedSession
from haptera.model.messages import AssistantMessage
from haptera.model.parts import (
    MediaPart,
    ProviderPart,
    ReasoningPart,
    ReminderPart,
    ToolCallPart,
)
from tests.formats.conversations import Said, heard_of


def read(name: str, *lines: Any) -> ImportedSession:
    """Read a file of lines, or of one document."""
    reader = FORMATS[name].read
    assert reader is not None
    raw = b"\n".join(json.dumps(line).encode() for line in lines)
    session: ImportedSession = reader(io.BytesIO(raw))  # type: ignore[call-arg]
    return session


def parts_of(session: ImportedSession, kind: type[Any]) -> list[Any]:
    return [p for each in session.messages for p in each.message.parts if isinstance(p, kind)]


# Claude Code


def claude(number: int, parent: int | None, **fields: Any) -> dict[str, Any]:
    """Make a line; `said` by the user, or `blocks` of an answer."""
    line: dict[str, Any] = {
        "uuid": f"u{number}",
        "parentUuid": None if parent is None else f"u{parent}",
        "sessionId": "s1",
        "cwd": "/w",
        "timestamp": f"2026-01-31T12:00:{number:02}.000Z",
        "isSidechain": False,
    }
    if "said" in fields:
        line |= {"type": "user", "message": {"role": "user", "content": fields.pop("said")}}
    if "blocks" in fields:
        message = {"role": "assistant", "id": fields.pop("of", f"m{number}"), "model": "claude-x"}
        message |= {"content": fields.pop("blocks"), "usage": {"input_tokens": 3}}
        line |= {"type": "assistant", "message": message}
    return line | fields


def text(said: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": said}]


def use(call_id: str) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": "ls"}}]


def answer(call_id: str, said: str) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": call_id, "content": said}]


def test_calls_that_claude_code_made_in_parallel_are_all_on_the_branch() -> None:
    session = read(
        "claude-code",
        claude(1, None, said="go"),
        claude(2, 1, blocks=text("I look."), of="m"),
        claude(3, 2, blocks=use("a"), of="m"),
        claude(4, 3, blocks=use("b"), of="m"),
        claude(5, 4, said=answer("b", "second")),
        claude(6, 3, said=answer("a", "first")),
        claude(7, 6, blocks=text("Both are there.")),
    )
    assert [each.by for each in heard_of(session)] == [
        "user",
        "assistant",
        "call",
        "call",
        "result",
        "result",
        "assistant",
    ]
    assert session.opaque == ()
    message = session.messages[1].message
    assert isinstance(message, AssistantMessage)
    assert message.usage is not None
    assert message.usage.input == 3  # told in each line, used once


def test_only_the_last_branch_of_claude_code_is_the_conversation() -> None:
    session = read(
        "claude-code",
        claude(1, None, said="first try"),
        claude(2, 1, blocks=text("no")),
        claude(3, None, said="second try"),
        claude(4, 3, blocks=text("yes")),
        {"type": "last-prompt", "leafUuid": "u4", "sessionId": "s1"},
    )
    assert heard_of(session) == [Said("user", "second try"), Said("assistant", "yes")]
    assert [(each.kind, each.why, each.place) for each in session.opaque] == [
        ("user", "another branch", 1),
        ("assistant", "another branch", 2),
    ]
    earlier = {"type": "last-prompt", "leafUuid": "u2", "sessionId": "s1"}
    back = read(
        "claude-code",
        claude(1, None, said="first try"),
        claude(2, 1, blocks=text("no")),
        claude(3, None, said="second try"),
        earlier,
    )
    assert heard_of(back) == [Said("user", "first try"), Said("assistant", "no")]


def test_lines_that_claude_code_adds_itself_are_kept_and_are_not_the_conversation() -> None:
    synthetic = claude(5, 4, blocks=text("API Error: 500"), isApiErrorMessage=True)
    session = read(
        "claude-code",
        {"type": "queue-operation", "operation": "enqueue", "sessionId": "s1"},
        claude(1, None, said="go"),
        claude(2, 1, type="attachment", attachment={"type": "date", "date": "2026-01-31"}),
        claude(3, 2, said="<system-reminder>\nstay brief\n</system-reminder>", isMeta=True),
        claude(9, 3, said="<command-name>/cost</command-name>"),
        claude(4, 9, blocks=text("done")),
        synthetic,
        claude(
            6, 5, type="attachment", attachment={"type": "queued_command", "prompt": "and now?"}
        ),
        claude(7, 6, blocks=[{"type": "text", "text": "aside"}], isSidechain=True),
        claude(8, 6, blocks=text("that is all")),
        {"type": "ai-title", "aiTitle": "made by the model", "sessionId": "s1"},
        {"type": "custom-title", "customTitle": "Given", "sessionId": "s1"},
        {"type": "summary", "summary": "old form", "leafUuid": "u8"},
    )
    assert heard_of(session) == [
        Said("user", "go"),
        Said("assistant", "done"),
        Said("user", "and now?"),
        Said("assistant", "that is all"),
    ]
    assert [part.text for part in parts_of(session, ReminderPart)] == [
        "stay brief",
        "<command-name>/cost</command-name>",
    ]
    assert session.title == "Given"
    assert session.report.opaque == {"queue-operation": 1, "attachment": 1, "assistant": 2}
    assert (session.model, session.source_id) == ("anthropic/claude-x", "s1")
    assert session.messages[0].time == 1_769_860_801_000


def test_a_compaction_of_claude_code_keeps_what_came_before_it() -> None:
    boundary = claude(3, None, type="system", subtype="compact_boundary", logicalParentUuid="u2")
    session = read(
        "claude-code",
        claude(1, None, said="long ago"),
        claude(2, 1, blocks=text("indeed")),
        boundary,
        claude(4, 3, said="It was long.", isCompactSummary=True, isVisibleInTranscriptOnly=True),
        claude(5, 4, said="go on"),
    )
    assert [each.by for each in heard_of(session)] == ["user", "assistant", "summary", "user"]


@pytest.mark.parametrize("parents", [(1, 2), (2, 1), (1, 1)])
def test_lines_that_name_each_other_as_parents_end(parents: Sequence[int]) -> None:
    first, second = parents
    lines = [claude(1, first, said="a"), claude(2, second, said="b")]
    session = read("claude-code", *lines)
    assert "circle" in session.report.warnings[0]


def test_blocks_that_only_anthropic_knows_are_carried_and_unknown_ones_reported() -> None:
    blocks = [
        {"type": "redacted_thinking", "data": "x"},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "hologram", "shape": "cat"},
        {"type": "thinking", "thinking": "hm", "signature": "seal"},
        *text("so"),
    ]
    session = read("claude-code", claude(1, None, said="go"), claude(2, 1, blocks=blocks))
    carried = parts_of(session, ProviderPart)
    assert [part.provider for part in carried] == ["anthropic", "anthropic", "claude-code"]
    assert session.report.opaque_parts == {"hologram": 1}
    assert parts_of(session, ReasoningPart) == [ReasoningPart(text="hm", signature="seal")]


# Codex


def item(kind: str, **payload: Any) -> dict[str, Any]:
    return {
        "timestamp": "2026-01-31T12:00:00.000Z",
        "type": "response_item",
        "payload": {"type": kind, **payload},
    }


def message(role: str, said: str, **more: Any) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": kind, "text": said}], **more)


def event(kind: str, **payload: Any) -> dict[str, Any]:
    return {"type": "event_msg", "payload": {"type": kind, **payload}}


META = {"type": "session_meta", "payload": {"id": "s1", "cwd": "/w", "model_provider": "openai"}}


def test_what_codex_says_in_the_users_name_is_a_note() -> None:
    marked = {"content_item_metadata": [{"provenance": {"type": "harness"}}]}
    session = read(
        "codex",
        META,
        message("developer", "Be careful."),
        message("user", "<environment_context>\n  <cwd>/w</cwd>"),
        message("user", "AGENTS", internal_chat_message_metadata_passthrough=marked),
        message("user", "go"),
        message("assistant", "done"),
    )
    assert heard_of(session) == [Said("user", "go"), Said("assistant", "done")]
    assert len(parts_of(session, ReminderPart)) == 3


def test_every_kind_of_call_of_codex_is_a_call() -> None:
    session = read(
        "codex",
        META,
        message("user", "go"),
        item("function_call", call_id="a", name="exec", arguments='{"cmd":"ls"}'),
        item("custom_tool_call", call_id="b", name="apply_patch", input="*** Begin"),
        item("local_shell_call", call_id="c", action={"type": "exec", "command": ["ls"]}),
        item("web_search_call", id="w", action={"query": "x"}),
        item("function_call_output", call_id="a", output={"content": "one", "success": True}),
        item("custom_tool_call_output", call_id="b", output="two"),
        item("local_shell_call_output", call_id="c", output=[{"type": "input_text", "text": "3"}]),
        message("assistant", "done"),
    )
    said = heard_of(session)
    assert [each.what[0] for each in said if each.by == "call"] == [
        "exec",
        "apply_patch",
        "local_shell",
    ]
    assert [each.what[2] for each in said if each.by == "result"] == ["one", "two", "3"]
    assert [part.payload["type"] for part in parts_of(session, ProviderPart)] == ["web_search_call"]
    assert session.opaque == ()
    custom = parts_of(session, ToolCallPart)[1]
    assert custom.native == {"type": "custom_tool_call"}


def test_turns_that_codex_rolled_back_are_gone_and_a_summary_stands_for_the_rest() -> None:
    session = read(
        "codex",
        META,
        {"type": "turn_context", "payload": {"model": "gpt-x"}},
        message("user", "first"),
        message("assistant", "one"),
        {"type": "compacted", "payload": {"message": "There was one."}},
        message("user", "second"),
        item("function_call", call_id="a", name="exec", arguments="{"),
        item("function_call_output", call_id="a", output="x"),
        message("assistant", "two"),
        event("thread_rolled_back", num_turns=1),
        message("user", "third"),
        event("thread_name_updated", thread_name="Given"),
    )
    assert heard_of(session) == [
        Said("user", "first"),
        Said("assistant", "one"),
        Said("summary", "There was one."),
        Said("user", "third"),
    ]
    assert (session.title, session.model) == ("Given", "openai/gpt-x")


def test_a_fork_of_codex_says_that_its_beginning_is_elsewhere() -> None:
    forked = {"id": "s2", "forked_from_id": "s1", "forked_from_ordinal_exclusive": 4}
    session = read("codex", {"type": "session_meta", "payload": forked}, message("user", "go"))
    assert session.report.warnings == (
        "the beginning of this session is in the file of session s1",
    )


def test_the_first_files_of_codex_can_be_read() -> None:
    session = read(
        "codex",
        {"id": "s0", "timestamp": "2025-04-01T00:00:00Z", "instructions": ""},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "function_call", "call_id": "a", "name": "shell", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "ok"},
    )
    assert [each.by for each in heard_of(session)] == ["user", "call", "result"]
    assert session.source_id == "s0"


# pi


def entry(number: int, parent: int | None, kind: str, **fields: Any) -> dict[str, Any]:
    names = {"id": f"e{number}", "parentId": None if parent is None else f"e{parent}"}
    return {"type": kind, "timestamp": "2026-01-31T12:00:00.000Z", **names, **fields}


def pi_said(number: int, parent: int | None, said: str, role: str = "user") -> dict[str, Any]:
    content = [{"type": "text", "text": said}]
    return entry(number, parent, "message", message={"role": role, "content": content})


PI = {"type": "session", "version": 3, "id": "s1", "cwd": "/w"}


def test_only_the_last_branch_of_pi_is_the_conversation() -> None:
    session = read(
        "pi",
        PI,
        pi_said(1, None, "go"),
        pi_said(2, 1, "no", "assistant"),
        pi_said(3, 1, "yes", "assistant"),
        entry(4, 3, "session_info", name="Given"),
    )
    assert heard_of(session) == [Said("user", "go"), Said("assistant", "yes")]
    assert [(each.kind, each.why) for each in session.opaque] == [
        ("message/assistant", "another branch")
    ]
    assert (session.title, session.source_id) == ("Given", "s1")


def test_a_summary_of_pi_stands_before_what_it_keeps() -> None:
    session = read(
        "pi",
        PI,
        pi_said(1, None, "a"),
        pi_said(2, 1, "b", "assistant"),
        pi_said(3, 2, "c"),
        pi_said(4, 3, "d", "assistant"),
        entry(5, 4, "compaction", summary="first", firstKeptEntryId="e3", tokensBefore=9),
        pi_said(6, 5, "e"),
        pi_said(7, 6, "f", "assistant"),
        entry(8, 7, "compaction", summary="second", firstKeptEntryId="e7", tokensBefore=9),
        pi_said(9, 8, "g"),
    )
    assert [each.what for each in heard_of(session)] == [
        *("a", "b", "first", "c", "d", "e", "second", "f", "g")
    ]


def test_summaries_of_pi_keep_their_order_wherever_they_stand() -> None:
    def summary(number: int, text: str, kept: str) -> Any:
        fields = {"summary": text, "firstKeptEntryId": kept, "tokensBefore": 9}
        return entry(number, number - 1, "compaction", **fields)

    session = read(
        "pi",
        PI,
        pi_said(1, None, "a"),
        summary(2, "one", "e1"),
        summary(3, "two", "e1"),
        pi_said(4, 3, "b", "assistant"),
        summary(5, "at the end", "e5"),
        summary(6, "again", "e5"),
        pi_said(7, 6, "c"),
        pi_said(8, 7, "d", "assistant"),
        summary(9, "later", "e7"),
        summary(10, "first of all", "e1"),
        pi_said(11, 10, "e"),
    )
    assert [each.what for each in heard_of(session)] == [
        *("one", "two", "first of all", "a", "b", "at the end", "again", "later", "c", "d", "e")
    ]


def test_what_pi_has_beside_users_and_answers_is_told() -> None:
    shell = {"role": "bashExecution", "command": "ls", "output": "a.txt", "exitCode": 0}
    session = read(
        "pi",
        PI,
        pi_said(1, None, "go"),
        entry(2, 1, "message", message=shell),
        entry(3, 2, "branch_summary", summary="tried something", fromId="e9"),
        entry(4, 3, "custom_message", customType="x", content="from an extension"),
        entry(5, 4, "label", label="here"),
        pi_said(6, 5, "done", "assistant"),
    )
    assert "a.txt" in str(heard_of(session))
    assert [part.text for part in parts_of(session, ReminderPart)] == [
        "tried something",
        "from an extension",
    ]
    assert session.report.opaque == {"label": 1}


def test_a_file_of_pi_without_a_tree_is_one_branch() -> None:
    session = read(
        "pi",
        {"type": "session", "id": "s0", "cwd": "/w"},
        {"type": "message", "message": {"role": "user", "content": "go"}},
        {"type": "message", "message": {"role": "assistant", "content": "done"}},
    )
    assert len(session.messages) == 2


# opencode


def test_an_answer_of_several_steps_is_several_answers() -> None:
    def tool(call_id: str, **state: Any) -> dict[str, Any]:
        return {"type": "tool", "callID": call_id, "tool": "bash", "state": {"input": {}, **state}}

    parts = [
        {"type": "step-start"},
        {"type": "text", "text": "I look."},
        tool("a", status="completed", output="one"),
        tool("b", status="error", error="no such file"),
        {"type": "step-finish"},
        {"type": "step-start"},
        {"type": "text", "text": "Found."},
        tool("c", status="running"),
        {"type": "patch", "hash": "x", "files": []},
    ]
    said = [
        {"type": "text", "text": "go"},
        {"type": "text", "text": "the file says …", "synthetic": True},
        {"type": "file", "mime": "image/png", "url": "data:image/png;base64,iVBORw0KGgo="},
    ]
    session = read(
        "opencode",
        {
            "info": {"id": "ses_1", "title": "Given", "directory": "/w"},
            "messages": [
                {"info": {"role": "user"}, "parts": said},
                {"info": {"role": "assistant", "error": {"name": "Aborted"}}, "parts": parts},
            ],
        },
    )
    assert [each.by for each in heard_of(session)] == [
        *("user", "assistant", "call", "call", "result", "result", "assistant", "call")
    ]
    assert len(parts_of(session, MediaPart)) == 1
    assert [part.text for part in parts_of(session, ReminderPart)] == ["the file says …"]
    assert session.report.opaque_parts == {"patch": 1}
    last = session.messages[-1].message
    assert isinstance(last, AssistantMessage)
    assert last.interrupted


# OpenAI and Anthropic messages


def test_old_and_new_forms_of_openai_messages_are_understood() -> None:
    function = {"name": "look", "arguments": '{"at": 1}'}
    custom = {"id": "k", "type": "custom", "custom": {"name": "patch", "input": "text"}}
    session = read(
        "openai",
        {
            "model": "gpt-x",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
                {"role": "user", "content": [{"type": "text", "text": "go"}, {"type": "odd"}]},
                {"role": "assistant", "content": None, "function_call": function},
                {"role": "function", "name": "look", "content": "seen"},
                {"role": "assistant", "reasoning_content": "hm", "tool_calls": [custom]},
                {"role": "tool", "tool_call_id": "k", "content": [{"type": "text", "text": "ok"}]},
                {"role": "system", "content": "The user left."},
                {"role": "assistant", "content": None, "refusal": "I will not."},
                {"role": "oracle", "content": "?"},
            ],
        },
    )
    assert session.system_prompts == ("Be brief.", "Be kind.")
    assert session.model == "gpt-x"
    assert [each.by for each in heard_of(session)] == [
        *("user", "call", "result", "call", "result", "assistant")
    ]
    assert session.report.opaque_parts == {"odd": 1}
    assert session.report.opaque == {"oracle": 1}
    assert [part.text for part in parts_of(session, ReminderPart)] == ["The user left."]


ITEMS = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
    {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"at": 1}'},
    {"type": "function_call_output", "call_id": "c", "output": "seen"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
    {"type": "message", "role": "user", "content": "and?"},
    {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
]


@pytest.mark.parametrize(
    "document",
    [
        ITEMS,
        {"model": "gpt-x", "instructions": "Be brief.", "input": ITEMS},
        {"model": "gpt-x", "instructions": "Be brief.", "output": ITEMS},
    ],
)
def test_items_of_the_responses_api_are_understood(document: Any) -> None:
    session = read("openai", document)
    words = [each.what for each in heard_of(session) if each.by in {"user", "assistant"}]
    assert words == ["go", "done", "and?", "no"]
    assert [each.by for each in heard_of(session)] == [
        *("user", "call", "result", "assistant", "user", "assistant")
    ]
    assert (session.report.opaque, session.report.opaque_parts) == ({}, {})
    if isinstance(document, dict):
        assert session.system_prompts == ("Be brief.",)


def test_an_item_that_is_not_understood_is_told() -> None:
    session = read("openai", [*ITEMS, {"type": "odd", "text": "x"}])
    assert session.report.opaque == {"odd": 1}


def test_a_body_of_anthropic_messages_is_understood() -> None:
    document = {"type": "text", "media_type": "text/plain", "data": "plain"}
    session = read(
        "anthropic",
        {
            "model": "claude-x",
            "system": [{"type": "text", "text": "Be brief."}],
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "document", "source": document}, *text("go")],
                },
                {"role": "assistant", "content": use("a")},
                {"role": "user", "content": answer("a", "one")},
                {"role": "assistant", "content": "done"},
            ],
        },
    )
    assert session.system_prompts == ("Be brief.",)
    assert [each.by for each in heard_of(session)] == ["user", "call", "result", "assistant"]
    assert [part.mime for part in parts_of(session, MediaPart)] == ["text/plain"]


def test_a_result_without_its_call_is_reported() -> None:
    session = read("anthropic", [{"role": "user", "content": [*answer("gone", "x"), *text("go")]}])
    assert session.report.warnings == ("1 results answer no tool call of this file",)


def test_a_file_that_begins_with_an_answer_keeps_it() -> None:
    session = read("openai", [{"role": "assistant", "content": "hello"}])
    assert heard_of(session) == [Said("assistant", "hello")]
    assert "without its beginning" in str(session.messages[0].message.parts)
