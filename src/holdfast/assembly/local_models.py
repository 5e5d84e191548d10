"""Weights of local models, with what fetches them imported when it is used."""

from pathlib import Path

from holdfast.vocabulary.local_models import LocalModel, OnPull


async def fetch(name: str, *, folder: Path, progress: OnPull | None) -> Path:
    """Fetch weights unless they are there."""
    from holdfast.providers.local.download import pull_model  # noqa: PLC0415 - only what is used

    return await pull_model(name, folder=folder, progress=progress)


def known(folder: Path) -> tuple[LocalModel, ...]:
    """List the models that are known."""
    from holdfast.providers.local.model_shelf import list_local_models  # noqa: PLC0415

    return list_local_models(folder)


def remove(name: str, folder: Path) -> int:
    """Remove weights."""
    from holdfast.providers.local.model_shelf import remove_local_model  # noqa: PLC0415

    return remove_local_model(name, folder=folder)
