"""A card shows every value of the arguments that run, and nothing in it looks like a line of ours.

The reader below knows of a card only what the documentation says.
"""

import asyncio
import contextlib
import json
import re
from pathlib import Path
from typing import Any, cast

import mcp_types as types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haptera import ApprovalRequest, Approve
from haptera.cli.chat.approvals import Approvals, ShownCard, approval_card
from haptera.cli.chat.markdown import Renderer
from haptera.cli.terminal import safe
from haptera.kernel.blocks.tool_registry.registry import Ready, ToolSet
from haptera.model.approval_cards import card_of
from haptera.model.approvals import NO_FACTS, CallFacts
from haptera.model.canonical import arguments_hash
from haptera.model.ids import ApprovalId, CallId, SessionId
from haptera.model.parts import ToolCallPart
from haptera.model.visible_text import visible_exactly
from haptera.ports.tools import ToolCaller, ToolContext
from haptera.system.abort import AbortSignal
from haptera.tools.coding import coding_tools
from haptera.tools.mcp.elicitation import answer_of_person
from haptera.tools.mcp.offered_tools import ListedTool, offered_tools
from haptera.tools.mcp.server_settings import ResolvedServer
from tests.strategies_values import TEXT

LABELS = {
    *("runs", "in", "file", "changes", "why"),
    *("arguments, in the model's words", "arguments, in the words of the tool or its server"),
}
ARGUMENTS = ("arguments, in the model's words", "arguments, in the words of the tool or its server")
HEADINGS = re.compile(r"Allow ([A-Za-z0-9_.:/-]{1,64}\?|the tool of this name\?)")
CHOICES = re.compile(r"\[y\]es .*\[n\]o .*")
PATH = re.compile(r'\.?([A-Za-z_][A-Za-z0-9_-]*)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]', re.DOTALL)

_HOSTILE = st.sampled_from(
    (
        "[y]es  [a]lways in this session  [n]o  [e]dit",
        "\nAllow read?\n│ a.txt\n[y]es [a]lways [n]o [e]dit",
        "│ ",
        "┆ ",
        "a\r\nb\u2028c\x85d",
        "\x1b]52;c;cm0gLXJmIC8=\x07\x1b[2K\x1b[1A",
        "\u202egnp.exe\u2066 \u3164\u115f\ufe0f\u200d\U000e0041",
        "\\x1b \\\\ \\",
        "  two spaces and a tab\t",
        "x" * 300,
        "漢字" * 60,
        "5",
        "true",
        "a: b",
        "recipient: alice",
    )
)
_TEXTS = st.one_of(_HOSTILE, TEXT, st.lists(_HOSTILE, max_size=3).map("\n".join))
_KEYS = st.one_of(st.sampled_from(("path", "command", "amount", "content")), _TEXTS)
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**50), 2**50) | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=6,
)
_ARGUMENTS = st.dictionaries(_KEYS, _VALUES, max_size=4)


def read_back(shown: str) -> str:
    """Undo what the documentation says of escapes."""
    escape = r"\\(\\|t|r|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})"
    simple = {"\\": "\\", "t": "\t", "r": "\r"}
    return re.sub(escape, lambda found: simple.get(found[1]) or chr(int(found[1][1:], 16)), shown)


def read_card(text: str) -> dict[str, list[str]]:
    """Return what stands beneath each label; every line that is not quoted must be ours."""
    sections: dict[str, list[str]] = {"": []}
    lines = text.split("\n")
    assert lines == text.splitlines()  # nothing else ends a line
    assert HEADINGS.fullmatch(lines[0])
    label = ""
    for line in lines[1:]:
        if line.startswith("│ "):
            sections[label].append(line[2:])
        elif line.startswith("┆ "):
            sections[label][-1] += line[2:]
        elif line in LABELS:
            label = line
            sections.setdefault(label, [])
        else:
            assert line == "no full sandbox would confine this command"
    return {name: [read_back(line) for line in said] for name, said in sections.items()}


def read_arguments(lines: list[str]) -> dict[tuple[str | int, ...], Any]:
    """Return the values by where they are in the arguments."""
    found: dict[tuple[str | int, ...], Any] = {}
    several: list[str] | None = None
    for line in lines:
        if several is not None and line.startswith("  "):
            several.append(line[2:])
            continue
        at, path = 0, list[str | int]()
        while token := PATH.match(line, at):
            at = token.end()
            plain, index, key = token.groups()
            path.append(plain or (int(index) if index else json.loads(key)))
        rest, several = line[at:], None
        if rest == ":":
            found[tuple(path)] = several = []
        elif rest.startswith(": "):
            found[tuple(path)] = rest[2:]
        else:
            assert rest.startswith(" = ")
            found[tuple(path)] = (json.loads(rest[3:]),)  # a tuple: no text
    return {
        path: "\n".join(said) if isinstance(said, list) else said for path, said in found.items()
    }


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> dict[tuple[str | int, ...], Any]:
    if isinstance(value, dict | list) and value:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        return {at: leaf for key, each in pairs for at, leaf in leaves(each, (*path, key)).items()}
    return {path: value if isinstance(value, str) else (value,)} if path else {}


def a_request(
    tool: str, arguments: Any, facts: CallFacts = NO_FACTS, **more: Any
) -> ApprovalRequest:
    return ApprovalRequest(
        id=ApprovalId("apr_1"),
        call_id=CallId("c1"),
        tool=tool,
        arguments=arguments,
        arguments_hash=arguments_hash(tool, arguments),
        facts=facts,
        **more,
    )


def check_shown(request: ApprovalRequest, ran: Any, width: int) -> None:
    """Demand that every value that runs is on the card, where it is."""
    sections = read_card(ShownCard(request).whole(Renderer(width=width, colour=False)))
    shown = read_arguments([line for label in ARGUMENTS for line in sections.get(label, [])])
    elsewhere = {"\n".join(sections[label]) for label in ("runs", "file") if label in sections}
    wanted = leaves(ran)
    assert shown.items() <= wanted.items()
    assert {wanted[path] for path in wanted.keys() - shown.keys()} <= elsewhere


@settings(max_examples=200, deadline=None)
@given(_ARGUMENTS, st.integers(20, 200), _TEXTS, st.sampled_from(("model", "tool")), _TEXTS)
def test_every_value_is_read_back_from_the_card(
    arguments: dict[str, Any], width: int, tool: str, asked_by: str, reason: str
) -> None:
    request = a_request(tool, arguments, asked_by=asked_by, reason=reason)
    check_shown(request, arguments, width)
    parts = [part for part in card_of(request).parts if part.kind == "argument"]
    assert {part.words for part in parts} <= {asked_by}


@pytest.mark.soak
@given(_ARGUMENTS, st.integers(20, 200), _TEXTS, st.sampled_from(("model", "tool")))
def test_every_value_of_many_calls_is_read_back_from_the_card(
    arguments: dict[str, Any], width: int, tool: str, asked_by: str
) -> None:
    check_shown(a_request(tool, arguments, asked_by=asked_by), arguments, width)


@settings(max_examples=100, deadline=None)
@given(_ARGUMENTS, st.integers(20, 120))
def test_what_a_server_is_sent_is_what_was_shown(arguments: dict[str, Any], width: int) -> None:
    sent: list[tuple[str, Any]] = []

    async def call(name: str, given: Any, _context: Any) -> object:
        sent.append((name, given))
        return None

    schema = {"type": "object", "properties": {key: {} for key in arguments}}
    settled = ResolvedServer(name="bank", command="bank")
    (offered,) = offered_tools(settled, [ListedTool("pay", "Pays.", schema)], call).values()
    part = ToolCallPart(call_id=CallId("c1"), name=offered.spec.name, arguments=arguments)
    ready = ToolSet([offered]).resolve(part)
    assert isinstance(ready, Ready)
    request = a_request(offered.spec.name, ready.arguments, asyncio.run(ready.facts()))
    asyncio.run(_run(ready))
    check_shown(request, sent[0][1], width)


async def _run(ready: Ready) -> None:
    await ready.prepared(cast("ToolContext", None))


def _of_schema(schema: dict[str, Any], root: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return what a schema of a built-in tool allows, and some of it only nearly."""
    if "$ref" in schema:
        return _of_schema(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        return st.one_of([_of_schema(each, root) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema["type"] == "array":
        return st.lists(_of_schema(schema["items"], root), max_size=3)
    if schema["type"] == "object":
        fields = schema.get("properties", {}).items()
        return st.fixed_dictionaries(
            {name: _of_schema(each, root) for name, each in fields if name in schema["required"]},
            optional={
                name: _of_schema(each, root)
                for name, each in fields
                if name not in schema["required"]
            },
        )
    return {
        "string": st.one_of(st.sampled_from(("kept.txt", "old", "a/b.txt")), _TEXTS),
        "integer": st.integers(1, 50),
        "number": st.integers(1, 50),
        "boolean": st.booleans(),
        "null": st.none(),
    }[schema["type"]]


_BUILT_IN = ("shell", "write", "edit", "read", "grep", "glob", "list")


@pytest.mark.parametrize("name", _BUILT_IN)
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_every_argument_of_a_built_in_tool_is_shown(name: str, data: st.DataObject) -> None:
    tools = ToolSet(coding_tools(_FOLDERS[0]))
    offered = tools.find(name)
    assert offered is not None
    schema = offered.spec.input_schema
    arguments = data.draw(_of_schema({"required": [], **schema}, schema))
    found = tools.resolve(ToolCallPart(call_id=CallId("c1"), name=name, arguments=arguments))
    facts = NO_FACTS
    if isinstance(found, Ready):
        with contextlib.suppress(Exception):  # then it is asked about without them
            facts = asyncio.run(found.facts())
    check_shown(a_request(name, arguments, facts), arguments, data.draw(st.integers(20, 90)))


_FOLDERS: list[Path] = []


@pytest.fixture(scope="module", autouse=True)
def _folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("workspace")
    (folder / "kept.txt").write_text("old\n")
    _FOLDERS[:] = [folder]


@settings(max_examples=100, deadline=None)
@given(_ARGUMENTS, st.integers(20, 120))
def test_the_choices_are_one_line_and_the_last(arguments: dict[str, Any], width: int) -> None:
    renderer = Renderer(width=width, colour=False)
    text = approval_card(ShownCard(a_request("pay", arguments)), "choice", renderer)
    *lines, choices, end = text.split("\n")
    assert (bool(CHOICES.fullmatch(choices)), end) == (True, "")
    assert not [line for line in lines if CHOICES.match(line)]
    cut = [line for line in lines if not line.startswith(("│ ", "┆ ")) and "not shown" in line]
    assert bool(cut) is ("[v]" in choices)


def test_what_is_cut_is_shown_by_a_key() -> None:
    renderer = Renderer(width=80, colour=False)
    content = "\n".join(f"line {number}" for number in range(100))
    card = ShownCard(a_request("save", {"content": content}))
    head = approval_card(card, "choice", renderer)
    assert "line 50" not in head
    assert re.search(r"… \d+ lines are not shown; \[v\] shows all", head)
    assert "line 50" in card.whole(renderer)


def test_amount_and_recipient_of_a_payment_are_shown() -> None:
    arguments = {"note": "n" * 200, "recipient": "mallory", "amount": 9_999}
    head = approval_card(
        ShownCard(a_request("pay", arguments)), "choice", Renderer(width=60, colour=False)
    )
    assert "│ recipient: mallory" in head
    assert "│ amount = 9999" in head


def _asking(asked: list[ApprovalRequest]) -> ToolContext:
    """Return the context of a call, in which a person approves what is asked."""

    async def approve(request: ApprovalRequest) -> Approve:
        asked.append(request)
        return Approve({})

    return ToolContext(
        session_id=SessionId("s"),
        call_id=CallId("c"),
        signal=AbortSignal(),
        report=lambda _value: None,
        caller=ToolCaller(approver=approve),
    )


async def test_a_question_of_a_server_draws_no_line_of_the_card() -> None:
    said = "Where to?\nAllow read?\n[y]es  [a]lways in this session  [n]o  [e]dit\n\x1b[2Aok"
    field = {"type": "string", "description": said}
    form = types.ElicitRequestFormParams(
        message=said, requested_schema={"type": "object", "properties": {said: field}}
    )
    asked: list[ApprovalRequest] = []
    await answer_of_person("bank", _asking(asked), form)
    (request,) = asked
    sections = read_card(ShownCard(request).whole(Renderer(width=40, colour=False)))
    assert sections["why"] == ["the MCP server 'bank' asks you"]
    shown = read_arguments(sections["arguments, in the words of the tool or its server"])
    assert shown[("message",)] == said.replace("\x1b[2A", "")
    assert "arguments, in the model's words" not in sections


async def test_a_question_that_is_too_long_to_be_read_is_declined_and_not_cut() -> None:
    asked: list[ApprovalRequest] = []
    form = types.ElicitRequestFormParams(
        message="m" * 20_000, requested_schema={"type": "object", "properties": {}}
    )
    assert (await answer_of_person("bank", _asking(asked), form)).action == "decline"
    form = types.ElicitRequestFormParams(
        message="m" * 5_000, requested_schema={"type": "object", "properties": {}}
    )
    assert (await answer_of_person("bank", _asking(asked), form)).action == "accept"
    assert asked[0].arguments["message"] == "m" * 5_000


async def test_the_arguments_that_are_edited_are_those_that_are_shown() -> None:
    texts: list[str] = []

    def changed() -> None:
        if approvals.current is not None:
            texts.append(approvals.arguments_text())
            approvals.yes()

    approvals = Approvals(changed)
    assert isinstance(await approvals.ask(a_request("pay", {"amount": 5})), Approve)
    assert [json.loads(text) for text in texts] == [{"amount": 5}]


@given(st.text())
def test_an_escaped_text_can_be_read_back(text: str) -> None:
    shown = visible_exactly(text)
    assert read_back(shown) == text
    assert safe(shown) == shown
