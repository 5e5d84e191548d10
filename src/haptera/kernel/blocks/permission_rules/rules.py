"""Rules: `tool(pattern)` with what is to be done, and whether a rule fits a call."""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from haptera.kernel.blocks.permission_rules.wildcards import (
    alternatives,
    matches_path,
    matches_word,
)
from haptera.model.approvals import RuleAction
from haptera.model.canonical import canonical_json
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.json_types import JsonObject
from haptera.model.late_names import on_first_use
from haptera.options.wording import meant_name

if TYPE_CHECKING:
    from haptera.kernel.blocks.permission_rules import programs, shell_words
    from haptera.kernel.blocks.permission_rules.programs import Invocation
    from haptera.kernel.blocks.permission_rules.shell_words import Words
else:  # only a session with a shell reads commands
    programs = on_first_use("haptera.kernel.blocks.permission_rules.programs")
    shell_words = on_first_use("haptera.kernel.blocks.permission_rules.shell_words")

ACTIONS: tuple[RuleAction, ...] = ("allow", "ask", "deny")
SubjectKind: TypeAlias = Literal["path", "command", "url", "arguments"]

_LONGEST = 1000
_EVERYTHING = frozenset({"*", "**"})
_RULE = r"(?s)(?P<tool>[A-Za-z0-9_*?-]{1,128})(?:\((?P<pattern>.*)\))?"
_ARGUMENT = r"(?s)(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>.*)"
_HOST_PATTERN = r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\*"

SUBJECTS: dict[str, tuple[SubjectKind, str]] = {
    "read": ("path", "path"),
    "list": ("path", "path"),
    "glob": ("path", "path"),
    "grep": ("path", "path"),
    "write": ("path", "path"),
    "edit": ("path", "path"),
    "shell": ("command", "command"),
    "web_fetch": ("url", "url"),
}
"""What the pattern of a rule is about, by tool: the kind of thing, and the argument that names it.

The pattern of any other tool is `argument=value`.
"""
_COVERED_BY = {"list": "read", "glob": "read", "grep": "read", "write": "edit"}
"""Rules for `read` hold for everything that reads files, rules for `edit` for what changes them."""
EDITS_FILES = frozenset({"write", "edit"})
"""Tools that the mode `accept_edits` lets pass, if they say where their path really leads."""

_SHIPPED = frozenset({*SUBJECTS, "todo", "read_output", "recall"})
"""Tools that come with Haptera. A file for all agents of a user may deny one that this agent does
not have."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is to be done with the calls that fit."""

    tool: str
    """The tool's name, in which `*` and `?` are wildcards."""
    action: RuleAction
    pattern: str | None = None
    source: str = "user"
    """Where the rule comes from, for the log."""
    words: tuple[str, ...] = ()
    """The pattern of a command, read once."""
    own: "Rule | None" = None
    """With a wildcard in the tool's name: the rule as tools read it that have patterns of their own
    (`SUBJECTS`), if the argument is the one that these are about."""
    written: str | None = None
    """The rule as it is written, where that does not follow from tool and pattern."""

    @property
    def text(self) -> str:
        """The rule as it is written."""
        if self.written is not None:
            return self.written
        return self.tool if self.pattern is None else f"{self.tool}({self.pattern})"

    @property
    def is_by_argument(self) -> bool:
        """Whether the pattern is `argument=value`, also for tools with patterns of their own."""
        return self.pattern is not None and any(sign in self.tool for sign in "*?")

    @property
    def is_literal(self) -> bool:
        """Whether the pattern has no wildcard, so that a person has seen all that it allows."""
        return self.pattern is not None and not any(sign in self.pattern for sign in "*?")

    def is_for(self, tool: str) -> bool:
        """Whether the rule is about a tool."""
        return matches_word(self.tool, tool) or (
            tool in _COVERED_BY and matches_word(self.tool, _COVERED_BY[tool])
        )


def parse_rule(text: str, action: RuleAction, *, source: str = "user") -> Rule:
    """Read a rule; raises CONFIG_INVALID naming it, so that none is quietly without effect."""
    found = re.fullmatch(_RULE, text.strip()) if len(text) <= _LONGEST else None
    if found is None or action not in {"allow", "ask", "deny"}:
        raise _invalid(text, "a rule is a tool's name, or tool(pattern)")
    tool, pattern = found["tool"], found["pattern"]
    if pattern is None or pattern in _EVERYTHING:
        return Rule(tool=tool, action=action, source=source)
    rule = Rule(tool=tool, action=action, pattern=pattern, source=source)
    kind = SUBJECTS.get(tool, ("arguments", ""))[0]
    if kind == "url" and not re.fullmatch(_HOST_PATTERN, pattern):
        raise _invalid(text, "its pattern is a host, such as docs.python.org or *.python.org")
    if kind != "arguments":
        return _with_pattern(rule, kind, pattern)
    argument = re.fullmatch(_ARGUMENT, pattern)
    if argument is None:
        meant = meant_name(tool, SUBJECTS)
        raise _invalid(text, f"the pattern for the tool {tool!r} is argument=value{meant}")
    return replace(rule, own=_own(rule, argument["name"], argument["value"]))


def _with_pattern(rule: Rule, kind: SubjectKind, pattern: str) -> Rule:
    """Return a rule with a pattern of a tool's own; raises CONFIG_INVALID if it cannot be read."""
    if kind == "command":
        words = shell_words.read_pattern(pattern)
        if isinstance(words, shell_words.Unreadable):
            raise _invalid(rule.text, f"its pattern is not one simple command: {words.reason}")
        return replace(rule, pattern=pattern, words=words)
    if kind == "path":
        if reason := _refuses_braces(pattern):
            raise _invalid(rule.text, reason)
        # `read({a,*})` means what `read(a)` and `read(*)` mean together.
        if not _EVERYTHING.isdisjoint(alternatives(pattern)):
            return replace(rule, pattern=None, written=rule.text)
    return replace(rule, pattern=pattern)


def _own(rule: Rule, argument: str, value: str) -> Rule | None:
    """Read `*(path=x)` as `read(x)`, so that no other spelling of a path or command avoids it."""
    subjects = (about for tool, about in SUBJECTS.items() if rule.is_for(tool))
    kind = next((kind for kind, name in subjects if name == argument), None)
    if kind is None:
        return None
    own = replace(rule, pattern=None, written=rule.text)
    if value in _EVERYTHING:
        return own
    if kind == "url":
        value = value.lower()
        # Only what forbids may be about a part of a host: `*python.org` is also `notpython.org`.
        if rule.action == "allow" and not re.fullmatch(_HOST_PATTERN, value):
            return None
    return _with_pattern(own, kind, value)


def rules_of(rules: Iterable[Rule], tool: str) -> list[Rule]:
    """Return the rules about a tool, with the patterns that this tool itself compares."""
    argument = f"{SUBJECTS.get(tool, ('arguments', ''))[1]}="
    found: list[Rule] = []
    for rule in rules:
        if not rule.is_for(tool):
            continue
        if not rule.is_by_argument:
            found.append(rule)
        elif rule.own is not None and (rule.pattern or "").startswith(argument):
            found.append(rule.own)
    return found


def _refuses_braces(pattern: str) -> str | None:
    """Say why the pattern of a path does not cover exactly what it says."""
    try:
        # An empty one would fit every path.
        return None if all(alternatives(pattern)) else "its pattern, or a part of it, is empty"
    except ValueError as error:
        return str(error)


def _invalid(text: str, reason: str) -> ConfigError:
    return ConfigError(ErrorCode.CONFIG_INVALID, f"permission rule {text[:200]!r}: {reason}")


def fits_path(rule: Rule, path: str) -> bool:
    """Whether a rule is about a path beneath the root."""
    return rule.pattern is None or matches_path(rule.pattern, path)


def fits_host(rule: Rule, host: str) -> bool:
    """Whether a rule is about a host; `*.name` means what is below a name, not the name."""
    # With its dot: `notpython.org` is not below `python.org`.
    return rule.pattern is None or matches_word(rule.pattern, host)


def fits_arguments(rule: Rule, arguments: JsonObject) -> bool:
    """Whether a rule is about one argument's value; what is no text is compared as JSON."""
    found = None if rule.pattern is None else re.fullmatch(_ARGUMENT, rule.pattern)
    if found is None:
        return rule.pattern is None
    if found["name"] not in arguments:
        return False
    value = arguments[found["name"]]
    text = value if isinstance(value, str) else canonical_json(value).decode("utf-8")
    return matches_word(found["value"], text)


def allows_command(rule: Rule, item: "Invocation", *, strict: bool) -> bool:
    """Whether a rule that allows covers a program with exactly these arguments.

    With `strict` there are rules that forbid something. Then a wildcard does not cover programs
    that may run what is forbidden.
    """
    if rule.pattern is None:
        return item.doubt != "runs others" and (not strict or _is_plain(item))
    # A literal rule is written for the command as a whole, with its wrapper.
    outer = item.via[0] if item.via else item.words
    if rule.is_literal and rule.words == outer:
        return True
    if item.doubt in {"runs others", "writes"} or (strict and item.doubt == "opaque"):
        return False
    # A wildcard in the program's place chooses no program: beside prohibitions it covers only those
    # that run no other.
    named = rule.words[0] == item.words[0]
    return _fits_words(rule.words, item.words) and (named or not strict or _is_plain(item))


def _is_plain(item: "Invocation") -> bool:
    return item.doubt == "none" and item.words[0] in programs.RUN_NO_OTHERS


def _fits_words(pattern: "Words", words: "Words") -> bool:
    """Whether words fit a pattern one by one; a `*` at its end is any number of words."""
    is_open = pattern[-1] == "*" and len(pattern) > 1
    if is_open:
        pattern = pattern[:-1]
    if len(words) < len(pattern) or (len(words) > len(pattern) and not is_open):
        return False
    # Words beyond the pattern are those of its last `*`.
    return all(matches_word(one, word) for one, word in zip(pattern, words, strict=False))


def forbids_command(rule: Rule, words: "Words") -> bool:
    """Whether a rule that denies or asks is about a program, wherever that is installed.

    More is caught than allowed: the words of the pattern may have others between and after them.
    """
    if rule.pattern is None:
        return True
    first, *rest = rule.words
    base_name = programs.base_name
    if not (matches_word(first, words[0]) or matches_word(base_name(first), base_name(words[0]))):
        return False
    # One iterator for all words of the pattern: each is looked for behind the one before.
    left = iter(words[1:])
    return all(any(matches_word(one, word) for word in left) for one in rest if one != "*")


def mentions_forbidden(rule: Rule, text: str) -> bool:
    """Whether a command that is not read names a program that a rule forbids, in any position."""
    if rule.pattern is None:
        return True
    base_name = programs.base_name
    name = base_name(rule.words[0])
    # Quotes and backslashes inside a name do not hide it from a shell, either.
    bare = re.sub(r"[\"'\\]", "", text)
    return any(
        matches_word(name, base_name(word)) for word in re.split(r"[^A-Za-z0-9_.+/@%:-]+", bare)
    )


class NamedTools(msgspec.Struct, frozen=True, kw_only=True):
    """Where tools are named in what a query runs under."""

    rules: tuple[Rule, ...] = ()
    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()


def names_without_tool(named: NamedTools, offered: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each name that fits no offered tool, with a message that says where it stands."""
    tools = frozenset(offered)
    for rule in named.rules:
        if not _fits(rule, tools):
            where = f"the {rule.action} rule {rule.text!r}"
            yield rule.tool, f"{where}: {_no_tool(rule.tool, 'it has no effect', tools)}"
    for name in named.denied:
        if name not in tools | _SHIPPED:
            yield name, f"denied_tools: {_no_tool(name, 'no tool is denied by it', tools)}"
    for name in named.allowed:
        if name not in tools:
            yield name, f"allowed_tools: {_no_tool(name, 'no tool is allowed by it', tools)}"


def _fits(rule: Rule, tools: frozenset[str]) -> bool:
    return any(matches_word(rule.tool, tool) for tool in tools | _SHIPPED)


def _no_tool(name: str, effect: str, tools: frozenset[str]) -> str:
    meant = meant_name(name, sorted((tools | _SHIPPED) - {name}))
    return f"there is no tool {name!r} now, so {effect}{meant or '.'}"
