"""PermissionRules: decides whether a tool call runs, is asked about, or is refused."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import msgspec

from haptera.kernel.blocks.permission_rules.rules import (
    EDITS_FILES,
    SUBJECTS,
    Rule,
    allows_command,
    fits_arguments,
    fits_host,
    fits_path,
    forbids_command,
    mentions_forbidden,
    rules_of,
)
from haptera.model.approvals import Grant, RuleAction, Ruling
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.ids import QueryId, SessionId
from haptera.model.json_types import Json, JsonObject
from haptera.model.late_names import on_first_use
from haptera.model.settings import PermissionMode
from haptera.model.tools import ApprovalMode, Effect
from haptera.ports.permissions import HiddenPaths

if TYPE_CHECKING:
    from haptera.kernel.blocks.permission_rules import programs, shell_words
    from haptera.kernel.blocks.permission_rules.programs import Invocation
    from haptera.kernel.blocks.permission_rules.shell_words import Unreadable, Words
else:  # only a session with a shell reads commands
    programs = on_first_use("haptera.kernel.blocks.permission_rules.programs")
    shell_words = on_first_use("haptera.kernel.blocks.permission_rules.shell_words")

_MOST_RULES = 1000
_HOST = r"(?is)https?://([a-z0-9_.-]+)(?::\d{1,5})?(?:[/?#].*)?"


class PermissionQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call, as far as a decision needs it."""

    tool: str
    arguments: JsonObject
    approval: ApprovalMode = "never"
    effect: Effect = "external"
    resolved_paths: tuple[str, ...] = ()
    """Where the path in the arguments really leads, beneath the root, links followed."""
    is_confined: bool = True
    """Whether a sandbox that is enough is around the command that would run."""
    is_attended: bool = True
    """Whether a person can be asked."""


class _Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules say of one call."""

    denied: Rule | None = None
    asked: Rule | None = None
    allowed: Rule | None = None
    doubt: str | None = None
    """Why it is not known what would run."""


class PermissionRules:
    """Holds the rules in force. Made once, keeps nothing of a call, touches nothing.

    Owns what rules mean. Does not own who is asked and what was answered (the approval
    coordinator), nor what a tool can reach (the sandbox and the descriptors): rules catch
    mistakes, they do not hold an attacker.
    """

    def __init__(self, rules: Iterable[Rule] = (), *, mode: PermissionMode = "default") -> None:
        self.rules = tuple(rules)
        self.mode: PermissionMode = "default" if mode == "ask" else mode
        if len(self.rules) > _MOST_RULES:
            message = f"there are more than {_MOST_RULES} permission rules"
            raise ConfigError(ErrorCode.CONFIG_INVALID, message)

    @property
    def denying(self) -> tuple[Rule, ...]:
        """The rules that deny."""
        return tuple(rule for rule in self.rules if rule.action == "deny")

    def in_mode(self, mode: PermissionMode) -> "PermissionRules":
        """Return the same rules in another mode."""
        return self if mode == self.mode else PermissionRules(self.rules, mode=mode)

    def decide(self, question: PermissionQuestion) -> Ruling:
        """Decide about one call. A denial wins; what is not understood is asked about."""
        return self.settle(self.judge(question), is_attended=question.is_attended)

    def judge(self, question: PermissionQuestion) -> Ruling:
        """Say what the rules say of a call, whether or not a person can be asked."""
        return self._judge(question, self._find(question))

    def settle(self, ruling: Ruling, *, is_attended: bool = True) -> Ruling:
        """Deny what would be asked where asking is not possible, or not wanted."""
        if ruling.action != "ask":
            return ruling
        if self.mode == "dont_ask":
            return _instead(ruling, "the mode is dont_ask")
        return ruling if is_attended else _instead(ruling, "no person can be asked")

    def refuses_path(self, access: Literal["read", "write"], path: str) -> str | None:
        """Say why a file may not be touched, by its real path; for tools, at the descriptor."""
        tool = "read" if access == "read" else "edit"
        rules = [rule for rule in rules_of(self.rules, tool) if rule.action == "deny"]
        return next((f"rule {rule.text}" for rule in rules if fits_path(rule, path)), None)

    def hidden_paths(self, tool: str, path: str) -> HiddenPaths:
        """Return what a tool leaves out that looks through a folder, by the folder's real path.

        A rule that asks and fits the folder itself hides nothing: such a call runs only when it was
        approved. Approving a folder above does not count, for the person was not asked about these
        files.
        """
        rules = [rule for rule in rules_of(self.rules, tool) if rule.pattern is not None]
        return HiddenPaths(
            denied=_patterns(rule for rule in rules if rule.action == "deny"),
            asked=_patterns(
                rule for rule in rules if rule.action == "ask" and not fits_path(rule, path)
            ),
        )

    def as_recorded(self) -> JsonObject:
        """Return mode and rules as plain values, for the log of a query."""
        listed = [
            {"rule": rule.text, "action": rule.action, "source": rule.source} for rule in self.rules
        ]
        return {"mode": self.mode, "rules": listed}

    def _judge(self, question: PermissionQuestion, found: _Finding) -> Ruling:
        if found.denied is not None:
            return _by(found.denied, "deny", "a rule denies it")
        if self.mode == "plan" and question.effect != "read":
            return Ruling(
                action="deny", reason="the mode is plan: nothing is changed or run", source="mode"
            )
        # A question and a doubt win over an allowance.
        if found.asked is not None:
            return _by(found.asked, "ask", "a rule asks")
        if found.doubt is not None:
            return Ruling(action="ask", reason=found.doubt)
        return (
            self._by_default(question)
            if found.allowed is None
            else _allowed(question, found.allowed)
        )

    def _by_default(self, question: PermissionQuestion) -> Ruling:
        if question.approval == "never":
            return Ruling(action="allow", reason="the tool does not ask", source="tool")
        is_edit = question.tool in EDITS_FILES and bool(question.resolved_paths)
        if self.mode == "accept_edits" and is_edit:
            return Ruling(action="allow", reason="the mode is accept_edits", source="mode")
        return Ruling(action="ask", reason="the tool asks", source="tool")

    def _find(self, question: PermissionQuestion) -> _Finding:
        rules = [rule for rule in self.rules if rule.is_for(question.tool)]
        if question.tool not in SUBJECTS:
            return _about_arguments(rules, question.arguments)
        own = rules_of(rules, question.tool)
        found = _about_subject(own, question) if own else _Finding()
        if question.tool == "shell":
            found = self._about_written(question, found)
        # `*(path=x)` forbids what `read(x)` would, and the value as it stands in the arguments. It
        # allows no more than `read(x)` would.
        forbidding = [rule for rule in rules if rule.is_by_argument and rule.action != "allow"]
        given = _about_arguments(forbidding, question.arguments)
        return msgspec.structs.replace(
            found, denied=found.denied or given.denied, asked=found.asked or given.asked
        )

    def _about_written(self, question: PermissionQuestion, found: _Finding) -> _Finding:
        """Compare the files that options of a command name with the rules for `edit`."""
        read = _read(question.arguments.get("command"))
        rules = [rule for rule in rules_of(self.rules, "edit") if rule.action != "allow"]
        if not rules or isinstance(read, shell_words.Unreadable):
            return found
        items = [item for words in read for item in programs.invocations_of(words)]
        paths = [_normal(path) for item in items for path in programs.written_paths(item)]
        if not paths:
            return found
        fitting = _of([rule for rule in rules for path in paths if path and fits_path(rule, path)])
        moves = any(programs.base_name(item.words[0]) in {"cd", "pushd"} for item in items)
        doubt = "it is not known which file the command writes" if moves or None in paths else None
        return msgspec.structs.replace(
            found,
            denied=found.denied or fitting.denied,
            asked=found.asked or fitting.asked,
            doubt=found.doubt or doubt,
        )


def _patterns(rules: Iterable[Rule]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rule.pattern for rule in rules if rule.pattern is not None))


def _by(rule: Rule, action: RuleAction, reason: str) -> Ruling:
    return Ruling(action=action, reason=reason, rule=rule.text, source=rule.source)


def _allowed(question: PermissionQuestion, rule: Rule) -> Ruling:
    # Without a full sandbox the same command can reach more than the rule was written for.
    if question.tool == "shell" and not question.is_confined:
        return _by(rule, "ask", "a rule allows it, but there is no sandbox that is enough")
    return _by(rule, "allow", "a rule allows it")


def _instead(ruling: Ruling, reason: str) -> Ruling:
    return msgspec.structs.replace(ruling, action="deny", reason=f"{ruling.reason}, and {reason}")


def _first(rules: Iterable[Rule], action: RuleAction) -> Rule | None:
    return next((rule for rule in rules if rule.action == action), None)


def _of(fitting: list[Rule]) -> _Finding:
    return _Finding(
        denied=_first(fitting, "deny"),
        asked=_first(fitting, "ask"),
        allowed=_first(fitting, "allow"),
    )


def _about_subject(rules: list[Rule], question: PermissionQuestion) -> _Finding:
    """Compare what the tool is about: its command, its path or its URL."""
    kind, name = SUBJECTS[question.tool]
    value = question.arguments.get(name)
    if kind == "command":
        return _about_command(rules, value)
    if kind == "url":
        return _about_url(rules, value)
    # Tools that look through a folder begin at the root when they are given none.
    return _about_path(rules, question, "." if value is None else value)


def _about_arguments(rules: list[Rule], arguments: JsonObject) -> _Finding:
    return _of([rule for rule in rules if fits_arguments(rule, arguments)])


def _about_url(rules: list[Rule], url: Json) -> _Finding:
    found = re.fullmatch(_HOST, url) if isinstance(url, str) else None
    if found is None:
        return _unknown(rules, "the URL is not understood")
    host = found[1].lower().rstrip(".")
    return _of([rule for rule in rules if fits_host(rule, host)])


def _about_path(rules: list[Rule], question: PermissionQuestion, path: Json) -> _Finding:
    """Compare the path as it was given and as it really is: a link must not lead around a rule."""
    if not isinstance(path, str) or "\0" in path:
        return _unknown(rules, "the path is not understood")
    given = _normal(path)
    if given is None and not question.resolved_paths:
        return _unknown(rules, "the path may lead anywhere")
    # Forbidden by either, allowed only by both: a link may lead into, or out of, what a rule names.
    ways = [way for way in (given, *question.resolved_paths) if way is not None]
    found = _of([rule for rule in rules if any(fits_path(rule, way) for way in ways)])
    if found.denied is not None or found.asked is not None or found.allowed is None:
        return found
    everywhere = [
        rule
        for rule in rules
        if rule.action == "allow" and all(fits_path(rule, way) for way in ways)
    ]
    if not everywhere:
        return _Finding(doubt="the path leads elsewhere than it says")
    return _Finding(allowed=everywhere[0])


def _normal(path: str) -> str | None:
    """Return a path beneath the root without `.` and `..`; None if it leads out or may do so."""
    names: list[str] = []
    # Where an absolute path leads beneath the root, only the resolved path can say.
    if path.startswith("/"):
        return None
    for name in path.split("/"):
        if name == "..":
            if not names:
                return None
            names.pop()
        elif name not in {"", "."}:
            names.append(name)
    return "/".join(names) or "."


def _about_command(rules: list[Rule], command: Json) -> _Finding:
    denying = [rule for rule in rules if rule.action == "deny"]
    asking = [rule for rule in rules if rule.action == "ask"]
    allowing = [rule for rule in rules if rule.action == "allow"]
    # "Allow every command" is heard only where no rule forbids one: beside such a rule it would let
    # the forbidden program run through another (`env`, `xargs`, an interpreter).
    free = None if denying or asking else _unconditional(allowing)
    read = _read(command)
    if isinstance(read, shell_words.Unreadable):
        if free is not None:
            return _Finding(allowed=free)
        text = command if isinstance(command, str) else ""
        doubt = f"the command is not understood: {read.reason}"
        # Rules that ask are not compared: the doubt leads to a question, too.
        return _Finding(denied=_mentioned(denying, text), doubt=doubt)
    items = [item for words in read for item in programs.invocations_of(words)]
    denied = _forbidding(denying, items)
    asked = _forbidding(asking, items)
    if denied is not None or asked is not None:
        return _Finding(denied=denied, asked=asked)
    return (
        _Finding(allowed=free)
        if free is not None
        else _allowing((denying, asking, allowing), items)
    )


def _allowing(
    rules: tuple[list[Rule], list[Rule], list[Rule]], items: "list[Invocation]"
) -> _Finding:
    """Look for rules that allow every program of a command, none of which a rule forbids."""
    denying, asking, allowing = rules
    # Beside rules that forbid something, allowances are read narrowly (`allows_command`).
    strict = bool(denying or asking)
    hiding = _hiding((*denying, *asking), items)
    if hiding is not None:
        return _Finding(doubt=f"{hiding.words[0]!r} may run other programs")
    covering = [_covering(allowing, item, strict=strict) for item in items]
    if None not in covering:
        return _Finding(allowed=covering[0])
    # Where no rule allows or forbids anything, the default of the tool decides.
    is_doubtful = strict and any(item.is_doubtful for item in items)
    return _Finding(doubt=_why_not(items, covering)) if allowing or is_doubtful else _Finding()


def _read(command: Json) -> "tuple[Words, ...] | Unreadable":
    if isinstance(command, str):
        return shell_words.read_command(command)
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        return shell_words.Unreadable("it is neither text nor a list of words")
    if not command or not command[0]:
        return shell_words.Unreadable("it names no program")
    # A list is run without a shell: no word of it is an operator or is replaced.
    return (tuple(command),)


def _unconditional(allowing: list[Rule]) -> Rule | None:
    """Return a rule that allows every command; it is heard only where no rule forbids any."""
    return next((rule for rule in allowing if rule.pattern is None), None)


def _mentioned(denying: list[Rule], text: str) -> Rule | None:
    return next((rule for rule in denying if mentions_forbidden(rule, text)), None)


def _forbidding(rules: list[Rule], items: "list[Invocation]") -> Rule | None:
    """Return the rule that is about one of the programs, those that run it, or what they name."""
    for rule in rules:
        for item in items:
            if any(forbids_command(rule, words) for words in (item.words, *item.via)):
                return rule
            if item.is_doubtful and mentions_forbidden(rule, " ".join(item.words[1:])):
                return rule
    return None


def _hiding(rules: tuple[Rule, ...], items: "list[Invocation]") -> "Invocation | None":
    """Return an unknown program whose arguments name a program that a rule is about.

    It may be one that runs its arguments, or one for which the name is only a word, as in
    `brew-notes push`: so it is asked about, not refused.
    """
    unknown = (item for item in items if item.doubt == "unknown")
    return next(
        (
            item
            for item in unknown
            if any(mentions_forbidden(rule, " ".join(item.words[1:])) for rule in rules)
        ),
        None,
    )


def _covering(allowing: list[Rule], item: "Invocation", *, strict: bool) -> Rule | None:
    return next((rule for rule in allowing if allows_command(rule, item, strict=strict)), None)


def _why_not(items: "list[Invocation]", covering: list[Rule | None]) -> str:
    item = items[covering.index(None)]
    if item.doubt == "writes":
        return f"{item.words[0]!r} writes a file with these options"
    if item.doubt in {"none", "unknown"}:
        return f"no rule covers {item.words[0]!r} with these arguments"
    return f"{item.words[0]!r} may run other programs"


def _unknown(rules: list[Rule], reason: str) -> _Finding:
    """Ask about what is not understood; a rule that denies everything still denies it."""
    return _Finding(
        denied=next(
            (rule for rule in rules if rule.action == "deny" and rule.pattern is None), None
        ),
        doubt=reason,
    )


class CallSite(msgspec.Struct, frozen=True, kw_only=True):
    """Where a call is made."""

    query_id: QueryId
    session_id: SessionId
    folder: str


def find_grant(grants: Iterable[Grant], key: str, site: CallSite) -> Grant | None:
    """Return a grant that covers a call; one for `once` is used up by the call it was given to."""
    return next((grant for grant in grants if grant.key == key and _holds(grant, site)), None)


def _holds(grant: Grant, site: CallSite) -> bool:
    if grant.folder != site.folder:
        return False
    if grant.scope == "project":
        return True
    if grant.session_id not in {None, site.session_id}:
        return False
    return grant.scope == "session" or (grant.scope == "query" and grant.query_id == site.query_id)
