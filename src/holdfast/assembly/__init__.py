"""The composition root: names concrete providers, stores and tools, and builds each block once.

What the rooms above use of it is here. An agent is built in two steps, `configure` and `compose`;
beside them are the functions for weights of local models. What each needs is imported when it is
called, because `import holdfast` loads this file.
"""

import asyncio
from typing import TYPE_CHECKING

from holdfast.assembly.components import Components, ConfigurationSources
from holdfast.vocabulary.json_types import JsonObject

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.assembly.composition import Composition
    from holdfast.assembly.configuration import Configuration
    from holdfast.vocabulary.local_models import LocalModel, OnPull


def configure(arguments: JsonObject, sources: ConfigurationSources) -> "Configuration":
    """Return what arguments, environment and the user's file come to."""
    from holdfast.assembly.configuration import Configuration  # noqa: PLC0415 - see above

    return Configuration(arguments, sources)


def compose(components: Components, configuration: "Configuration") -> "Composition":
    """Return the joined blocks of an agent."""
    from holdfast.assembly.composition import Composition  # noqa: PLC0415 - see above

    return Composition(components, configuration)


async def pull_model(
    name: str, *, folder: "Path | None" = None, progress: "OnPull | None" = None
) -> "Path":
    """Fetch the weights of a local model, unless they are there, and return their path.

    `progress` is told size and place first, then how far it is.

    Raises:
        ConfigError: CONFIG_MISSING when they cannot be reached, with what to do.
        StoreError: CORRUPT when they are not what they should be, FULL when there is no room.

    """
    from holdfast.providers.local import download  # noqa: PLC0415 - only if used

    return await download.pull_model(name, folder=folder or model_folder(), progress=progress)


async def list_local_models(*, folder: "Path | None" = None) -> "tuple[LocalModel, ...]":
    """List the local models that are known, and which of them are here."""
    from holdfast.providers.local import weights  # noqa: PLC0415 - only if used

    return await asyncio.to_thread(weights.list_local_models, folder or model_folder())


async def remove_local_model(name: str, *, folder: "Path | None" = None) -> int:
    """Remove the weights of a local model; returns how many bytes that frees."""
    from holdfast.providers.local import weights  # noqa: PLC0415 - only if used

    where = folder or model_folder()
    return await asyncio.to_thread(weights.remove_local_model, name, folder=where)


def model_folder() -> "Path":
    """Return where weights are kept for this user."""
    return configure({}, ConfigurationSources()).model_folder
