"""`haptera models`: which models can be used here, and the weights of local ones."""

import asyncio
import importlib.util
import shutil
from pathlib import Path

import click

from haptera.access.administration import (
    key_advice,
    list_local_models,
    pull_model,
    remove_local_model,
)
from haptera.access.doctor import KnownModel, known_models
from haptera.cli.choices import Choices, open_agent
from haptera.cli.terminal import Output, confirm, print_json, print_table
from haptera.model.local_models import (
    LocalModel,
    PullEvent,
    PullFinished,
    PullProgress,
    PullStarted,
)
from haptera.model.vendors import LOCAL

_MEGABYTE = 1_000_000
_LOCAL = f"{LOCAL}/"


@click.group("models", help="List models, and fetch local ones.", invoke_without_command=True)
@click.pass_context
def command(context: click.Context, /) -> None:
    """List models, and fetch local ones."""
    if context.invoked_subcommand is None:
        context.invoke(list_models, search="", everything=False, shown_as="table")


@command.command("list")
@click.argument("search", default="")
@click.option("--all", "everything", is_flag=True, help="Those of providers without a key, too.")
@click.option("--format", "shown_as", type=click.Choice(("table", "json")), default="table")
def list_models(search: str, *, everything: bool, shown_as: str) -> None:
    """List the models that can be used with the keys that are found, and local ones."""
    local = asyncio.run(list_local_models())
    models = [
        each
        for each in known_models()
        if search.casefold() in each.name.casefold() and (everything or each.has_key)
    ]
    output = Output()
    if shown_as == "json":
        print_json(output, {"local": local, "models": models})
        return
    rows = [_local_row(each) for each in local if search.casefold() in each.name]
    print_table(output, ("model", "context", "note"), rows + [_row(each) for each in models])
    if not models and not everything:
        output.note("no key of a provider is found; --all lists all models, `haptera doctor` helps")


@command.command()
@click.argument("name")
def pull(name: str) -> None:
    """Fetch the weights of a local model; an interrupted download goes on where it was."""
    output = Output()
    path = fetch_model(name.removeprefix(_LOCAL), output)
    output.line(f"{path}\nuse it with: haptera -m {_LOCAL}{name.removeprefix(_LOCAL)}")


@command.command()
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def remove(name: str, *, yes: bool) -> None:
    """Remove the weights of a local model."""
    confirm(f"Remove the weights of {name!r}?", yes=yes)
    freed = asyncio.run(remove_local_model(name.removeprefix(_LOCAL)))
    Output().line(f"freed {freed / _MEGABYTE:.0f} MB")


def fetch_model(name: str, output: Output) -> Path:
    """Fetch the weights of a model and show how far it is; returns where they are."""
    progress = _Progress(output)
    path = asyncio.run(pull_model(name, progress=progress.show))
    progress.end()
    return path


def prepare_model(choices: Choices, output: Output) -> bool:
    """Make sure that the chosen model can answer; returns whether it can.

    Only a local model is looked at: its weights are offered when they are not here yet.
    """
    model = asyncio.run(_chosen_model(choices))
    name = model.removeprefix(_LOCAL)
    models = {each.name: each for each in asyncio.run(list_local_models())}
    if not model.startswith(_LOCAL) or name not in models or models[name].is_present:
        return True
    if choices.model is None:
        output.line("No key of a provider is found, so a model on this machine would answer.")
    # Before the question: without this package the weights would be fetched for nothing.
    if importlib.util.find_spec("xllamacpp") is None:
        output.line("Local models need one more package: pip install 'haptera[local]'")
        _name_other_ways(output)
        return False
    size = models[name].download_size / _MEGABYTE
    output.line(
        f"{models[name].title} ({models[name].good_for}) has to be fetched once: {size:.0f} MB."
    )
    _name_other_ways(output)
    if not click.confirm("Fetch it now?", default=True):
        return False
    fetch_model(name, output)
    return True


def _name_other_ways(output: Output) -> None:
    output.line(f"Or {key_advice()}, or run `haptera login`.")
    output.line("`haptera doctor` says what is found on this machine.")


async def _chosen_model(choices: Choices) -> str:
    async with open_agent(choices) as agent:
        return agent.settings.model


class _Progress:
    """A progress bar on a terminal, one line per tenth elsewhere."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._tenth = -1

    def show(self, event: PullEvent) -> None:
        match event:
            case PullStarted(size=size, path=path, licence=licence):
                message = f"fetching {size / _MEGABYTE:.0f} MB ({licence}) into {path}"
                self._output.line(message)
            case PullProgress(bytes=done, size=size):
                self._advance(done, max(1, size))
            case PullFinished():
                self._advance(1, 1)

    def end(self) -> None:
        if self._output.is_terminal and self._tenth >= 0:
            self._output.line()

    def _advance(self, done: int, size: int) -> None:
        if self._output.is_terminal:
            width = min(40, shutil.get_terminal_size().columns - 12)
            filled = int(width * done / size)
            bar = "█" * filled + "░" * (width - filled)
            self._output.redraw(f"{bar} {100 * done // size:3} %")
            self._tenth = 10
        elif (tenth := 10 * done // size) != self._tenth:
            self._tenth = tenth
            self._output.line(f"  {10 * tenth} %")


def _local_row(model: LocalModel) -> tuple[str, str, str]:
    state = "ready" if model.is_present else f"`haptera models pull {model.name}`"
    size = f"{model.download_size / _MEGABYTE:.0f} MB"
    return f"{_LOCAL}{model.name}", str(model.context), f"{state} ({size}; {model.good_for})"


def _row(model: KnownModel) -> tuple[str, str, str]:
    price = "price unknown" if model.price is None else f"${model.price} per million tokens"
    return (
        model.name,
        str(model.context_window or "?"),
        price + ("" if model.has_key else "; no key"),
    )
