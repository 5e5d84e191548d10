"""Runs commands in a shell under strace and tells which programs really ran."""

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

_STRING = r'"((?:[^"\\]|\\.)*)"'
_EXECUTED = re.compile(rf"execve\({_STRING}, \[(?P<words>(?:{_STRING}(?:\.\.\.)?(?:, )?)*)")
_DRIVER = (
    "while IFS= read -r -d '' command; do "
    'timeout -k 1 5 bash --noprofile --norc -c "$command" < /dev/null > /dev/null 2>&1; done'
)


_STRACE = ("strace", "-f", "-qq", "-s", "4096", "-e", "trace=execve")


class World:
    """A folder with programs that do nothing, and files for commands that need some."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir(parents=True)
        for name in ("evil", "good", "tool"):
            program = folder / "bin" / name
            program.write_text("#!/bin/true\n")
            program.chmod(0o755)
        files = {
            "name": "evil\n",
            "script": "#!/bin/sh\nevil x\n",
            "script.py": "import os\nos.system('evil x')\n",
            "script.mk": "x:\n\tevil x\n",
        }
        for name, text in files.items():
            (folder / name).write_text(text)
        (folder / "script").chmod(0o755)

    def run(self, commands: Iterable[str]) -> list[tuple[str, ...]]:
        """Run commands one after the other; returns every program that was started, with words."""
        trace = self.folder / "trace"
        given = "".join(f"{command}\0" for command in commands)
        environment = {
            "PATH": f"{self.folder}/bin:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.folder),
            "GIT_CEILING_DIRECTORIES": "/",
            "GIT_TERMINAL_PROMPT": "0",
        }
        subprocess.run(
            [*_STRACE, "-o", str(trace), "bash", "-c", _DRIVER],
            input=given.encode(),
            cwd=self.folder,
            env=environment,
            check=False,
        )
        return executed(trace.read_text(errors="replace"))


def executed(trace: str) -> list[tuple[str, ...]]:
    """Read the programs that were started from a trace; the first word is the file that ran."""
    # A call that another process interrupts is told in two lines.
    pending: dict[str, str] = {}
    lines = []
    for line in trace.splitlines():
        pid, _, rest = line.partition(" ")
        if rest.rstrip().endswith("<unfinished ...>"):
            pending[pid] = rest.rpartition("<unfinished ...>")[0]
        elif "resumed>" in rest:
            lines.append(pending.pop(pid, "") + rest.partition("resumed>")[2])
        else:
            lines.append(rest)
    found = []
    for line in lines:
        match = _EXECUTED.search(line)
        if match is not None and line.rstrip().endswith("= 0"):
            words = re.findall(_STRING, match["words"])
            found.append((match[1], *words[1:]))
    return found


def names_of(programs: Iterable[tuple[str, ...]]) -> set[str]:
    """Return the names of programs without their folders."""
    return {program[0].rpartition("/")[2] for program in programs}
