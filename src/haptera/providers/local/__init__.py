"""Local models: small models on this machine's CPU, with their weights, process and client."""

from typing import TYPE_CHECKING

from haptera.model.late_names import late_names

if TYPE_CHECKING:
    from haptera.providers.local.weights import load_catalogue

__all__ = ["load_catalogue"]

if not TYPE_CHECKING:
    # Agents ask for the windows of models, and few of them for those of local ones.
    __getattr__ = late_names(__name__, {"load_catalogue": "haptera.providers.local.weights"})
