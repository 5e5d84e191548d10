"""The demo: a session that answers, is stopped, and goes on in another process, without any key."""

import shlex
import subprocess
import sys
from pathlib import Path
from typing import TextIO

from haptera.access.administration import data_folder, model_folder
from haptera.model.errors import AgentError
from haptera.model.events import TextDelta
from haptera.model.local_models import PullEvent, PullFinished, PullProgress, PullStarted
from haptera.model.vendors import LOCAL
from haptera.model.visible_text import visible
from haptera.sync import Agent, list_local_models, pull_model

DEMO_MODEL = "smollm2"
_FIRST_PROMPT = "What is the capital of France?"
_LAST_PROMPT = "And of Italy?"
"""Makes sense only to a model that sees the first prompt again."""

_INTRODUCTION = """\
Haptera demo: a real model on this machine, no key, no account.
The model is SmolLM2 with 135 million parameters: right for trying the plumbing, not for wisdom.
"""

_FAREWELL = """
The whole session is in one file: {store}
To talk to a better model, name it: Agent("anthropic/claude-sonnet-5") with ANTHROPIC_API_KEY set,
or Agent("local/qwen2.5-coder-1.5b") after pull_model("qwen2.5-coder-1.5b") (1.1 GB, calls tools).
"""
_IN_A_TERMINAL = """\
The same in a terminal:
  {command} -p "Name three colours."
  {command} --help
"""


class DemoOutput:
    """Where the demo speaks: plain lines, and progress only on a terminal."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._shown = -1

    def say(self, text: str, *, end: str = "\n") -> None:
        """Write text and show it at once; nothing that a model says can move the cursor."""
        self._out.write(visible(text) + end)
        self._out.flush()

    def show_pull(self, event: PullEvent) -> None:
        """Tell how far the download of the weights is."""
        match event:
            case PullStarted(size=size, path=path, licence=licence):
                self.say(f"Fetching {size / 1e6:.0f} MB of weights ({licence}) into {path}")
            case PullProgress(part=part, parts=parts, bytes=done, size=size):
                tenth = int(10 * done / max(1, size))
                if tenth != self._shown:
                    self._shown = tenth
                    self.say(f"  part {part} of {parts}, {done / 1e6:.0f} of {size / 1e6:.0f} MB")
            case PullFinished():
                self.say("  checked and ready")


def main(arguments: list[str]) -> int:
    """Run the demo, or the part of it that runs in a second process."""
    output = DemoOutput(sys.stdout)
    store = data_folder() / "demo.db"
    try:
        if arguments[:1] == ["--resume"]:
            _go_on(output, store, session_id=arguments[1])
            return 0
        session_id = _begin(output, store)
    except AgentError as error:
        sys.stderr.write(visible(f"{error.code}: {error.message}") + "\n")
        return 1
    output.say("\n3. Another process opens the same session and goes on.")
    # Without -P, modules of the working folder would be imported, which others may have written.
    command = [sys.executable, "-P", "-m", "haptera.demo", "--resume", session_id]
    failed = subprocess.run(command, check=False).returncode  # noqa: S603 - ourselves
    if not failed:
        output.say(_FAREWELL.format(store=store))
        if (shown := _command_line(store)) is not None:
            output.say(_IN_A_TERMINAL.format(command=shown))
    return failed


def _command_line(store: Path) -> str | None:
    """Return how to start the command line with the model of the demo; None without the command."""
    program = Path(sys.executable).with_name("haptera")
    if not program.exists():
        return None
    # Where HAPTERA_HOME keeps everything in one folder, another shell has to be told of it.
    home = store.parent.parent
    variable = (
        f"HAPTERA_HOME={shlex.quote(str(home))} " if model_folder().is_relative_to(home) else ""
    )
    return variable + shlex.quote(str(program))


def _begin(output: DemoOutput, store: Path) -> str:
    """Answer a prompt and stop another in a new session; returns its id."""
    output.say(_INTRODUCTION)
    if not any(model.name == DEMO_MODEL and model.is_present for model in list_local_models()):
        pull_model(DEMO_MODEL, progress=output.show_pull)
    with _agent(store) as agent, agent.session() as session:
        output.say("\n1. An answer is stopped; what came is kept.")
        output.say("   you: Tell me a long story about a lighthouse.\n   model: ", end="")
        stream = session.stream("Tell me a long story about a lighthouse.", on_abort="return")
        with stream:
            shown = 0
            for event in stream:
                if isinstance(event, TextDelta):
                    output.say(event.text, end="")
                    shown += 1
                    if shown == _ENOUGH:
                        session.abort("that is enough")
            outcome = stream.result()
        output.say(f"\n   [{outcome.stop_reason}] kept in the log: {outcome.text!r}")
        output.say(
            f"\n2. The session goes on, and the answer comes as a stream.\n   you: {_FIRST_PROMPT}"
        )
        output.say("   model: ", end="")
        with session.stream(_FIRST_PROMPT) as stream:
            for text in stream.text():
                output.say(text, end="")
            result = stream.result()
        output.say(f"\n   [{result.stop_reason}, {result.usage.output} tokens]")
        return str(session.session_id)


def _go_on(output: DemoOutput, store: Path, *, session_id: str) -> None:
    with _agent(store) as agent, agent.session(session_id, must_exist=True) as session:
        output.say(f"   found {len(session.messages)} messages of session {session.session_id}")
        output.say(f"   you: {_LAST_PROMPT}\n   model: ", end="")
        with session.stream(_LAST_PROMPT) as stream:
            for text in stream.text():
                output.say(text, end="")
        output.say("")


_ENOUGH = 12
"""Pieces of text after which the second answer is stopped."""


def _agent(store: Path) -> Agent:
    store.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return Agent(
        f"{LOCAL}/{DEMO_MODEL}",
        store=f"sqlite:{store}",
        project="demo",
        max_tokens=60,
        system_prompt="You are a helpful assistant. Be brief.",
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
