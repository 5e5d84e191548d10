"""The list of what reads text from outside: functions, libraries and patterns, with worst inputs.

A function is in it with hand-written texts. Every pattern of `re` is in it by itself: see
`pattern_list`. A new rule of a table (of redaction, of error texts) is in it as soon as it is in
its table.
"""

import base64
import contextlib
import io
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import parse_qs, unquote_to_bytes, urljoin, urlsplit

import msgspec

from haptera.access.assembly.attachments import attachment_part
from haptera.access.config.context_files import _front_matter
from haptera.access.config.file import parse_config
from haptera.access.config.toml_lines import key_lines
from haptera.agent.growing_output import GrowingValue, shape_of
from haptera.agent.outputs import json_in
from haptera.cli.chat.approvals import ShownCard
from haptera.cli.chat.markdown import MarkdownBlocks, Renderer
from haptera.cli.prompt_input import _named, fenced
from haptera.cli.terminal import safe
from haptera.formats.archive import (
    ArchivedLog,
    ArchiveExport,
    write_archive,
)
from haptera.formats.archive_adoption import Adoption
from haptera.formats.archive_reading import read_archive
from haptera.formats.formats import FORMATS
from haptera.formats.forms import UniqueCallIds, cost_in, media_from_url
from haptera.formats.html_page import write_html
from haptera.formats.markdown import write_markdown
from haptera.formats.redaction import Redactor
from haptera.formats.values import LIMITS, SessionExport, TimedMessage
from haptera.kernel.blocks.error_classification import code_of_text
from haptera.kernel.blocks.permission_rules.rules import mentions_forbidden, parse_rule
from haptera.kernel.blocks.permission_rules.shell_words import read_command
from haptera.kernel.blocks.permission_rules.wildcards import (
    alternatives,
    matches_path,
    matches_word,
)
from haptera.kernel.session.titles import clean_title
from haptera.model.approvals import ApprovalRequest
from haptera.model.entry_bytes import decode_entry
from haptera.model.ids import ApprovalId, CallId, EntryId, InputId, MessageId, SessionId
from haptera.model.json_types import python_words
from haptera.model.log.fold import fold_entries
from haptera.model.log.history import heal_history
from haptera.model.log.queries import InputQueued
from haptera.model.log.sessions import SessionOpened
from haptera.model.log.tools import with_distinct_calls
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import TextPart, ToolCallPart, ToolResultPart
from haptera.model.secrets import scrub
from haptera.options.wording import unknown_name
from haptera.providers.accepted_forms import CallIds
from haptera.providers.schema_rules import RULES
from haptera.providers.schema_targets import check_schema
from haptera.providers.transport.sse import SseParser
from haptera.providers.wire.failures import Failure, _readable, _reported_wait, _wait_in_headers
from haptera.providers.wire.gemini.reply_format import steps_of
from haptera.providers.wire.lenient_decoding import decode_lenient
from haptera.server.decoding import decode_body
from haptera.stores.jsonl.lines import commands_in, quarantined_in
from haptera.stores.text_search import TextQuery
from haptera.tools.editing import difference
from haptera.tools.mcp.offered_tools import clean
from haptera.tools.page_text import text_of_page
from haptera.tools.public_hosts import read_url
from tests.attacks.growth import Entry

LINEAR_LIBRARIES: dict[str, tuple[Callable[[Any], object], str]] = {
    "base64.b64decode": (base64.b64decode, "aGFs"),
    "json.loads": (json.loads, "[1"),
    "msgspec.json.decode": (msgspec.json.decode, "[1"),
    "urlsplit": (urlsplit, "http://a?"),
    "urljoin": (lambda text: urljoin("http://a/b", text), "../"),
    "parse_qs": (lambda text: parse_qs(text[: 100 * 30]), "a="),
    "unquote_to_bytes": (unquote_to_bytes, "%4"),
    "parsedate_to_datetime": (parsedate_to_datetime, "Mon, 1 "),
    "fromisoformat": (datetime.fromisoformat, "2"),
    "Decimal": (Decimal, "9"),
}
"""Functions of libraries that take linear time whatever they are given, and a text that shows it.

Who calls them need not be in the list.
"""
SUPERLINEAR_LIBRARIES = frozenset(
    {
        *("HTMLParser", "get_close_matches", "unified_diff", "SequenceMatcher", "ndiff"),
        *("Markdown", "Syntax", "tomllib.loads", "shlex.split", "fnmatch", "fill"),
        *("validate", "iter_errors", "fromstring", "safe_load", "literal_eval", "parse_known"),
    }
)
"""Functions of libraries that may take more: who calls one must be in the list."""


def repeated(text: str) -> Callable[[int], str]:
    """Return a maker of one text that is repeated to a size."""
    return lambda size: (text * (size // len(text) + 1))[:size]


def between(head: str, text: str, tail: str = "") -> Callable[[int], str]:
    """Return a maker of a text that is repeated between two others."""
    return lambda size: head + repeated(text)(size) + tail


def _open_drawings(size: int) -> str:
    return repeated("<svg>")(size // 2) + repeated("</b>")(size // 2)


def _numbered(row: str) -> Callable[[int], str]:
    return lambda size: "".join(row % number for number in range(size // 8))


def quietly(call: Callable[[Any], object]) -> Callable[[Any], object]:
    """Return a call whose refusals are no failure: what counts is its time."""

    def tried(given: Any) -> None:
        with contextlib.suppress(Exception):
            call(given)

    return tried


def _texts(
    name: str,
    call: Callable[[Any], object],
    *texts: str,
    reads: tuple[str, ...],
    most: int = 1 << 20,
    head: str = "",
) -> Iterator[Entry]:
    for text in texts:
        yield Entry(
            f"{name} of {text!r}", quietly(call), between(head, text), most=most, reads=reads
        )


def _said(text: str) -> SessionExport:
    message = UserMessage(id=MessageId("m"), parts=(TextPart(text=text),))
    return _export(message)


def _export(*messages: Any) -> SessionExport:
    timed = tuple(TimedMessage(message=each) for each in messages)
    return SessionExport(session_id=SessionId("s"), messages=timed)


def _many_messages(size: int) -> SessionExport:
    message = UserMessage(id=MessageId("m"), parts=(TextPart(text="a"),))
    return _export(*[message] * (size // 20))


def _calls(size: int) -> AssistantMessage:
    part = ToolCallPart(call_id=CallId("c"), name="a", arguments={})
    return AssistantMessage(
        id=MessageId("m"), parts=(part,) * (size // 20), model="m", provider="p"
    )


def _written_as_html(export: SessionExport) -> bytes:
    return b"".join(write_html(export))


def _written_as_markdown(export: SessionExport) -> bytes:
    return b"".join(write_markdown(export))


def _page(text: str) -> bytes:
    return _written_as_html(_said(text))


def _markdown(text: str) -> bytes:
    return _written_as_markdown(_said(text))


def _streamed(text: str) -> list[list[str]]:
    blocks = MarkdownBlocks()
    return [blocks.feed(text[at : at + 20]) for at in range(0, len(text), 20)]


def _sse(text: str) -> list[Any]:
    parser, frames = SseParser(), list[Any]()
    for at in range(0, len(text), 100):
        parser.feed(text[at : at + 100].encode(), frames)
    parser.flush(frames)
    return frames


def _same_ids(size: int) -> list[str]:
    ids = UniqueCallIds()
    return [ids.of_call("call") for _ in range(size // 20)]


def _reader(name: str) -> Callable[[bytes], object]:
    read = FORMATS[name].read
    assert read is not None
    return lambda content: read(io.BytesIO(content), LIMITS)


def _rows(row: Callable[[int], Any]) -> Callable[[int], bytes]:
    return lambda size: b"".join(
        msgspec.json.encode(row(number)) + b"\n" for number in range(size // 100)
    )


def _claude_line(number: int) -> dict[str, Any]:
    content = [{"type": "tool_use", "id": "c", "name": "n", "input": {}}]
    if number % 2:
        content = [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]
    role = "user" if number % 2 else "assistant"
    message = {"role": role, "id": f"m{number}", "content": content}
    parent = f"u{number - 1}" if number else None
    return {"type": role, "uuid": f"u{number}", "parentUuid": parent, "message": message}


def _pi_line(number: int) -> dict[str, Any]:
    if not number:
        return {"type": "session", "version": 3, "id": "s", "cwd": "/"}
    message = {"role": "user", "content": "x"}
    return {"type": "message", "id": f"{number}", "parentId": f"{number - 1}", "message": message}


def _codex_line(number: int) -> dict[str, Any]:
    item = {"type": "function_call", "name": "n", "call_id": "c", "arguments": "{}"}
    return {"timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": item}


def _openai_messages(size: int) -> bytes:
    call = {"id": "c", "type": "function", "function": {"name": "n", "arguments": "{}"}}
    rows = [
        {"role": "assistant", "tool_calls": [call]}
        if number % 2
        else {"role": "user", "content": "x"}
        for number in range(size // 60)
    ]
    return msgspec.json.encode(rows)


def _pydantic_ai_messages(size: int) -> bytes:
    call = {"part_kind": "tool-call", "tool_name": "n", "args": "{}", "tool_call_id": "c"}
    result = {"part_kind": "tool-return", "tool_name": "n", "content": ["x"], "tool_call_id": "c"}
    rows = [
        {"kind": "request", "parts": [result], "instructions": f"i{number}"}
        if number % 2
        else {"kind": "response", "parts": [call]}
        for number in range(size // 100)
    ]
    return msgspec.json.encode(rows)


def _langchain_messages(size: int) -> bytes:
    call = {"name": "n", "args": {}, "id": "c"}
    rows = [
        {"type": "tool", "content": ["x"], "tool_call_id": "c"}
        if number % 2
        else {"type": "ai", "content": [{"type": "tool_use"}], "tool_calls": [call]}
        for number in range(size // 80)
    ]
    return msgspec.json.encode(rows)


def _ai_sdk_messages(size: int) -> bytes:
    call = {"type": "tool-n", "toolCallId": "c", "state": "output-available", "output": "x"}
    parts = [call if number % 2 else {"type": "step-start"} for number in range(size // 50)]
    return msgspec.json.encode([{"role": "assistant", "parts": parts}])


def _anthropic_messages(size: int) -> bytes:
    call = {"type": "tool_use", "id": "c", "name": "n", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": "x"}
    rows = [
        {"role": "user", "content": [result]}
        if number % 2
        else {"role": "assistant", "content": [call]}
        for number in range(size // 100)
    ]
    return msgspec.json.encode({"messages": rows})


def _opencode_session(size: int) -> bytes:
    state = {"status": "completed", "input": {}, "output": "x"}
    call = {"type": "tool", "callID": "c", "tool": "n", "state": state}
    messages = [
        {"info": {"id": f"m{number}", "role": "assistant", "sessionID": "s"}, "parts": [call]}
        for number in range(size // 150)
    ]
    return msgspec.json.encode({"info": {"id": "s", "directory": "/"}, "messages": messages})


def _pi_summary(number: int) -> dict[str, Any]:
    """Return a summary that stands before the first message, and moves what comes behind."""
    if number < 2 or number % 2:
        return _pi_line(number)
    place = {"id": f"{number}", "parentId": f"{number - 1}"}
    kept = {"firstKeptEntryId": "1", "tokensBefore": 1}
    return {"type": "compaction", "summary": "x", **place, **kept}


def _codex_rollback(number: int) -> dict[str, Any]:
    if number % 3 < 2:
        return _codex_line(number)
    rollback = {"type": "thread_rolled_back", "num_turns": 1}
    return {"timestamp": "2026-01-01T00:00:00Z", "type": "event_msg", "payload": rollback}


def _claude_circle(number: int) -> dict[str, Any]:
    message = {"role": "user", "content": "x"}
    place = {"uuid": f"u{number}", "parentUuid": f"u{number + 1}"}
    return {"type": "user", **place, "message": message}


def _claude_compacted(number: int) -> dict[str, Any]:
    if number % 2:
        return {"type": "summary", "leafUuid": f"u{number}", "summary": "x"}
    place = {"uuid": f"u{number}", "parentUuid": None, "logicalParentUuid": f"u{number - 2}"}
    return {"type": "system", "subtype": "compact_boundary", **place}


def _archive(size: int) -> bytes:
    """Return an archive of prompts that wait, which the import ends one by one."""
    session_id = SessionId("ses_growth")
    opened = SessionOpened(id=EntryId("evt_1"), time=1, seq=1, session_id=session_id)
    message = UserMessage(id=MessageId("m"), parts=(TextPart(text="a"),))
    entries: list[Any] = [opened]
    for seq in range(2, max(size // 300, 3)):
        place: dict[str, Any] = {"id": EntryId(f"evt_{seq}"), "time": 1, "seq": seq}
        entries.append(
            InputQueued(**place, input_id=InputId(f"inp_{seq}"), message=message, delivery="queue")
        )
    log = ArchivedLog(session_id=session_id, entries=entries)
    return b"".join(write_archive(ArchiveExport(session_id=session_id, logs=[log], created=5)))


def _adopted(content: bytes) -> list[Any]:
    archive = read_archive(io.BytesIO(content))
    adoption = Adoption(archive.summary, owner="ana", project="/")
    return [list(adoption.entries(log.session_id, log.entries)) for log in archive.logs]


def _lines_apart(kinds: int) -> Callable[[int], tuple[str, str]]:
    """Return a maker of two texts whose lines have all their partners, in the other order."""

    def make(size: int) -> tuple[str, str]:
        numbers = [f"{number % kinds}\n" for number in range(size // 4)]
        return "x\n" + "".join(numbers) + "y\n", "z\n" + "".join(reversed(numbers)) + "w\n"

    return make


def _lines_in_turns(size: int) -> tuple[str, str]:
    """Return two texts of which every second line is the same."""
    rows = range(size // 4)
    old, new = ([f"{row if row % 2 else mark + str(row)}\n" for row in rows] for mark in "ab")
    return "".join(old), "".join(new)


def _lines_that_become_rare(size: int) -> tuple[str, str]:
    """Return two texts in which each line that is found makes another one occur once."""
    lines = [f"{row}\n{row + 1}\n" for row in range(size // 8)]
    return "x\n" + "".join(lines), "y\n" + "z\n".join(lines)


def _pages_and_exports() -> Iterator[Entry]:
    html = "formats.html_page:"
    yield from _texts(
        "HTML page",
        _page,
        *(
            "`",
            "~",
            "```\n",
            "``` ",
            "````\n```\n",
            "**",
            "*",
            "`a",
            "**a",
            "# ",
            "\n",
            "\x1b",
            "&",
        ),
        reads=(f"{html}_prose_blocks", f"{html}_line", f"{html}_text"),
        most=400_000,
    )
    yield from _texts(
        "Markdown",
        _markdown,
        "`",
        "\n",
        "```\n",
        reads=("formats.markdown:_blocks",),
    )
    for name, writer in (("HTML", _written_as_html), ("Markdown", _written_as_markdown)):
        yield Entry(f"{name} of many messages", writer, _many_messages, most=200_000)
    yield Entry("call ids of an export", _same_ids, lambda size: size)
    yield Entry("call ids of an answer", with_distinct_calls, _calls)
    yield from _texts(
        "medium", media_from_url, "data:", "data:a/b", ";a", head="data:a/b", reads=()
    )
    yield from _texts("cost", lambda text: cost_in({"cost": text}, "cost"), "9", "1e", reads=())


def _redaction() -> Iterator[Entry]:
    redactor = Redactor(["/work/me", "/home/me"])
    yield from _texts(
        "redaction",
        redactor.text,
        *("/", "/a", "/a/", "~/", "\\", "\\\\a", "C:\\", "file://", "file:///a", "a.", "/home/"),
        *("data:", "data:a/a;", "a.b/", "/work/me", "%41"),
        reads=("formats.redaction:Redactor.text",),
        most=400_000,
    )
    yield from _texts(
        "scrubbing",
        scrub,
        *("sk-", "bearer ", "key ", "api_key=", "eyJ", "eyJaaaaaaaa.", "AIza", "basic\n", "%"),
        reads=("model.secrets:scrub",),
        most=400_000,
    )


def _pages_of_the_web() -> Iterator[Entry]:
    tokens = "tools.page_text:_Tokens."
    yield from _texts(
        "web page",
        text_of_page,
        *("<b", "<b ", "<!--", "<!", "</", "<script>", "<script></scrip", "<svg>", "<svg><desc>"),
        *(
            "&#9",
            "&",
            "<a href='",
            '<a href="',
            "<b ='\"",
            "<p>",
            "<!-->",
            "<?",
            "</b",
            "<a =",
            " ",
        ),
        reads=(f"{tokens}read",),
    )
    for name, text in (("tags", "<b a='c'>"), ("links", "<a href=/b>c</a>")):
        read = (f"{tokens}read", f"{tokens}_take_attributes")
        yield Entry(f"web page of {name}", text_of_page, repeated(text), reads=read)
    yield Entry("web page of open drawings", text_of_page, _open_drawings)
    yield from _texts(
        "URL",
        read_url,
        "a",
        ".",
        "a.",
        "1.",
        "[",
        "@",
        "xn--a.",
        head="http://",
        reads=("tools.public_hosts:read_url",),
    )


def _terminal() -> Iterator[Entry]:
    markdown = "cli.chat.markdown:"
    renderer = Renderer(width=80, colour=True)
    yield from _texts(
        "rendered Markdown",
        renderer.markdown,
        *("`", "*a_ ", "[", "![", "[a](", "<", "> ", "- ", "|-|\n", "[a]: ", "\\"),
        reads=(f"{markdown}Renderer.markdown",),
        most=8_000,
    )
    yield from _texts(
        "rendered diff",
        renderer.difference,
        "+",
        "@@",
        "-a\n",
        reads=(f"{markdown}Renderer.difference",),
        most=16_000,
    )
    yield from _texts(
        "wrapped text",
        renderer.wrapped,
        "a ",
        "a",
        "\t",
        reads=(f"{markdown}Renderer.wrapped",),
        most=64_000,
    )
    yield from _texts(
        "streamed Markdown",
        _streamed,
        "a",
        "a\n",
        "\n",
        head="```\n",
        reads=(f"{markdown}MarkdownBlocks.feed",),
        most=200_000,
    )
    yield from _texts("terminal text", safe, "\x1b", "\u202e", "\ud800", reads=())
    yield from _texts(
        "files in a prompt",
        _named,
        "@",
        '@"',
        "@a ",
        reads=("cli.prompt_input:_named",),
        most=100_000,
    )
    yield from _texts("piped text", fenced, "`", "``` ", reads=("cli.prompt_input:fenced",))


def _configuration() -> Iterator[Entry]:
    yield from _texts(
        "configuration",
        parse_config,
        *("a.", "[a.", "a=[", '"\\', "a={a=", "[[a]]\n", '"a".', "x={a."),
        reads=("access.config.file:parse_config",),
        most=64_000,
    )
    for name, row in (("keys", "a%d=1\n"), ("tables", "[a%d]\n"), ("arrays", "[[a]]\n#%d\n")):
        make = _numbered(row)
        yield Entry(
            f"lines of {name}",
            key_lines,
            make,
            most=400_000,
            reads=("access.config.toml_lines:_tokens",),
        )
    yield Entry("lines of a list", key_lines, between("a=[", "1,\n", "1]"), most=399_999)
    yield from _texts(
        "front matter",
        _front_matter,
        "---\n",
        "name: ",
        "name:\n",
        "--- ",
        " ",
        head="---\n",
        reads=(),
        most=64_000,
    )
    yield from _texts(
        "name that is not known",
        lambda name: unknown_name(name, ("system_prompts", "max_tokens")),
        "s",
        "system_prompts",
        reads=("options.wording:_closest",),
    )


def _providers() -> Iterator[Entry]:
    yield from _texts(
        "events of a stream",
        _sse,
        "data: a\n\n",
        "data:\n",
        "\r",
        "\n",
        "a",
        "id:\0",
        ":",
        reads=(
            "providers.transport.sse:SseParser.feed",
            "providers.transport.sse:SseParser._take_lines",
        ),
    )
    yield from _texts(
        "failed reply",
        lambda text: _readable(text.encode(), 500),
        "<",
        "<a",
        "<title>",
        "</title>",
        ">",
        "<>",
        reads=(),
    )
    yield from _texts(
        "wait in a text",
        lambda text: _reported_wait(Failure(message=text)),
        "try again in 1",
        "retry after ",
        "9",
        "try again in 9.",
        reads=(),
    )
    yield from _texts(
        "wait in a header",
        lambda text: _wait_in_headers({"retry-after": text, "date": text}),
        "Mon, ",
        "1 ",
        "(",
        ":",
        '"',
        "-",
        reads=(),
        most=64_000,
    )
    yield from _texts(
        "error text",
        code_of_text,
        "a",
        "context ",
        "maximum ",
        "token",
        "rate limit ",
        "input ",
        "prompt ",
        "model ",
        "exceed",
        reads=(),
    )
    yield from _texts(
        "lenient JSON",
        lambda text: decode_lenient(text.encode("utf-8", "surrogatepass")),
        "[",
        '{"a":',
        '"\ud800',
        '"\\ud800"',
        "9",
        reads=(),
    )
    yield from _texts(
        "path in arguments", steps_of, ".a", "[", '["a', "[0]", '["', "']", '["a\n', reads=()
    )
    for head in ("", "<think>"):
        yield from _texts(
            f"answer after {head!r}",
            lambda text: list(json_in(text)),
            *("```json ", '{"a":', "[", '"'),
            head=head,
            reads=("agent.outputs:json_in",),
            most=128_000,
        )

    def grow(text: str) -> None:
        growing = GrowingValue(shape_of(Any))
        for place in range(0, len(text), 64):
            growing.feed(text[place : place + 64])
            growing.value()

    yield from _texts(
        "answer that grows",
        grow,
        *('{"a":', "[", "1,", '"x",', "\\u00e9", '["y"],', "</think", " "),
        head="[",
        reads=(),
        most=128_000,
    )

    def answers(size: int) -> CallIds:
        ids = CallIds()
        for _ in range(size // 200):
            ids = ids.with_answer([CallId("call")], "[a-zA-Z0-9_-]{1,64}")
        return ids

    yield Entry("same call id in each answer", answers, lambda size: size, most=400_000)


def _permissions_and_tools() -> Iterator[Entry]:
    rule = parse_rule("shell(rm *)", "deny")
    yield from _texts(
        "shell command",
        read_command,
        "'",
        '"',
        "a ",
        ">",
        "&>",
        "|",
        "a;",
        "a^",
        "''",
        "2>&1 ",
        reads=(),
        most=10_000,
    )
    yield from _texts(
        "command not read",
        lambda text: mentions_forbidden(rule, text),
        "a",
        "r\\",
        "rm$",
        '"',
        reads=(),
    )
    yield from _texts(
        "word and wildcards",
        lambda text: matches_word("a*" * 50 + "b", text),
        "a",
        "ab",
        reads=(),
        most=20_000,
    )
    yield from _texts(
        "path and wildcards",
        lambda text: matches_path("**/a/" * 20 + "b", text),
        "a/",
        reads=(),
        most=4_000,
    )
    uncached = alternatives.__wrapped__
    yield from _texts("braces", uncached, "{", "},", "{a,b}", "{a,", ",", reads=(), most=100_000)
    yield from _texts(
        "rule", lambda text: parse_rule(text, "deny"), "a", "(", "*", "{,", head="read(", reads=()
    )
    for name, make in {
        "few kinds of lines": _lines_apart(40),
        "lines that are not frequent": _lines_apart(101),
        "many kinds of lines": _lines_apart(1000),
        "every second line": _lines_in_turns,
        "lines that become rare": _lines_that_become_rare,
    }.items():
        yield Entry(
            f"difference of {name}",
            lambda pair: difference(pair[0], pair[1], "a"),
            make,
            most=15_000,  # of more lines only the number is told
            reads=("tools.editing:_hunks", "tools.line_changes:_matches"),
        )
    yield from _texts(
        "text of an MCP server",
        clean,
        "\x1b",
        "\x1b[",
        "\x1b]",
        "\x1b[0",
        "\x1b[ ",
        "\x1b]\x1b",
        reads=(),
    )
    yield from _texts("fault", python_words, "`", "`a", "array`", reads=())
    yield from _texts("title", clean_title, " ", "#", "\n", "# ", '"', " \n", reads=())
    yield from _texts(
        "attachment",
        lambda text: attachment_part(text, cwd="/"),
        "data:",
        ";a",
        ";base64",
        ",",
        "%41",
        head="data:",
        most=200_000,
        reads=(),
    )


def _stores_and_imports() -> Iterator[Entry]:
    query = TextQuery("a-" * 200)  # as long as a server takes
    yield from _texts("search", query.score, "a ", "a-", reads=(), most=40_000)
    yield from _texts("snippet", query.snippet, "a ", reads=(), most=400_000)
    yield from _texts(
        "body of a request",
        lambda text: decode_body(text.encode(), dict),
        "[",
        '"\\',
        '{"[":',
        '"',
        reads=(),
    )
    yield from _texts(
        "waiting commands", lambda text: commands_in(text.encode()), "\n", "{}\n", "{", reads=()
    )
    yield from _texts(
        "quarantine", lambda text: quarantined_in(text.encode()), "\n", "{}\n", "{", reads=()
    )
    for name, rows in FILES.items():
        for row in rows:
            entry = f"file of {name} with {row.__name__.strip('_')}"
            make = _rows(row) if row in _OF_ROWS else row
            yield Entry(entry, quietly(_reader(name)), make, most=400_000)
    yield Entry("archive", _adopted, _archive, most=400_000)


_OF_ROWS: tuple[Callable[[int], Any], ...] = (
    *(_claude_line, _claude_circle, _claude_compacted, _pi_line, _pi_summary),
    *(_codex_line, _codex_rollback),
)
FILES: dict[str, tuple[Callable[[int], Any], ...]] = {
    "claude-code": (_claude_line, _claude_circle, _claude_compacted),
    "codex": (_codex_line, _codex_rollback),
    "pi": (_pi_line, _pi_summary),
    "opencode": (_opencode_session,),
    "openai": (_openai_messages,),
    "anthropic": (_anthropic_messages,),
    "pydantic-ai": (_pydantic_ai_messages,),
    "langchain": (_langchain_messages,),
    "ai-sdk": (_ai_sdk_messages,),
}
"""The worst files of each format that is read."""


def _schemas() -> Iterator[Entry]:
    """What servers say of their tools; none of it is read when it is longer."""
    fitting = "providers.schema_fitting:SchemaFitting."
    makers = {
        "missing names": lambda size: _object(required=_names(size // 10), properties={}),
        "required names": lambda size: _object(
            required=_names(size // 40), properties=dict.fromkeys(_names(size // 40), _TEXT)
        ),
        "a chain": _chain,
        "values": lambda size: _object(properties={"a": {"enum": _names(size // 10)}}),
        "parts": lambda size: _object(
            properties={"a": {"allOf": [{"minLength": each} for each in range(size // 20)]}}
        ),
    }
    reads = {"missing names": (f"{fitting}_fit_missing",), "a chain": (f"{fitting}_opened",)}
    for name, make in makers.items():
        yield Entry(f"schema of {name}", _fitted, make, most=100_000, reads=reads.get(name, ()))


_TEXT = {"type": "string"}


def _object(**fields: Any) -> dict[str, Any]:
    return {"type": "object", **fields}


def _names(count: int) -> list[str]:
    return [f"k{each}" for each in range(count)]


def _chain(size: int) -> dict[str, Any]:
    last = size // 35
    links = {f"d{each}": {"$ref": f"#/$defs/d{each + 1}"} for each in range(last)}
    definitions = {**links, f"d{last}": _TEXT}
    return {**_object(properties={"a": {"$ref": "#/$defs/d0"}}), "$defs": definitions}


def _fitted(schema: dict[str, Any]) -> list[object]:
    return [check_schema(schema, target=target) for target in RULES]


def _cards() -> Iterator[Entry]:
    renderer = Renderer(width=80, colour=True)
    makers: dict[str, Callable[[int], Any]] = {
        "names": lambda size: dict.fromkeys(_names(size // 10), 1),
        "one line": lambda size: {"a": "x" * size},
        "lines": lambda size: {"a": "x\n" * (size // 2)},
        "invisible text": lambda size: {"a": "\u200d" * size},
        "a list": lambda size: {"a": [1] * (size // 3)},
    }
    for name, make in makers.items():
        yield Entry(
            f"card of {name}",
            lambda arguments: ShownCard(_asked(arguments)).head(renderer, height=20),
            make,
            most=200_000,
            reads=("cli.chat.approvals:_broken",),
        )


def _asked(arguments: Any) -> ApprovalRequest:
    return ApprovalRequest(
        id=ApprovalId("a"),
        call_id=CallId("c"),
        tool="pay",
        arguments=arguments,
        arguments_hash="",
    )


def _folds() -> Iterator[Entry]:
    """What an archive may bring to the fold of a session, with as many entries as it may have."""
    log = "model.log."
    said = {"role": "user", "id": "m", "parts": [{"type": "text", "text": "x"}]}
    rows: dict[str, tuple[list[dict[str, Any]], tuple[str, ...]]] = {
        "notes": ([{"kind": "context.noted", "text": "x"}], (f"{log}notes:UntoldNotes.take",)),
        "prompts": (
            [{"kind": "query.started", "message": said}],
            (f"{log}conversation:Conversation.push",),
        ),
        "changes": (
            [{"kind": "session.changed", "changes": {"settings": {"seed": 1}}}],
            (f"{log}sessions:SessionChanged.apply",),
        ),
        "waiting prompts": (
            [{"kind": "input.queued", "input_id": "i", "message": said, "delivery": "queue"}],
            (),
        ),
        "summaries": (
            [{"kind": "query.started", "message": said}, {"kind": "compaction", "summary": "s"}],
            (),
        ),
    }
    in_a_row = (
        ("prompts", _prompts, "_Healed.add"),
        ("answers", _answers, "_Healed.add"),
        ("results that come in another order", _results, "_matching"),
    )
    for name, make, function in in_a_row:
        yield Entry(
            f"history of {name}",
            heal_history,
            make,
            most=20_000 * 100,
            reads=(f"{log}history:{function}",),
        )
    for name, (entries, reads) in rows.items():
        yield Entry(f"log of {name}", _folded, _log_of(entries), most=5_000 * 100, reads=reads)


def _prompts(size: int) -> list[Message]:
    said = (TextPart(text="x"),)
    return [UserMessage(id=MessageId(f"m{at}"), parts=said) for at in range(size // 100)]


def _answers(size: int) -> list[Message]:
    parts = (TextPart(text="x"),)
    answers = [AssistantMessage(id=MessageId(f"a{at}"), parts=parts) for at in range(size // 100)]
    return [*_prompts(100), *answers]


def _results(size: int) -> list[Message]:
    """Return an answer with many calls, and their results from the last to the first."""
    ids = [CallId(f"c{at}") for at in range(size // 100)]
    calls = tuple(ToolCallPart(call_id=each, name="t", arguments={}) for each in ids)
    answers = tuple(ToolResultPart(call_id=each, name="t") for each in reversed(ids))
    return [
        *_prompts(100),
        AssistantMessage(id=MessageId("a"), parts=calls),
        UserMessage(id=MessageId("r"), parts=answers),
    ]


def _log_of(rows: list[dict[str, Any]]) -> Callable[[int], list[Any]]:
    """Return a maker of logs that repeat some entries, 100 characters each."""

    def make(size: int) -> list[Any]:
        opened = {"kind": "session.opened", "session_id": "s"}
        log = [opened, *(row for _ in range(size // 100 // len(rows)) for row in rows)]
        return [
            decode_entry(msgspec.json.encode({"id": f"e{seq}", "time": 1, "seq": seq, **fields}))
            for seq, fields in enumerate(log, 1)
        ]

    return make


def _folded(entries: list[Any]) -> object:
    return fold_entries(entries).sent_view()


def _libraries() -> Iterator[Entry]:
    for name, (call, text) in LINEAR_LIBRARIES.items():
        yield Entry(f"library {name}", quietly(call), repeated(text))


ENTRIES = (
    *_pages_and_exports(),
    *_redaction(),
    *_pages_of_the_web(),
    *_terminal(),
    *_configuration(),
    *_providers(),
    *_permissions_and_tools(),
    *_stores_and_imports(),
    *_schemas(),
    *_cards(),
    *_folds(),
    *_libraries(),
)
