"""Rules and modes decide: a denial wins, and what is not understood is asked about."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from haptera.kernel.blocks.permission_rules.decisions import (
    CallSite,
    PermissionQuestion,
    PermissionRules,
    find_grant,
)
from haptera.kernel.blocks.permission_rules.rules import parse_rule
from haptera.model.approvals import ApprovalScope, Grant, RuleAction
from haptera.model.canonical import approval_key
from haptera.model.errors import ConfigError
from haptera.model.ids import QueryId, SessionId
from haptera.model.settings import PermissionMode
from haptera.model.tools import Effect
from haptera.tools import coding_tools
from tests.kernel.blocks.permissions.bypasses import FAMILIES
from tests.tools.toolbox import Toolbox


def rules(*texts: str, mode: PermissionMode = "default") -> PermissionRules:
    """Read rules written as `action tool(pattern)`."""
    split: list[tuple[Any, str]] = [
        (text.split(" ", 1)[0], text.split(" ", 1)[1]) for text in texts
    ]
    return PermissionRules([parse_rule(text, action) for action, text in split], mode=mode)


def ask(tool: str, **arguments: Any) -> PermissionQuestion:
    reads = tool in {"read", "list", "glob", "grep"}
    effect: Effect = "read" if reads else "write" if tool in {"write", "edit"} else "external"
    return PermissionQuestion(
        tool=tool, arguments=arguments, approval="never" if reads else "ask", effect=effect
    )


def shell(command: Any) -> PermissionQuestion:
    return ask("shell", command=command)


@pytest.mark.parametrize(
    ("mode", "read", "edit", "run"),
    [
        ("default", "allow", "ask", "ask"),
        ("accept_edits", "allow", "allow", "ask"),
        ("plan", "allow", "deny", "deny"),
        ("dont_ask", "allow", "deny", "deny"),
    ],
)
def test_a_mode_decides_what_no_rule_speaks_of(
    mode: PermissionMode, read: RuleAction, edit: RuleAction, run: RuleAction
) -> None:
    none = rules(mode=mode)
    assert none.decide(ask("read", path="a")).action == read
    for tool in ("edit", "write"):
        question = replace(ask(tool, path="a"), resolved_paths=("a",))
        assert none.decide(question).action == edit
    assert none.decide(shell("ls")).action == run
    assert none.decide(ask("pay", amount=1)).action == run


def test_an_edit_is_accepted_only_where_it_is_known_which_file_it_changes() -> None:
    assert rules(mode="accept_edits").decide(ask("write", path="a")).action == "ask"


@pytest.mark.parametrize("mode", ["default", "accept_edits", "dont_ask"])
def test_a_rule_decides_before_the_mode(mode: PermissionMode) -> None:
    some = rules("allow shell(ls *)", "deny edit(secrets/**)", "allow edit(docs/**)", mode=mode)
    assert some.decide(shell("ls -l")).action == "allow"
    assert some.decide(ask("write", path="docs/a.md")).action == "allow"
    assert some.decide(ask("write", path="secrets/a")).action == "deny"


def test_in_the_mode_plan_no_rule_allows_what_changes_something() -> None:
    some = rules("allow shell", "allow edit", "deny read(.env)", mode="plan")
    assert some.decide(shell("ls")).action == "deny"
    assert some.decide(ask("edit", path="a")).action == "deny"
    assert some.decide(ask("read", path=".env")).action == "deny"
    assert some.decide(ask("read", path="a")).action == "allow"


def test_without_a_person_to_ask_what_would_be_asked_is_denied() -> None:
    question = PermissionQuestion(
        tool="shell", arguments={"command": "ls"}, approval="ask", is_attended=False
    )
    ruling = rules().decide(question)
    assert ruling.action == "deny"
    assert "no person can be asked" in ruling.reason


def test_a_denial_wins_over_a_question_and_that_over_an_allowance() -> None:
    some = rules("allow shell(git *)", "ask shell(git push *)", "deny shell(git push --force *)")
    assert some.decide(shell("git status")).action == "allow"
    assert some.decide(shell("git push")).action == "ask"
    ruling = some.decide(shell("git push --force origin"))
    assert (ruling.action, ruling.rule) == ("deny", "shell(git push --force *)")
    assert some.decide(shell("git push origin --force")).action == "deny"
    assert some.decide(shell("git --no-pager push")).action == "ask"


@pytest.mark.parametrize(
    ("command", "action"),
    [
        ("git status", "allow"),
        ("git status -s", "ask"),
        ("git log", "allow"),
        ("git log -5 --oneline", "allow"),
        ("git logs", "ask"),
        ("npm run test:unit", "allow"),
        ("npm run build", "ask"),
        ("git status && git log", "allow"),
        ("git status && rm -r x", "ask"),
        ("git status | cat", "ask"),
        ("timeout 5 git status", "allow"),
        ("timeout 5 rm x", "ask"),
        ("env A=1 git status", "ask"),
        ("/usr/bin/git status", "ask"),
        ("./git status", "ask"),
        ("sh -c 'git status; git log'", "allow"),
        ("sh -c 'git status; rm x'", "ask"),
        ("git -c alias.log='!rm x' log", "ask"),
        ("git log $(rm x)", "ask"),
        ("git log > x", "ask"),
        (["git", "log", "$(rm x)"], "allow"),
        (["git", "status"], "allow"),
        (["rm", "git", "status"], "ask"),
        ([], "ask"),
        ([1], "ask"),
        (None, "ask"),
        (7, "ask"),
    ],
)
def test_every_simple_command_must_be_allowed(command: Any, action: RuleAction) -> None:
    some = rules("allow shell(git status)", "allow shell(git log *)", "allow shell(npm run test:*)")
    assert some.decide(shell(command)).action == action


@pytest.mark.parametrize(
    ("command", "action"),
    [
        ("ls -la", "allow"),
        ("cat a | grep b", "allow"),
        ("rm x", "deny"),
        ("/bin/rm x", "deny"),
        ("timeout 5 rm x", "deny"),
        ("sudo rm x", "deny"),
        ("ls; sh -c 'rm x'", "deny"),
        ("rm $x", "deny"),
        ("ls $(rm x)", "deny"),
        ("ls $x", "ask"),
        ("./script", "ask"),
        ("python3 x.py", "ask"),
        ("npm test", "ask"),
        ("ls; " * 60, "ask"),
        ("rm x; " * 60, "deny"),
        ("x" * 20_000, "ask"),
    ],
)
def test_beside_a_denial_everything_means_only_what_runs_nothing_else(
    command: str, action: RuleAction
) -> None:
    some = rules("allow shell", "deny shell(rm *)")
    assert some.decide(shell(command)).action == action


def test_everything_is_everything_where_nothing_is_denied() -> None:
    some = rules("allow shell")
    for command in ("ls $x", "python3 -c 'x'", "for a in b; do c; done"):
        assert some.decide(shell(command)).action == "allow"
    assert rules("allow shell", "ask shell(rm *)").decide(shell("ls $x")).action == "ask"


def test_a_pattern_for_a_mistyped_tool_is_told_which_one_may_be_meant() -> None:
    with pytest.raises(ConfigError, match="'shel' is argument=value; did you mean 'shell'"):
        parse_rule("shel(git status*)", "allow")


def test_a_literal_rule_covers_what_a_wildcard_does_not() -> None:
    some = rules("allow shell(sudo systemctl restart web)", "deny shell(rm *)")
    assert some.decide(shell("sudo systemctl restart web")).action == "allow"
    assert some.decide(shell("sudo systemctl restart other")).action == "ask"
    assert rules("allow shell(sudo *)").decide(shell("sudo ls")).action == "ask"


def test_a_rule_allows_nothing_unconfined_without_asking() -> None:
    question = PermissionQuestion(
        tool="shell", arguments={"command": "ls"}, approval="ask", is_confined=False
    )
    ruling = rules("allow shell(ls)").decide(question)
    assert ruling.action == "ask"
    assert "no sandbox" in ruling.reason


def test_rules_for_reading_hold_for_every_tool_that_reads() -> None:
    some = rules("deny read(secrets/**)", "deny edit(vendor)")
    for tool in ("read", "list", "glob", "grep"):
        assert some.decide(ask(tool, path="secrets/a")).action == "deny"
        assert some.decide(ask(tool, path="src/../secrets/a")).action == "deny"
    assert some.decide(ask("write", path="vendor/x/y")).action == "deny"
    assert some.decide(ask("read", path="vendor/x")).action == "allow"
    assert some.decide(ask("grep", pattern="x")).action == "allow"


def test_a_link_does_not_lead_around_a_rule() -> None:
    some = rules("deny read(secrets/**)", "allow edit(docs/**)")
    alias = PermissionQuestion(
        tool="read", arguments={"path": "alias/a"}, effect="read", resolved_paths=("secrets/a",)
    )
    assert some.decide(alias).action == "deny"
    astray = PermissionQuestion(
        tool="write",
        arguments={"path": "docs/a"},
        approval="ask",
        effect="write",
        resolved_paths=("src/a",),
    )
    assert some.decide(astray).action == "ask"


LETTERS = "abcdefghij"


@pytest.mark.parametrize("action", ["deny", "ask", "allow"])
@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        (
            "secrets/{" + ",".join(LETTERS) + "}/{" + ",".join(LETTERS) + "}",
            [f"secrets/{one}/{two}" for one in LETTERS for two in LETTERS],
            ["secrets/a/k", "secrets/k/a", "secrets/a"],
        ),
        ("{" + ",".join(f"n{n}" for n in range(200)) + "}", ["n0", "n199", "x/n7"], ["n200"]),
        ("x/{a,b}/{c}", ["x/a/{c}", "x/b/{c}"], ["x/a/c", "x/{a,b}/{c}"]),
        ("x/{a,b}{", ["x/a{", "x/b{"], ["x/a", "x/{a,b}{"]),
        ("x/{a,{b}}", ["x/a", "x/{b}"], ["x/b"]),
        ("x/{a,b{c,d/e}f}", ["x/a", "x/bcf", "x/bd/ef"], ["x/b", "x/bf"]),
        ("x/{{a,b}", ["x/{a", "x/{b"], ["x/a"]),
        ("x/{a,b}}", ["x/a}", "x/b}"], ["x/a"]),
    ],
)
def test_a_rule_with_braces_covers_exactly_what_it_says(
    action: str, pattern: str, fitting: list[str], others: list[str]
) -> None:
    some = rules(f"{action} edit({pattern})", mode="default" if action != "ask" else "accept_edits")

    def decided(path: str) -> str:
        question = replace(ask("edit", path=path), resolved_paths=(path,))
        return some.decide(question).action

    default = "allow" if action == "ask" else "ask"
    assert {path: decided(path) for path in fitting} == dict.fromkeys(fitting, action)
    assert {path: decided(path) for path in others} == dict.fromkeys(others, default)


Written = tuple[str, list[str]]
"""A pattern with braces, and the patterns that it stands for."""


def in_a_row(parts: list[Written]) -> Written:
    words = product(*(words for _, words in parts))
    return "".join(text for text, _ in parts), ["".join(word) for word in words]


def either_of(parts: list[Written]) -> Written:
    text = "{" + ",".join(text for text, _ in parts) + "}"
    return text, [word for _, words in parts for word in words]


BRACES: st.SearchStrategy[Written] = st.recursive(
    st.sampled_from(["a", "b", "a/b", "{a}", "*"]).map(lambda text: (text, [text])),
    lambda inner: st.lists(inner, min_size=2, max_size=3).flatmap(
        lambda parts: st.sampled_from([in_a_row(parts), either_of(parts)])
    ),
    max_leaves=6,
)


@given(BRACES, st.sampled_from(["", "{", "}", "x/"]), st.sampled_from(["", "{", "/{b}"]), st.data())
def test_braces_mean_what_one_rule_for_each_alternative_means(
    written: Written, before: str, after: str, data: st.DataObject
) -> None:
    text, words = in_a_row([(before, [before]), written, (after, [after])])
    together = rules(f"deny edit({text})")
    one_by_one = rules(*(f"deny edit({word})" for word in words))
    for path in (data.draw(st.sampled_from(words)), data.draw(st.text("ab{}/", min_size=1))):
        question = ask("edit", path=path)
        assert together.decide(question).action == one_by_one.decide(question).action


@pytest.mark.parametrize("path", ["/abs/secrets/a", "../x", 7, "a\0b"])
def test_a_path_that_may_lead_anywhere_is_asked_about(path: Any) -> None:
    assert rules("deny read(secrets/**)").decide(ask("read", path=path)).action == "ask"
    for everything in ("read", "read(*)", "read({a,*})", "read({a,{b,**}})", "*(path={a,*})"):
        ruling = rules(f"deny {everything}").decide(ask("read", path=path))
        assert ruling.action == "deny"


async def test_a_denial_is_kept_at_the_descriptor_as_well(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/key").write_text("hidden word\n")
    (tmp_path / "alias").symlink_to("secrets")
    some = rules("deny read(secrets/**)")
    tools = Toolbox(coding_tools(tmp_path, guard=some.refuses_path))
    assert "rule read(secrets/**)" in await tools.call("read", path="alias/key")
    assert await tools.call("grep", pattern="hidden") == "[no line fits]"
    assert await tools.call("glob", pattern="*") == "alias"


@pytest.mark.parametrize(
    ("url", "action"),
    [
        ("https://docs.python.org/3/", "allow"),
        ("https://DOCS.python.org./", "allow"),
        ("https://a.example.com:8443/x", "allow"),
        ("https://example.com/", "ask"),
        ("https://docs.python.org.evil.com/", "ask"),
        ("https://evil.com/docs.python.org", "ask"),
        ("https://docs.python.org@evil.com/", "ask"),
        ("https://evildocs.python.org/", "ask"),
        ("https://bad.example.com/", "deny"),
        ("ftp://docs.python.org/", "ask"),
        ("https://docs.python.org\\@evil.com", "ask"),
        (7, "ask"),
    ],
)
def test_hosts_are_compared_label_by_label(url: Any, action: RuleAction) -> None:
    some = rules(
        "allow web_fetch(docs.python.org)",
        "allow web_fetch(*.example.com)",
        "deny web_fetch(bad.example.com)",
    )
    assert some.decide(ask("web_fetch", url=url)).action == action


def test_rules_of_other_tools_look_at_an_argument() -> None:
    some = rules("allow pay(to=Ana*)", "deny pay(amount=1000*)", "deny mcp_*")
    assert some.decide(ask("pay", to="Ana B", amount=5)).action == "allow"
    assert some.decide(ask("pay", to="Bob", amount=5)).action == "ask"
    assert some.decide(ask("pay", to="Ana", amount=100000)).action == "deny"
    assert some.decide(ask("pay", amount=5)).action == "ask"
    assert some.decide(ask("mcp_files")).action == "deny"


@pytest.mark.parametrize(
    "text",
    [
        "", "shell(", "shell)", "a b", "shell(git; rm)", "shell(git $x)", "shell(git > x)",
        "shell()", "web_fetch(http://x/)", "web_fetch(a b)", "pay(Ana)", "x" * 2000, "shell(\\rm)",
        "shell(if a)x", "read(a)b", "read()", "read({,a})", "edit({a,{,b}})",
    ],
)  # fmt: skip
def test_a_rule_that_cannot_be_understood_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="permission rule"):
        parse_rule(text, "deny")


def test_a_rule_whose_braces_stand_for_too_much_is_named() -> None:
    text = "read(" + "{a,b}" * 10 + ")"
    with pytest.raises(ConfigError, match="more than 512 patterns") as caught:
        parse_rule(text, "deny")
    assert text in str(caught.value)


def test_there_are_not_any_number_of_rules() -> None:
    rule = parse_rule("shell(ls)", "allow")
    with pytest.raises(ConfigError, match="more than 1000"):
        PermissionRules([rule] * 1001)


def test_a_ruling_says_why_and_by_which_rule() -> None:
    some = PermissionRules([parse_rule("shell(ls *)", "allow", source="project")])
    ruling = some.decide(shell("ls"))
    assert (ruling.rule, ruling.source) == ("shell(ls *)", "project")
    assert some.decide(shell("rm x")).reason == "no rule covers 'rm' with these arguments"
    assert some.decide(shell("x $y")).reason.startswith("the command is not understood")


def test_the_rules_in_force_can_be_written_down() -> None:
    some = rules("allow shell(ls *)", "deny read", mode="accept_edits")
    assert some.as_recorded() == {
        "mode": "accept_edits",
        "rules": [
            {"rule": "shell(ls *)", "action": "allow", "source": "user"},
            {"rule": "read", "action": "deny", "source": "user"},
        ],
    }


WORDS = st.lists(
    st.sampled_from(["git", "rm", "ls", "push", "-f", "timeout", "5", "env", "sh", "-c", "'rm x'"]),
    min_size=1,
    max_size=5,
).map(" ".join)
COMMANDS = st.lists(WORDS, min_size=1, max_size=3).map(" ; ".join)


@given(COMMANDS, st.lists(st.sampled_from(["git *", "ls *", "timeout *", "sh *", "env *", "*"])))
def test_more_denials_never_allow_more(command: str, allowed: list[str]) -> None:
    order = ["allow", "ask", "deny"]
    texts = [f"allow shell({pattern})" for pattern in allowed]
    fewer = rules(*texts).decide(shell(command)).action
    more = rules(*texts, "deny shell(rm *)").decide(shell(command)).action
    assert order.index(more) >= order.index(fewer)


WRAPPERS = st.lists(
    st.sampled_from(
        [
            "timeout 5",
            "env",
            "env A=1",
            "nice",
            "nice -5",
            "sudo",
            "xargs",
            "nohup",
            "command",
            "exec",
        ]
    ),
    max_size=6,
)


@given(WRAPPERS, COMMANDS, st.sampled_from([" ; ", " && ", " | ", "\n", " & "]))
def test_a_denied_program_is_denied_in_any_position(
    wrappers: list[str], other: str, between: str
) -> None:
    some = rules("allow shell", "deny shell(rm *)")
    wrapped = " ".join([*wrappers, "rm x"])
    for command in (wrapped, f"{other}{between}{wrapped}", f"{wrapped}{between}{other}"):
        assert some.decide(shell(command)).action == "deny"


@pytest.mark.parametrize("action", ["deny", "ask"])
@pytest.mark.parametrize(
    ("rule", "question"),
    [
        ("*(path=x)", ask("read", path="x")),
        ("*(path=x)", ask("write", path="a/../x", content="")),
        ("r*(path=secrets/**)", ask("grep", pattern="a", path="./secrets/a")),
        ("*(path={a,b})", ask("edit", path="b")),
        ("*(content=*password*)", ask("write", path="x", content="a password")),
        ("web*(url=*evil*)", ask("web_fetch", url="https://evil.com/")),
        ("web*(url=*.Evil.*)", ask("web_fetch", url="https://www.EVIL.com/")),
        ("web*(url=https://a.org/x*)", ask("web_fetch", url="https://a.org/xy")),
        ("*(command=rm)", shell("rm")),
        ("*(command=rm *)", shell("ls; sudo rm -r x")),
        ("?hell(command=rm *)", shell(["/bin/rm", "x"])),
        ("*(command=*)", shell("ls $x")),
        ("*(timeout=9*)", ask("shell", command="ls", timeout=99)),
    ],
)
def test_a_pattern_behind_a_wildcard_name_holds_for_tools_with_patterns_of_their_own(
    action: RuleAction, rule: str, question: PermissionQuestion
) -> None:
    for others in ([], ["allow read", "allow edit", "allow shell", "allow web_fetch"]):
        ruling = rules(f"{action} {rule}", *others).decide(question)
        assert (ruling.action, ruling.rule) == (action, rule)


@pytest.mark.parametrize(
    "question",
    [
        ask("read", path="/abs"),
        ask("write", path="y"),
        shell("for a in b; do c; done"),
        ask("web_fetch", url="ftp://x"),
    ],
)
def test_a_pattern_about_an_argument_that_a_call_does_not_have_says_nothing_of_it(
    question: PermissionQuestion,
) -> None:
    default = rules().decide(question)
    for action in ("deny", "ask", "allow"):
        assert rules(f"{action} *(to=x)").decide(question) == default


def test_a_pattern_behind_a_wildcard_name_allows_only_what_one_behind_the_name_would() -> None:
    some = rules("allow *(path=docs/**)", "allow *(command=git *)", "allow *(url=*python.org)")
    assert some.decide(ask("write", path="docs/a")).action == "allow"
    assert some.decide(shell("git log")).action == "allow"
    assert some.decide(shell("git log; rm x")).action == "ask"
    assert some.decide(ask("write", path="docs/../a")).action == "ask"
    assert some.decide(ask("web_fetch", url="https://notpython.org/")).action == "ask"
    content = rules("allow *(content=*)")
    assert content.decide(ask("write", path="x", content="y")).action == "ask"
    assert content.decide(ask("note", content="y")).action == "allow"


@pytest.mark.parametrize("text", ["*(path={,a})", "w*(path=)", "*(command=a; b)", "s*(command=)"])
def test_a_value_that_a_tool_of_that_name_cannot_compare_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="permission rule"):
        parse_rule(text, "deny")
    # No tool that comes with Haptera has this name, and others compare plain texts.
    assert parse_rule(f"my_{text}", "deny").text == f"my_{text}"


async def test_a_file_that_a_wildcard_name_denies_is_left_out_of_searches(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/key").write_text("hidden word\n")
    (tmp_path / "alias").symlink_to("secrets")
    some = rules("deny *(path=secrets/**)", "ask *(path=private)")
    tools = Toolbox(coding_tools(tmp_path, guard=some.refuses_path))
    assert "rule *(path=secrets/**)" in await tools.call("read", path="alias/key")
    assert await tools.call("grep", pattern="hidden") == "[no line fits]"
    hidden = some.hidden_paths("grep", ".")
    assert (hidden.denied, hidden.asked) == (("secrets/**",), ("private",))


NAMES = st.sampled_from(["a", "b", "..", ".", "a*", "*", "**", "?", "{a,b}", "a.env"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
HOSTS = st.sampled_from(["a.org", "*.a.org", "b.a.org", "*", "A.org"])
COMPARED: dict[str, tuple[str, st.SearchStrategy[str], st.SearchStrategy[Any]]] = {
    "path": (
        "read list glob grep write edit",
        PATHS,
        st.one_of(PATHS, PATHS.map("/{}".format), st.none(), st.just(7)),
    ),
    "command": (
        "shell",
        st.sampled_from(["rm *", "git *", "git push", "timeout *", "*", "* x", "rm"]),
        st.one_of(COMMANDS, COMMANDS.map(str.split), COMMANDS.map("{} $x".format), st.just([])),
    ),
    "url": ("web_fetch", HOSTS, st.one_of(HOSTS.map("https://{}/x".format), st.just("ftp:x"))),
}
"""What tools compare, by the argument's name: the tools, patterns, and values of arguments."""
SOME_RULES = st.lists(
    st.sampled_from(["allow *", "allow shell", "deny shell(rm *)", "ask edit(a)", "allow read(a)"]),
    max_size=2,
)


@st.composite
def wildcard_names(draw: st.DrawFn, tool: str) -> str:
    """Put a wildcard into a tool's name."""
    start = draw(st.integers(0, len(tool) - 1))
    end = draw(st.integers(start + 1, len(tool)))
    return tool[:start] + ("?" * (end - start) if draw(st.booleans()) else "*") + tool[end:]


@given(st.sampled_from(sorted(COMPARED)), st.sampled_from(["deny", "ask", "allow"]), st.data())
def test_a_wildcard_name_forbids_at_least_and_allows_at_most_what_the_name_does(
    argument: str, action: str, data: st.DataObject
) -> None:
    tools, patterns, values = COMPARED[argument]
    tool = data.draw(st.sampled_from(tools.split()))
    name = data.draw(wildcard_names(tool))
    pattern, value, others = data.draw(st.tuples(patterns, values, SOME_RULES))
    try:
        exact = rules(f"{action} {tool}({pattern})", *others)
    except ConfigError:
        return
    broad = rules(f"{action} {name}({argument}={pattern})", *others)
    question = ask(tool, **({} if value is None else {argument: value}))
    order = ["allow", "ask", "deny"]
    for asked in (question, replace(question, resolved_paths=("a",))):
        mild, strong = exact.decide(asked).action, broad.decide(asked).action
        assert order.index(strong) >= order.index(mild)


PLACE = CallSite(query_id=QueryId("q1"), session_id=SessionId("s1"), folder="/work")


@pytest.mark.parametrize(
    ("scope", "query", "session", "folder"),
    [
        ("query", True, False, False),
        ("session", True, True, False),
        ("project", True, True, True),
        ("once", False, False, False),
    ],
)
def test_a_grant_holds_as_far_as_its_scope(
    scope: ApprovalScope, query: bool, session: bool, folder: bool
) -> None:
    key = approval_key("shell", {"command": "make"}, "/work", tool_digest="t")
    grants = [
        Grant(
            key=key,
            scope=scope,
            query_id=QueryId("q1"),
            session_id=SessionId("s1"),
            folder="/work",
            by="ana",
        )
    ]
    elsewhere = CallSite(query_id=QueryId("q2"), session_id=SessionId("s1"), folder="/work")
    other = CallSite(query_id=QueryId("q3"), session_id=SessionId("s2"), folder="/work")
    assert (find_grant(grants, key, PLACE) is not None) is query
    assert (find_grant(grants, key, elsewhere) is not None) is session
    assert (find_grant(grants, key, other) is not None) is folder


def test_a_grant_is_for_exactly_what_was_approved() -> None:
    keys = {
        approval_key("shell", {"command": "make"}, "/work", tool_digest="t"),
        approval_key("shell", {"command": "make "}, "/work", tool_digest="t"),
        approval_key("shell", {"command": "make"}, "/home", tool_digest="t"),
        approval_key("other", {"command": "make"}, "/work", tool_digest="t"),
        approval_key("shell", {"command": "make"}, "/work", tool_digest="u"),
        approval_key("shell", {"command": "make"}, "/work", tool_digest="t", is_confined=False),
    }
    assert len(keys) == 6
    one = approval_key("shell", {"a": 1, "b": 2}, "/work", tool_digest="t")
    assert approval_key("shell", {"b": 2, "a": 1}, "/work", tool_digest="t") == one


NEVER_HEARD_OF = ("launchpad", "x-run", "with-secrets")
"""Programs that are in no table."""
HIDING = (
    "{name} evil x", "{name} -- evil x", "{name} run --quiet /usr/bin/evil x", "{name} 'evil x'",
    "{name} -c 'ev\"\"il x'", "{name} sh -c x", "{name} exec python3 script.py", "{name} xargs x",
    "{name} -c '$x y'", "{name} -c 'a; b'",
)  # fmt: skip


@pytest.mark.parametrize("command", HIDING)
@pytest.mark.parametrize("name", NEVER_HEARD_OF)
def test_an_unknown_program_that_may_run_a_denied_one_is_asked_about(
    name: str, command: str
) -> None:
    allowed = f"allow shell({name} *)"
    asked = rules(allowed, "deny shell(evil *)").decide(shell(command.format(name=name)))
    assert asked.action in {"ask", "deny"}
    # Without a prohibition there is nothing to hide, and without such words nothing hides.
    assert rules(allowed).decide(shell(command.format(name=name))).action == "allow"
    plain = rules(allowed, "deny shell(evil *)").decide(shell(f"{name} build --fast 'a b'"))
    assert plain.action == "allow"


RUNNERS = {
    command.split()[0]: command
    for command in FAMILIES["programs that few know"]
    if command.split()[0] != "npm"
}


@pytest.mark.parametrize("name", RUNNERS)
def test_an_allowed_runner_does_not_run_what_is_denied(name: str) -> None:
    allowed = rules(f"allow shell({name} *)", "deny shell(evil *)")
    assert allowed.decide(shell(RUNNERS[name])).action != "allow"


WRITING = (
    "git diff --output=.env", "git diff --output .env", "git log --outp=.env", "sort -o .env name",
    "sort -uo.env name", "sort --outpu=.env name", "shuf -o .env name", "tree -o .env",
    "uniq name .env", "xxd name .env", "curl -so .env https://a.example",
    "git format-patch -o .env HEAD",
)  # fmt: skip


@pytest.mark.parametrize("command", WRITING)
def test_an_option_that_writes_a_file_is_no_part_of_a_wildcard(command: str) -> None:
    name = command.split(maxsplit=1)[0]
    asked = rules(f"allow shell({name} *)").decide(shell(command))
    assert (asked.action, asked.reason) == ("ask", f"{name!r} writes a file with these options")
    denied = rules(f"allow shell({name} *)", "deny edit(.env)").decide(shell(command))
    assert (denied.action, denied.rule) == ("deny", "edit(.env)")
    # A literal rule was written with the option in it; the rule for the file still wins.
    literal = f"allow shell({command})"
    assert rules(literal).decide(shell(command)).action == "allow"
    assert rules(literal, "deny edit(.env)").decide(shell(command)).action == "deny"
    assert rules("allow shell", "deny edit(.env)").decide(shell(command)).action == "deny"


@pytest.mark.parametrize(
    "command", ["cd docs; sort -o page name", "sort -o /srv/page name", "sort -o ../page name"]
)
def test_a_written_file_that_cannot_be_compared_is_asked_about(command: str) -> None:
    decided = rules("allow shell", "deny edit(docs/**)").decide(shell(command))
    assert (decided.action, decided.reason) == (
        "ask",
        "it is not known which file the command writes",
    )


@pytest.mark.parametrize(
    "command",
    ["git status --porcelain", "git log --oneline -5", "git diff --stat HEAD~1", "sort -rn name",
     "make test", "pytest -xvs -k nothing", "curl -sL https://a.example", "npm test"],
)  # fmt: skip
def test_ordinary_options_stay_allowed_beside_a_prohibition(command: str) -> None:
    name = command.split(maxsplit=1)[0]
    decided = rules(f"allow shell({name} *)", "deny shell(evil *)").decide(shell(command))
    assert decided.action == "allow"
