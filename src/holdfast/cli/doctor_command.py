"""`holdfast doctor`: what works on this machine, what does not, and how to mend it."""

import asyncio

import click

from holdfast.administration.doctor import examine
from holdfast.cli.outcomes import Exit
from holdfast.cli.shared import print_json
from holdfast.cli.terminal import Output, safe_line

_MARKS = {"ok": "ok     ", "note": "note   ", "problem": "PROBLEM"}


@click.command("doctor", help="Check this machine and say how to mend what is wrong.")
@click.option("--format", "shown_as", type=click.Choice(("text", "json")), default="text")
@click.pass_context
def command(context: click.Context, /, shown_as: str) -> None:
    """Look at keys, the store, the sandbox and local models. Contacts no provider."""
    findings = asyncio.run(examine())
    output = Output()
    if shown_as == "json":
        print_json(output, findings)
    else:
        for each in findings:
            output.line(f"{_MARKS[each.verdict]}  {each.subject}: {safe_line(each.found)}")
            if each.remedy:
                output.line(f"         → {each.remedy}")
    has_problem = any(each.verdict == "problem" for each in findings)
    context.exit(Exit.ERROR if has_problem else Exit.OK)
