"""`holdfast config`: what is configured and where it comes from; `holdfast completion`."""

import click
import msgspec

from holdfast.administration.configured import describe_configuration
from holdfast.cli.shared import print_json, print_table
from holdfast.cli.terminal import Output


@click.group("config", help="Show the configuration and where it comes from.")
def command() -> None:
    """Show the configuration and where it comes from."""


@command.command()
@click.option("--origin", is_flag=True, help="Say where each value comes from.")
@click.option("--changed", is_flag=True, help="Leave out what is not set anywhere.")
@click.option("--format", "shown_as", type=click.Choice(("table", "json")), default="table")
def show(*, origin: bool, changed: bool, shown_as: str) -> None:
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
