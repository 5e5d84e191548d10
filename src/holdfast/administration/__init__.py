"""Administration: what people and surfaces need beyond an agent.

So far the weights of local models, and where sessions are kept. Functions of `assembly` are offered
under their own names: surfaces may not import that room.
"""

from pathlib import Path

from holdfast.assembly import (
    configure,
    list_local_models,
    model_folder,
    pull_model,
    remove_local_model,
)
from holdfast.assembly.components import ConfigurationSources

__all__ = [
    "data_folder",
    "list_local_models",
    "model_folder",
    "pull_model",
    "remove_local_model",
]


def data_folder() -> Path:
    """Return where sessions are kept for this user."""
    return configure({}, ConfigurationSources()).folders.data
