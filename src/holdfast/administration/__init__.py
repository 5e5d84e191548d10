"""Administration: what people and surfaces need beyond an agent.

So far the weights of local models, and where sessions are kept. The functions of `assembly` are
offered under their own names, because a surface may not import that room.
"""

from pathlib import Path

from holdfast.assembly import configure
from holdfast.assembly.components import ConfigurationSources
from holdfast.assembly.local_models import (
    list_local_models,
    model_folder,
    pull_model,
    remove_local_model,
)

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
