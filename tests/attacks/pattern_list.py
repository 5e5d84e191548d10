"""The list of all patterns of `re` in the source, found in its syntax, with how each is used."""

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import haptera
from haptera.formats.redaction import Redactor
from haptera.kernel.blocks import error_classification
from haptera.kernel.blocks.permission_rules import programs
from haptera.model import secrets
from haptera.providers.local import download
from haptera.tools import page_text

SOURCE = Path(haptera.__file__).parent
_USES = frozenset({"match", "fullmatch", "search", "findall", "finditer", "sub", "subn", "split"})

TABLES: dict[str, list["re.Pattern[str]"]] = {
    "kernel.blocks.error_classification:_first_match": [
        re.compile(pattern, re.IGNORECASE | re.DOTALL)
        for table in (error_classification._KNOWN_TEXTS, error_classification._PATTERNS)
        for _, pattern in table
    ],
    "providers.local.download:explain_failure": [
        re.compile(pattern) for pattern, *_ in download._FAILURES
    ],
    "kernel.blocks.permission_rules.programs:_Switches.fits": [
        re.compile(switches.other)
        for table in (programs._TELLING_OPTIONS, programs._OUTPUT_OPTIONS)
        for switches in table.values()
    ],
    "formats.redaction:Redactor.__init__": [Redactor(["/work/me", "/home/me"])._paths],
    "tools.page_text:": list(page_text._RAW_ENDS.values()),
    "model.secrets:scrub": [re.compile(secrets._CREDENTIAL)],
}
"""Patterns that come out of tables, by the function that uses them. Rules of redaction that are
kept as data belong here: every row is then tried."""

_METHODS = {
    "kernel.blocks.permission_rules.programs:_Switches.fits": "match",
}
"""How patterns of tables are used that are not looked for anywhere in a text."""

_MODEL_NAMES = "patterns of ours, for the name of a model, which is bounded"
EXCEPTIONS = {
    "formats.secret_rules:_compiled": (
        "for what a rule has found, which is measured with the rule"
    ),
    "tools.sandbox.private_beneath:_compiled": "for the name of one file, at most 255 characters",
    "formats.secret_rules:SecretRule.pattern": (
        "each rule is measured with its own keywords, in tests/formats"
    ),
    "providers.catalogue:_rule_holds": _MODEL_NAMES,
    "providers.accepted_forms:_matcher": "classes of characters, for ids and names",
    "providers.accepted_forms:ToolNames.__init__": "classes of characters, for ids and names",
    "providers.schema_fitting:SchemaFitting._check_names": "classes of characters, for names",
    "providers.wire.chat_completions.request:_system": _MODEL_NAMES,
    "providers.wire.chat_completions.request:_refused_sampling": _MODEL_NAMES,
    "providers.wire.chat_completions.request:_knows_parallel_field": _MODEL_NAMES,
    "providers.wire.chat_completions.request:_rule_for": _MODEL_NAMES,
    "providers.wire.chat_completions.request:cache_mark": _MODEL_NAMES,
    "providers.wire.gemini.dialects:thinking_config": _MODEL_NAMES,
    "providers.wire.openai_responses.dialects:ResponsesDialect.reasoning_of": _MODEL_NAMES,
    "providers.wire.protocol:HistoryRules.for_model": _MODEL_NAMES,
    "tools.search_program:main": "the model's own pattern, in a process that is killed",
    "model.json_types:_in_words.replaced": "a word of ours",
}
"""Functions whose patterns are not tried, with the reason."""


class UsedPattern(NamedTuple):
    """A pattern, where it stands, and the method that it is used with."""

    where: str
    pattern: "re.Pattern[Any]"
    method: str


@cache
def modules() -> dict[str, ast.Module]:
    """Return the syntax of every module that takes part in running, by its short name."""
    files = sorted(each for each in SOURCE.rglob("*.py") if "testing" not in each.parts)
    return {short_name(each): ast.parse(each.read_text()) for each in files}


def short_name(file: Path) -> str:
    """Return the name of a module without that of the package."""
    return ".".join(file.relative_to(SOURCE).with_suffix("").parts)


def with_functions(tree: ast.AST, names: tuple[str, ...] = ()) -> Iterator[tuple[str, ast.AST]]:
    """Yield every node with the qualified name of the function or class around it."""
    for node in ast.iter_child_nodes(tree):
        inside = names
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = (*names, node.name)
        yield ".".join(names), node
        yield from with_functions(node, inside)


@cache
def found_patterns() -> tuple[list[UsedPattern], list[str]]:
    """Return the patterns, and the functions that use one that the syntax does not tell."""
    known = [
        UsedPattern(where, pattern, _METHODS.get(where, "finditer"))
        for where, table in TABLES.items()
        for pattern in table
    ]
    untold: list[str] = []
    for name, tree in modules().items():
        if any(
            isinstance(node, ast.Import) and node.names[0].name == "re" for node in ast.walk(tree)
        ):
            _patterns_of(name, tree, known, untold)
    return known, untold


def _patterns_of(name: str, tree: ast.Module, known: list[UsedPattern], untold: list[str]) -> None:
    words = vars(importlib.import_module(f"haptera.{name}")) | {"re": re}
    for function, node in with_functions(tree):
        if not (isinstance(node, ast.Call) and _is_of_re(node.func)):
            continue
        where = f"{name}:{function}"
        pattern = _evaluated(node, words)
        method = node.func.attr  # type: ignore[attr-defined]
        if method == "escape":
            continue
        if pattern is None:
            untold.append(where)
        elif method != "compile":
            known.append(UsedPattern(where, pattern, method))
    for constant, methods in _constants(tree, words).items():
        known += [
            UsedPattern(f"{name}:{constant}", words[constant], method)
            for method in sorted(methods or {"search"})
        ]


def _constants(tree: ast.Module, words: dict[str, Any]) -> dict[str, set[str]]:
    """Return the names of a module's compiled patterns, with the methods that are called."""
    targets = (node.targets[0] for node in tree.body if isinstance(node, ast.Assign))
    names = (each.id for each in targets if isinstance(each, ast.Name))
    uses = {each: set[str]() for each in names if isinstance(words.get(each), re.Pattern)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
            continue
        if node.value.id in uses and node.attr in _USES:
            uses[node.value.id].add(node.attr)
    return uses


def _is_of_re(called: ast.expr) -> bool:
    return (
        isinstance(called, ast.Attribute)
        and isinstance(called.value, ast.Name)
        and called.value.id == "re"
    )


def _evaluated(call: ast.Call, words: dict[str, Any]) -> "re.Pattern[Any] | None":
    """Return the pattern of a call, when it is made of constants."""
    method = call.func.attr  # type: ignore[attr-defined]
    flags = [each.value for each in call.keywords if each.arg == "flags"]
    if method == "compile":
        flags += call.args[1:]
    elif method in {"match", "fullmatch", "search", "findall", "finditer"}:
        flags += call.args[2:]
    try:
        pattern, *given = (_constant(each, words) for each in (call.args[0], *flags))
        return re.compile(pattern, *given)
    except NameError:
        return None


def _constant(node: ast.expr, words: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "source", "eval"), words)  # noqa: S307 - our source
