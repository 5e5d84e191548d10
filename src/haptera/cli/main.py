"""The command `haptera`: what it is asked to do, and how failures become messages and exit codes.

Heavy parts (rich, prompt_toolkit, the commands themselves) are imported when they are needed, so
that `haptera --help` and a one-shot query start quickly.
"""

import asyncio
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import click

from haptera import AgentError, __version__
from haptera.cli.choices import Choices, with_flags
from haptera.cli.outcomes import Exit, exit_of
from haptera.cli.terminal import Output, discard_output
from haptera.model.late_names import on_first_use
from haptera.options.wording import meant_name

if TYPE_CHECKING:
    from haptera.cli import models_commands, one_shot, prompt_input
    from haptera.cli.chat import client
else:
    client = on_first_use("haptera.cli.chat.client")
    models_commands = on_first_use("haptera.cli.models_commands")
    one_shot = on_first_use("haptera.cli.one_shot")
    prompt_input = on_first_use("haptera.cli.prompt_input")

_MACHINE = "haptera.cli.machine_commands"
_LOGIN = "haptera.cli.login_commands"
_LATE = {
    "completion": (_MACHINE, "completion", "Print what makes a shell complete commands."),
    "config": (_MACHINE, "config", "Show the configuration and where it comes from."),
    "doctor": (_MACHINE, "doctor", "Check this machine and say how to repair what is wrong."),
    "import": (
        "haptera.cli.import_commands",
        "command",
        "Go on with sessions of Claude Code, Codex, opencode or pi.",
    ),
    "login": (_LOGIN, "login", "Store the key of a provider, or log in to it."),
    "logout": (_LOGIN, "logout", "Remove what `login` stored."),
    "mcp": ("haptera.cli.mcp_commands", "command", "List, add, remove and test MCP servers."),
    "models": ("haptera.cli.models_commands", "command", "List models, and fetch local ones."),
    "schema": (_MACHINE, "schema", "Print the JSON Schema of a line of stream-json."),
    "keys": ("haptera.server.command", "keys", "Manage the API keys of `haptera serve`."),
    "rpc": ("haptera.server.command", "rpc", "Answer JSON-RPC on standard input and output."),
    "serve": ("haptera.server.command", "serve", "Serve sessions over HTTP."),
    "sessions": (
        "haptera.cli.sessions_commands",
        "command",
        "List, show, search, change and export sessions.",
    ),
    "trust": (_MACHINE, "trust", "Trust the settings and rules of this project's file."),
}
"""Commands by the module that has them, with the line that `--help` shows: it loads none."""
_OF_EXTRAS = frozenset(("starlette", "uvicorn"))
_HELP = """Talk to language models in sessions that survive a stop, a crash and a restart.

\b
haptera                          chat in this folder
haptera -p "What is in here?"    print one answer
git diff | haptera -p "Review"   add text from a pipe
haptera -p "Explain @main.py"    attach a file
haptera -c                       continue the last session of this folder
"""


class _Commands(click.Group):
    """The commands; one that is not known is a prompt where it cannot be a mistyped command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_LATE})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _LATE:
            return super().get_command(ctx, cmd_name)
        module, name, _ = _LATE[cmd_name]
        try:
            command: click.Command = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            # Another module that is missing is a broken installation, which must not look like an
            # extra.
            if error.name not in _OF_EXTRAS:
                raise
            message = (
                f"`haptera {cmd_name}` needs the extra `server`: pip install 'haptera[server]'"
            )
            raise click.UsageError(message) from error
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, self._short_help(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        # No command has a space in its name: `haptera "what is this"` asks, `haptera sesions`
        # is a mistake.
        is_prompt = " " in name or ctx.params.get("prompt") is not None
        if self.get_command(ctx, name) is None and is_prompt:
            return "run", self.get_command(ctx, "run"), args
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            meant = meant_name(name, self.list_commands(ctx))
            ctx.fail(f"there is no command {name!r}{meant or '.'} A prompt goes after -p")
        return super().resolve_command(ctx, args)

    def _short_help(self, ctx: click.Context, name: str) -> str:
        if name in _LATE:
            return _LATE[name][2]
        command = super().get_command(ctx, name)
        return command.get_short_help_str(80) if command else ""


@click.group(
    cls=_Commands,
    help=_HELP,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "-p",
    "--print",
    "prompt",
    # `-p` may come with a value or without one: a prompt that is piped in needs none.
    is_flag=False,
    flag_value="",
    metavar="[PROMPT]",
    help="Answer one prompt, print the answer and exit.",
)
@with_flags
@click.version_option(__version__, "--version", message="haptera %(version)s")
@click.pass_context
def haptera(context: click.Context, /, prompt: str | None, **flags: object) -> None:
    """Answer one prompt, or chat where a person is at the terminal."""
    context.obj = Choices.taken_from(flags)
    if context.invoked_subcommand is not None:
        return
    if prompt is not None or not _has_person():
        context.exit(_one_shot(context.obj, prompt))
    context.exit(_chat(context.obj, None))


@haptera.command()
@click.argument("words", nargs=-1, metavar="[PROMPT]...")
@with_flags
@click.pass_context
def run(context: click.Context, /, words: tuple[str, ...], **flags: object) -> None:
    """Answer one prompt, print the answer and exit."""
    choices = Choices.taken_from(flags).over(context.obj)
    context.exit(_one_shot(choices, " ".join(words)))


@haptera.command()
@click.argument("words", nargs=-1, metavar="[PROMPT]...")
@with_flags
@click.pass_context
def chat(context: click.Context, /, words: tuple[str, ...], **flags: object) -> None:
    """Chat in this folder."""
    choices = Choices.taken_from(flags).over(context.obj)
    context.exit(_chat(choices, " ".join(words) or None))


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        # Not standalone: click would exit by itself, and errors of the library have exit codes of
        # their own.
        code = haptera.main(words, prog_name="haptera", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return int(error.exit_code)
    except click.Abort:
        return Exit.INTERRUPTED
    except AgentError as error:
        # In the arguments, because the error may come before click has parsed them.
        if "--debug" in words:
            raise
        Output().note(f"haptera: {error.code}: {error.message}")
        return exit_of(error)
    except OSError as error:
        # Standard output on a full disk, above all; files of ours raise errors of the library.
        if "--debug" in words:
            raise
        discard_output()
        Output().note(f"haptera: the output cannot be written: {error.strerror or error}")
        return Exit.ERROR
    return code if isinstance(code, int) else Exit.OK


def _one_shot(choices: Choices, words: str | None) -> int:
    choices.check()
    # None: the process was started without standard input.
    stdin = sys.stdin.buffer if sys.stdin is not None else None
    note = "haptera: waiting for standard input to end (</dev/null: send nothing from it)"
    prompt = prompt_input.read_prompt(words, piped=prompt_input.piped_text(stdin, note=note))
    output = Output()
    for path in prompt_input.missing_files(words or ""):
        output.note(f"haptera: there is no file {str(path)!r}; nothing is attached for it")
    return asyncio.run(one_shot.run_one_shot(choices, prompt, output))


def _chat(choices: Choices, first: str | None) -> int:
    choices.check()
    if not _has_person():
        raise click.UsageError("a chat needs a terminal; `haptera -p PROMPT` prints one answer")
    if not models_commands.prepare_model(choices, Output()):
        return Exit.USAGE
    return client.run_chat(choices, first)


def _has_person() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
