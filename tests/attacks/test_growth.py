"""The cost of an input is bounded by its size: whatever reads text from outside is linear."""

import ast
import html.parser
import re
import sys
from collections import defaultdict
from collections.abc import Iterator

import pytest

from haptera.formats.formats import FORMATS
from tests.attacks.growth import HIGHEST_EXPONENT, Entry, exponent, seconds
from tests.attacks.growth_detectors import (
    LOOPS,
    looked_up_in,
    rebuilds_in,
    remade_by,
    searches_in,
)
from tests.attacks.growth_list import (
    ENTRIES,
    FILES,
    LINEAR_LIBRARIES,
    SUPERLINEAR_LIBRARIES,
    repeated,
)
from tests.attacks.pattern_attacks import attacks_on
from tests.attacks.pattern_list import (
    EXCEPTIONS,
    TABLES,
    UsedPattern,
    found_patterns,
    modules,
    with_functions,
)

_PARSERS = frozenset(
    {
        *("ast", "configparser", "csv", "email", "fnmatch", "glob", "html", "html.parser"),
        *("jsonschema", "markdown", "markdown_it", "plistlib", "pygments", "regex", "sgmllib"),
        *("string", "tokenize", "tree_sitter", "xml", "xml.etree", "yaml", "lxml", "bs4"),
    }
)
"""Libraries that read text; which function uses which is in the list below."""
_PARSERS_IN_USE = {
    "agent.option_checks": "ast",
    "kernel.blocks.permission_rules.shell_words": "tree_sitter",
    "providers.wire.failures": "email",
    "formats.html_page": "html",
    "server.responses": "html",
    "tools.page_text": "html",
    "providers.transport.http": "email",
}
"""Modules that import one: `email.utils` for dates, `html` to escape and unescape."""
_OWN_TEXT = {
    "stores.file_trees.tree_facts:folders_of": "a path of a file, which the system bounds",
    "cli.login_commands:_ask_provider": "names of ours",
    "options.json_schemas:schema_check.fault": "the caller's own schema",
    "cli.chat.slash_commands:SlashCommands.run": "what a person types into the chat",
    "access.config.mcp_server_edits:_replace": "a file of the user, checked by `parse_config`",
    "access.config.mcp_server_edits:_says": "the user's own file, checked by `parse_config` before",
    "access.config.mcp_server_edits:_is_of": "one line of the user's own file",
    "providers.catalogue:CatalogueFile._with_colon": "the name of a model that a person chooses",
}
_ENTRIES = {entry.name: entry for entry in ENTRIES}

_FENCE_OF_BEFORE = re.compile(
    r"^(?P<fence>`{3,}|~{3,})[^\n]*\n(?P<code>.*?)(?:^(?P=fence)[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)


def _parsed_by_the_library(text: str) -> None:
    parser = html.parser.HTMLParser()
    parser.feed(text)
    parser.close()


@pytest.mark.parametrize("name", _ENTRIES)
def test_time_grows_with_the_size(name: str) -> None:
    assert exponent(_ENTRIES[name]) < HIGHEST_EXPONENT


@pytest.mark.parametrize(
    "control",
    [
        Entry("a fence", lambda text: list(_FENCE_OF_BEFORE.finditer(text)), repeated("`")),
        Entry("html.parser", _parsed_by_the_library, repeated("<b")),
    ],
    ids=lambda control: control.name,
)
def test_what_is_not_linear_is_found(control: Entry) -> None:
    assert exponent(control, attempts=1) > HIGHEST_EXPONENT


_QUICK, _QUICK_SIZE = 0.0005, 4000


def _used(used: UsedPattern, text: str) -> object:
    given = text.encode("utf-8", "replace") if isinstance(used.pattern.pattern, bytes) else text
    if used.method in {"sub", "subn"}:
        return used.pattern.sub(lambda _: given[:0], given)
    found = getattr(used.pattern, used.method)(given)
    return list(found) if used.method == "finditer" else found


def _is_fast(entry: Entry) -> bool:
    """Whether a first look shows that the time does not grow too much."""
    small, large = entry.make(_QUICK_SIZE // 8), entry.make(_QUICK_SIZE)
    before = min(seconds(entry, small) for _ in range(2))
    if before > _QUICK * 8:
        return False
    after = min(seconds(entry, large) for _ in range(2))
    return after < _QUICK or after < before * 8**1.25


def _slow_attacks(used: UsedPattern, *, attempts: int = 3) -> Iterator[str]:
    for make in attacks_on(used.pattern):
        entry = Entry(used.where, lambda text: _used(used, text), make)
        # Nearly all are so fast that there is nothing to measure.
        if not _is_fast(entry) and exponent(entry, attempts=attempts) >= HIGHEST_EXPONENT:
            yield f"{used.where} with {make(40)!r}"


_BY_MODULE: defaultdict[str, list[UsedPattern]] = defaultdict(list)
for _each in found_patterns()[0]:
    _BY_MODULE[_each.where.partition(":")[0]].append(_each)


@pytest.mark.parametrize("module", _BY_MODULE)
def test_no_pattern_goes_back_further_the_longer_the_text(module: str) -> None:
    assert [told for used in _BY_MODULE[module] for told in _slow_attacks(used)] == []


@pytest.mark.parametrize("pattern", [_FENCE_OF_BEFORE, re.compile("<[^>]*>")])
def test_a_pattern_that_goes_back_is_found(pattern: "re.Pattern[str]") -> None:
    assert next(_slow_attacks(UsedPattern("control", pattern, "finditer"), attempts=1), None)


def test_every_pattern_is_known() -> None:
    _, untold = found_patterns()
    assert sorted(set(untold) - TABLES.keys() - EXCEPTIONS.keys()) == []
    assert sorted(EXCEPTIONS.keys() - set(untold)) == []


def _library_of(call: ast.Call) -> str | None:
    """Return the function of a library that may take more than linear time, if one is called."""
    called = ast.unparse(call.func)
    for name in SUPERLINEAR_LIBRARIES:
        if called == name or called.endswith(f".{name}"):
            return name
    return None


def _readers() -> set[str]:
    """Return the functions that take text apart by more than a pattern or a linear decoder."""
    found = set()
    for name, tree in modules().items():
        for function, node in with_functions(tree):
            is_library = isinstance(node, ast.Call) and _library_of(node) is not None
            is_loop = isinstance(node, LOOPS) and (searches_in(node) or rebuilds_in(node))
            if is_library or is_loop or remade_by(node):
                found.add(f"{name}:{function}")
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and looked_up_in(node):
                found.add(f"{name}:{function}.{node.name}".replace(":.", ":"))
            if isinstance(node, ast.ClassDef) and any(
                ast.unparse(base).endswith("HTMLParser") for base in node.bases
            ):
                found.add(f"{name}:{node.name}")
    return found


_IN_LOOPS = {
    "stores.jsonl.scan:scan_pieces": "goes from one piece of a file to the next",
    "stores.jsonl.scan:_line_starts": "goes from one line to the next, each found once",
    "tools.editing:_lines_of": "ends after ten places",
    "access.finding:search": "asks a store",
    "tools.option_tools:recall_tool.recall": "asks a store",
    "access.transfer:_lineage": "each step reads from a store, which takes far longer",
    "model.log.carried_state:fold_from_compaction": "compactions of ours: few",
    "model.log.conversation:SentCounts.update": "each message is looked at once",
    "access.config.context_files:ContextFolders._folders": "the folders above one",
    "providers.schema_targets:_Counts.count": "a method of its own",
    "providers.wire.chat_completions.request:nearest_effort": "names of ours",
}


_OF_OURS = "names or settings of ours, or of the program"
_OF_ONE = "what is in one thing, once"
_REMAKES = {
    "agent.outputs:_checking": "parameters of a function of the program",
    "kernel.session.prompt_queue:PromptQueue._go_on": "prompts that wait, few at once",
    "kernel.session.prompt_queue:PromptQueue.drain": "prompts that wait, few at once",
    "model.log.notes:UntoldNotes.tell_again": "once for each summary",
    "stores.memory:MemoryInbox.wait": "who waits for one session",
    "access.assembly.composition:Composition.forget": "sessions that are open",
    "access.assembly.configuration:Configuration.protocols_of": _OF_OURS,
    "access.assembly.mcp_tool_sources:configured_servers": _OF_OURS,
    "access.assembly.model_clients:_dialect_of": _OF_OURS,
    "access.config.kept_decisions:KeptDecisions.revoke": "decisions of the user, few",
    "access.config.toml_lines:_Reader.read_header": "as many steps as a line has: see `key_lines`",
    "access.config.toml_lines:_Reader.read_pair": "as many steps as a line has: see `key_lines`",
    "access.doctor:_extras": _OF_OURS,
    "agent.session:_submit": _OF_OURS,
    "agent.prompts:with_attachments": _OF_ONE,
    "cli.terminal:Sanitiser._shown": "one run of characters",
    "formats.redaction:_texts_of": "it is a table",
    "kernel.blocks.hook_dispatch.registration:Hooks._add": _OF_OURS,
    "kernel.blocks.permission_rules.shell_words:_words_of": "commands are bounded",
    "kernel.blocks.permission_rules.wildcards:_ends": "at most as many as a rule has segments",
    "kernel.blocks.request_builder:_with_reminders": _OF_ONE,
    "kernel.blocks.request_builder:lead_with_reminders": _OF_ONE,
    "kernel.blocks.tool_registry.foreign_types:_free_names": _OF_OURS,
    "kernel.blocks.tool_registry.signature:_read_docstring": _OF_OURS,
    "kernel.turns.turn_runner:_Timers._beat": "a number",
    "kernel.session.log_reading:last_seq_in": "two names",
    "kernel.session.state_reading:StateReader.find": "stored states, one for 5,000 entries",
    "model.json_types:is_too_deep": "each value is in one level",
    "model.log.carried_state:restore": "once, from a state",
    "model.log.conversation:Conversation.shortened": _OF_ONE,
    "model.log.conversation:joined": _OF_ONE,
    "model.log.conversation:merged_answers": "answers in a row: an archive is bounded",
    "model.log.fold_points:kept_fold": _OF_OURS,
    "model.log.notes:UntoldNotes.lead": _OF_ONE,
    "model.log.session_fold:SessionFold.settled_view": "at most two messages",
    "model.log.tools:with_distinct_calls": "two tables",
    "model.messages:kept_options": _OF_OURS,
    "options.checks:_type_fault": "steps of a path",
    "providers.local.weights:WeightFiles.keep_good_parts": "a number",
    "providers.schema_descriptions:_exclude": "two values",
    "providers.schema_merging:merge_alternatives": "schemas of at most 100,000 characters",
    "providers.vendor_clients:_for_login.identified": _OF_ONE,
    "providers.wire.anthropic_messages.request:_marked_blocks": _OF_ONE,
    "providers.wire.openai_responses.reply_assembly:OutputItems.end": _OF_ONE,
    "providers.wire.prefix_cache:body_with_array": "two pieces at a time",
    "server.key_file:remove_key": "keys of the server",
    "server.limits:checked_settings": _OF_OURS,
    "server.openapi:_types_of": _OF_OURS,
    "server.session_operations:_parameters_of": _OF_OURS,
    "stores.file_trees.git_trees:GitTrees._keep": "once for each rewind",
    "stores.file_trees.kept_files:KeptFiles.examine": "again only where another spelling is there",
    "stores.file_trees.kept_files:KeptFiles.examine_undo": "once for each rewind",
    "stores.file_trees.places:Places.as_listed": "once for each folder of a path",
    "stores.file_trees.places:write_sparsely": "a view, which is not copied",
    "stores.jsonl.scan:scan_pieces": "goes from one piece of a file to the next",
    "stores.postgresql.changes:ChangeWatch._ask": "sessions that are watched",
    "stores.postgresql.changes:ChangeWatch._changed_as_told": "sessions that are watched",
    "stores.postgresql.database:_without_lease": "two parts of a URL of the user",
    "stores.sqlite.group_writer:GroupWriter._write_until_late": "writes of one group",
    "system.atomic_files:write_all": "a view, which is not copied",
    "system.child_processes:KeptTail.add": "what is kept is bounded",
    "telemetry.open_telemetry:OpenSpan.end": _OF_OURS,
    "tools.command_runner:CommandRunner._plan": _OF_OURS,
    "tools.command_runner:CommandRunner._try_layers": _OF_OURS,
    "tools.file_contents:read_lines": "what is left of a block is no longer than a block",
    "tools.sandbox.home_secrets:found_by_name": "a bounded walk",
    "tools.sandbox_check:check_sandbox": _OF_OURS,
}
"""What is made anew or looked through in steps, with what bounds the steps."""


def test_every_format_that_is_read_has_its_worst_files() -> None:
    assert {name for name, each in FORMATS.items() if each.read is not None} == FILES.keys()


def test_every_reader_is_in_the_list() -> None:
    listed = {read for entry in ENTRIES for read in entry.reads}
    readers = _readers()
    reasons = _OWN_TEXT.keys() | _IN_LOOPS.keys() | _REMAKES.keys()
    assert sorted(readers - listed - reasons) == []
    assert sorted(reasons - readers) == []


def test_every_library_that_reads_text_is_known() -> None:
    found = {
        (module, imported)
        for module, tree in modules().items()
        for node in ast.walk(tree)
        for imported in _imported(node)
        if imported in _PARSERS or imported.partition(".")[0] in _PARSERS
    }
    assert {(module, name.partition(".")[0]) for module, name in found} <= set(
        _PARSERS_IN_USE.items()
    )
    assert {name for _, name in found if name == "html.parser"} == set()


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def test_entries_run_what_they_say() -> None:
    run: set[str] = set()
    for entry in ENTRIES:

        def note(frame: object, event: str, _: object) -> None:
            if event == "call":
                module = frame.f_globals.get("__name__", "")  # type: ignore[attr-defined]
                code = frame.f_code  # type: ignore[attr-defined]
                run.add(f"{module.removeprefix('haptera.')}:{code.co_qualname}")

        given = entry.make(200)
        sys.setprofile(note)
        try:
            entry.call(given)
        finally:
            sys.setprofile(None)
    assert sorted({read for entry in ENTRIES for read in entry.reads} - run) == []


def test_linear_libraries_are_measured() -> None:
    measured = {entry.name for entry in ENTRIES}
    assert {f"library {name}" for name in LINEAR_LIBRARIES} <= measured


@pytest.mark.parametrize(
    "loop",
    [
        *("items = items + [x]", "items = [*items, x]", "items = {**items, x: x}"),
        *("items = [y for y in items if y]", "items.insert(0, x)", "items.remove(x)"),
        *("text = text[1:]", "words[-1] += x", "self.text += 'x'", "items += (x,)"),
    ],
)
def test_a_loop_that_makes_something_anew_is_found(loop: str) -> None:
    (tree,) = ast.parse(f"for x in outside:\n    {loop}").body
    assert searches_in(tree) or rebuilds_in(tree)


@pytest.mark.parametrize(
    "step",
    [
        *("self.items = (*self.items, x)", "self.items += (x,)", "self.items = self.items | {x}"),
        "replace(tip, parts=tip.parts + x)",
    ],
)
def test_a_field_that_is_made_anew_is_found(step: str) -> None:
    assert any(map(remade_by, ast.walk(ast.parse(step))))


@pytest.mark.parametrize("head", ["seen: list[str] = []", "seen = []", "seen = [y for y in z]"])
def test_a_look_into_a_list_is_found(head: str) -> None:
    (function,) = ast.parse(f"def f(z):\n    {head}\n    for x in z:\n        x in seen").body
    assert isinstance(function, ast.FunctionDef)
    assert looked_up_in(function)
