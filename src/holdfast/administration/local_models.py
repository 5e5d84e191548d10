"""Local models: fetching, listing and removing weights in the user's cache."""

import asyncio
from pathlib import Path

from holdfast.assembly import local_models
from holdfast.assembly.configuration_places import ConfigurationPlaces
from holdfast.assembly.making import configure
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
    return await local_models.fetch(name, folder=folder or model_folder(), progress=progress)


async def list_local_models(*, folder: Path | None = None) -> tuple[LocalModel, ...]:
    """List the local models that are known, and which of them are here."""
    return await asyncio.to_thread(local_models.known, folder or model_folder())


async def remove_local_model(name: str, *, folder: Path | None = None) -> int:
    """Remove the weights of a local model; returns how many bytes that frees."""
    return await asyncio.to_thread(local_models.remove, name, folder or model_folder())


def model_folder() -> Path:
    """Return where weights are kept for this user."""
    return configure({}, ConfigurationPlaces()).model_folder


def data_folder() -> Path:
    """Return where sessions are kept for this user."""
    return configure({}, ConfigurationPlaces()).places.data
