"""Commands about this machine: `doctor`, `config`, `trust`, `completion` and `schema`."""

import asyncio

import click
import msgspec
from click.shell_completion import get_completion_class

from haptera.access.administration import distrust_project, project_file, trust_project
from haptera.access.configured import describe_configuration
from haptera.access.doctor import examine
from haptera.cli.outcomes import Exit
from haptera.cli.terminal import Output, confirm, print_json, print_table, safe_line
from haptera.model.schemas import stream_json_schema

_MARKS = {"ok": "ok     ", "note": "note   ", "problem": "PROBLEM"}
_SHELLS = ("bash", "zsh", "fish")


@click.command(help="Check this machine and say how to repair what is wrong.")
@click.option("--format", "shown_as", type=click.Choice(("text", "json")), default="text")
@click.pass_context
def doctor(context: click.Context, /, shown_as: str) -> None:
    """Look at keys, the store, the sandbox and local models. Contacts no provider."""
    findings = asyncio.run(examine())
    output = Output()
    if shown_as == "json":
        print_json(output, findings)
    else:
        for each in findings:
            output.line(f"{_MARKS[each.verdict]}  {each.subject}: {safe_line(each.found)}")
            if each.remedy:
                output.line(f"         → {safe_line(each.remedy)}")
    has_problem = any(each.verdict == "problem" for each in findings)
    context.exit(Exit.ERROR if has_problem else Exit.OK)


@click.group(help="Show the configuration and where it comes from.")
def config() -> None:
    """Show the configuration and where it comes from."""


@config.command("show")
@click.option("--origin", is_flag=True, help="Say where each value comes from.")
@click.option("--changed", is_flag=True, help="Leave out what is not set anywhere.")
@click.option("--format", "shown_as", type=click.Choice(("table", "json")), default="table")
def show_config(*, origin: bool, changed: bool, shown_as: str) -> None:
    """Show every setting that holds in this folder. No key is shown."""
    values = [each for each in describe_configuration() if not changed or each.origin != "default"]
    if shown_as == "json":
        print_json(Output(), values)
        return
    rows = [
        (each.name, *((each.origin,) if origin else ()), msgspec.json.encode(each.value).decode())
        for each in values
    ]
    headings = ("setting", *(("origin",) if origin else ()), "value")
    print_table(Output(), headings, rows)


@click.command(help="Trust the settings and rules of this project's file.")
@click.option("--undo", is_flag=True, help="Trust nothing in this project any more.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def trust(*, undo: bool, yes: bool) -> None:
    """Show the project's file, ask, and trust exactly this content until it changes."""
    output = Output()
    if undo:
        output.line(f"nothing here is trusted; {distrust_project()} approvals are taken back")
        return
    project = project_file()
    if project is None:
        raise click.UsageError("there is no .haptera/config.toml in this folder or above it")
    output.line(f"{safe_line(str(project.path))}:\n")
    output.line(project.content.decode(errors="replace"))
    confirm("Let these settings and rules count in this project?", yes=yes)
    trust_project(project.digest)
    output.line("trusted until the file changes; `haptera trust --undo` takes it back")


@click.command(help="Print what makes a shell complete commands and flags.")
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print a script: for bash, `eval "$(haptera completion bash)"` in ~/.bashrc."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}")
    root = click.get_current_context().find_root().command
    Output().write(kind(root, {}, "haptera", "_HAPTERA_COMPLETE").source() + "\n")


@click.command(help="Print the JSON Schema of a line of --output-format stream-json.")
def schema() -> None:
    """Print the schema that every line of the stream matches."""
    print_json(Output(), stream_json_schema())
