"""Nothing that the rules deny ever runs: what they allow is run under strace and looked at."""

import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from haptera.kernel.blocks.permission_rules.decisions import PermissionQuestion, PermissionRules
from haptera.kernel.blocks.permission_rules.rules import parse_rule
from haptera.testing.store_conformance.crash_sweep import is_strace_here
from tests.fixtures_report import Report
from tests.kernel.blocks.permissions.bypasses import BYPASSES
from tests.kernel.blocks.permissions.traced_shell import World, names_of

needs_strace = pytest.mark.skipif(not is_strace_here(), reason="strace is not installed")

ALLOWANCES: dict[str, tuple[str, ...]] = {
    "everything": ("shell",),
    "any program": ("shell(* *)", "shell(*)"),
    "named programs": tuple(
        f"shell({name} *)"
        for name in (
            "good", "tool", "echo", "cat", "env", "timeout", "nice", "nohup", "setsid", "bash",
            "sh", "python3", "perl", "awk", "sed", "find", "xargs", "git", "tar", "make", "test",
            "printf", "cd", "cp", "ln", "mv", "command", "exec", "eval", "sudo", "sort", "true",
        )
    ),
    "a few": ("shell(good *)", "shell(echo *)", "shell(tool status *)", "shell(true)"),
}  # fmt: skip
DENIALS: dict[str, tuple[str, ...]] = {
    "a program": ("shell(evil *)",),
    "a program alone": ("shell(evil)",),
    "a program by its file": ("shell(/usr/bin/evil *)",),
    "part of a name": ("shell(ev* *)",),
    "a program with a word": ("shell(tool push *)", "shell(evil *)"),
}


class Sample(NamedTuple):
    """Rules and the commands that are put to them."""

    allowed: str
    denied: str
    rules: PermissionRules
    commands: list[str]


def rules_of(allowed: str, denied: str) -> PermissionRules:
    return PermissionRules(
        [
            *(parse_rule(text, "allow") for text in ALLOWANCES[allowed]),
            *(parse_rule(text, "deny") for text in DENIALS[denied]),
        ]
    )


def is_allowed(rules: PermissionRules, command: object) -> bool:
    question = PermissionQuestion(tool="shell", arguments={"command": command}, approval="ask")
    return rules.decide(question).action == "allow"


SIMPLE = (
    "good", "good a b", "echo hi", "echo 'a b' \"c d\"", "tool status", "tool push origin", "true",
    "evil", "evil x", "cat name", "tool --quiet push", "printf '%s' a", "cp name copy", "find .",
    "sort name", "git version", "python3 -V", "cd bin", "bin/good", "./bin/tool push", "env",
)  # fmt: skip
FORMS = (
    "{a}", "{a}; {b}", "{a} && {b}", "{a} || {b}", "{a} | {b}", "{a} & {b}", "{a}\n{b}", "({a})",
    "{{ {a}; }}", "echo $({a})", "echo `{a}`", "cat <({a})", "timeout 5 {a}", "env {a}", "nice {a}",
    "nohup {a}", "env A=1 {a}", "A=1 {a}", "sh -c '{a}'", "bash -c '{a}; {b}'", "command {a}",
    "exec {a}", "eval '{a}'", "echo x | xargs {a}", "find . -maxdepth 0 -exec {a} ;", "! {a}",
    "if {a}; then {b}; fi", "for i in 1; do {a}; done", "f() {{ {a}; }}; f", "{a} > /dev/null",
    "{a} 2>&1", "timeout 5 nice env {a}", "stdbuf -o0 {a}", "setsid -w {a}", "{a} # {b}",
    "{a} ; {b} ; {a}", "time {a}", "nice -n 1 sh -c 'timeout 5 {a}'", "echo '{a}' | sh",
    "python3 -c 'import os; os.system(\"{a}\")'", "cp bin/evil x && ./x; {a}", "echo {a}",
    "find . -name 'x' ; {a}", "git -c alias.x='!{a}' x", "tool {a}", "good {a}", "{a} < /dev/null",
)  # fmt: skip


def samples(count: int, seed: int) -> list[Sample]:
    """Make pairs of rules and commands, some hundred commands for each kind of rules."""
    chance = random.Random(seed)
    kinds = list(itertools.product(ALLOWANCES, DENIALS))
    made = []
    for allowed, denied in kinds:
        commands = []
        for _ in range(count // len(kinds)):
            command = chance.choice(SIMPLE)
            for _ in range(chance.randint(1, 3)):
                form, other = chance.choice(FORMS), chance.choice(SIMPLE)
                command = form.format(a=command, b=other)
            commands.append(command)
        made.append(Sample(allowed, denied, rules_of(allowed, denied), commands))
    return made


def denied_among(sample: Sample, ran: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return what ran and is denied; judged by what ran, not by the code under test."""
    found = [program for program in ran if program[0].rpartition("/")[2] == "evil"]
    if "a word" in sample.denied:
        found += [
            program
            for program in ran
            if program[0].rpartition("/")[2] == "tool" and "push" in program[1:]
        ]
    return found


def check(count: int, seed: int, folder: Path, report: Report) -> None:
    made = samples(count, seed)
    allowed_in_all = 0
    for number, sample in enumerate(made):
        allowed = [item for item in sample.commands if is_allowed(sample.rules, item)]
        allowed_in_all += len(allowed)
        ran = World(folder / str(number)).run(allowed)
        assert denied_among(sample, ran) == [], (sample.allowed, sample.denied, allowed)
    asked = sum(len(sample.commands) for sample in made)
    report(f"permission rules: {asked} pairs, {allowed_in_all} allowed and run, 0 denied ones ran")
    assert allowed_in_all > asked // 50, "rules that allow nothing show nothing"


@needs_strace
@pytest.mark.slow
def test_what_really_ran_was_never_denied(tmp_path: Path, report: Report) -> None:
    check(2_000, 1, tmp_path, report)


@needs_strace
@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 12))
def test_what_really_ran_was_never_denied_in_many_more(
    seed: int, tmp_path: Path, report: Report
) -> None:
    check(2_000, seed, tmp_path, report)


@pytest.mark.parametrize("allowed", ALLOWANCES)
@pytest.mark.parametrize("denied", ["a program", "part of a name"])
def test_no_known_bypass_is_allowed(allowed: str, denied: str) -> None:
    assert len(BYPASSES) >= 300
    rules = rules_of(allowed, denied)
    assert [command for command in BYPASSES if is_allowed(rules, command)] == []


def run_unjudged(commands: Sequence[str], folder: Path, report: Report) -> int:
    """Run commands whatever the rules say; returns how many run the denied program."""
    worlds = (World(folder / str(number)) for number in itertools.count())
    running = sum(
        "evil" in names_of(world.run([command]))
        for world, command in zip(worlds, commands, strict=False)
    )
    report(f"bypasses: {running} of {len(commands)} run the denied program without rules")
    return running


@needs_strace
@pytest.mark.slow
def test_known_bypasses_do_run_the_program_without_rules(tmp_path: Path, report: Report) -> None:
    assert run_unjudged(BYPASSES[::12], tmp_path, report) >= 25


@needs_strace
@pytest.mark.soak
def test_three_hundred_bypasses_run_the_program_without_rules(
    tmp_path: Path, report: Report
) -> None:
    assert run_unjudged(BYPASSES, tmp_path, report) >= 300


@needs_strace
def test_the_trace_tells_what_ran(tmp_path: Path) -> None:
    ran = World(tmp_path).run(["good 'a b' & evil x | cat; wait", "no-such-program"])
    assert {"good", "evil", "cat"} <= names_of(ran)
    assert "no-such-program" not in names_of(ran)
    assert any(program[1:] == ("a b",) for program in ran)
