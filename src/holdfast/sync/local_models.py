"""Local models, blocking: fetching, listing and removing weights."""

from pathlib import Path

from holdfast.administration import local_models
from holdfast.sync.portal import portal
from holdfast.vocabulary.local_models import LocalModel, OnPull


def pull_model(name: str, *, folder: Path | None = None, progress: OnPull | None = None) -> Path:
    """Fetch the weights of a local model, unless they are there, and return their path."""
    return portal.call(local_models.pull_model(name, folder=folder, progress=progress))


def list_local_models(*, folder: Path | None = None) -> tuple[LocalModel, ...]:
    """List the local models that are known, and which of them are here."""
    return portal.call(local_models.list_local_models(folder=folder))


def remove_local_model(name: str, *, folder: Path | None = None) -> int:
    """Remove the weights of a local model; returns how many bytes that frees."""
    return portal.call(local_models.remove_local_model(name, folder=folder))
