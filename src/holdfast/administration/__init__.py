"""Administration: what people and surfaces need beyond an agent.

So far the weights of local models, and where sessions are kept.
"""

import asyncio
from pathlib import Path

from holdfast.assembly import late
from holdfast.assembly.agent_inputs import ConfigurationSources
from holdfast.assembly.configuration import Configuration
from holdfast.vocabulary.local_models import LocalModel, OnPull


async def pull_model(
    name: str, *, folder: Path | None = None, progress: OnPull | None = None
) -> Path:
    """Fetch the weights of a local model, unless they are there, and return their path.

    `progress` is told size and place first, then how far it is.

    Raises:
        ConfigError: CONFIG_MISSING when they cannot be reached, with what to do.
        StoreError: CORRUPT when they are not what they should be, FULL when there is no room.

    """
    return await late.pull_model(name, folder=folder or model_folder(), progress=progress)


async def list_local_models(*, folder: Path | None = None) -> tuple[LocalModel, ...]:
    """List the local models that are known, and which of them are here."""
    return await asyncio.to_thread(late.list_local_models, folder or model_folder())


async def remove_local_model(name: str, *, folder: Path | None = None) -> int:
    """Remove the weights of a local model; returns how many bytes that frees."""
    where = folder or model_folder()
    return await asyncio.to_thread(late.remove_local_model, name, folder=where)


def model_folder() -> Path:
    """Return where weights are kept for this user."""
    return Configuration({}, ConfigurationSources()).model_folder


def data_folder() -> Path:
    """Return where sessions are kept for this user."""
    return Configuration({}, ConfigurationSources()).folders.data
