"""The first minute: no key, nothing fetched. Offers the local model instead of an error."""

import asyncio
import importlib.util

import click

from holdfast.administration import list_local_models
from holdfast.cli.choices import Choices, open_agent
from holdfast.cli.models_commands import fetch_model
from holdfast.cli.terminal import Output

_LOCAL = "local/"
_OTHER_WAYS = """\
Or use a provider: set a key such as ANTHROPIC_API_KEY or OPENAI_API_KEY, or run `holdfast login`.
`holdfast doctor` says what is found on this machine."""


def prepare_model(choices: Choices, output: Output) -> bool:
    """Make sure that the chosen model can answer; returns whether it can.

    Only a local model is looked at: its weights are offered when they are not here yet.
    """
    model = asyncio.run(_chosen_model(choices))
    name = model.removeprefix(_LOCAL)
    found = {each.name: each for each in asyncio.run(list_local_models())}
    if not model.startswith(_LOCAL) or name not in found or found[name].is_present:
        return True
    if choices.model is None:
        output.line("No key of a provider is found, so a model on this machine would answer.")
    if importlib.util.find_spec("xllamacpp") is None:
        output.line("Local models need one more package: pip install 'holdfast[local]'")
        output.line(_OTHER_WAYS)
        return False
    size = found[name].download_size / 1_000_000
    output.line(
        f"{found[name].title} ({found[name].good_for}) has to be fetched once: {size:.0f} MB."
    )
    output.line(_OTHER_WAYS)
    if not click.confirm("Fetch it now?", default=True):
        return False
    fetch_model(name, output)
    return True


async def _chosen_model(choices: Choices) -> str:
    async with open_agent(choices) as agent:
        return agent.settings.model
