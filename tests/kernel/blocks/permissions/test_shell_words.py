"""A command is read as a shell reads it, or not at all."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from haptera.kernel.blocks.permission_rules import shell_words
from haptera.kernel.blocks.permission_rules.programs import invocations_of
from haptera.kernel.blocks.permission_rules.shell_words import Unreadable, Words, read_command

READ: dict[str, list[Words]] = {
    "git status": [("git", "status")],
    "git  status\t-s": [("git", "status", "-s")],
    "echo 'a b' \"c d\" e'f'g": [("echo", "a b", "c d", "efg")],
    "echo ''": [("echo", "")],
    "a; b && c || d | e & f\ng": [("a",), ("b",), ("c",), ("d",), ("e",), ("f",), ("g",)],
    "a;": [("a",)],
    "a 2>&1": [("a",)],
    "a > /dev/null 2>&1": [("a",)],
    "a 2>/dev/null": [("a",)],
    "a &>/dev/null; b": [("a",), ("b",)],
    "git log HEAD~1 HEAD^ a#b": [("git", "log", "HEAD~1", "HEAD^", "a#b")],
    "echo 'multi\nline $x `y`'": [("echo", "multi\nline $x `y`")],
    "npm run test:unit --a=b,c @x %y +z": [
        ("npm", "run", "test:unit", "--a=b,c", "@x", "%y", "+z")
    ],
}

UNREAD = [
    "", " ", "\n", "#", "# a", "a $b", "a $(b)", "a `b`", 'a "$b"', 'a "`b`"', 'a "\\$b"', "a \\b",
    "a *", "a ?", "a [b]", "a {b,c}", "a ~", "a ~/b", "~/a", "(a)", "{ a; }", "a > b", "a >> b",
    "a < b", "a << b", "a <<< b", "a <(b)", "a >(b)", "a 3>&1", "a 2> b", "a >&b", "a;;b", "a |& b",
    "! a", "if a; then b; fi", "for a in b; do c; done", "while a; do b; done",
    "case a in b) c;; esac",
    "function a { b; }", "a() { b; }", "time a", "coproc a", "[[ a ]]", "select a in b; do c; done",
    "a=b", "a=b c", "a+=b c", "a\r", "a\0b", "a\x1b", "a 'b", 'a "b', "a=~ ", "é", "a é",
    "a\u00a0b",
    "'' a", "a!b", "x" * 10_001, "; ".join(["a"] * 51), " ".join(["a"] * 1001), "a>/dev/nullx",
    "a >/dev/null/x", "a 2>&12", "a=(b)",
]  # fmt: skip


@pytest.mark.parametrize("text", READ)
def test_a_plain_command_is_read(text: str) -> None:
    assert read_command(text) == tuple(READ[text])


@pytest.mark.parametrize("text", UNREAD)
def test_what_may_mean_more_than_it_says_is_not_read(text: str) -> None:
    assert isinstance(read_command(text), Unreadable)


@pytest.fixture(scope="module")
def show(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("show")
    program = folder / "show"
    # Notes its words, each with its length in bytes, so that no two lists look the same. In a file:
    # a command may redirect what it prints, and what the shell says of another.
    program.write_text(
        '#!/bin/bash\nfor word; do all+="${#word}:$word;"; done\n'
        'printf "%s\\1" "$all" >> "$NOTES"\n'
    )
    program.chmod(0o755)
    return folder


PIECES = st.sampled_from(
    [
        "show", "a", "b-c", "'d e'", '"f g"', "h", "=", "2", ";", "&&", "||", "|", "&", "\n", " ",
        "  ", "\t", ">/dev/null", "2>&1", "$x", "$(show y)", "`", "*", "{", "}", "(", ")", "!", "#",
        "~", "\\",
        "'", '"', "<", ">", "if", "then", "^", "[", "x=1", "é", "-", "@", "%", ":",
    ]
)  # fmt: skip


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@example(["&&", "show", "a", ">/dev/null"])
@example([";", "2>&1", " ", "show", "show"])
@given(st.lists(PIECES, min_size=1, max_size=8))
def test_what_is_read_is_what_a_shell_runs(show: Path, pieces: list[str]) -> None:
    text = "show " + "".join(pieces)
    read = read_command(text)
    if isinstance(read, Unreadable):
        return
    notes = show.with_name("notes")
    for shell in (["bash", "--noprofile", "--norc"], ["sh"]):
        notes.write_text("")
        subprocess.run(
            [*shell, "-c", f"{text}\nwait"],
            env={"PATH": f"{show}:/usr/bin:/bin", "LC_ALL": "C", "NOTES": str(notes)},
            cwd=show,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=20,
        )
        shown = {line for line in notes.read_bytes().decode().split("\1") if line}
        assert shown <= {spelled(words) for words in read if words[0] == "show"}


def spelled(words: Words) -> str:
    return "".join(f"{len(word.encode())}:{word};" for word in words[1:])


@pytest.mark.parametrize(
    ("words", "runs", "doubt"),
    [
        ("git status", "git status", "none"),
        ("timeout 5 git status", "git status", "none"),
        ("timeout -k 1 -s KILL 5 nice -n 3 git status", "git status", "none"),
        ("env git status", "git status", "none"),
        ("env A=1 git status", "env A=1 git status", "runs others"),
        ("env -S x", "env -S x", "runs others"),
        ("nice -5 git", "nice -5 git", "runs others"),
        ("xargs git", "xargs git", "runs others"),
        ("sudo git", "sudo git", "runs others"),
        ("find . -name a", "find . -name a", "none"),
        ("find . -exec a", "find . -exec a", "runs others"),
        ("git -c a=b log", "git -c a=b log", "runs others"),
        ("git bisect run a", "git bisect run a", "runs others"),
        ("python3.12 a.py", "python3.12 a.py", "opaque"),
        ("bash a.sh", "bash a.sh", "opaque"),
        ("bash -lc a", "bash -lc a", "opaque"),
        ("awk a", "awk a", "opaque"),
        ("/lib64/ld-linux.so.2 a", "/lib64/ld-linux.so.2 a", "runs others"),
    ],
)
def test_what_a_program_runs_is_told_with_the_doubt_about_it(
    words: str, runs: str, doubt: str
) -> None:
    (found,) = invocations_of(tuple(words.split()))
    assert (" ".join(found.words), found.doubt) == (runs, doubt)


def test_the_string_of_a_shell_is_read_and_so_are_strings_in_it() -> None:
    found = invocations_of(("sh", "-c", "a x; timeout 5 bash -c 'b y && c'"))
    assert [item.words for item in found] == [("a", "x"), ("b", "y"), ("c",)]
    assert [len(item.via) for item in found] == [1, 3, 3]
    deep: Words = ("a",)
    for _ in range(10):
        deep = ("nice", *deep)
    assert invocations_of(deep)[0].doubt == "runs others"
    assert json.dumps(found[0].words)


DIFFERENT = ("good ; ; evil x", "find . -exec good ; | evil", "| good", "good |", "- a=b", "a;&b")


@pytest.mark.parametrize("text", DIFFERENT)
def test_what_two_parsers_read_differently_is_not_read(text: str) -> None:
    assert isinstance(read_command(text), Unreadable)


def test_the_grammar_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    readable = [text for text in READ if "multi" not in text]
    with_it = [read_command(text) for text in readable]
    monkeypatch.setattr(shell_words, "_grammar", lambda: None)
    assert [read_command(text) for text in readable] == with_it
    # What both agree on does not depend on the grammar; what it alone refuses does.
    assert read_command("- a=b") == (("-", "a=b"),)


def test_a_fault_of_the_own_reader_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that takes a substitution for plain text would let it run; the grammar objects."""
    careless = re.compile(r"[A-Za-z0-9_@%+=:,./$()`&-]+")
    monkeypatch.setattr(shell_words, "_PLAIN", careless)
    for text in ("echo $(evil)", "echo `evil`", "echo a&evil", "good $x", "(evil)"):
        assert isinstance(read_command(text), Unreadable), text
        with monkeypatch.context() as without:
            without.setattr(shell_words, "_grammar", lambda: None)
            assert not isinstance(read_command(text), Unreadable), text
