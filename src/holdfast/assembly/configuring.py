"""Configuring: reads configuration when an agent is made, not when the package is imported."""

from typing import TYPE_CHECKING

from holdfast.assembly.configuration_places import ConfigurationPlaces
from holdfast.vocabulary.json_types import JsonObject

if TYPE_CHECKING:
    from holdfast.assembly.configuration import Configuration


def configure(arguments: JsonObject, places: ConfigurationPlaces) -> "Configuration":
    """Return what arguments, environment and the user's file come to."""
    from holdfast.assembly.configuration import Configuration  # noqa: PLC0415 - see above

    return Configuration(arguments, places)
