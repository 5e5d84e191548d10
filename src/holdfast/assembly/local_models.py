"""Local models: fetching, listing and removing weights in the user's cache.

What does it is imported when it is used.
"""

import asyncio
from pathlib import Path

from holdfast.assembly import configure
from holdfast.assembly.components import ConfigurationSources
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
    from holdfast.providers.local import download  # noqa: PLC0415 - only if used

    return await download.pull_model(name, folder=folder or model_folder(), progress=progress)


async def list_local_models(*, folder: Path | None = None) -> tuple[LocalModel, ...]:
    """List the local models that are known, and which of them are here."""
    from holdfast.providers.local import model_shelf  # noqa: PLC0415 - only if used

    return await asyncio.to_thread(model_shelf.list_local_models, folder or model_folder())


async def remove_local_model(name: str, *, folder: Path | None = None) -> int:
    """Remove the weights of a local model; returns how many bytes that frees."""
    from holdfast.providers.local import model_shelf  # noqa: PLC0415 - only if used

    where = folder or model_folder()
    return await asyncio.to_thread(model_shelf.remove_local_model, name, folder=where)


def model_folder() -> Path:
    """Return where weights are kept for this user."""
    return configure({}, ConfigurationSources()).model_folder
